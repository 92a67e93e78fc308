"""A parser as a folder that travels: weights, configuration, vocabularies and a card; nothing in it is code."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from phrasemodels.encoders.inputs import CharactersConfig, TagsConfig, WordsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.layers.labels import (
    AsSelfAttention,
    InputQueries,
    LabelAttentionConfig,
    LearnedQueries,
    PerLabel,
    own_query,
    released_query,
)
from phrasemodels.layers.partitioned import by_head_width, by_model_width
from phrasemodels.layers.scorers import from_head, from_itself
from phrasemodels.models.parser import (
    Jointly,
    JointParser,
    LearnedPositions,
    ParserConfig,
    Sinusoids,
    arcs_alone,
    phrases_alone,
    separately,
)
from phrasemodels.parsing.words import sentences, universal_sentences
from phrasemodels.saved import check_header, finite

ENGLISH = Path(__file__).parent / "english"
SIDES = ("words", "characters", "tags", "labels", "relations")  # of vocabularies
WEIGHTS, ABOUT = "model.safetensors", "parser.json"
# All that a saved configuration may name.
PARTS: Mapping[str, Any] = {
    part.__name__: part
    for part in (
        ParserConfig, PartitionedEncoderConfig, LabelAttentionConfig, WordsConfig, CharactersConfig, TagsConfig,
        Sinusoids, LearnedPositions, from_head, from_itself, by_head_width, by_model_width, own_query, released_query,
        LearnedQueries, InputQueries, PerLabel, AsSelfAttention, Jointly, arcs_alone, phrases_alone, separately,
        sentences, universal_sentences,
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Saved:
    """A parser with all that it needs: model, vocabularies by side, decoder, its card, what users should know of it, and how
    it divides text."""

    model: JointParser
    config: ParserConfig
    entries: Mapping[str, Sequence[str]]
    decode: Any
    card: Mapping[str, Any]
    split: Any = sentences


def save(parser: Saved, folder: Path, precision: torch.dtype = torch.float16) -> Path:
    """Write a folder that `load` reads. precision: of the weights on disk; float16 halves their size.

    ValueError: a part of the configuration cannot be saved, for example a pretrained encoder.
    """
    weights = {name: p.detach().to(precision).contiguous() for name, p in parser.model.named_parameters()}
    about = {
        "card": dict(parser.card),
        "config": _plain(parser.config),
        "decode": _plain(parser.decode),
        "split": _plain(parser.split),
        "entries": {side: list(parser.entries[side]) for side in SIDES},
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)  # safetensors writes for the user alone
    (folder / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=None) + "\n", encoding="utf-8")
    return folder


def load(folder: Path) -> Saved:
    """Read a folder of `save`. ValueError: it is no such folder, or damaged."""
    again = "save it again with `phrasemodels pack`"
    if not (folder / ABOUT).is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder}: no saved parser: {ABOUT} or {WEIGHTS} is missing; {again}")
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        config = _restored(about["config"])
        entries = {side: [str(entry) for entry in about["entries"][side]] for side in SIDES}
        check_header(config.build, folder / WEIGHTS, cast=True)
        model = config.build()
        _fill(model, finite(load_file(folder / WEIGHTS)))
        return Saved(
            model.eval(), config, entries, _restored(about["decode"]), about["card"], _restored(about["split"])
        )
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        ArithmeticError,
        RuntimeError,
        SafetensorError,
    ) as error:
        raise ValueError(f"{folder}: this parser cannot be read ({error}); {again}") from error


@torch.no_grad()
def _fill(model: JointParser, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])


def _plain(value: Any) -> Any:
    """Return a configuration as JSON: a dataclass as {"part": its name, fields}, a function or class as {"part": its name}."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return _known(type(value)) | fields
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return _known(value) if callable(value) else value


def _known(part: Any) -> dict[str, str]:
    name = part.__name__
    if PARTS.get(name) is not part:
        raise ValueError(f"{name} cannot be saved with a parser; parts that can: {', '.join(PARTS)}")
    return {"part": name}


def _restored(saved: Any) -> Any:
    if isinstance(saved, list):
        return tuple(_restored(part) for part in saved)
    if not isinstance(saved, dict):
        return saved
    part: Any = PARTS[saved["part"]]
    if not dataclasses.is_dataclass(part):
        return part
    made: Any = part  # a class: instances are not in PARTS
    return made(**{name: _restored(value) for name, value in saved.items() if name != "part"})
