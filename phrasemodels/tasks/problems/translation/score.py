"""Scores of translations: tokenised BLEU, and sacreBLEU of running text."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.accuracy import by_group
from phrasemodels.tasks.metrics.bleu import CORPUS_BLEU, bleu, bleu_counts, tokenised_bleu
from phrasemodels.tasks.metrics.score import write_scores
from phrasemodels.tasks.prepare.languages import UNSPACED
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.tokenise import Detokenise


@dataclass(frozen=True)
class TranslationScoring:
    """How tokens become running text (None: its metrics are left out), and the language of the target."""

    detokenise: Detokenise | None
    language: str


def score_translations(job: Job, settings: TranslationScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"] against the raw references of ["rows"].

    `bleu` is tokenised and lower-cased, also by group of sentences (`bleu/idiom`); `sacrebleu` and `sacrebleu_lc` are of
    running text, cased and lower-cased, with 13a tokens; with characters in languages written without spaces.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    raw = read_shards(job.inputs["rows"])["target"].to_pylist()
    hypotheses = [" ".join(tokens) for tokens in table["hypothesis"].to_pylist()]
    references = [" ".join(tokens) for tokens in table["reference"].to_pylist()]
    scores = {"bleu": bleu(tokenised_bleu(), hypotheses, references)}
    if settings.detokenise:
        text = [settings.detokenise(tokens, settings.language) for tokens in table["hypothesis"].to_pylist()]
        from sacrebleu.metrics.bleu import BLEU

        tokens = "char" if settings.language in UNSPACED else "13a"
        scores["sacrebleu"] = bleu(BLEU(force=True, tokenize=tokens), text, raw)
        scores["sacrebleu_lc"] = bleu(BLEU(lowercase=True, force=True, tokenize=tokens), text, raw)
    for suffix, mask in by_group(table["group"].to_pylist()).items():
        if suffix:
            some = np.flatnonzero(mask)
            scores[f"bleu{suffix}"] = bleu(
                tokenised_bleu(), [hypotheses[i] for i in some], [references[i] for i in some]
            )
    counts = pa.array(list(bleu_counts(hypotheses, references)))
    sentences = pa.table({"id": table["id"], "group": table["group"], CORPUS_BLEU.column: counts})
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])
