"""Readers of the SentEval tasks: sentences with classes, and pairs of sentences."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator

from phrasemodels.data.corpora.snli import families
from phrasemodels.data.formats.lines import bounded, lines
from phrasemodels.data.formats.shards import PAIRS, SENTENCES, build, columns
from phrasemodels.data.formats.trees import brackets, read_brackets


def _known(encoding: str) -> str:
    try:
        with contextlib.suppress(UnicodeDecodeError):  # raised by encodings that exist, such as utf-16
            b"x".decode(encoding)
    except LookupError as error:
        raise ValueError(str(error)) from error
    return encoding


Encoding = Annotated[str, AfterValidator(_known)]
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
