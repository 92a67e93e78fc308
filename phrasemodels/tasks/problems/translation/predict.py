"""Translations by beam search, and the attention of a translator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.layers.attention_probe import attention_probe
from phrasemodels.layers.ids import BEGIN, UNKNOWN
from phrasemodels.models.recurrent import RecurrentTranslator
from phrasemodels.models.search import BeamSearch, beam_search
from phrasemodels.models.translation import Translator
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.attention import ATTENTION, attention_rows, first_of_groups
from phrasemodels.tasks.problems.sequences import PhraseBatch, write_predictions
from phrasemodels.tasks.problems.translation.objective import AnyTranslator, TranslationObjective, TranslatorConfig
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import best_device, load_trained


@dataclass(frozen=True)
class TranslateSettings:
    """A model's configuration, and a search. batch_tokens bounds memory and does not change the result."""

    objective: TranslationObjective
    model: TranslatorConfig
    search: BeamSearch
    batch_tokens: int = 4096


def translate(job: Job, settings: TranslateSettings) -> dict[str, Any]:
    """Translate the numbered sentences job.inputs["phrases"], whose tokens are ["rows"]; also reads ["model"] and
    ["vocabulary"]. Writes predictions.arrow."""
    device = best_device()
    model = load_trained(settings.objective, settings.model, job.inputs, device)
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["phrases"])])
    words = np.array(read_words(job.inputs["vocabulary"], "target"), dtype=object)
    sources = read_shards(job.inputs["rows"])["source"]
    search = settings.search.within(job.inputs["vocabulary"].meta.get("longest", 0))
    found: dict[int, tuple[list[str], float]] = {}
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        answers = beam_search(model, batch.source, batch.lengths, batch.members, search)
        for row, (ids, score) in zip(rows.tolist(), answers, strict=True):
            found[row] = (list(words[ids]), score)
            if UNKNOWN in ids and isinstance(model, Translator):
                one = data.batch(np.array([row])).to(device)
                found[row] = (with_source_words(model, one, ids, found[row][0], sources[row].as_py()), score)
    return write_predictions(job, job.inputs["rows"], found)


@torch.inference_mode()
def with_source_words(
    model: Translator, batch: PhraseBatch, ids: list[int], words: list[str], source: list[str]
) -> list[str]:
    """Return an answer with the source word that gets the most attention in the place of each unknown word.

    As in OpenNMT (`-replace_unk`), that is the attention of the first head of the decoder's last layer. batch: the question
    alone; ids, words: the answer; source: the question's words.
    """
    last = f"decoder.{len(model.decoder) - 1}.source"
    target = torch.tensor([[BEGIN, *ids[:-1]]], device=batch.source.device)
    with attention_probe(model) as found:
        model(batch.source, batch.lengths, batch.members, target)
    marks = int(batch.lengths[0]) - len(source)  # <s> and </s>, or none
    weights = found[last][0, 0, :, marks // 2 : marks // 2 + len(source)]
    return [
        source[int(weights[place].argmax())] if number == UNKNOWN and source else word
        for place, (number, word) in enumerate(zip(ids, words, strict=True))
    ]


@dataclass(frozen=True)
class AttendSettings:
    """A model's configuration, the number of sentences of each group, and a search."""

    objective: TranslationObjective
    model: TranslatorConfig
    sentences: int = 1
    search: BeamSearch = field(default_factory=BeamSearch)


def attend(job: Job, settings: AttendSettings) -> dict[str, Any]:
    """Write attention.arrow: the attention to the first sentences of each group, and to them from the model's own
    translation. Inputs are those of `translate`. Tokens include <s> and </s>, if the model reads them."""
    model = load_trained(settings.objective, settings.model, job.inputs)
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["phrases"])])
    table = read_shards(job.inputs["rows"])
    words = read_words(job.inputs["vocabulary"], "target")
    rows: list[dict[str, Any]] = []
    for index in first_of_groups(table["group"].to_pylist(), settings.sentences):
        batch = data.batch(np.array([index]))
        weights, written = _attention(model, batch, settings.search)
        rows += _rows(model, weights, batch, table.slice(index, 1).to_pylist()[0], [words[i] for i in written])
    return {"attention": write_shard(job.out / "attention.arrow", pa.Table.from_pylist(rows, schema=ATTENTION))}


@torch.inference_mode()
def _attention(model: AnyTranslator, batch: PhraseBatch, search: BeamSearch) -> tuple[dict[str, Tensor], list[int]]:
    """Return the weights of each module while the model reads its own translation, and the translation's ids."""
    inputs = (batch.source, batch.lengths, batch.members)
    ((written, _),) = beam_search(model, *inputs, search)
    target = torch.tensor([[BEGIN, *written]], device=batch.source.device)
    with attention_probe(model) as found:
        model(*inputs, target)
    if isinstance(model, RecurrentTranslator):
        found["decoder.weights"] = model.attention(*inputs, target)[:, None]
    return {name: weights for name, weights in found.items() if not name.endswith(".itself")}, written


def _rows(
    model: AnyTranslator, weights: Mapping[str, Tensor], batch: PhraseBatch, row: dict[str, Any], written: list[str]
) -> list[dict[str, Any]]:
    """Return rows of ATTENTION: of the encoder over words and phrases, of the decoder over words."""
    marked = int(batch.lengths[0]) == len(row["source"]) + 2
    tokens = ["<s>", *row["source"], "</s>"] if marked else row["source"] or ["</s>"]
    phrases = [[int(i) for i in members if i >= 0] for members in batch.members[0].tolist()]
    known = {"id": row["id"], "group": row["group"]}
    rows = [{**known, **one} for one in attention_rows(model, weights, tokens, phrases)]
    decoding = {"phrases": phrases, "written": [*written, "</s>"]}
    return [one | decoding if one["module"].startswith("decoder.") else one for one in rows]
