"""English text as words with their places, as treebanks divide it, and as sentences."""

import itertools
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Word(NamedTuple):
    """A word of a text: its form, and its characters [start, end).

    joined: it is of the same token as the word before (don't: do n't; du: de le).
    """

    form: str
    start: int
    end: int
    joined: bool = False


Sentences = Callable[[str], list[list[Word]]]  # a text -> the words of each sentence

# Marks of a character before them: variation selectors, skin tones, keycaps, joined emoji, combining accents.
_MARKS = r"[\u0300-\u036F\u20D0-\u20FF\uFE00-\uFE0F\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]"
# No words of their own, and no part of a form: zero-width spaces, soft hyphens, marks of direction and of byte order.
INVISIBLE = (
    "\u00ad\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
_WORD = r"\w[\w\u0300-\u036F]*"  # an accent may follow its letter
# Marks that a treebank may lack, and the ones that it then has in their place.
_PLAIN = {"‘’ʼ‹›": "'", "“”„«»": '"', "‐‑–—−": "-", "\u00a0\u2009\u202f": " "}
INSIDE = re.compile("[\u00ad\u2060]")  # soft hyphens and word joiners, which end no word
# White space as it is read: " ", a line's end "\n", or a paragraph's end "\n\n". The `>` of quoted mail belongs to its line's end.
_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028"
_QUOTED = rf"(?:(?<=[{_BREAKS}])|\A(?![> \t]*\d))[ \t]*(?:>[ \t]?)+(?=[\s\w\"'“‘(\[*#-]|\Z)"
# HTML: what a browser shows on a line of its own, and what it shows within a word. Attributes have values, as in <a href="x">.
_LINE = (
    "p|div|h[1-6]|[uod]l|li|d[td]|t[rdh]|(?:t?body|thead|tfoot)|table|caption|blockquote|pre|hr|center|html|head|header|footer|title|"
    "section|article|aside|main|nav|figure|figcaption|details|summary|form|fieldset|legend|address|option|iframe"
)
_WITHIN = (
    "a|abbr|b|bdi|bdo|big|cite|code|del|dfn|em|font|i|ins|kbd|mark|q|ruby|r[tp]|s|samp|small|span|strike|strong|sub|sup|time|tt|u|var|"
    "wbr|img|picture|svg|path|video|audio|source|label|button|input|select|textarea|link|meta|base|col|colgroup|o:p"
)
_CODE = r"<(?i:script|style)\b[^<>]*+>(?:[^<]++|<(?!/?(?i:script|style)\b))*+</(?i:script|style)\s*+>|<!(?i:doctype)\b[^<>]*+>"
_ATTRIBUTES = r"""(?:\s++[\w:-]++\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>=]++))*+\s*+/?>"""
_TAG = rf"</?(?:(?P<br>(?i:br))|(?P<line>(?i:{_LINE}))|(?i:{_WITHIN}))\b{_ATTRIBUTES}|{_CODE}|<!--(?:[^<>-]|-(?!->))*+-->"
_GAP = re.compile(rf"(?:{_QUOTED}|[\s{INVISIBLE}]|{_TAG})+")
_BREAK = re.compile(rf"\f?(?:\r*\n|[{_BREAKS}])\f?")
_UNUSUAL = re.compile(rf"[^\S \n]|[{INVISIBLE}]|\s\s|^[>\s]|\n>|\s\Z|<[!/a-zA-Z]")  # what a text with plain gaps lacks
_PIECE = re.compile(
    rf"""
    https?://\S+[^\s.,;:!?)\]'"] | (?<![^\s(<\["“,;])\w[^\s@,;<>()"“\[]*@[^\s@,;<>()"“\[]+\.\w+    # addresses; neither tries twice
  | (?<![^\s(\["“])(?:[:;=]['’]?-?[)(DPp/\\|*]+|[:;=]-?[\]\[oO3]|<3+|\^_+\^)(?![^\s.,;:!?)\]"”])    # :-) ;) :'( :D <3
  | -[LR][RSC]B-                                                      # brackets, as treebanks write them
  | (?:[A-Za-z]\.){{2,}}                                                # U.S., e.g.
  | (?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|Inc|Ltd|Co|Corp|Fig)\.(?=\s|$|,) | [Nn]o\.(?=\s*\d)
  | \d+(?:-\d+){{2,}}\b                                                 # 2026-11-24
  | \d++(?:[.,:/]\d++)*+(?:st|nd|rd|th|s)?+\b(?!-[A-Za-z])             # 1,000.5 10:30 1st 1990s
  | \d+(?:[.,:/]\d+)+(?=[A-Za-z])                                     # the number of 1.5kg, 10:30am
  | (?:\d+(?:,\d+)+-)?{_WORD}(?:[-'’.&/]{_WORD})*                       # words, with what stands inside of them: 1,000-mile
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
_IN_A_ROW = 8  # quotes and brackets that are looked through, so that the time stays linear
_OPENING = frozenset("\"'“‘([{«`") | {"``", "-LRB-", "-LSB-", "-LCB-"}
# Words with a full stop that rarely end a sentence: titles and the like before names, numbers and lists.
_BEFORE_MORE = frozenset(
    "mr. mrs. ms. dr. prof. st. vs. fig. e.g. i.e. gen. sen. rep. gov. capt. lt. col. sgt. rev. hon. jan. feb. aug. "
    "sept. oct. nov. dec. vol. pp. p. cf. ca. approx. dept. univ. mt. ft. al.".split()
)
_ACRONYM = re.compile(r"(?:[A-Za-z]\.){2,}")
_BEGINNINGS = frozenset(
    "A An And As At But He How I If In It Its My No On She So That The Then There These They This We What When Who You".split()
)


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


def universal(found: Sequence[Word]) -> list[Word]:
    """Return words as English treebanks of Universal Dependencies divide them: hyphens apart (well - known), initials with
    their full stop (K.), marks in a row as one (?!)."""
    made: list[Word] = []
    for word in found:
        before = made[-1] if made else None
        if before and before.end == word.start and _one_word(before.form, word.form):
            made[-1] = Word(before.form + word.form, before.start, word.end)
        elif _HYPHENATED.fullmatch(word.form) and not _WHOLE_WITH_HYPHEN.match(word.form):
            made += [Word(m[0], word.start + m.start(), word.start + m.end()) for m in _BETWEEN.finditer(word.form)]
        else:
            made.append(word)
    return made


_HYPHENATED = re.compile(r"[^\W_]+(?:['’.,&][^\W_]+)*(?:[-/][^\W_]+(?:['’.&][^\W_]+)*)+")
_WHOLE_WITH_HYPHEN = re.compile(
    r"(?i)(?:non|re|anti|pre|co|de|un|ex|semi|multi|e|x)-|\d+(?:[-/]\d+)+$"
)  # prefixes, numbers
_BETWEEN = re.compile(r"[-/]|[^-/]+")


def _one_word(one: str, other: str) -> bool:
    if other == ".":
        return len(one) == 1 and one.isupper() and one != "I"
    return one[-1] in "!?" and other in "!?"


def divided_texts(split: Sentences, texts: Sequence[str]) -> list[list[list[Word]]]:
    """Return the words of the sentences of each text, together if the function has a method `each`."""
    each = getattr(split, "each", None)
    return each(texts) if each else [split(text) for text in texts]


@dataclass(frozen=True)
class Undivided:
    """A function from a text to the words of `split` as one sentence; none without words."""

    split: Sentences

    def __call__(self, text: str) -> list[list[Word]]:
        return self.each([text])[0]

    def each(self, texts: Sequence[str]) -> list[list[list[Word]]]:
        """Return the words of each text, as one sentence."""
        found = ([word for own in one for word in own] for one in divided_texts(self.split, texts))
        return [[words] if words else [] for words in found]


def undivided(split: Sentences) -> Sentences:
    """Return a function from a text to the words of `split` as one sentence; none without words."""
    return Undivided(split)


def plain(known: Container[str]) -> dict[int, str]:
    """Return a table for `str.translate` from unknown typographic marks to known plain ones."""
    pairs = ((mark, one) for marks, one in _PLAIN.items() for mark in marks)
    return {ord(mark): one for mark, one in pairs if mark not in known and one in known}


def composed(text: str) -> tuple[str, Sequence[int]]:
    """Return a text with each letter and its accents as one character (NFC), and for each character of `text` its place there."""
    if unicodedata.is_normalized("NFC", text):
        return text, range(len(text))
    made, places, length = [], list[int](), 0
    for found in _LETTER.finditer(text):
        one = unicodedata.normalize("NFC", found[0])
        places += [length + min(k, len(one) - 1) for k in range(len(found[0]))]
        made.append(one)
        length += len(one)
    return "".join(made), places


_LETTER = re.compile(r"[\s\S][\u0300-\u036F\u1160-\u11FF]*")


def shown(text: str) -> tuple[str, Sequence[int]]:
    """Return a text with plain white space and without soft hyphens and tags of HTML, and each character's place in `text`.

    A run of white space becomes a blank, a line end or an empty line.
    """
    if not _UNUSUAL.search(text):
        return text, range(len(text))
    made, places, end = [], list[int](), 0
    for found in _GAP.finditer(text):
        gap = _meaning(found[0])
        made += [text[end : found.start()], gap]
        places += [*range(end, found.start()), *range(found.start(), found.start() + len(gap))]
        end = found.end()
    return "".join([*made, text[end:]]), [*places, *range(end, len(text))]


def without_tags(gap: str) -> str:
    """Return what is between two words without tags of HTML and what ends no word. A tag that ends a line becomes its end."""
    if "<" in gap:
        gap = re.sub(_TAG, lambda found: "\n" if found["br"] else "\n\n" if found["line"] else "", gap)
    return INSIDE.sub("", gap)


def _meaning(gap: str) -> str:
    gap = without_tags(gap)
    if not any(map(str.isspace, gap)):
        return gap
    return ("\n" * (2 if "\u2029" in gap else min(2, len(_BREAK.findall(gap))))) or " "


def paragraphs(shown: str) -> Iterator[tuple[int, str]]:
    """Yield the non-empty paragraphs of a text of `shown`, each with its first place."""
    start = 0
    for part in shown.split("\n\n"):
        if stripped := part.strip():
            yield start + len(part) - len(part.lstrip()), stripped
        start += len(part) + 2


def moved(found: Iterable[list[Word]], places: Sequence[int]) -> list[list[Word]]:
    """Return the words of a text of `shown` with their places in the text as it was given."""
    if isinstance(places, range):
        return list(found)
    return [[word._replace(start=places[word.start], end=places[word.end - 1] + 1) for word in one] for one in found]


def by_spaces(text: str) -> list[list[Word]]:
    """Return the words of one tokenised sentence: spaces and tabs divide them, a no-break space is part of its word."""
    found = [Word(m[0], m.start(), m.end()) for m in re.finditer(r"[^ \t\r\n]+", text) if m[0].strip()]
    return [found] if found else []


def universal_sentences(text: str) -> list[list[Word]]:
    """Return the sentences of English text, with words as in Universal Dependencies."""
    return sentences(text, universal)


def sentences(text: str, divide: Callable[[Sequence[Word]], list[Word]] = list) -> list[list[Word]]:
    """Return the words of each sentence of English text.

    A sentence ends at an empty line, or at a full stop, question or exclamation mark with its closing quotes and brackets, if
    the next word may begin a sentence.
    """
    visible, places = shown(text)
    parts = (_of_paragraph(divide(list(words(part, start)))) for start, part in paragraphs(visible))
    return moved(itertools.chain.from_iterable(parts), places)


def _of_paragraph(found: Sequence[Word]) -> Iterator[list[Word]]:
    begin = 0
    for place in range(1, len(found)):
        if _ends(found, place, begin):
            yield list(found[begin:place])
            begin = place
    if found:
        yield list(found[begin:])


def _ends(found: Sequence[Word], place: int, begin: int) -> bool:
    """Whether a sentence ends before the word at a place."""
    if found[place].start == found[place - 1].end:  # nothing between them
        return False
    last = place - 1
    while last > max(begin, place - 1 - _IN_A_ROW) and found[last].form in _CLOSING:
        last -= 1
    mark = found[last].form
    if not _STOP.search(mark) or not _may_begin(found, place, found[last].form):
        return False
    if mark != "." or last == begin:
        return mark.lower() not in _BEFORE_MORE and last > begin and not re.fullmatch("[A-HJ-Z][.]", mark)
    before = found[last - 1]
    if before.end != found[last].start:
        return True
    if len(before.form) == 1 and before.form.isalpha() and before.form.isupper() and before.form != "I":
        return False  # an initial
    if last - 1 == begin and (before.form.isdigit() or len(before.form) == 1):
        return False  # the number of an item
    return f"{before.form.lower()}." not in _BEFORE_MORE


def _may_begin(found: Sequence[Word], place: int, mark: str) -> bool:
    last = min(len(found) - 1, place + _IN_A_ROW)
    while place < last and found[place].form in _OPENING:
        place += 1
    form = found[place].form
    first = form[0]
    if _ACRONYM.fullmatch(mark):  # the U.S. Army, but: the U.S. The army
        return form in _BEGINNINGS
    if mark.endswith((".", "…")) and len(mark) > 1:  # an ellipsis or an abbreviation
        return first.isupper()
    return not first.islower() and first not in ",;:-–—)]}"


def spaced(found: Sequence[Word], text: str) -> list[bool]:
    """Return for each word of a sentence whether a space, or the end of the text, follows its token. A soft hyphen or <b> is no space."""
    first = found[0].start
    gaps = (text[one.end - first : other.start - first] for one, other in itertools.pairwise(found))
    return [bool(without_tags(gap)) and not other.joined for gap, other in zip(gaps, found[1:], strict=True)] + [True]
