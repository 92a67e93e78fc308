"""Readers of SNLI: tokenised files without parses, and the official jsonl files with both parses."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from phrasemodels.data.corpora.bitext import read_lines
from phrasemodels.data.formats.lines import Line, bounded, lines
from phrasemodels.data.formats.shards import PAIRS, build
from phrasemodels.data.formats.trees import alike, brackets, parse, plain, unescape

LABELS = ("entailment", "neutral", "contradiction")
UNDECIDED = "the annotators did not agree"
FIELDS = ("gold_label", *(f"sentence{n}{kind}" for n in (1, 2) for kind in ("", "_parse", "_binary_parse")))
PARTS = (
    *(f"{role}{kind}" for role in ("premise", "hypothesis") for kind in ("", "_tree", "_binary")),
    "label",
    "reason",
)


def read_tokenised(files: Mapping[str, Path], max_words: int) -> pa.Table:
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


def read_official(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return PAIRS of a jsonl file. The words are the leaves of the binary parses.

    Pairs without a gold label, or with a broken or different parse, become rows with a reason.
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
