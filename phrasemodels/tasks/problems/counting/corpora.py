"""The size of a corpus: records, classes, scores, types and lengths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.tokenise import Tokenise, Tokeniser, tokenise
from phrasemodels.tasks.problems.counting.parameters import NO_SENTENCES
from phrasemodels.tasks.problems.counting.recipe import CountingRecipe
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig

TRAIN_TOKENS = "train tokens"  # an input: the TOKENS of train


@dataclass(frozen=True)
class Splits:
    """The splits that are counted; those without an input have no records."""

    names: tuple[str, ...]


def count_records(job: Job, settings: Splits) -> dict[str, Any]:
    """Count the records of the inputs, one for each split.

    `rows SPLIT`; `thousands SPLIT`; `rows` of all splits; `classes` (labels that occur), `lowest` and `highest` score, if
    the records have any; of the TOKENS job.inputs["train tokens"], `types SIDE` and `length SIDE` (mean, tokens).
    """
    tables = {name: read_shards(job.inputs[name]) for name in settings.names if name in job.inputs}
    rows = {name: tables[name].num_rows if name in tables else 0 for name in settings.names}
    n = sum(rows.values())
    scores = {f"rows {name}": Score(float(count), "records", n) for name, count in rows.items()}
    scores |= {f"thousands {name}": Score(count / 1000, "thousand records", n) for name, count in rows.items()}
    scores["rows"] = Score(float(n), "records of all splits", n)
    scores |= _labels(list(tables.values()), n)
    if TRAIN_TOKENS in job.inputs:
        scores |= _text(read_shards(job.inputs[TRAIN_TOKENS]))
    return write_scores(job, scores, NO_SENTENCES, [shard for a in job.inputs.values() for shard in a.meta["shards"]])


def _labels(tables: list[pa.Table], n: int) -> dict[str, Score]:
    """Return the number of labels, and the range of the scores, of records that have labels or scores."""
    found: dict[str, Score] = {}
    if tables and all("label" in table.column_names for table in tables):
        labels = {label for table in tables for label in pc.unique(table["label"]).to_pylist()} - {""}
        found["classes"] = Score(float(len(labels)), "labels that occur", n)
    if tables and all("score" in table.column_names for table in tables):
        ranges = [pc.min_max(table["score"]).as_py() for table in tables]
        found["lowest"] = Score(min(one["min"] for one in ranges), "lowest score that occurs", n)
        found["highest"] = Score(max(one["max"] for one in ranges), "highest score that occurs", n)
    return found


def _text(tokens: pa.Table) -> dict[str, Score]:
    """Return the number of different tokens, and the mean length, of both sides."""
    found: dict[str, Score] = {}
    for side in ("source", "target"):
        words, n = pc.list_flatten(tokens[side]), tokens.num_rows
        found[f"types {side}"] = Score(float(len(pc.unique(words))), "different tokens of train", n)
        found[f"length {side}"] = Score(len(words) / n, "tokens of a sentence of train, mean", n)
    return found


@dataclass(frozen=True)
class CorpusSizeRecipe(CountingRecipe):
    """The size of a corpus. splits: its splits by the names that they are counted by.

    text: the tokeniser of train, whose types and lengths are counted, too; None: they are not.
    """

    corpus: Corpus | SampleCorpus
    splits: Mapping[str, str]
    text: Tokeniser | None = None

    slug: ClassVar = "size"

    def data(self) -> dict[str, Step]:
        known = {ours: self.corpus.split(theirs) for ours, theirs in self.splits.items() if self._has(theirs)}
        if self.text is not None:
            settings, label = Tokenise(self.text, "en", "lf"), f"tokenise {self.corpus.name} train"
            known[TRAIN_TOKENS] = Step(tokenise, label, settings, {"rows": known["train"]})
        return known

    def _has(self, split: str) -> bool:
        return isinstance(self.corpus, SampleCorpus) or self.corpus.has(split)

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        return {"scores": Stage(count_records, Splits(tuple(self.splits)), {name: name for name in self.data()})}
