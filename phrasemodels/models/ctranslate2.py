"""Plain Transformers as models of CTranslate2. It decodes them without torch (`pip install '.[ctranslate2]'`)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.blocks import BEGIN, END, UNKNOWN, AddNorm, PreNorm, sinusoids
from phrasemodels.models.translation import TranslationConfig, Translator

LONGEST = 2048  # tokens of a sentence whose positions the file has


def write_ctranslate2(
    model: Translator, config: TranslationConfig, source: Sequence[str], target: Sequence[str], marks: bool, to: Path
) -> Path:
    """Write a translator in CTranslate2's format to a folder; return the folder. Its files are replaced.

    CTranslate2's search takes `disable_unk=True` for answers without unknown words.

    Args:
        source, target: The words by id.
        marks: The model reads sentences between <s> and </s>. CTranslate2 then adds them.

    Raises:
        ValueError: The model is not a plain Transformer, or the package ctranslate2 is missing.
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
            _encoder_layer(to_fill, layer)
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


def _encoder_layer(to_fill: Any, layer: Any) -> None:
    _self_attention(to_fill.self_attention, layer.attention, layer.residuals[0].norm)
    _feed_forward(to_fill.ffn, layer.feed_forward, layer.residuals[1].norm)


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
