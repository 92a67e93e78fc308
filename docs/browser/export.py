"""The English parser as files for a browser: an ONNX graph of its scores, and its vocabularies.

Shapes: n words, N = n + 2 positions (START, words, STOP), c characters of a word, L labels.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from phrasemodels.encoders.inputs import ParserInput
from phrasemodels.layers.scorers import fenceposts
from phrasemodels.parsing.parser import LETTERS, Parser

LARGE = 1024  # numbers of a tensor; larger ones travel as float16, as they lie in the package


class Scores(nn.Module):
    """One sentence to the weights of label attention and the scores of labelled spans."""

    def __init__(self, parser: Parser) -> None:
        super().__init__()
        self.model = parser.trained

    def forward(self, words: Tensor, characters: Tensor) -> tuple[Tensor, Tensor]:
        """words (N), characters (N, c), 0 for padding -> attention (L, N), scores (n, n, L) of words i..j, both included.

        Scores are 0 where i > j, and do not yet forbid labels (`JointParser.labels` does; so does the page).
        """
        model, n = self.model, words.shape[0] - 2
        row = words[None]
        lengths = torch.full((1,), n)
        sentence = ParserInput(row, torch.arange(n + 2)[None], characters, row, lengths, row, lengths, row)
        states, valid = model.encoder.below(model.embed(sentence), lengths + 2)
        weights = model.encoder.top.weights(states, valid)[0, :, 0]
        posts = model.span_scores.project(fenceposts(model.encoder.top(states, valid), model.encoder.groups))[0]
        labels = model.span_scores._score(posts[None, 1:] - posts[:-1, None])
        return weights, nn.functional.pad(labels, (1, 0))


def export(folder: Path, parser: Parser) -> None:
    """Write model.onnx and vocabularies.json."""
    folder.mkdir(parents=True, exist_ok=True)
    n = torch.export.Dim("positions", min=3, max=512)
    example = torch.full((7,), 4), torch.full((7, LETTERS), 4)
    program = torch.onnx.export(
        Scores(parser).eval(),
        example,
        dynamo=True,
        dynamic_shapes=({0: n}, {0: n}),
        input_names=["words", "characters"],
        output_names=["attention", "scores"],
        verbose=False,
    )
    graph = program.model_proto
    halve(graph)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    entries = {side: list(parser.ids.ids[side]) for side in ("words", "characters", "labels")}
    (folder / "vocabularies.json").write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")


def halve(model: onnx.ModelProto) -> None:
    """Store large float32 tensors as float16, and cast them when they are read. The package has them in float16, so nothing
    is lost; a tensor for which that is not so stays."""
    casts = []
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        half = values.astype(np.float16)
        if values.dtype == np.float32 and values.size > LARGE and np.array_equal(half.astype(np.float32), values):
            name = tensor.name
            tensor.CopyFrom(onnx.numpy_helper.from_array(half, f"{name}.half"))
            casts.append(onnx.helper.make_node("Cast", [f"{name}.half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
