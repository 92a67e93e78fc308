"""Trained models, drawn on a text: attention to segments, chains of facts, soft parents with the best tree (paper 003), and
the phrases that n-gram heads find alike (paper 002)."""

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.encoders.ngram import NgramEncoderConfig
from phrasemodels.encoders.parents import SoftParents
from phrasemodels.flows.report import structures
from phrasemodels.flows.report.gram_figure import gram_figure
from phrasemodels.flows.results.models import Model
from phrasemodels.flows.results.stores import open_store
from phrasemodels.infra.settings import Settings
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.answering.data import words as words_of
from phrasemodels.tasks.problems.answering.objective import Answering
from phrasemodels.tasks.problems.answering.recipe import AnsweringRecipe
from phrasemodels.tasks.problems.decomposition.data import ROOT
from phrasemodels.tasks.problems.decomposition.objective import Decomposition
from phrasemodels.tasks.problems.decomposition.recipe import DecompositionRecipe
from phrasemodels.tasks.problems.semantic_parsing.recipe import SemanticParsingRecipe
from phrasemodels.tasks.problems.translation.recipe import TranslationRecipe
from phrasemodels.tasks.train.checkpoints import load_tensors

UNKNOWN, BEGIN, END = 1, 2, 3


def draw(models: Sequence[Model], text: str, target: str = "") -> str:
    """SVG of what the models do with a text: for answers facts and then a question, each ended by a mark; for n-grams
    phrases of the test set, apart by semicolons; for the others a sentence. Translators may be several, side by side,
    and show the `target`, or else the last one's translation."""
    if not text.strip():
        raise ValueError("an empty text: give a sentence")
    first = models[0].experiment
    if isinstance(first.recipe, TranslationRecipe) and isinstance(first.model, RecurrentConfig):
        return _segments(models, first.recipe, text, target)
    if len(models) > 1:
        raise ValueError(f"{first.name}: only translators stand side by side; name one model")
    if isinstance(first.recipe, AnsweringRecipe):
        return _facts(models[0], text)
    if isinstance(first.recipe, DecompositionRecipe):
        return _parents(models[0], text)
    if isinstance(first.recipe, SemanticParsingRecipe) and isinstance(first.model.encoder, NgramEncoderConfig):
        return _grams(models[0], first.recipe, [phrase.strip() for phrase in text.split(";") if phrase.strip()])
    raise ValueError(f"{first.name} has no figure of its own; see `phrasemodels attend`")


def _segments(models: Sequence[Model], recipe: TranslationRecipe, text: str, target: str) -> str:
    languages = recipe.text.source_language, recipe.text.target_language
    source = recipe.text.tokeniser(text, languages[0])
    wanted = target or models[-1].predict([text])[0]
    tokens, vocabulary = recipe.text.tokeniser(wanted, languages[1]), models[0].vocabulary
    if any(m.vocabulary.key != vocabulary.key for m in models):
        raise ValueError("models with other vocabularies cannot stand side by side; name models of one source")
    ids = (
        torch.tensor([BEGIN, *_numbers(source, read_words(vocabulary, "source")), END]),
        torch.tensor([BEGIN, *_numbers(tokens, read_words(vocabulary, "target"))]),
    )
    known = {
        m.experiment.variant.partition(",")[0]: _built(m, recipe.problem.configure(m.experiment.model, vocabulary))
        for m in models
    }
    return structures.segments(known, ["<s>", *source, "</s>"], [*tokens, "</s>"], ids)


def _facts(model: Model, text: str) -> str:
    parts = [part.strip() for part in re.split(r"[.?!]", text) if part.strip()]
    if len(parts) < 2:
        raise ValueError(f"{text[:60]!r} is no story: give facts and then a question, each with a mark at its end")
    *facts, question = parts
    names, rows = read_words(model.vocabulary, "words"), [words_of(fact) for fact in facts]
    longest = max(map(len, rows))
    told = torch.tensor([_numbers(row, names) + [0] * (longest - len(row)) for row in rows])
    asked = torch.tensor(_numbers(words_of(question), names))
    built = _built(model, Answering().configure(model.experiment.model, model.vocabulary))
    return structures.facts(built, facts, f"{question}?", (told, asked))


def _parents(model: Model, text: str) -> str:
    words = text.lower().split()
    built = _built(model, Decomposition().configure(model.experiment.model, model.vocabulary))
    if not isinstance(built.parents, SoftParents):
        raise ValueError(f"{model.experiment.name} has no soft parents to draw")
    with torch.inference_mode():
        embedded = built.embed(torch.tensor([ROOT, *_numbers(words, read_words(model.vocabulary, "words"))]))
    return structures.parents(built.parents, embedded, words)


def _grams(model: Model, recipe: SemanticParsingRecipe, phrases: Sequence[str]) -> str:
    with TemporaryDirectory() as folder:
        made = Store(Path(folder)).open().run(recipe.grams(model.experiment.model, {**model.known, **tested(model)}))
        return gram_figure(read_shard(made.file("grams.arrow")), phrases)


def tested(model: Model) -> dict[str, Artifact]:
    """Numbers and tokens of the test set that a model of the store has answered."""
    artifacts = {artifact.key: artifact for artifact in open_store(Settings()).artifacts()}
    translated = [a.manifest["parts"]["inputs"] for a in artifacts.values() if a.manifest["step"] == "translate"]
    for inputs in (one for one in translated if artifacts.keys() >= set(one.values())):
        numbers = artifacts[inputs["phrases"]]
        if inputs["model"] == model.weights.key and numbers.manifest["label"].endswith(" test"):
            return {"test": numbers, "test_tokens": artifacts[inputs["rows"]]}
    raise ValueError(f"{model.experiment.name}: the store has no answers of this model to its test set; train it here")


def _built(model: Model, config: Any) -> Any:
    """The module of a configuration, with the model's weights."""
    built = config.build()
    load_tensors(built, load_file(model.weights.file("model.safetensors")))
    return built.eval()


def _numbers(tokens: Sequence[str], vocabulary: Sequence[str]) -> list[int]:
    ids = {word: i for i, word in enumerate(vocabulary) if word not in SPECIAL}
    return [ids.get(token, UNKNOWN) for token in tokens]
