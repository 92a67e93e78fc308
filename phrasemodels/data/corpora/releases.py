"""Readers of bAbI, SNLI and SentEval as they were released.

SNLI comes as tokenised files without parses, or as the official jsonl files with both parses. The tasks of SentEval are
sentences with classes, and pairs of sentences.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator

from phrasemodels.data.corpora.bitext import read_lines
from phrasemodels.data.formats.lines import Line, bounded, lines
from phrasemodels.data.formats.shards import PAIRS, SENTENCES, STORIES, build, columns
from phrasemodels.data.formats.trees import alike, brackets, parse, plain, read_brackets, unescape

_NUMBERED = re.compile(r"([1-9][0-9]{0,5}) (.*)")


def read_babi(files: Mapping[str, Path], max_words: int, task: str = "") -> pa.Table:
    """Return STORIES with a row for each question. It holds all facts of the story before the question.

    A story is numbered lines, with questions among them:

        1 Mary went to the kitchen.
        2 Where is Mary?  TAB  kitchen  TAB  1
    """
    path = files["stories"]
    rows: list[tuple[object, ...]] = []
    facts: dict[int, str] = {}  # by their line numbers in the story
    story, last = -1, 0
    for number, text in lines(path):
        match = _NUMBERED.fullmatch(text.rstrip(" "))
        if not match or int(match[1]) not in (1, last + 1):
            raise ValueError(
                f"{path}, line {number}: {text[:40]!r} does not begin with {last + 1}, or with 1 for a new story"
            )
        last = int(match[1])
        if last == 1:
            story, facts = story + 1, {}
        question, tab, rest = bounded(match[2], str(path), number, max_words).partition("\t")
        if tab:
            answer, _, support = rest.partition("\t")
            places = _places(support, facts, f"{path}, line {number}")
            rows.append((task, story, list(facts.values()), list(facts), question.strip(), answer.strip(), places))
            if not question.strip() or not answer.strip():
                raise ValueError(f"{path}, line {number}: the question or the answer is empty")
        else:
            facts[last] = question.strip()
    names = ("task", "story", "facts", "lines", "question", "answer", "support")
    return build(STORIES, str(path), columns(names, rows), len(rows))


def _places(support: str, facts: dict[int, str], where: str) -> list[int]:
    """Return the positions of the supporting facts among the facts, from their line numbers."""
    places = {str(line): place for place, line in enumerate(facts)}
    wrong = [line for line in support.split() if line not in places]
    if wrong:
        raise ValueError(f"{where}: the answer rests on line {wrong[0]}, which is no fact before the question")
    return [places[line] for line in support.split()]


LABELS = ("entailment", "neutral", "contradiction")
UNDECIDED = "the annotators did not agree"
FIELDS = ("gold_label", *(f"sentence{n}{kind}" for n in (1, 2) for kind in ("", "_parse", "_binary_parse")))
PARTS = (
    *(f"{role}{kind}" for role in ("premise", "hypothesis") for kind in ("", "_tree", "_binary")),
    "label",
    "reason",
)


def read_snli(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return PAIRS of three files line by line: premise, hypothesis, label."""
    premises, hypotheses, labels = (
        list(read_lines(files[role], max_words)) for role in ("premise", "hypothesis", "label")
    )
    if not len(premises) == len(hypotheses) == len(labels):
        raise ValueError(
            f"{files['premise']}, {files['hypothesis']} and {files['label']} have {len(premises)}, {len(hypotheses)} "
            f"and {len(labels)} lines: line N of all must belong together"
        )
    for number, label in enumerate(labels, 1):
        _known(label, files["label"], number)
    found = {"premise": premises, "hypothesis": hypotheses, "label": labels, "family": families(premises)}
    return build(PAIRS, str(files["premise"]), found, len(premises))


def read_snli_official(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return PAIRS of a jsonl file. The words are the leaves of the binary parses.

    Pairs without a gold label or with a broken or different parse become rows with a reason.
    """
    path = files["jsonl"]
    rows = [_pair(line, path, max_words) for line in lines(path) if line.text.strip()]
    found: dict[str, Any] = {name: [row[name] for row in rows] for name in PARTS}
    found["family"] = families(found["premise"])
    return build(PAIRS, str(path), found, len(rows))


def families(premises: Iterable[str]) -> list[int]:
    """Return the number of each pair's premise. Pairs with the same premise have the same number."""
    seen: dict[str, int] = {}
    return [seen.setdefault(premise, len(seen)) for premise in premises]


def _known(label: str, path: Path, number: int) -> str:
    if label not in LABELS:
        raise ValueError(f"{path}, line {number}: label {label!r} is not one of {', '.join(LABELS)}")
    return label


def _pair(line: Line, path: Path, max_words: int) -> dict[str, str]:
    try:
        record = json.loads(line.text)
        fields = {name: record[name] for name in FIELDS}
        if not all(isinstance(value, str) for value in fields.values()):
            raise TypeError("a field is not a string")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path}, line {line.number}: not a pair of SNLI ({error!r}); download the file again"
        ) from error
    undecided = fields["gold_label"] == "-"
    label = "" if undecided else _known(fields["gold_label"], path, line.number)
    reasons = [UNDECIDED] if undecided else []
    pair = {"label": label}
    for role, name in (("premise", "sentence1"), ("hypothesis", "sentence2")):
        binary, tree = fields[f"{name}_binary_parse"], fields[f"{name}_parse"]
        words = [unescape(word) for word in binary.split() if word not in ("(", ")")]
        text = bounded(" ".join(words) or fields[name].strip(), str(path), line.number, max_words)
        pair |= {role: text, f"{role}_binary": binary.strip(), f"{role}_tree": _tree(tree, words)}
        if not words or not pair[f"{role}_tree"]:
            reasons.append(f"no parse of the {role}")
    return pair | {"reason": "; ".join(reasons)}


def _tree(text: str, words: list[str]) -> str:
    """Return brackets in the form of `brackets`, or an empty string if they are broken or have other words."""
    try:
        tree = plain(parse(text))
    except ValueError:
        return ""
    same = len(tree.tokens) == len(words) and all(map(alike, tree.tokens, words))
    return brackets(tree._replace(tokens=tuple(words))) if same else ""


def _codec(encoding: str) -> str:
    try:
        with contextlib.suppress(UnicodeDecodeError):  # raised by encodings that exist, such as utf-16
            b"x".decode(encoding)
    except LookupError as error:
        raise ValueError(str(error)) from error
    return encoding


Encoding = Annotated[str, AfterValidator(_codec)]
EMPTY = "empty"
POLARITY = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}
SICK = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")


def read_classes(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return SENTENCES of one file a class, a sentence a line. The label is the role of the file.

    Empty lines of some corpora become rows with a reason.
    """
    texts: list[str] = []
    labels: list[str] = []
    for label, path in files.items():
        for number, text in lines(path):
            texts.append(bounded(text.strip(), str(path), number, max_words))
            labels.append(label)
    found = {"text": texts, "label": labels, "reason": ["" if text else EMPTY for text in texts]}
    return build(SENTENCES, str(next(iter(files.values()))), found, len(texts))


def read_trec(files: Mapping[str, Path], max_words: int, encoding: Encoding = "utf-8") -> pa.Table:
    """Return SENTENCES of lines `COARSE:fine question`: the coarse class is the label, the fine class the group."""
    path = files["questions"]
    rows = []
    for number, text in lines(path, encoding):
        classes, _, question = text.strip().partition(" ")
        coarse, colon, fine = classes.partition(":")
        if not (colon and coarse and fine and question.strip()):
            raise ValueError(f"{path}, line {number}: {text[:40]!r} is not 'COARSE:fine question'")
        rows.append((coarse, fine, bounded(question.strip(), str(path), number, max_words)))
    return build(SENTENCES, str(path), columns(("label", "group", "text"), rows), len(rows))


def read_sentiment(files: Mapping[str, Path], max_words: int, binary: bool = False) -> pa.Table:
    """Return SENTENCES of sentiment trees. The label is the root's class, 0 to 4.

    binary: the label is the polarity, and neutral sentences are left out.
    """
    path = files["trees"]
    rows = []
    for row, (number, tree) in enumerate(read_brackets(lines(path), str(path))):
        label = tree.spans[0].label if tree.spans else tree.tags[0]
        if label not in ("0", "1", "2", "3", "4"):
            raise ValueError(f"{path}, line {number}: class {label!r} is not one of 0 to 4")
        if not binary or label in POLARITY:
            text = bounded(" ".join(tree.tokens), str(path), number, max_words)
            rows.append((row, POLARITY[label] if binary else label, text, brackets(tree)))
    return build(SENTENCES, str(path), columns(("id", "label", "text", "tree"), rows), len(rows))


def read_polarity(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return SENTENCES of lines `text TAB 0 or 1`, SST-2 as SentEval reads it: of train also phrases. The label is the polarity."""
    path = files["sentences"]
    labels = {"0": "negative", "1": "positive"}
    rows = []
    for number, (text, label) in _fields(path, 2, max_words):
        if label not in labels:
            raise ValueError(f"{path}, line {number}: polarity {label[:20]!r} is neither 0 nor 1")
        rows.append((text, labels[label]))
    return build(SENTENCES, str(path), columns(("text", "label"), rows), len(rows))


def read_sick(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return PAIRS with the label of SICK-E and the score (1 to 5) of SICK-R."""
    path = files["pairs"]
    rows = [
        (fields[1], fields[2], _score(fields[3], path, number), fields[4].lower())
        for number, fields in _table(path, SICK, max_words)
    ]
    return _pairs(path, ("premise", "hypothesis", "score", "label"), rows)


def read_similarity(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return PAIRS with scores from 0 to 5, of lines `score TAB sentence TAB sentence`. The group is the role of the file."""
    rows = []
    for group, path in files.items():
        for number, fields in _fields(path, 3, max_words):
            rows.append((fields[1], fields[2], _score(fields[0], path, number), group))
    return _pairs(next(iter(files.values())), ("premise", "hypothesis", "score", "group"), rows)


def read_paraphrases(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return PAIRS with the label `paraphrase` or `other`, of all files in order."""
    labels = {"1": "paraphrase", "0": "other"}
    rows = []
    for path in files.values():
        for number, fields in _table(path, MRPC, max_words):
            if fields[0] not in labels:
                raise ValueError(f"{path}, line {number}: quality {fields[0]!r} is neither 0 nor 1")
            rows.append((fields[3], fields[4], labels[fields[0]]))
    return _pairs(next(iter(files.values())), ("premise", "hypothesis", "label"), rows)


def _pairs(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return PAIRS of rows with these columns. The first is the premise."""
    found = columns(names, rows) | {"family": families(row[0] for row in rows)}
    return build(PAIRS, str(path), found, len(rows))


def _table(path: Path, header: tuple[str, ...], max_words: int) -> Iterator[tuple[int, list[str]]]:
    """Return the rows of a table of tab-separated columns. ValueError: its first line is not this header."""
    rows = _fields(path, len(header), max_words)
    number, first = next(rows, (1, []))
    if tuple(first) != header:
        raise ValueError(f"{path}, line {number}: the columns are {first}, not {list(header)}")
    return rows


def _fields(path: Path, count: int, max_words: int) -> Iterator[tuple[int, list[str]]]:
    for number, text in lines(path):
        fields = [bounded(field.strip(), str(path), number, max_words) for field in text.split("\t")]
        if len(fields) != count or not all(fields):
            raise ValueError(
                f"{path}, line {number}: {len(fields)} tab-separated fields; expected {count}, none of them empty"
            )
        yield number, fields


def _score(text: str, path: Path, number: int) -> float:
    try:
        score = float(text)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {text!r} is not a number") from error
    if not 0 <= score <= 5:
        raise ValueError(f"{path}, line {number}: a score of {text}; expected 0 to 5")
    return score
