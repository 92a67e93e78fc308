"""Scores of translations, each with the signature that says how it was computed."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import read_shards

Detokenise = Callable[[list[str], str], str]


@dataclass(frozen=True)
class Score:
    """A value in its usual unit, how it was computed, and over how many sentences."""

    value: float
    signature: str
    sentences: int


def tokenised_bleu() -> BLEU:
    """BLEU as Moses' multi-bleu computes it: tokens as they are, lower case, no smoothing, 0 to 100."""
    return BLEU(tokenize="none", lowercase=True, smooth_method="none", force=True)


def bleu(metric: BLEU, hypotheses: list[str], references: list[str]) -> Score:
    """Corpus BLEU against one reference a sentence."""
    result = metric.corpus_score(hypotheses, [references])
    return Score(float(result.score), str(metric.get_signature()), len(hypotheses))


def bleu_counts(hypotheses: list[str], references: list[str]) -> NDArray[np.int64]:
    """Per sentence (sentences, 10): lengths of hypothesis and reference, then matches and totals of 1- to 4-grams.

    Corpus BLEU is a function of the sums of the columns, so resampling sentences needs nothing else.
    """
    metric = tokenised_bleu()
    scores = (metric.corpus_score([h], [[r]]) for h, r in zip(hypotheses, references, strict=True))
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.int64).reshape(-1, 10)


@dataclass(frozen=True)
class ScoreSettings:
    """How hypotheses become running text, for scorers that tokenise for themselves (None: those are left out)."""

    detokenise: Detokenise | None
    language: str


def score_translations(job: Job, settings: ScoreSettings) -> dict[str, Any]:
    """scores.json and sentences.arrow of job.inputs["predictions"], against the raw references of ["rows"].

    `bleu` is tokenised and lower-cased, and given for each group of sentences too (`bleu/idiom`); `sacrebleu` and
    `sacrebleu_lc` are on running text with 13a tokens, cased and not.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    raw = read_shards(job.inputs["rows"])["target"].to_pylist()
    hypotheses = [" ".join(tokens) for tokens in table["hypothesis"].to_pylist()]
    references = [" ".join(tokens) for tokens in table["reference"].to_pylist()]
    scores = {"bleu": bleu(tokenised_bleu(), hypotheses, references)}
    if settings.detokenise:
        text = [settings.detokenise(tokens, settings.language) for tokens in table["hypothesis"].to_pylist()]
        scores["sacrebleu"] = bleu(BLEU(force=True), text, raw)
        scores["sacrebleu_lc"] = bleu(BLEU(lowercase=True, force=True), text, raw)
    groups = np.array(table["group"].to_pylist())
    for group in sorted(set(groups) - {""}):
        rows = np.flatnonzero(groups == group)
        scores[f"bleu/{group}"] = bleu(tokenised_bleu(), [hypotheses[i] for i in rows], [references[i] for i in rows])
    counts = bleu_counts(hypotheses, references)
    statistics = pa.table({"id": table["id"], "group": table["group"], "bleu_counts": pa.array(list(counts))})
    write_shard(job.out / "sentences.arrow", statistics)
    found = {name: asdict(score) for name, score in scores.items()}
    write_durably(job.out / "scores.json", json.dumps(found, indent=1))
    return {"scores": found, "test_set": job.inputs["rows"].meta["shards"]}
