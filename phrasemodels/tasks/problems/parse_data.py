"""Treebanks as numbers, and the objective of parsing: margins and cross entropies of joint trees; dev errors choose the weights.

Positions of a sentence are START, its words, STOP.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from safetensors.numpy import save_file
from torch import Tensor

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import GROUP, joint, parse, unescape
from phrasemodels.data.formats.trees import heads as rule_heads
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job
from phrasemodels.encoders.inputs import ParserInput, WordsConfig
from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.models.parser import (
    GROUP_LABEL,
    Decode,
    GoldTrees,
    Jointly,
    JointParser,
    ParsedTrees,
    ParserConfig,
    arcs_alone,
    phrases_alone,
)
from phrasemodels.parsing.ids import LETTERS, Divide, Ids, different_forms, no_pieces
from phrasemodels.parsing.saved import SIDES
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_words, write_words
from phrasemodels.tasks.problems.sentence_data import VECTORS, VectorFile
from phrasemodels.tasks.train.batches import Batch, ListExamples, Rows
from phrasemodels.tasks.train.trainer import Objective

ADVICE = (
    "give a corpus that has both brackets and dependencies, or train a row of the table `alone` of paper 004, `phrases`, "
    "`arcs` or `head-rules`, which need one of them"
)

_ids = pa.list_(pa.field("item", pa.int32(), nullable=False))


def _tuples(width: int) -> pa.DataType:
    return pa.list_(pa.field("item", pa.list_(pa.field("item", pa.int32(), nullable=False), width), nullable=False))


# N = n + 2 positions: words (N), characters (N, LETTERS), tags (N), pieces, last (N); cells (m, 3) are (i, j, label) of
# words i to j, both included; heads and relations (n), empty if the corpus has none
_IDS = dict.fromkeys(("words", "tags", "pieces", "last", "heads", "relations"), _ids)
NUMBERS = required(id=pa.int64(), **_IDS, characters=_tuples(LETTERS), cells=_tuples(3))


@dataclass(frozen=True)
class TreebankVocabulary:
    """The known words, in lower case, characters, labels and tags of a treebank.

    Args:
        min_count: Words and characters with fewer occurrences are unknown.
        min_label: Labels with fewer occurrences are never predicted, and their spans are not learned.
        tags: The column of tags.
        vectors: A file of fixed word vectors.
        most: Number of first words of the file that are known even if the treebank lacks them.
    """

    min_count: int = 2
    min_label: int = 1
    tags: str = "tags"
    vectors: VectorFile | None = None
    most: int = 20_000

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count", "min_label")
        at_least(self, 0, "most")


def treebank_vocabulary(job: Job, settings: TreebankVocabulary) -> dict[str, Any]:
    """Write a vocabulary for each side of the TREES job.inputs["rows"]: words, characters, tags, labels, relations.

    Labels begin with the empty one and `<H>`. Relations have no special entries. The others begin with SPECIAL. A file of word
    vectors also gives vectors.safetensors, a row for each word; a word outside of the file has zeros.
    """
    found: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    table = read_shards(job.inputs["rows"])
    for row in table.select(["tokens", settings.tags, "tree", "heads", "relations"]).to_pylist():
        forms = [unescape(token) for token in row["tokens"]]  # as Ids looks them up
        found["words"].update(form.lower() for form in forms)
        found["characters"].update(character for form in forms for character in form)
        found["tags"].update(row[settings.tags])
        found["relations"].update(row["relations"])
        if row["tree"]:
            found["labels"].update(span.label for span in joint(parse(row["tree"]), row["heads"]))
    first: dict[str, tuple[str, ...]] = {"labels": ("", GROUP), "relations": ()}
    kept = dict.fromkeys(SIDES, 1) | dict.fromkeys(("words", "characters"), settings.min_count)
    kept["labels"] = settings.min_label
    entries = {side: by_frequency(counts, kept[side], first.get(side, SPECIAL)) for side, counts in found.items()}
    learned, width = len(entries["words"]), 0
    if settings.vectors:
        folders, width = job.executor.sources.mirrors, settings.vectors.d
        vectors = dict(settings.vectors.read(set(entries["words"]), folders, settings.most))
        if not vectors:
            raise ValueError(f"{settings.vectors.name}: no vector of a word; get the file again")
        others = vectors.keys() - set(entries["words"])  # in lower case, as Ids looks them up, and on one line
        entries["words"] += sorted(word for word in others if [word.lower()] == word.splitlines())
        none = np.zeros(width, np.float32)
        save_file({"vectors": np.stack([vectors.get(word, none) for word in entries["words"]])}, job.out / VECTORS)
    sizes = {side: write_words(job.out, side, own) for side, own in entries.items()}
    return {"sizes": sizes, "learned": learned, "vectors": width}


Keep = Callable[[Mapping[str, Any]], bool]
"""Whether a row of TREES is learned from. The docstring of such a function says what its sentences have."""


def complete(row: Mapping[str, Any]) -> bool:
    """a tree and heads"""
    return bool(row["tree"] and row["heads"])


def with_tree(row: Mapping[str, Any]) -> bool:
    """a tree"""
    return bool(row["tree"])


def with_heads(row: Mapping[str, Any]) -> bool:
    """heads"""
    return bool(row["heads"])


def with_either(row: Mapping[str, Any]) -> bool:
    """a tree or heads"""
    return bool(row["tree"] or row["heads"])


def every_row(row: Mapping[str, Any]) -> bool:
    """anything"""
    return True


Heads = Callable[[Mapping[str, Any]], list[int]]
"""The heads of a row of TREES; an empty list if it has none."""


def annotated_heads(row: Mapping[str, Any]) -> list[int]:
    """Return the heads of the corpus."""
    return list(row["heads"])


def heads_by_rules(row: Mapping[str, Any]) -> list[int]:
    """Return heads by the head rules of data/formats/trees.py; their arcs have no relations."""
    return rule_heads(parse(row["tree"])) if row["tree"] else []


@dataclass(frozen=True)
class TreeNumbers:
    """keep: the sentences to keep. Test sets keep every_row, so that each sentence is scored. max_words: longer ones are dropped
    (0: none). divide: words into pieces of a pretrained encoder. tags: the column of tags. heads: their source.
    """

    keep: Keep = complete
    max_words: int = 0
    divide: Divide = no_pieces
    tags: str = "tags"
    heads: Heads = annotated_heads

    def __post_init__(self) -> None:
        at_least(self, 0, "max_words")


def tree_numbers(job: Job, settings: TreeNumbers) -> dict[str, Any]:
    """Write shards of NUMBERS of the TREES job.inputs["rows"], in a step for each shard; also reads ["vocabulary"].

    ValueError: no sentence is complete.
    """
    made = map_shards(job, tree_shard, settings, vocabulary=job.inputs["vocabulary"])
    if settings.keep is not every_row and not made["rows"]:
        raise ValueError(f"no sentence has {settings.keep.__doc__} and few enough words: {ADVICE}")
    return made


def tree_shard(job: Job, settings: TreeNumbers) -> dict[str, Any]:
    """Write the numbers of one shard."""
    table = read_shard(job.inputs["shard"].path)
    ids = Ids({side: read_words(job.inputs["vocabulary"], side) for side in SIDES})
    rows = []
    for row in table.to_pylist():
        own = settings.heads(row)
        row |= {"heads": own, "relations": row["relations"] if own == row["heads"] else []}
        if settings.keep(row) and not 0 < settings.max_words < len(row["tokens"]):
            spans = joint(parse(row["tree"]), row["heads"]) if row["tree"] else []
            rows.append(
                ids.sentence(row["tokens"], row[settings.tags])
                | {
                    "id": row["id"],
                    "cells": ids.cells(spans),
                    "heads": row["heads"],
                    "relations": [ids.of("relations", name, -1) for name in row["relations"]],
                    **settings.divide(row["tokens"]),
                }
            )
    made = pa.Table.from_pylist(rows, schema=NUMBERS)
    return {"dropped": table.num_rows - len(rows), **write_shard(job.out / SHARD, made)}


COLUMNS = ("words", "characters", "tags", "pieces", "last", "cells", "heads", "relations")


@dataclass(frozen=True)
class ParseBatch(Batch):
    """Sentences, and their gold trees as far as the corpus has them."""

    sentences: ParserInput
    gold: GoldTrees


class ParseExamples(ListExamples):
    """Rows of NUMBERS. tagged: whether the model reads the corpus's tags."""

    def __init__(self, paths: Sequence[Path], tagged: bool = True) -> None:
        super().__init__(paths, COLUMNS, ("words",))
        self.tagged = tagged

    def batch(self, rows: Rows) -> ParseBatch:
        """Return some rows, padded to the longest of them."""
        words, tags = self.padded("words", rows), self.padded("tags", rows)
        lengths = torch.from_numpy(self.lengths[rows, 0] - 2)
        pieces = torch.tensor([len(self.row("pieces", row)) for row in rows])
        forms, characters = different_forms(self.padded("characters", rows).numpy())
        sentences = ParserInput(
            words,
            forms,
            characters,
            tags if self.tagged else torch.full_like(tags, UNKNOWN),
            lengths,
            self.padded("pieces", rows),
            pieces,
            self.padded("last", rows),
        )
        heads, relations = (_after_root(self.padded(name, rows, -1), words) for name in ("heads", "relations"))
        position = torch.arange(words.shape[1] - 1)
        inside = (position > 0) & (position <= lengths[:, None])
        gold = GoldTrees(
            self.padded("cells", rows, -1),
            heads,
            relations,
            tags[:, :-1].masked_fill(~inside | (tags[:, :-1] == UNKNOWN), -1),
        )
        return ParseBatch(sentences, gold)


def _after_root(values: Tensor, words: Tensor) -> Tensor:
    """Return values (B, n), or narrower ones, as (B, n+1) after a root; -1 at the root and where there is no value."""
    out = values.new_full((len(words), words.shape[1] - 1), -1)
    out[:, 1 : values.shape[1] + 1] = values
    return out


@dataclass(frozen=True)
class ParsingObjective(Objective):
    """Sentences to joint trees.

    Args:
        decode: How trees are found.
        tagged: Whether tags are read from the corpus or predicted.
    """

    curve: ClassVar = "(1 − F1) + (1 − LAS) on dev"

    decode: Decode = field(default_factory=Jointly)
    tagged: bool = True

    def configure(self, model: ParserConfig, vocabulary: Artifact) -> ParserConfig:
        sized, width = model.sized(vocabulary.meta["sizes"]), vocabulary.meta["vectors"]
        if not width:
            return sized
        given = {"width": width, "learned": vocabulary.meta["learned"], "vectors": str(vocabulary.file(VECTORS))}
        return replace(
            sized,
            inputs=tuple(replace(part, **given) if isinstance(part, WordsConfig) else part for part in sized.inputs),
        )

    def examples(self, paths: Sequence[Path]) -> ParseExamples:
        return ParseExamples(paths, self.tagged)

    def loss(self, model: JointParser, batch: ParseBatch, smoothing: float) -> Tensor:
        """Return the summed margins and cross entropies, without smoothing: excluded heads have probability 0."""
        return model.loss(batch.sentences, batch.gold)

    def criterion(self, model: JointParser, batch: ParseBatch) -> Tensor:
        """Return (errors, count) of 1 − F1 and of 1 − LAS (2, 2): paper 004 chooses weights by F1 + LAS.

        All words count. Spans are the learned ones: a chain of labels is one, and `<H>` is none. A decoder of phrases or arcs
        alone is measured by these alone.
        """
        found = model.parse(batch.sentences, self.decode)
        return torch.stack([errors(found, batch.gold) for errors in ERRORS.get(self.decode, (_spans, _arcs))])


def _spans(found: ParsedTrees, gold: GoldTrees) -> Tensor:
    """Return (spans in only one of the trees, spans of both trees): 1 − F1."""
    n = gold.heads.shape[1]
    keys = [
        (((torch.arange(len(cells), device=cells.device)[:, None] * n + i) * n + j) * 65536 + label)[
            label > GROUP_LABEL
        ]
        for cells in (found.cells, gold.cells)
        for i, j, label in [cells.unbind(-1)]
    ]
    both = torch.isin(*keys).sum()
    total = both.new_tensor(len(keys[0]) + len(keys[1]))
    return torch.stack([total - 2 * both, total])


def _arcs(found: ParsedTrees, gold: GoldTrees) -> Tensor:
    """Return (words with a wrong head or relation, words): 1 − LAS."""
    word = gold.heads >= 0
    named = gold.relations >= 0  # arcs may have no relations
    wrong = word & ((found.heads != gold.heads) | (named & (found.relations != gold.relations)))
    return torch.stack([wrong.sum(), word.sum()])


ERRORS: Mapping[Decode, tuple[Callable[[ParsedTrees, GoldTrees], Tensor], ...]] = {
    phrases_alone: (_spans,),
    arcs_alone: (_arcs,),
}
