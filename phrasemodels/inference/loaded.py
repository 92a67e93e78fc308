"""A trained model for use, from an exported folder: its module, its vocabularies, its card, and its answers."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from phrasemodels.inference.problems import Predictor, predictor
from phrasemodels.inference.text import Pieces
from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.parsing.parser import Parser
from phrasemodels.saved import DAMAGED, LIBRARY, check_header, finite, name_of, restored

MOST_TEXTS = 256  # answered at a time


@dataclass(frozen=True)
class LoadedModel:
    """A trained model for use.

    module: ready to predict. words: the entries of each vocabulary, by id. card: its training, corpus, scores and licences.
    folder: where it was loaded from. predictor: how it answers; None if it was exported by an earlier version. parts: the
    caller's classes and functions, by "module:name".
    """

    module: nn.Module
    config: Any
    words: Mapping[str, Sequence[str]]
    card: Mapping[str, Any]
    folder: Path
    predictor: Predictor | None = None
    parts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def predict(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the answer to each input, as the pipeline gives it: a translation, a logical form or a formula as text, the
        tags of words, a `Parse`, a label, or the answer to a question.

        inputs: texts, or lists of tokens; (premise, hypothesis) for entailment, (facts, question) for stories. TypeError: one
        text in place of several. ValueError: a text is too long, or the model takes no texts.
        """
        if isinstance(inputs, str):
            raise TypeError(f"one text: give a list, predict([{inputs[:20]!r}])")
        if self.predictor is None:
            raise ValueError(f"{self.folder}: nothing says how this model answers; export it again")
        inputs = list(inputs)
        chunks = [inputs[first : first + MOST_TEXTS] for first in range(0, len(inputs), MOST_TEXTS)]
        return [answer for chunk in chunks for answer in self.predictor.predict(self, chunk)]

    def ids(self, tokens: Sequence[str], side: str = "source") -> list[int]:
        """Return the ids of tokens in a vocabulary; an unknown token has the id of all unknown ones."""
        return [self.entries(side).get(token, UNKNOWN) for token in tokens]

    @functools.cached_property
    def _entries(self) -> dict[str, dict[str, int]]:
        return {side: {word: place for place, word in enumerate(own)} for side, own in self.words.items()}

    def entries(self, side: str, special: bool = True) -> Mapping[str, int]:
        """Return the ids of a vocabulary's entries. special: whether the first ones, as <unk>, stand for no word."""
        return {w: k for w, k in self._entries[side].items() if w not in SPECIAL} if special else self._entries[side]

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))

    @functools.cached_property
    def pieces(self) -> Callable[[Sequence[str]], list[str]]:
        """From words to pieces of words. ValueError: the model reads whole words."""
        if not (self.folder / "bpe" / "bpe.json").is_file():
            raise ValueError(f"{self.folder}: this model reads whole words")
        return Pieces(self.folder / "bpe" / "bpe.json")

    @functools.cached_property
    def english(self) -> Any:
        """The English parser of this package."""
        return Parser.load()


def load_folder(folder: str | Path, *parts: Any) -> Any:
    """Load an exported model. parts: one's own classes and functions that its configuration names. ValueError: it is none,
    or damaged."""
    place = Path(folder)
    if not (place / LIBRARY).is_file():
        raise ValueError(f"{place}: there is no {LIBRARY}; write it with `phrasemodels export`")
    try:
        about = json.loads((place / LIBRARY).read_text(encoding="utf-8"))
        own = {name_of(part): part for part in parts}
        config = restored(about["config"], place, own)
        weights = place / "model" / "model.safetensors"
        check_header(config.build, weights)
        module: nn.Module = config.build()
        _fill(module, weights)
        words = {
            path.stem: path.read_text(encoding="utf-8").split("\n")[:-1]
            for path in sorted((place / "vocabulary").glob("*.txt"))
        }
        card = json.loads((place / "card.json").read_text(encoding="utf-8"))
        how = predictor(about["predictor"]) if "predictor" in about else None
        return LoadedModel(module.eval(), config, words, card, place, how, own)
    except DAMAGED as error:
        raise ValueError(f"{place}: this model cannot be read ({error}); export it again") from error


@torch.no_grad()
def _fill(module: nn.Module, file: Path) -> None:
    weights = finite(load_file(file))
    for name, parameter in module.named_parameters():
        parameter.copy_(weights[name])
