"""Running English to tokens as treebanks have them: punctuation and clitics apart, abbreviations and numbers whole."""

import re

_PIECE = re.compile(
    r"""
    https?://\S+[^\s.,;:!?)\]'"] | (?<!\S)\S[^\s@]*@\S+\.\w+          # addresses; written so, neither tries twice
  | (?:[A-Za-z]\.){2,}                                                # U.S., e.g.
  | (?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|Inc|Ltd|Co|Corp|Fig|No)\.(?=\s|$|,)
  | \d+(?:[.,:/]\d+)*(?:st|nd|rd|th|s)?\b                             # 1,000.5 10:30 1st 1990s
  | \w+(?:[-'’.&/]\w+)*                                               # words, with what stands inside of them
  | ['’]n['’] | ['’](?:\d+s?|s|re|ve|ll|d|m|tis|twas|em|cause|til)\b     # by themselves; else it is a quote
  | \.{2,} | -{2,} | `` | '' | \S
    """,
    re.VERBOSE,
)
_CLITIC = re.compile(r"(?i)n['’]t|['’](?:s|re|ve|ll|d|m)")
_BACKWARDS = re.compile(r"(?i)(?:t['’]n|(?:s|er|ev|ll|d|m)['’])+")  # from the end no clitic is part of another
_WHOLE = {"cannot": ("can", "not"), "gonna": ("gon", "na"), "wanna": ("wan", "na"), "gotta": ("got", "ta")}


def penn(text: str, language: str = "en") -> list[str]:
    """Tokens of a sentence; a full stop ends the last one unless it is all that an abbreviation has."""
    tokens: list[str] = []
    for piece in _PIECE.findall(text):
        parts = _WHOLE.get(piece.lower())
        if parts:
            tokens += [piece[: len(parts[0])], piece[len(parts[0]) :]]
        elif found := _BACKWARDS.match(piece[:0:-1]):
            word = len(piece) - found.end()
            tokens += [piece[:word], *_CLITIC.findall(piece[word:])]
        else:
            tokens.append(piece)
    return tokens
