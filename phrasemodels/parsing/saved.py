"""A parser as a portable folder: weights, configuration, vocabularies and a card, but no code.

A trained splitter has its settings in parser.json and its weights in a file of their own. A lexicon is in parser.json.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from phrasemodels.config import to_json
from phrasemodels.folders import check_folder, check_replaceable
from phrasemodels.layers.blocks import SPECIAL
from phrasemodels.models.parser import (
    DECODES,
    Decode,
    Jointly,
    JointParser,
    ParserConfig,
)
from phrasemodels.parsing.lexicon import Lexicon, SuffixRules
from phrasemodels.parsing.splitter import Splitter, SplitterConfig
from phrasemodels.parsing.words import sentences, universal_sentences
from phrasemodels.saved import (
    MisuseError,
    Uninitialised,
    check_finite,
    check_form,
    check_header,
    check_names,
    copied,
    fill,
    forms,
    restored,
)

ENGLISH = Path(__file__).parent / "english"
SIDES = ("words", "characters", "tags", "labels", "relations")  # of vocabularies
WEIGHTS, ABOUT, SPLITTER = "model.safetensors", "parser.json", "splitter.safetensors"
FORM = 1  # of parser.json
MOST_FUSED, LONGEST_FUSED = 20_000, 200  # multiword tokens of a splitter, and characters of each
SPLITS = (sentences, universal_sentences)  # functions that divide text


@dataclasses.dataclass(frozen=True)
class Saved:
    """All parts of a parser: model, vocabularies by side, decoder, card, splitter and lexicon."""

    model: JointParser
    config: ParserConfig
    entries: Mapping[str, Sequence[str]]
    decode: Any
    card: Mapping[str, Any]
    split: Any = sentences
    lexicon: Lexicon | None = None


def save(parser: Saved, folder: Path, precision: torch.dtype = torch.float16, force: bool = False) -> Path:
    """Write a folder for `load`. precision: of the weights on disk. float16 halves their size.

    ValueError: `load` would refuse it, for example for a pretrained encoder; or foreign files of the same names are there,
    and `force` does not say to replace them.
    """
    weights = _rounded(parser.model, precision)
    splitter = parser.split if isinstance(parser.split, Splitter) else None
    about = {
        "form": FORM,
        "card": dict(parser.card),
        # without the file that fixed word vectors were taken from, as they are among the weights
        "config": to_json(parser.config),
        "decode": to_json(parser.decode, {}),
        "split": _described(splitter) if splitter else to_json(parser.split, {}),
        "entries": {side: list(parser.entries[side]) for side in SIDES},
    }
    if parser.lexicon:
        own = (parser.lexicon.lemmas, parser.lexicon.features)
        about["lexicon"] = dict(zip(("lemmas", "features"), (rules.described() for rules in own), strict=True))
    text = json.dumps(about, ensure_ascii=False, allow_nan=False, indent=None) + "\n"
    check_form(_parts(json.loads(text), folder)["config"].build, forms(weights), cast=True)
    folder.mkdir(parents=True, exist_ok=True)
    files = {WEIGHTS: weights}
    if splitter:
        files[SPLITTER] = _rounded(splitter.model, precision)
    for name in (*files, ABOUT):
        check_replaceable(folder / name, force)
    for name, tensors in files.items():
        save_file(tensors, folder / name)
        (folder / name).chmod(0o644)  # safetensors writes for the user alone
    (folder / ABOUT).write_text(text, encoding="utf-8")
    return folder


def load(folder: Path) -> Saved:
    """Read a folder of `save`. ValueError: it is none, or damaged."""
    again = "save it again with `phrasemodels export --parser`"
    if not (folder / ABOUT).is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder.absolute()}: no saved parser: {ABOUT} or {WEIGHTS} is missing; {again}")
    try:
        check_folder(folder)
        parts = _parts(json.loads((folder / ABOUT).read_text(encoding="utf-8")), folder)
        check_header(parts["config"].build, folder / WEIGHTS, cast=True)
        with Uninitialised():
            model = parts["config"].build()
        _fill(model, folder / WEIGHTS)
        if isinstance(parts["split"], Splitter):
            config = parts["split"].config
            if not (folder / SPLITTER).is_file():
                raise ValueError(f"{SPLITTER} is missing")
            check_header(config.build, folder / SPLITTER, cast=True)
            with Uninitialised():
                splitter = config.build()
            _fill(splitter, folder / SPLITTER)
            parts["split"] = dataclasses.replace(parts["split"], model=splitter.eval())
        return Saved(model.eval(), **parts)
    except MisuseError as error:
        raise MisuseError(f"{folder}: {error}") from error
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


def _parts(about: Any, folder: Path) -> dict[str, Any]:
    """Return all of a saved parser but its model.

    ValueError: a part is missing, of another type or useless for a parser, or the sizes of the vocabularies differ from the
    configuration's.
    """
    if not isinstance(about, dict) or not isinstance(about.get("card"), dict):
        raise ValueError(f"{ABOUT} has no card")
    if (form := about.get("form")) != FORM or form is True:
        raise ValueError(f"its form is {form!r}, and this version reads {FORM}: upgrade phrasemodels")
    config, decode = (
        restored(about[name], kind, folder) for name, kind in (("config", ParserConfig), ("decode", Decode))
    )
    if isinstance(about["split"], dict):
        split = _splitter(about["split"], folder)
    else:
        split = restored(about["split"], Callable[[str], Any], folder)
    if decode not in DECODES.values() and not isinstance(decode, Jointly):
        raise ValueError(f"decode is {about['decode']}, which does not find trees")
    if not isinstance(split, Splitter) and split not in SPLITS:
        raise ValueError(f"split is {about['split']}, which does not divide text")
    entries = {side: about["entries"][side] for side in SIDES}
    for side, own in entries.items():
        if not isinstance(own, list) or not all(isinstance(entry, str) for entry in own):
            raise ValueError(f"entries.{side} is no list of texts")
        if len(set(own)) < len(own):
            raise ValueError(f"entries.{side} has an entry twice")
    for side in ("words", "characters", "tags"):
        if entries[side][: len(SPECIAL)] != list(SPECIAL):
            raise ValueError(f"entries.{side} does not begin with {', '.join(SPECIAL)}")
    for side in ("tags", "labels", "relations"):
        check_names(f"entries.{side}", entries[side])
        if not entries[side]:
            raise ValueError(f"entries.{side} is empty")
    sizes = {side: len(own) for side, own in entries.items()}
    if config.sized(sizes) != config:
        raise ValueError(f"the configuration is not of the {sizes} entries of the vocabularies")
    lexicon = None
    if "lexicon" in about:
        lexicon = Lexicon(*(SuffixRules.restored(about["lexicon"][name]) for name in ("lemmas", "features")))
    return {
        "config": config,
        "entries": entries,
        "decode": decode,
        "card": about["card"],
        "split": split,
        "lexicon": lexicon,
    }


def _described(splitter: Splitter) -> dict[str, Any]:
    return {
        "config": to_json(splitter.config, {}),
        "alphabet": list(splitter.alphabet),
        "fused": {token: list(words) for token, words in splitter.fused.items()},
        "spaces": splitter.spaces,
        "threshold": splitter.threshold,
    }


def _splitter(about: Mapping[str, Any], folder: Path) -> Splitter:
    """Return a splitter without weights. ValueError: a part is missing or of another type."""
    config = restored(about["config"], SplitterConfig, folder)
    alphabet, fused, spaces, threshold = (about[name] for name in ("alphabet", "fused", "spaces", "threshold"))
    if not isinstance(alphabet, list) or not all(isinstance(one, str) and len(one) == 1 for one in alphabet):
        raise ValueError("split.alphabet is no list of characters")
    if len(set(alphabet)) < len(alphabet) or len(alphabet) + 2 != config.characters:
        raise ValueError(f"split.alphabet has a character twice, or is not of {config.characters - 2}")
    if not isinstance(fused, dict) or len(fused) > MOST_FUSED:
        raise ValueError(f"split.fused is no mapping, or of more than {MOST_FUSED} tokens")
    for token, words in fused.items():
        if not isinstance(words, list) or not words or not all(_is_form(word) for word in [token, *words]):
            raise ValueError(f"split.fused[{token[:20]!r}] is no list of words")
    if not isinstance(spaces, bool) or not isinstance(threshold, float) or not 0 < threshold < 1:
        raise ValueError("split.spaces is no truth value, or split.threshold is not between 0 and 1")
    with torch.device("meta"), Uninitialised():
        model = config.build()
    return Splitter(model, config, alphabet, fused, spaces, threshold)


def _is_form(word: Any) -> bool:
    return (
        isinstance(word, str)
        and 0 < len(word) <= LONGEST_FUSED
        and word.split() != []
        and not set("\t\r\n") & set(word)
    )


def _rounded(model: torch.nn.Module, precision: torch.dtype) -> dict[str, Tensor]:
    """Return the saved part of a model, its parameters in another type. ValueError: one is too large, or not finite."""
    weights = copied(model)
    for name, parameter in model.named_parameters():
        weights[name] = weights[name].to(precision)
        if parameter.is_floating_point() and not weights[name].isfinite().all():
            raise ValueError(f"{name} is not finite as {precision}: pass precision=torch.float32, or train it again")
    return weights


def _fill(model: torch.nn.Module, file: Path) -> None:
    fill(model, load_file(file))
    check_finite(model)
