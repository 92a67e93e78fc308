"""Export to other runtimes: parsers and encoders over phrases to ONNX, Transformers to CTranslate2.

Only plain Transformers have a form in CTranslate2. The graph of a parser gives scores and has its vocabularies beside
it for the page *Try it* in a browser. ONNX needs onnx and onnxscript (the extra `onnx`). CTranslate2 needs its own
package (`pip install '.[ctranslate2]'`). It decodes without torch.

Shapes: B batch, n words, N = n + 2 positions (START, words, STOP), c characters of a word, L labels, m phrases, k words of a
phrase.
"""

import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from phrasemodels.encoders.hypernode import HypernodeEncoder
from phrasemodels.encoders.inputs import ParserInput
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.blocks import BEGIN, END, UNKNOWN, AddNorm, PreNorm, sinusoids
from phrasemodels.layers.scorers import fenceposts
from phrasemodels.models.translation import TranslationConfig, Translator
from phrasemodels.parsing.ids import LETTERS
from phrasemodels.parsing.parser import Parser

LARGE = 1024  # numbers of a tensor; larger ones travel as float16, as they lie in the package


class Scores(nn.Module):
    """One sentence to the weights of label attention and the scores of labelled spans."""

    def __init__(self, parser: Parser) -> None:
        super().__init__()
        self.model = parser.original

    def forward(self, words: Tensor, characters: Tensor) -> tuple[Tensor, Tensor]:
        """words (N), characters (N, c) with 0 for padding -> attention (L, N), scores (n, n, L) of words i..j.

        Both i and j are included. Scores are 0 where i > j. They do not yet forbid labels: `JointParser.labels` and the
        page do.
        """
        model, n = self.model, words.shape[0] - 2
        row = words[None]
        lengths = torch.full((1,), n)
        sentence = ParserInput(row, torch.arange(n + 2)[None], characters, row, lengths, row, lengths, row)
        top = model.encoder.top
        assert top is not None
        states, valid = model.encoder.below(model.embed(sentence), lengths + 2)
        weights = top.weights(states, valid)[0, :, 0]
        posts = model.span_scores.project(fenceposts(top(states, valid), model.encoder.groups))[0]
        labels = model.span_scores._score(posts[None, 1:] - posts[:-1, None])
        return weights, nn.functional.pad(labels, (1, 0))


class Plain(nn.Module):
    """An encoder of paper 000 by the equations of the paper. No step depends on the data."""

    def __init__(self, encoder: HypernodeEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, words: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), members (B, m, k) -> states (B, n, d)."""
        return self.encoder.plain(words, lengths, members)


def export_encoder(encoder: HypernodeEncoder, to: Path, longest: int = 2) -> Path:
    """Write an encoder for evaluation as an ONNX graph of words, lengths and members -> states.

    The file is returned. longest: k, the words of a phrase. B, n and m are free. ValueError: onnx or onnxscript is
    missing.
    """
    batch, n, m = (torch.export.Dim(name) for name in ("batch", "words", "phrases"))
    members = torch.full((2, 3, longest), -1)
    members[..., :2] = torch.tensor([[0, 1], [1, 2], [-1, -1]])
    example = torch.randn(2, 5, encoder.width), torch.tensor([5, 3]), members
    shapes = ({0: batch, 1: n}, {0: batch}, {0: batch, 1: m})
    graph = _exported(Plain(encoder), example, shapes, ["words", "lengths", "members"], ["states"])
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(graph.SerializeToString())
    return to


def export_parser(parser: Parser, folder: Path) -> None:
    """Write model.onnx (a sentence to attention and scores) and vocabularies.json.

    ValueError: onnx or onnxscript is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    n = torch.export.Dim("positions", min=3, max=512)
    example = torch.full((7,), 4), torch.full((7, LETTERS), 4)
    graph = _exported(Scores(parser), example, ({0: n}, {0: n}), ["words", "characters"], ["attention", "scores"])
    halve(graph)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    entries = {side: list(parser.ids.ids[side]) for side in ("words", "characters", "labels")}
    (folder / "vocabularies.json").write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")


def _exported(
    module: nn.Module, example: tuple[Tensor, ...], shapes: Any, inputs: list[str], outputs: list[str]
) -> Any:
    """Return the ONNX graph of a module for evaluation. Its mode is restored."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError("the export needs onnx and onnxscript: pip install onnx onnxscript") from error
    modes = {part: part.training for part in module.modules()}
    names = {"input_names": inputs, "output_names": outputs, "dynamic_shapes": shapes}
    try:
        with warnings.catch_warnings(), _quiet("torch.onnx", "onnxscript"):
            warnings.simplefilter("ignore")  # of torch, about itself
            program = torch.onnx.export(module.eval(), example, dynamo=True, verbose=False, **names)
    finally:
        for part, training in modes.items():
            part.training = training
    assert program is not None
    return program.model_proto


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Let loggers of other libraries tell errors alone. The exporter's remarks are not for users."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def halve(model: Any) -> None:
    """Store large float32 tensors as float16, and cast them at reading.

    The package has them in float16, so nothing is lost. Tensors with other values stay.
    """
    import onnx

    casts = []
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if values.dtype == np.float32 and values.size > LARGE and np.array_equal(half.astype(np.float32), values):
            name = tensor.name
            tensor.CopyFrom(onnx.numpy_helper.from_array(half, f"{name}.half"))
            casts.append(onnx.helper.make_node("Cast", [f"{name}.half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


LONGEST = 2048  # tokens of a sentence whose positions the file has


def write_ctranslate2(
    model: Translator, config: TranslationConfig, source: Sequence[str], target: Sequence[str], marks: bool, to: Path
) -> Path:
    """Write a translator in CTranslate2's format to a folder. Return the folder. Its files are replaced.

    CTranslate2's search takes `disable_unk=True` for answers without unknown words.

    Args:
        source, target: The words by id.
        marks: The model reads sentences between <s> and </s>. CTranslate2 then adds them.

    Raises:
        ValueError: The model is not a plain Transformer or the package ctranslate2 is missing.
    """
    check_plain(config)
    try:
        from ctranslate2.specs import TransformerSpec
    except ImportError as error:
        raise ValueError(
            f"{error.name} is not installed: in a clone of PhraseModels, pip install '.[ctranslate2]'"
        ) from error
    encoder: Any = model.encoder
    depth = len(model.decoder_layers)
    before = config.residual is PreNorm
    spec = TransformerSpec.from_config((len(encoder.layers), depth), config.encoder.heads, pre_norm=before)
    with torch.no_grad():
        for part, embedding in ((spec.encoder, model.embed_source), (spec.decoder, model.embed_target)):
            table = part.embeddings[0] if isinstance(part.embeddings, list) else part.embeddings
            # CTranslate2 multiplies by √d
            table.weight = _numbers(embedding.table.weight * (embedding.scale / config.encoder.d**0.5))
            part.position_encodings.encodings = _numbers(sinusoids(torch.arange(LONGEST), config.encoder.d))
        for to_fill, layer in zip(spec.encoder.layer, encoder.layers, strict=True):
            _self_attention(to_fill.self_attention, layer.attention, layer.residuals[0].norm)
            _feed_forward(to_fill.ffn, layer.feed_forward, layer.residuals[1].norm)
        for to_fill, layer in zip(spec.decoder.layer, model.decoder_layers, strict=True):
            _decoder_layer(to_fill, layer)
        if before:
            _norm(spec.encoder.layer_norm, encoder.last)
            _norm(spec.decoder.layer_norm, model.last)
        _linear(spec.decoder.projection, [model.project])
        spec.decoder.projection.weight *= model.project.scale
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (target[i] for i in (UNKNOWN, BEGIN, END))
    spec.config.decoder_start_token = target[BEGIN]
    spec.config.add_source_bos = spec.config.add_source_eos = marks
    spec.config.layer_norm_epsilon = encoder.layers[0].residuals[0].norm.eps
    spec.validate()
    spec.optimize()
    to.mkdir(parents=True, exist_ok=True)
    spec.save(str(to))
    return to


def check_plain(config: Any) -> None:
    """Check that a configuration describes a plain Transformer. ValueError: it isn't one, with the difference."""
    # not a subclass, whose attention may be another
    if type(config) is not TranslationConfig or type(config.encoder) is not TransformerEncoderConfig:
        kind = type(config.encoder if isinstance(config, TranslationConfig) else config).__name__
        raise ValueError(f"CTranslate2 knows plain Transformers alone, not {kind}; export it as safetensors")
    styles = {config.residual, config.encoder.residual}
    if len(styles) > 1 or not styles <= {AddNorm, PreNorm}:
        names = ", ".join(sorted(style.__name__ for style in styles))
        raise ValueError(
            f"CTranslate2 knows post-norm or pre-norm Transformers alone, not {names}; export it as safetensors"
        )
    if not (config.encoder.d_ff and config.decoder_d_ff):
        raise ValueError("CTranslate2 knows no Transformer without feed-forward layers; export it as safetensors")


def _numbers(x: Tensor) -> Any:
    return x.detach().float().cpu().contiguous().numpy()


def _linear(to_fill: Any, layers: Iterable[nn.Linear]) -> None:
    """Fill in linear layers, one below the other."""
    layers = list(layers)
    to_fill.weight = _numbers(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        to_fill.bias = _numbers(torch.cat([layer.bias for layer in layers]))


def _norm(to_fill: Any, norm: Any) -> None:
    to_fill.gamma, to_fill.beta = _numbers(norm.weight), _numbers(norm.bias)


def _decoder_layer(to_fill: Any, layer: Any) -> None:
    itself, source, feed_forward = (residual.norm for residual in layer.residuals)
    _self_attention(to_fill.self_attention, layer.itself, itself)
    _norm(to_fill.attention.layer_norm, source)
    _linear(to_fill.attention.linear[0], [layer.source.query])
    _linear(to_fill.attention.linear[1], [layer.source.key, layer.source.value])
    _linear(to_fill.attention.linear[2], [layer.source.output])
    _feed_forward(to_fill.ffn, layer.feed_forward, feed_forward)


def _self_attention(to_fill: Any, attention: Any, norm: Any) -> None:
    _norm(to_fill.layer_norm, norm)
    _linear(to_fill.linear[0], [attention.query, attention.key, attention.value])
    _linear(to_fill.linear[1], [attention.output])


def _feed_forward(to_fill: Any, feed_forward: Any, norm: Any) -> None:
    _norm(to_fill.layer_norm, norm)
    _linear(to_fill.linear_0, [feed_forward[0]])
    _linear(to_fill.linear_1, [feed_forward[2]])
