"""What the labels of a parser look at, and what they add to its spans (paper 004, section 5)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from phrasemodels.data.formats.joint_trees import joint
from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.formats.trees import Span
from phrasemodels.data.store.step import Job
from phrasemodels.encoders.inputs import Sentences
from phrasemodels.layers.scorers import contributions, shares
from phrasemodels.models.parser import Parser, ParserConfig
from phrasemodels.tasks.prepare.pieces import Divide, no_pieces
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.problems.attention import ATTENTION
from phrasemodels.tasks.problems.parsing.objective import COLUMNS, ParseExamples, Parsing
from phrasemodels.tasks.problems.parsing.predict import Parse, TreeParser
from phrasemodels.tasks.train.batches import Columns


@dataclass(frozen=True)
class LabelSettings:
    """A model's configuration, and how many sentences of each group are looked at."""

    problem: Parsing
    model: ParserConfig
    sentences: int = 1


def label_attention(job: Job, settings: LabelSettings) -> dict[str, Any]:
    """attention.arrow: weights (labels, Q, positions) over START, the words and STOP; inputs as of `parse_sentences`."""
    parser = TreeParser(settings.problem, settings.model, job.inputs["model"], job.inputs["vocabulary"])
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["numbers"])])
    table = read_shards(job.inputs["rows"])
    groups = np.array(table["group"].to_pylist(), dtype=object)
    chosen = [row for group in sorted(set(groups)) for row in np.flatnonzero(groups == group)[: settings.sentences]]
    rows = []
    for row in map(int, chosen):
        weights = weights_of(parser.model, data.batch(np.array([row])).to(parser.device).sentences)[0]
        known = {"id": table["id"][row].as_py(), "group": table["group"][row].as_py(), "phrases": []}
        tokens = ["<s>", *table["tokens"][row].as_py(), "</s>"]
        told = {"tokens": tokens, "module": "label attention", "shape": list(weights.shape)}
        rows.append(known | told | {"weights": weights.flatten().tolist()})
    return {"attention": write_shard(job.out / "attention.arrow", pa.Table.from_pylist(rows, schema=ATTENTION))}


@torch.no_grad()
def weights_of(model: Parser, sentences: Sentences) -> torch.Tensor:
    """Attention of each label over the positions, (B, L, Q, N). ValueError: a parser without label attention."""
    if model.encoder.top is None:
        raise ValueError("this parser has no label attention layer: ask one that has")
    x, valid = model.encoder.below(model.embed(sentences), sentences.lengths + 2)
    return model.encoder.top.weights(x, valid)


@dataclass(frozen=True)
class LabelView:
    """A parsed sentence of n words: its parse, attention (L, N) of the labels, mean over their queries, and what they
    contribute to its m phrases (m, L), averaged and as shares; phrases are in the order of the tree."""

    parse: Parse
    spans: list[Span]
    labels: list[str]
    attention: NDArray[np.float32]
    averages: NDArray[np.float32]
    shares: NDArray[np.float32]


@torch.no_grad()
def view(parser: TreeParser, tokens: list[str], divide: Divide = no_pieces) -> LabelView:
    """What labels look at and contribute in one sentence. ValueError: a parser whose spans are not made of labels."""
    data = ParseExamples(Columns.of_table(parser.numbers([tokens], divide), COLUMNS), parser.problem.tagged)
    sentences = data.batch(np.array([0])).to(parser.device).sentences
    weights = weights_of(parser.model, sentences)[0].mean(1)
    (parse,) = parser.answer(data, [tokens], 1)
    if parse.tree is None:
        raise ValueError("this parser finds no phrases: ask one that does")
    if parser.model.encoder.groups != weights.shape[0]:
        raise ValueError("in this parser labels are mixed, so there are no features of a label: ask one with PerLabel")
    spans = joint(parse.tree)
    cells = torch.tensor([[(span.start, span.end - 1) for span in spans]], device=parser.device)
    posts = parser.model.encode(sentences)[1]
    found = contributions(posts, parser.model.encoder.groups, cells)[0]
    labels = ["(none)", *parser.names.labels[1:]]
    kept = [x.float().cpu().numpy() for x in (weights, found, shares(found))]
    return LabelView(parse, spans, labels, kept[0], kept[1], kept[2])
