"""English text as words with their places, as treebanks divide it, and as sentences."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


class Word(NamedTuple):
    """A word of a text: its form, and its characters [start, end)."""

    form: str
    start: int
    end: int


Sentences = Callable[[str], list[list[Word]]]  # a text -> the words of each sentence

# Marks of a character before them: variation selectors, skin tones, keycaps, joined emoji, combining accents.
_MARKS = r"[\u0300-\u036F\u20D0-\u20FF\uFE00-\uFE0F\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]"
# No words of their own, and no part of a form: zero-width spaces, soft hyphens, marks of direction and of byte order.
INVISIBLE = (
    "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
_PIECE = re.compile(
    rf"""
    https?://\S+[^\s.,;:!?)\]'"] | (?<!\S)\S[^\s@]*@\S+\.\w+          # addresses; written so, neither tries twice
  | -[LR][RSC]B-                                                      # brackets, as treebanks write them
  | (?:[A-Za-z]\.){{2,}}                                                # U.S., e.g.
  | (?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|Inc|Ltd|Co|Corp|Fig|No)\.(?=\s|$|,)
  | \d+(?:[.,:/]\d+)*(?:st|nd|rd|th|s)?\b                             # 1,000.5 10:30 1st 1990s
  | \w+(?:[-'’.&/]\w+)*                                               # words, with what stands inside of them
  | ['’]n['’] | ['’](?:\d+s?|s|re|ve|ll|d|m|tis|twas|em|cause|til)\b     # by themselves; else it is a quote
  | \.{{2,}} | -{{2,}} | `` | ''
  | [\U0001F1E6-\U0001F1FF]{{2}}                                        # flags
  | [^\s{INVISIBLE}]{_MARKS}*(?:\u200d[^\s]{_MARKS}*)*
    """,
    re.VERBOSE,
)
_CLITIC = re.compile(r"(?i)n['’]t|['’](?:s|re|ve|ll|d|m)")
_BACKWARDS = re.compile(r"(?i)(?:t['’]n|(?:s|er|ev|ll|d|m)['’])+")  # from the end no clitic is part of another
_WHOLE = {"cannot": 3, "gonna": 3, "wanna": 3, "gotta": 3}  # letters of the first of their two words

_STOP = re.compile(r"[.!?。！？…]+$")
_CLOSING = frozenset("\"'”’)]}»") | {"''", "-RRB-", "-RSB-", "-RCB-"}
_OPENING = frozenset("\"'“‘([{«`") | {"``", "-LRB-", "-LSB-", "-LCB-"}
# Words with a full stop that rarely end a sentence: titles and the like before names, numbers and lists.
_BEFORE_MORE = frozenset(
    "mr. mrs. ms. dr. prof. st. vs. fig. no. e.g. i.e. gen. sen. rep. gov. capt. lt. col. sgt. rev. hon. jan. feb. aug. "
    "sept. oct. nov. dec. vol. pp. p. cf. ca. approx. dept. univ. mt. ft. al.".split()
)
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")


def words(text: str, first: int = 0) -> Iterator[Word]:
    """Yield the words of English text as in treebanks: punctuation and clitics apart, numbers and abbreviations whole.

    first: the place of the text's first character. The time is linear in the length of the text.
    """
    for found in _PIECE.finditer(text):
        piece, start = found[0], first + found.start()
        for form in _parts(piece):
            yield Word(form, start, start + len(form))
            start += len(form)


def _parts(piece: str) -> list[str]:
    if cut := _WHOLE.get(piece.lower()):
        return [piece[:cut], piece[cut:]]
    if found := _BACKWARDS.match(piece[:0:-1]):
        word = len(piece) - found.end()
        return [piece[:word], *_CLITIC.findall(piece[word:])]
    return [piece]


def one_sentence(text: str) -> list[list[Word]]:
    """Return the words of a text as one sentence; none if it has no words."""
    found = list(words(text))
    return [found] if found else []


def by_spaces(text: str) -> list[list[Word]]:
    """Return the words of one tokenised sentence: spaces divide them."""
    found = [Word(m[0], m.start(), m.end()) for m in re.finditer(r"\S+", text)]
    return [found] if found else []


def sentences(text: str) -> list[list[Word]]:
    """Return the words of each sentence of English text. A sentence ends at an empty line, or at a full stop, question or
    exclamation mark, with the quotes and brackets that close after it, if what follows may begin a sentence."""
    made: list[list[Word]] = []
    first = 0
    for gap in [*_PARAGRAPH.finditer(text), None]:
        end = gap.start() if gap else len(text)
        made += _of_paragraph(list(words(text[first:end], first)), text)
        first = gap.end() if gap else end
    return made


def _of_paragraph(found: Sequence[Word], text: str) -> Iterator[list[Word]]:
    begin = 0
    for place in range(1, len(found)):
        if _ends(found, place, begin, text):
            yield list(found[begin:place])
            begin = place
    if found:
        yield list(found[begin:])


def _ends(found: Sequence[Word], place: int, begin: int, text: str) -> bool:
    """Whether a sentence ends before the word at a place."""
    if found[place].start == found[place - 1].end:  # nothing between them
        return False
    last = place - 1
    while last > begin and found[last].form in _CLOSING:
        last -= 1
    mark = found[last].form
    if not _STOP.search(mark) or not _may_begin(found, place, found[last].form):
        return False
    if mark != "." or last == begin:
        return mark.lower() not in _BEFORE_MORE and last > begin
    before = found[last - 1]
    if before.end != found[last].start:
        return True
    if len(before.form) == 1 and before.form.isalpha() and before.form.isupper() and before.form != "I":
        return False  # an initial
    if last - 1 == begin and (before.form.isdigit() or len(before.form) == 1):
        return False  # the number of an item
    return f"{before.form.lower()}." not in _BEFORE_MORE


def _may_begin(found: Sequence[Word], place: int, mark: str) -> bool:
    while place < len(found) - 1 and found[place].form in _OPENING:
        place += 1
    first = found[place].form[0]
    if mark.endswith((".", "…")) and len(mark) > 1:  # an ellipsis or an abbreviation
        return first.isupper()
    return not first.islower() and first not in ",;:-–—)]}"


def spaced(found: Sequence[Word]) -> list[bool]:
    """Return for each word whether a space, or the end of the text, follows it."""
    return [one.end != other.start for one, other in itertools.pairwise(found)] + [True] * bool(found)
