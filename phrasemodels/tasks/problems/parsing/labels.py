"""Labels of a label attention parser: what each attends to, and what it contributes to spans (paper 004, section 5)."""

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
from phrasemodels.encoders.inputs import ParserInput
from phrasemodels.layers.scorers import contributions, shares
from phrasemodels.models.parser import JointParser, ParserConfig
from phrasemodels.parsing.numbers import Divide, no_pieces
from phrasemodels.parsing.parse import Parse
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.problems.attention import ATTENTION, attention_row, first_of_groups
from phrasemodels.tasks.problems.parsing.objective import COLUMNS, ParseExamples, ParsingObjective
from phrasemodels.tasks.problems.parsing.predict import TreeParser
from phrasemodels.tasks.problems.report import Matrix
from phrasemodels.tasks.train.batches import Columns


@dataclass(frozen=True)
class LabelAttentionSettings:
    """A model's configuration, and the number of sentences of each group."""

    objective: ParsingObjective
    model: ParserConfig
    sentences: int = 1


def label_attention(job: Job, settings: LabelAttentionSettings) -> dict[str, Any]:
    """Write attention.arrow: the attention of each label to START, the words and STOP, (labels, Q, N), of the first
    sentences of each group. Inputs are those of `parse_sentences`."""
    parser = TreeParser(settings.objective, settings.model, job.inputs["model"], job.inputs["vocabulary"])
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["numbers"])])
    table = read_shards(job.inputs["rows"])
    rows = []
    for index in first_of_groups(table["group"].to_pylist(), settings.sentences):
        (row,) = table.slice(index, 1).select(["id", "group", "tokens"]).to_pylist()
        weights = label_weights(parser.model, data.batch(np.array([index])).to(parser.device).sentences)[0]
        attention = attention_row("label attention", ["<s>", *row["tokens"], "</s>"], weights, [])
        rows.append({"id": row["id"], "group": row["group"], **attention})
    return {"attention": write_shard(job.out / "attention.arrow", pa.Table.from_pylist(rows, schema=ATTENTION))}


@torch.no_grad()
def label_weights(model: JointParser, sentences: ParserInput) -> torch.Tensor:
    """Return the attention of each label over the positions (B, L, Q, N). ValueError: the parser has no label attention."""
    if model.encoder.top is None:
        raise ValueError("this parser has no label attention layer: name one that has")
    x, valid = model.encoder.below(model.embed(sentences), sentences.lengths + 2)
    return model.encoder.top.weights(x, valid)


@dataclass(frozen=True)
class LabelView:
    """Labels in one sentence of n words: its parse; attention (L, N) of the labels, mean over their queries; and their
    contributions to its m phrases (m, L), as means and as shares. Phrases are in the order of the tree."""

    parse: Parse
    spans: list[Span]
    labels: list[str]
    attention: NDArray[np.float32]
    averages: NDArray[np.float32]
    shares: NDArray[np.float32]

    def figures(self, most: int) -> dict[str, Matrix]:
        """Return figures, by heading, of the `most` labels that contribute most."""
        order = np.argsort(-np.ptp(self.averages, 0), kind="stable")[:most]
        names = [self.labels[label] for label in order]
        words = ["<s>", *self.parse.tokens, "</s>"]
        spans = [f"{label} {' '.join(self.parse.tokens[start:end])}"[:60] for label, start, end in self.spans]
        axes, means = ("phrase", "label"), "mean contribution of labels to phrases"
        return {
            "What each label attends to": Matrix(
                self.attention[order], names, words, ("label", "word"), "attention of labels"
            ),
            "Contributions to phrases: means": Matrix(self.averages[:, order], spans, names, axes, means),
            "Contributions to phrases: shares": Matrix(
                self.shares[:, order], spans, names, axes, "share of labels in phrases"
            ),
        }


@torch.no_grad()
def view_labels(parser: TreeParser, tokens: list[str], divide: Divide = no_pieces) -> LabelView:
    """Return what labels attend to and contribute in one sentence. ValueError: the parser has no features of labels."""
    data = ParseExamples(Columns.of_table(parser.numbers([tokens], divide), COLUMNS), parser.objective.tagged)
    sentences = data.batch(np.array([0])).to(parser.device).sentences
    weights = label_weights(parser.model, sentences)[0].mean(1)
    (parse,) = parser.parse_rows(data, [tokens], 1)
    if parse.tree is None:
        raise ValueError("this parser finds no phrases: name one that does")
    if not parser.model.encoder.groups == weights.shape[0] == len(parser.names.labels):
        raise ValueError(
            "this parser mixes labels, or attends with others than it predicts, so none has features: name one with PerLabel"
        )
    spans = joint(parse.tree)
    cells = torch.tensor([[(span.start, span.end - 1) for span in spans]], device=parser.device)
    posts = parser.model.encode(sentences)[1]
    found = contributions(posts, parser.model.encoder.groups, cells)[0]
    labels = ["(none)", *parser.names.labels[1:]]
    arrays = [x.float().cpu().numpy() for x in (weights, found, shares(found))]
    return LabelView(parse, spans, labels, *arrays)
