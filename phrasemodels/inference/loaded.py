"""A trained model for use, from an exported folder: its module, its vocabularies, its card, and its answers."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phrasemodels.config import name_of, parts_of
from phrasemodels.folders import check_folder, copy_folder, writing_folder
from phrasemodels.inference.inputs import Pieces
from phrasemodels.inference.problems import Predictor, predictor
from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.parsing.ids import ExportedPieces
from phrasemodels.parsing.parser import Parser
from phrasemodels.saved import (
    DAMAGED,
    DTYPES,
    LIBRARY,
    MisuseError,
    Pretrained,
    check_finite,
    check_form,
    check_header,
    check_modules,
    copied,
    describe,
    fill,
    first_line,
    forms,
    importable,
    own_parts,
    readme,
    restored,
)

MOST_TEXTS = 256  # answered at a time
# in a folder
BPE, CARD, ENCODER, README, WEIGHTS = "bpe/bpe.json", "card.json", "encoder", "README.md", "model/model.safetensors"
MANIFEST = "manifest.json"  # of an artifact of the pipeline, in a folder that `phrasemodels export` wrote


def model_readme(card: Mapping[str, Any], predictor: Predictor | None, config: Any) -> str:
    """Return README.md of an exported model, with the lines that load it: a part of one's own is imported and passed."""
    use = [f"print(model.predict({predictor.example}))"] if predictor else ["print(model.module)"]
    own = [importable(name) for name in own_parts(config)]
    given = ", ".join(['"FOLDER OR NAME"', *(part for _, part in own)])
    loading = [
        "from phrasemodels import LoadedModel",
        *(f"from {module} import {part.partition('.')[0]}" for module, part in own),
        "",
        f"model = LoadedModel.from_pretrained({given})",
        *use,
    ]
    return readme(card, "\n".join(loading), type(predictor).__name__.lower() if predictor else "module")


@dataclass(frozen=True)
class LoadedModel(Pretrained):
    """A trained model for use, or any module built by a configuration of this library, to be saved.

    Example: `LoadedModel(encoder, config).save_pretrained("encoder")`, then
    `LoadedModel.from_pretrained("encoder").module`.

    Args:
        module: Ready to predict.
        words: Entries of each vocabulary, by id.
        card: Its training, corpus, scores and licences.
        folder: Where it was loaded from, if it was.
        predictor: How it answers, if that is known.
        parts: The caller's classes and functions, by "module:name".
        bpe: File of the merges of its words' pieces, if it reads pieces.
    """

    module: nn.Module
    config: Any
    words: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    card: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    folder: Path | None = None
    predictor: Predictor | None = None
    parts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bpe: Path | None = None

    def predict(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the answer to each input, as the pipeline gives it.

        It is a translation, a logical form or a formula as text, the tags of words, a `Parse`, a label, or the answer to a
        question.

        Args:
            inputs: Texts, or lists of tokens. (premise, hypothesis) for entailment, (facts, question) for stories.

        Raises:
            TypeError: One text in place of several.
            ValueError: A text is too long, or the model takes no texts.
        """
        if isinstance(inputs, str):
            raise TypeError(f"one text: give a list, predict([{inputs[:20]!r}])")
        if self.predictor is None:
            raise ValueError(
                f"{self.folder or 'this model'}: nothing says how it answers texts: "
                "a problem of one's own says it by `Recipe.predictor`. `module` takes tensors"
            )
        inputs = list(inputs)
        chunks = [inputs[first : first + MOST_TEXTS] for first in range(0, len(inputs), MOST_TEXTS)]
        return [answer for chunk in chunks for answer in self.predictor.predict(self, chunk)]

    def ids(self, tokens: Sequence[str], side: str = "source") -> list[int]:
        """Return the ids of tokens in a vocabulary. All unknown tokens have one id."""
        return [self.entries(side).get(token, UNKNOWN) for token in tokens]

    @functools.cached_property
    def _entries(self) -> dict[str, dict[str, int]]:
        return {side: {word: place for place, word in enumerate(own)} for side, own in self.words.items()}

    def entries(self, side: str, special: bool = True) -> Mapping[str, int]:
        """Return the ids of a vocabulary's entries.

        Args:
            special: Include the first ones, for example <unk>. They stand for no word.
        """
        return {w: k for w, k in self._entries[side].items() if w not in SPECIAL} if special else self._entries[side]

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return next((one.device for one in self.module.parameters()), torch.device("cpu"))

    @functools.cached_property
    def pieces(self) -> Callable[[Sequence[str]], list[str]]:
        """From words to pieces of words.

        Raises:
            ValueError: The model reads whole words.
        """
        if self.bpe is None or not self.bpe.is_file():
            raise ValueError(f"{self.folder or 'this model'}: there is no {BPE}: it reads whole words")
        return Pieces(self.bpe)

    @functools.cached_property
    def subwords(self) -> Callable[[Sequence[str]], dict[str, list[int]]]:
        """From words to ids of pieces of a pretrained encoder. ValueError: the model has no such encoder."""
        if "divide" in self.parts:
            return self.parts["divide"]
        if self.folder is None:
            raise ValueError("this model has no tokeniser of a pretrained encoder")
        return ExportedPieces(str(self.folder / ENCODER))

    def save_pretrained(self, folder: str | Path, force: bool = False) -> Path:
        """Write the model to a folder for `phrasemodels.load`: configuration, weights, vocabularies, card.

        Further files of its original folder are copied.

        Args:
            folder: A new or empty folder.
            force: Replace its content.

        Raises:
            ValueError: The folder is not empty, a weight is not finite, or `phrasemodels.load` could not read the model.
        """
        check_finite(self.module)
        if self.folder and not self.folder.is_dir():
            raise ValueError(f"{self.folder}, which this model was loaded from, is gone: load it from where it is now")
        parts = {path.name: path for path in self.folder.iterdir() if path.is_dir()} if self.folder else {}
        said = describe(self.config, parts, self.predictor.described() if self.predictor else None)
        weights = copied(self.module)
        self._check_described(said["config"], weights)
        try:
            json.dumps(dict(self.card))
        except TypeError as error:
            raise ValueError(f"the card has what JSON cannot have ({error}): give numbers and texts of Python") from error
        with writing_folder(Path(folder), force) as new:
            self._write(new, said, weights)
        return Path(folder)

    def _check_described(self, config: Any, weights: Mapping[str, Tensor]) -> None:
        """Raise a ValueError unless the configuration, read again, builds this model with these weights, and its words are lines."""
        if isinstance(self.config, type) or not callable(getattr(self.config, "build", None)):
            raise ValueError(f"{self.config!r} is no configuration: it has no build() that makes the module")
        if other := [name for name, (_, dtype) in forms(weights).items() if dtype not in DTYPES.values()]:
            raise ValueError(f"{other[0]} is {weights[other[0]].dtype}, which a file of weights cannot have: cast it")
        for side, entries in self.words.items():
            if Path(f"{side}.txt").stem != side:
                raise ValueError(f"words has {side!r}: a vocabulary's name is that of its file, without a folder")
            if wrong := [word for word in entries if not {"\n", "\r"}.isdisjoint(word)]:
                raise ValueError(
                    f"words[{side!r}] has {wrong[0][:20]!a}: an entry is a line of a file; write its line end as <n>"
                )
        own = list(parts_of(self.config))
        made = restored(json.loads(json.dumps(config)), Any, self.folder or Path(), own)
        check_modules(self.module, check_form(made.build, forms(weights)))

    def _write(self, to: Path, said: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        if self.folder is not None:
            copy_folder(self.folder, to)
            if not _same(weights, load_file(to / WEIGHTS)):  # trained further: the manifests vouch for other weights
                for manifest in to.glob(f"*/{MANIFEST}"):
                    manifest.unlink()
        for name in ("model", "vocabulary"):
            (to / name).mkdir(parents=True, exist_ok=True)
        save_file(dict(weights), to / WEIGHTS)
        (to / WEIGHTS).chmod(0o644)  # safetensors writes for the user alone
        for side, entries in self.words.items():
            (to / "vocabulary" / f"{side}.txt").write_text("".join(f"{word}\n" for word in entries), encoding="utf-8")
        (to / CARD).write_text(json.dumps(dict(self.card), indent=1, ensure_ascii=False), encoding="utf-8")
        (to / README).write_text(model_readme(self.card, self.predictor, self.config), encoding="utf-8")
        (to / LIBRARY).write_text(json.dumps(said, indent=1), encoding="utf-8")

    @classmethod
    def _from_folder(cls, folder: Path, *parts: Any) -> "LoadedModel":
        return load_folder(folder, *parts)

    @functools.cached_property
    def english(self) -> Any:
        """The English parser of this package."""
        return Parser.load()


def _same(weights: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)


def load_folder(folder: str | Path, *parts: Any) -> LoadedModel:
    """Load an exported model. parts: one's own classes and functions that its configuration names. ValueError: it is none,
    or damaged."""
    place = Path(folder)
    if not (place / LIBRARY).is_file():
        raise ValueError(f"{place}: there is no {LIBRARY}; write it with `phrasemodels export`")
    try:
        check_folder(place)
        about = json.loads((place / LIBRARY).read_text(encoding="utf-8"))
        config = restored(about["config"], Any, place, parts)
        weights = place / WEIGHTS
        check_header(config.build, weights)
        module: nn.Module = config.build()
        fill(module, load_file(weights))
        check_finite(module)
        words = {
            path.stem: path.read_text(encoding="utf-8").split("\n")[:-1]
            for path in sorted((place / "vocabulary").glob("*.txt"))
        }
        card = json.loads((place / CARD).read_text(encoding="utf-8"))
        how = predictor(about["predictor"]) if "predictor" in about else None
        if how is not None:
            how.check(config, words)
        own = {name_of(part): part for part in parts}
        return LoadedModel(module.eval(), config, words, card, place, how, own, place / BPE)
    except MisuseError as error:
        raise MisuseError(f"{place}: {error}") from error
    except DAMAGED as error:
        raise ValueError(f"{place}: this model cannot be read ({first_line(error)}); export it again") from error
