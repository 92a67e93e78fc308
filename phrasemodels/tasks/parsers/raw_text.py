"""The raw text of treebanks, and scores of parsers on it, as in the shared tasks of 2017 and 2018.

`# text` and the words of each sentence say where words, tokens, multiword tokens and sentences end.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phrasemodels.data.formats.conllu import FEATURES, HEAD, RELATION, UNIVERSAL, conllu_sentences
from phrasemodels.data.formats.lines import Line
from phrasemodels.parsing.parser import Parse, Parser
from phrasemodels.parsing.words import Word

TEXT = re.compile(r"#\s*text\s*=(.*)")  # a few treebanks write no space around the sign


@dataclass(frozen=True)
class Token:
    """A token in the text of its sentence: its characters [start, end), and its words. typo: a word is marked as a typing error."""

    start: int
    end: int
    words: tuple[str, ...]
    typo: bool = False


Analysis = tuple[str, int, str]


@dataclass(frozen=True)
class RawSentence:
    """A sentence as written. spaced: a space follows it. starts: a paragraph starts with it.

    analysis: universal tag, head and relation of each word.
    """

    text: str
    tokens: tuple[Token, ...]
    spaced: bool
    starts: bool
    analysis: tuple[Analysis, ...] = ()


def raw_sentences(lines: Iterable[Line]) -> Iterator[RawSentence | None]:
    """Yield the sentences of CoNLL-U; None if `# text` is missing or does not consist of the tokens."""
    for own in conllu_sentences(lines):
        comments = [line.text for line in own if line.text.startswith("#")]
        text = next((found[1].strip() for c in comments if (found := TEXT.match(c))), "")
        rows = [line.text.split("\t") for line in own if not line.text.startswith("#")]
        starts = any(f"{c} ".startswith(("# newpar ", "# newdoc ")) for c in comments)
        yield _aligned(text, [row for row in rows if "." not in row[0]], starts)


def _aligned(text: str, rows: Sequence[Sequence[str]], starts: bool) -> RawSentence | None:
    tokens, place, until, spaced = [], 0, 0, True
    for number, row in enumerate(rows):
        first, _, last = row[0].partition("-")
        if not last and int(first) <= until:
            continue
        inside = [row]
        if last:
            until = int(last)
            inside = [own for own in rows[number + 1 :] if "-" not in own[0] and int(own[0]) <= until]
        while text[place : place + 1].isspace():
            place += 1
        if not text.startswith(row[1], place):
            return None
        typo = any("Typo=Yes" in own[FEATURES].split("|") for own in inside)
        tokens.append(Token(place, place + len(row[1]), tuple(own[1] for own in inside), typo))
        place += len(row[1])
        spaced = "SpaceAfter=No" not in row[-1].split("|")
    if not tokens or place < len(text):
        return None
    analysis = tuple(
        (row[UNIVERSAL], int(row[HEAD]) if row[HEAD].isdecimal() else -1, row[RELATION])
        for row in rows
        if "-" not in row[0]
    )
    return RawSentence(text, tuple(tokens), spaced, starts, analysis)


def written(sentences: Sequence[RawSentence], between: str = " ") -> tuple[str, list[tuple[int, RawSentence]]]:
    """Return sentences as a text, and each with its first place."""
    text, placed = "", []
    for one in sentences:
        placed.append((len(text), one))
        text += one.text + (between if one.spaced or between == "\n" else "")
    return text.rstrip(), placed


DIVISION, ANALYSIS = ("sentences", "tokens", "words"), ("UPOS", "UAS", "LAS")
Found = tuple[Sequence[Word], Sequence[Analysis]]  # the words of a sentence, and the analysis of each or nothing


def f1(
    pairs: Iterable[tuple[Sequence[tuple[int, RawSentence]], Iterable[Found]]], kinds: Sequence[str] = DIVISION
) -> dict[str, float]:
    """Return F1 of (sentences with their places, found sentences), by the rules of the shared tasks of 2017 and 2018.

    Units are equal if their characters are. Words of multiword tokens also need equal forms, arcs the same head, and relations are
    without subtypes.
    """
    right, given, wanted = Counter[str](), Counter[str](), Counter[str]()
    for placed, found in pairs:
        gold = [
            ([Word(w, start + t.start, start + t.end, k > 0) for t in one.tokens for k, w in enumerate(t.words)], one)
            for start, one in placed
        ]
        own, other = _counted((words, one.analysis) for words, one in gold), _counted(found)
        for kind in kinds:
            right[kind] += len(own[kind] & other[kind])
            given[kind] += len(other[kind])
            wanted[kind] += len(own[kind])
    return {kind: 200 * right[kind] / max(1, given[kind] + wanted[kind]) for kind in kinds}


def _counted(sentences: Iterable[Found]) -> dict[str, set[Hashable]]:
    counted: dict[str, set[Hashable]] = {kind: set() for kind in (*DIVISION, *ANALYSIS)}
    for words, analysis in sentences:
        keys = _keys(words)
        counted["sentences"].add((words[0].start, words[-1].end))
        counted["tokens"].update(key[:2] for key in keys)
        counted["words"].update(keys)
        for key, (tag, head, relation) in zip(keys, analysis, strict=bool(analysis)):
            above = keys[head - 1] if head > 0 else None
            counted["UPOS"].add((key, tag))
            counted["UAS"].add((key, above))
            counted["LAS"].add((key, above, relation.partition(":")[0]))
    return counted


def _keys(words: Sequence[Word]) -> list[tuple[Hashable, ...]]:
    """Return the key of equal words: their characters; in multiword tokens the token's characters, place and form."""
    starts = [k for k, word in enumerate(words) if not word.joined]
    keys: list[tuple[Hashable, ...]] = []
    for first, after in pairwise([*starts, len(words)]):
        place = (words[first].start, words[after - 1].end)
        forms = [word.form.lower() for word in words[first:after]]
        keys += [(*place, k, form) for k, form in enumerate(forms)] if after - first > 1 else [place]
    return keys


def paragraphs(sentences: Iterable[RawSentence]) -> list[list[RawSentence]]:
    """Return the sentences of each paragraph. Without marks of paragraphs there is one."""
    made: list[list[RawSentence]] = []
    for one in sentences:
        if one.starts or not made:
            made.append([])
        made[-1].append(one)
    return made


def raw_scores(parser: Parser, sentences: Iterable[RawSentence]) -> dict[str, float]:
    """Return F1 of sentences, tokens, words, UPOS, UAS and LAS of a parser on the text of a treebank."""
    texts = [written(own) for own in paragraphs(sentences)]
    found = parser.parse([text for text, _ in texts])
    pairs = ((placed, map(_analysed, parses)) for (_, placed), parses in zip(texts, found, strict=True))
    return f1(pairs, (*DIVISION, *ANALYSIS))


def _analysed(parse: Parse) -> Found:
    universal = parse.universal or [""] * len(parse.tokens)
    return parse.words, list(zip(universal, parse.heads, parse.relations, strict=True))
