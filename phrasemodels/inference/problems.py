"""Predictors, one class a problem: how a trained model answers texts in a store or exported folder.

A `Predictor` is plain data. `phrasemodels export` writes it beside the model's configuration. Its batches are the
batches of the pipeline. So its answers are the same.
"""

import dataclasses
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from phrasemodels.config import Decoder, at_least, at_most, one_of
from phrasemodels.inference.inputs import (
    NOTHING,
    STRUCTURES,
    Dependencies,
    Levels,
    Structure,
    detokeniser,
    hashed,
    ids_of,
    left_out,
    phrases,
    positions_of_heads,
    tokeniser,
    too_long,
    without_pieces,
    words_and_tree,
)
from phrasemodels.layers.blocks import BEGIN, END, PAD, SPECIAL, UNKNOWN, padded
from phrasemodels.models.parser import Jointly, JointParser, arcs_alone, phrases_alone, separately
from phrasemodels.models.tagger import Tagger
from phrasemodels.models.translation import BeamSearch, IncrementalDecoder, Translator, beam_search, with_source_words
from phrasemodels.parsing.ids import no_pieces
from phrasemodels.parsing.parser import Parse, Parser
from phrasemodels.saved import check_names

if TYPE_CHECKING:
    from phrasemodels.inference.loaded import LoadedModel

Tokens = Sequence[str]
OWN = "own"  # in place of the name of a part: `LoadedModel.parts` has the part, under the name of the field
# The most that the file of a model may ask for, so that an answer takes bounded time and memory: words of a phrase, hypotheses of
# a search, tokens of an answer, for each token of the text and beside these, and padded tokens of a batch.
PHRASE, BEAM, GROWTH, EXTRA, BATCH = 20, 100, 10, 2000, 1 << 15


@dataclass(frozen=True)
class Predictor(ABC):
    """How the model of a problem answers. `predict` of each problem says what it takes and gives.

    example: questions as code.
    """

    example: ClassVar[str] = '["the red house sleeps"]'
    sizes: ClassVar[
        Mapping[str, str]
    ] = {}  # fields of the configuration, and what each counts: a vocabulary, or labels
    names: ClassVar[Sequence[str]] = ()  # vocabularies of tags, labels and relations
    side: ClassVar[str] = "source"  # the vocabulary of the words that are read

    @abstractmethod
    def predict(self, model: "LoadedModel", inputs: Sequence[Any]) -> list[Any]:
        """Return the answer to each input."""

    def words_of(self, model: "LoadedModel", given: Any) -> list[str]:
        """Return the words of an input that are looked up in a vocabulary. Here: none, as of models that read letters."""
        return []

    def unknown_words(self, model: "LoadedModel", inputs: Sequence[Any]) -> list[str]:
        """Return the words of inputs that the vocabulary lacks, each once."""
        words = dict.fromkeys(word for given in inputs for word in self.words_of(model, given))
        return [word for word in words if word not in model.entries(self.side)]

    def as_text(self, answer: Any) -> str:
        """Return an answer as a line of text."""
        return str(answer)

    @property
    def portable(self) -> bool:
        """Whether a folder can hold all that answers need."""
        return True

    def check(self, config: Any, words: Mapping[str, Sequence[str]]) -> None:
        """Raise a ValueError unless vocabularies and labels have as many entries as the model of a configuration."""
        for side in self.names:
            check_names(side, words.get(side, ()))
        for field_name, counted in self.sizes.items():
            entries: Sequence[str] = getattr(self, "labels", ()) if counted == "labels" else words.get(counted, ())
            given, wanted = len(entries), getattr(config, field_name)
            if given != wanted:
                raise ValueError(f"{counted} has {given} entries, {field_name} of the model is {wanted}")

    def described(self) -> dict[str, Any]:
        """Return the predictor as JSON."""
        return {"problem": type(self).__name__, **dataclasses.asdict(self)}


def predictor(described: Mapping[str, Any]) -> Predictor:
    """Return the predictor that `described` wrote. ValueError: it is of another version, or damaged."""
    kind = PROBLEMS.get(str(described.get("problem")))
    if kind is None:
        raise ValueError(f"no problem {described.get('problem')!r}; known: {', '.join(PROBLEMS)}")
    made: Predictor = _read({name: value for name, value in described.items() if name != "problem"}, kind, "predictor")
    return made


def _read(described: Mapping[str, Any], kind: Any, where: str) -> Any:
    """Return the dataclass `kind` from a file of its fields. No field names a part.

    ValueError: a field is wrong.
    """

    def only(name: str) -> Any:
        if name != where:
            raise ValueError(f"{name} is no {where}")
        return kind

    return Decoder(only).read({"type": where, **described}, kind, where)


def _check_batch(config: Any) -> None:
    at_least(config, 1, "batch_tokens")
    at_most(config, BATCH, "batch_tokens")


def batches(lengths: Sequence[Sequence[int]], budget: int) -> Iterator[list[int]]:
    """Yield rows in batches of at most `budget` padded tokens of all sides, similar lengths together. lengths: of each row's
    sides."""
    sizes = np.array(lengths, np.int64).reshape(len(lengths), -1)
    batch: list[int] = []
    for row in np.argsort(sizes.sum(1), kind="stable").tolist():
        if batch and (len(batch) + 1) * sizes[[*batch, row]].max(0).sum() > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class Sentences(NamedTuple):
    """Ids (B, n), lengths (B) and phrases (B, m, k) of sentences."""

    source: Tensor
    lengths: Tensor
    members: Tensor

    def on(self, device: torch.device) -> "Sentences":
        """Return them on a device."""
        return Sentences(*(part.to(device) for part in self))


@dataclass(frozen=True)
class _Phrased(Predictor):
    """Sentences whose phrases are read. phrases: no_phrases, adjacent or subtrees. longest: words of a phrase. marks: the
    sentence stands between <s> and </s>."""

    tokeniser: str
    language: str = "en"
    phrases: str = "no_phrases"
    longest: int = 2
    marks: bool = True

    def __post_init__(self) -> None:
        at_least(self, 2, "longest")
        at_most(self, PHRASE, "longest")

    def tokens(self, model: "LoadedModel", text: str | Tokens) -> list[str]:
        """Return the tokens of a text, or tokens as they are given. ValueError: the text is too long."""
        if not isinstance(text, str):
            return list(text)
        if problem := too_long(text):
            raise ValueError(problem)
        return tokeniser(self.tokeniser, model.parts)(text, self.language)

    def words_of(self, model: "LoadedModel", given: Any) -> list[str]:
        return self.tokens(model, given)

    def numbered(self, model: "LoadedModel", tokens: Tokens) -> list[int]:
        """Return the ids of a sentence. Without marks an empty one is END alone as a target of attention."""
        ids = ids_of(tokens, model.entries("source"))
        return [BEGIN, *ids, END] if self.marks else ids or [END]

    def batch(self, ids: Sequence[Sequence[int]], heads: Sequence[Sequence[int]]) -> Sentences:
        """Return sentences as tensors.

        heads: of each sentence's positions from 0 (-1 for none). They are used by subtrees alone.
        """
        found = [phrases(self.phrases, len(own), self.longest, of) for own, of in zip(ids, heads, strict=True)]
        lengths = torch.tensor([len(own) for own in ids])
        return Sentences(padded(ids), lengths, padded(found, -1))


@dataclass(frozen=True)
class Translation(_Phrased):
    """Sentences to sentences: translation, logical forms, formulas.

    target: its language. detokenise: "" joins tokens by spaces. pieces: words are divided by byte-pair encoding.
    search: of the answer. outputs: pieces are put together.
    """

    sizes: ClassVar = {"source_vocabulary": "source", "target_vocabulary": "target"}

    target: str = "en"
    detokenise: str = ""
    pieces: bool = False
    search: Mapping[str, Any] = field(default_factory=dict)
    batch_tokens: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batch(self)
        search = _read(self.search, BeamSearch, "search")
        at_most(search, BEAM, "beam")
        at_most(search, GROWTH, "growth")
        at_most(search, EXTRA, "extra")

    def words_of(self, model: "LoadedModel", given: str | Tokens) -> list[str]:
        tokens = self.tokens(model, given)
        return model.pieces(tokens) if self.pieces else tokens

    def predict(self, model: "LoadedModel", inputs: Sequence[str | Tokens]) -> list[str]:
        """Return the answer to each text, or list of tokens."""
        divided = [self.words_of(model, text) for text in inputs]
        write = without_pieces if self.pieces else None
        running, words = detokeniser(self.detokenise, model.parts), model.words["target"]
        ids = [self.numbered(model, own) for own in divided]
        search, answers = BeamSearch(**self.search), [""] * len(ids)
        decoder = cast(IncrementalDecoder, model.module)
        for rows in batches([[len(ids[row]), 2] for row in range(len(ids))], self.batch_tokens):  # target: BEGIN, END
            batch = self.batch([ids[row] for row in rows], [()] * len(rows)).on(model.device)
            for row, (found, _) in zip(rows, beam_search(decoder, *batch, search), strict=True):
                tokens = [words[i] for i in found]
                if UNKNOWN in found and isinstance(model.module, Translator):
                    one = self.batch([ids[row]], [()]).on(model.device)
                    tokens = with_source_words(model.module, one, found, tokens, divided[row])
                answers[row] = write(tokens) if write else running(tokens, self.target)
        return answers


@dataclass(frozen=True)
class Tagging(_Phrased):
    """Sentences to a tag for each word."""

    sizes: ClassVar = {"vocabulary": "source", "tags": "target"}
    names: ClassVar = ("target",)

    batch_tokens: int = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batch(self)

    @torch.inference_mode()
    def predict(self, model: "LoadedModel", inputs: Sequence[str | Tokens | Mapping[str, Any]]) -> list[list[str]]:
        """Return the tags of each text's words or of a list of tokens.

        A model that reads dependency trees takes {"tokens": [...], "heads": [...]} with heads from 1 and 0 for the
        root.
        """
        rows: list[Mapping[str, Any]] = [
            dict(one) if isinstance(one, Mapping) else {"tokens": self.tokens(model, one)} for one in inputs
        ]
        if self.phrases == "subtrees" and (
            wrong := next((r for r in rows if len(r.get("heads", ())) != len(r["tokens"])), None)
        ):
            raise ValueError(
                f"{' '.join(wrong['tokens'])[:60]!r} has no heads, and this tagger reads dependency trees: give "
                '{"tokens": [...], "heads": [...]}'
            )
        ids = [self.numbered(model, row["tokens"]) for row in rows]
        above = [self._above(row.get("heads", ())) for row in rows]
        names = model.words["target"]
        known = torch.arange(len(SPECIAL), len(names), device=model.device)
        found: list[list[str]] = [[] for _ in rows]
        for some in batches([[len(own), len(own)] for own in ids], self.batch_tokens):
            batch = self.batch([ids[row] for row in some], [above[row] for row in some]).on(model.device)
            best, _ = cast(Tagger, model.module).tag(*batch, known)
            for row, tags in zip(some, best.tolist(), strict=True):
                found[row] = [names[tag] for tag in tags[1 : len(ids[row]) - 1]]
        return found

    def as_text(self, answer: list[str]) -> str:
        return " ".join(answer)

    def _above(self, heads: Sequence[int]) -> list[int]:
        """Return the position of each head where <s> is at 0, -1 for none."""
        return [-1, *(head or -1 for head in heads), -1]


DECODERS: Mapping[str, Any] = {part.__name__: part for part in (arcs_alone, phrases_alone, separately)}


@dataclass(frozen=True)
class Parsing(Predictor):
    """Sentences to trees. decode: Jointly with a weight, or another decoder. tokeniser: of one sentence. subwords: words are
    divided into pieces of a pretrained encoder."""

    names: ClassVar = ("tags", "labels", "relations")

    tokeniser: str = "penn_treebank"
    decode: str = "Jointly"
    weight: float = 0.5
    tags: str = "tags"
    subwords: bool = False

    def __post_init__(self) -> None:
        one_of(self, "decode", ("Jointly", *DECODERS, OWN))
        Jointly(self.weight)

    def predict(self, model: "LoadedModel", inputs: Sequence[str | Tokens]) -> list[Parse]:
        """Return the parse of each text (one sentence) or of a list of tokens."""
        if self.tags != "tags":
            raise ValueError(
                f"this parser reads the column {self.tags!r} of its treebank, tags by another program: text has none; "
                "take a parser that predicts tags, such as 004/parser/paper/lal"
            )
        for text in inputs:
            if isinstance(text, str) and (problem := too_long(text)):
                raise ValueError(problem)
        divide = tokeniser(self.tokeniser, model.parts)
        tokens = [divide(text, "en") if isinstance(text, str) else list(text) for text in inputs]
        return list(self.parser(model).parse_tokens(tokens))

    def parser(self, model: "LoadedModel") -> Parser:
        """Return the `Parser` of the model."""
        known = {**DECODERS, "Jointly": Jointly(self.weight)}
        decode = model.parts[OWN] if self.decode == OWN else known[self.decode]
        divide = model.subwords if self.subwords else no_pieces
        module = cast(JointParser, model.module)
        return Parser(module, model.words, decode, divide, card=model.card, config=model.config)

    def as_text(self, answer: Parse) -> str:
        """Return a parse as a JSON object: tokens, tags, tree, heads, relations."""
        known = {name: getattr(answer, name) for name in ("tokens", "tags", "heads", "relations")}
        known = {"tokens": known.pop("tokens"), "tags": known.pop("tags"), "tree": answer.brackets, **known}
        return json.dumps(known, ensure_ascii=False)

    @property
    def portable(self) -> bool:
        return self.decode != OWN


Pair = str | Sequence[str]


def pair_of(given: Pair) -> tuple[str, str]:
    """Return premise and hypothesis of a pair, or of a text with a tab between them. ValueError: it is no pair."""
    parts = given.split("\t") if isinstance(given, str) else list(given)
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{str(given)[:60]!r} is no pair: give (premise, hypothesis), or both with a tab between them")
    if problem := too_long(" ".join(parts)):
        raise ValueError(problem)
    return parts[0], parts[1]


@dataclass(frozen=True)
class _Structured(Predictor):
    """Sentences with a structure.

    structure: Levels or Dependencies with its fields. unknown: hashed or left_out. parser: the source of trees if the
    structure needs them, english (of this package) or none.
    """

    sizes: ClassVar = {"words": "words", "classes": "labels"}
    side: ClassVar = "words"

    labels: tuple[str, ...]
    tokeniser: str = "lower_spaces"
    structure: Mapping[str, Any] = field(default_factory=lambda: {"kind": "Levels"})
    unknown: str = "hashed"
    parser: str = ""
    batch_tokens: int = 8192

    def __post_init__(self) -> None:
        _check_batch(self)
        one_of(self, "unknown", ("hashed", "left_out", OWN))
        one_of(self, "parser", ("", "english"))
        if self.structure.get("kind") not in (*STRUCTURES, OWN):
            raise ValueError(f"structure: kind must be one of {', '.join(STRUCTURES)}")
        if self.structure["kind"] != OWN:
            _ = self._reads

    @property
    def portable(self) -> bool:
        return OWN not in (self.unknown, self.structure["kind"])

    def reads(self, model: "LoadedModel") -> Structure:
        """Return the structure that is read: Levels, Dependencies or one of a user's own."""
        own: Structure = model.parts["structure"] if self.structure["kind"] == OWN else self._reads
        return own

    @cached_property
    def _reads(self) -> Levels | Dependencies:
        fields = {
            name: list(value) if isinstance(value, tuple) else value  # which JSON has not
            for name, value in self.structure.items()
            if name != "kind"
        }
        made: Levels | Dependencies = _read(fields, STRUCTURES[self.structure["kind"]], "structure")
        return made

    def tokens(self, model: "LoadedModel", text: str) -> list[str]:
        """Return the tokens of a text or of a tree in brackets. There is at least one."""
        return tokeniser(self.tokeniser, model.parts)(words_and_tree(text)[0], "en") or [NOTHING]

    def words_of(self, model: "LoadedModel", given: Any) -> list[str]:
        return [token for text in self.texts_of(given) for token in self.tokens(model, text)]

    def texts_of(self, given: Any) -> Sequence[str]:
        """Return the sentences of an input."""
        return (given,)

    def sentences(
        self, model: "LoadedModel", texts: Sequence[str]
    ) -> tuple[list[list[int]], list[Any], list[list[str]]]:
        """Return ids, structures (n, k) and tokens of sentences. ValueError: they need trees and have none."""
        known, reads = model.entries("words", special=False), self.reads(model)
        tokens = [self.tokens(model, text) for text in texts]
        if self.unknown != "hashed":
            keep = model.parts["unknown"] if self.unknown == OWN else left_out
            tokens = [keep(own, known) for own in tokens]
        trees = [words_and_tree(text)[1] for text in texts]
        if reads.reads_trees and self.parser:
            missing = [row for row, tree in enumerate(trees) if not tree]
            for row, parse in zip(missing, model.english.parse_tokens([tokens[row] for row in missing]), strict=True):
                trees[row] = parse.brackets
        elif reads.reads_trees and not any(trees):
            raise ValueError(
                "no sentence has a tree: give trees in brackets, or take a model whose phrases need no trees"
            )
        structure = [reads(*row) for row in zip(tokens, trees, strict=True)]
        return [hashed(own, known) for own in tokens], structure, tokens

    @torch.inference_mode()
    def probabilities(self, model: "LoadedModel", inputs: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Return the probability of each label (rows, labels)."""
        sides = [self.sentences(model, side) for side in zip(*map(self.texts_of, inputs), strict=True)]
        found = np.zeros((len(inputs), len(self.labels)), np.float32)
        lengths = [[len(ids[row]) for ids, *_ in sides] for row in range(len(inputs))]
        for rows in batches(lengths, self.batch_tokens):
            ids = [own[row] for own, *_ in sides for row in rows]
            structure = [own[row] for _, own, _ in sides for row in rows]
            batch = (padded(ids), torch.tensor([len(own) for own in ids]), padded(structure, -1).transpose(1, 2))
            scores = model.module(*(part.to(model.device) for part in batch))
            found[rows] = scores.float().softmax(-1).cpu().numpy()
        return found

    def predict(self, model: "LoadedModel", inputs: Sequence[Any]) -> list[str]:
        """Return the label of each sentence or pair.

        A sentence may be a tree in brackets. A pair is (premise, hypothesis) or a text with a tab between them.
        """
        return [self.labels[best] for best in self.probabilities(model, inputs).argmax(1)]


@dataclass(frozen=True)
class Entailment(_Structured):
    """Pairs of sentences to labels, by the vectors of both."""

    example: ClassVar = '[("a man sleeps", "a person sleeps")]'

    def texts_of(self, given: Pair) -> Sequence[str]:
        return pair_of(given)


@dataclass(frozen=True)
class Classification(_Structured):
    """Sentences to labels, by their vectors."""


@dataclass(frozen=True)
class Decomposition(Predictor):
    """Pairs of sentences to labels, by attention between their words. outside: vectors that words without one share."""

    sizes: ClassVar = {"vocabulary": "words", "labels": "labels"}

    labels: tuple[str, ...]
    tokeniser: str = "lower_case"
    outside: int = 0
    batch_tokens: int = 4096

    def __post_init__(self) -> None:
        _check_batch(self)
        at_least(self, 0, "outside")

    example: ClassVar = '[("a man sleeps", "a person sleeps")]'

    @torch.inference_mode()
    def predict(self, model: "LoadedModel", inputs: Sequence[Pair]) -> list[str]:
        """Return the label of each pair: (premise, hypothesis) or both with a tab between them.

        A tree in brackets gives words their parents. Words of other texts have none.
        """
        sides = [[self.numbered(model, text) for text in side] for side in zip(*map(pair_of, inputs), strict=True)]
        found = [""] * len(inputs)
        lengths = [[len(side[row][0]) for side in sides] for row in range(len(inputs))]
        for rows in batches(lengths, self.batch_tokens):
            batch = []
            for side in sides:
                ids, above = zip(*(side[row] for row in rows), strict=True)
                parts = (padded(ids), torch.tensor([len(own) for own in ids]), padded(above, -1))
                batch.append(tuple(part.to(model.device) for part in parts))
            for row, label in zip(rows, model.module(*batch).argmax(-1).tolist(), strict=True):
                found[row] = self.labels[label]
        return found

    def numbered(self, model: "LoadedModel", text: str) -> tuple[list[int], list[int]]:
        """Return ids and heads of a sentence with the root in front (-1 for no head)."""
        text, tree = words_and_tree(text)
        words, entries = tokeniser(self.tokeniser, model.parts)(text, "en"), model.entries("words")
        ids = [entries[word] if word in entries else self._unknown(word, len(model.words["words"])) for word in words]
        return [BEGIN, *ids], positions_of_heads(tree, len(words))

    def _unknown(self, word: str, entries: int) -> int:
        if self.outside > entries:
            raise ValueError(f"outside={self.outside}: the vocabulary has {entries} words")
        return entries - self.outside + zlib.crc32(word.encode()) % self.outside if self.outside else UNKNOWN


Story = str | tuple[Sequence[str], str]


@dataclass(frozen=True)
class Answering(Predictor):
    """Stories and a question to a word. slots: last facts that are kept. most: words of a fact or question."""

    sizes: ClassVar = {"vocabulary": "words"}

    slots: int = 25
    most: int = 20
    batch_tokens: int = 8192

    def __post_init__(self) -> None:
        _check_batch(self)
        at_least(self, 1, "slots", "most")

    example: ClassVar = '["Mary went home. Where is Mary?"]'

    @torch.inference_mode()
    def predict(self, model: "LoadedModel", inputs: Sequence[Story]) -> list[str]:
        """Return the answer to each story.

        A story is (facts, question). Or it is one text of facts and then a question, each with a mark at its end.
        """
        stories = [self.numbered(model, story) for story in inputs]
        found = [""] * len(stories)
        for rows in batches([[len(facts), len(asked)] for facts, asked in stories], self.batch_tokens):
            best = model.module(*(part.to(model.device) for part in self.batch([stories[row] for row in rows]))).argmax(
                -1
            )
            for row, answer in zip(rows, best.tolist(), strict=True):
                found[row] = model.words["words"][answer]
        return found

    def batch(self, stories: Sequence[tuple[list[list[int]], list[int]]]) -> tuple[Tensor, Tensor]:
        """Return facts (B, n, w) and questions (B, v) of numbered stories."""
        longest = max(1, *(len(facts) for facts, _ in stories))
        width = max(1, *(len(fact) for facts, _ in stories for fact in facts), 0)
        ids = np.full((len(stories), longest, width), PAD, np.int64)
        for out, (facts, _) in zip(ids, stories, strict=True):
            for place, fact in enumerate(facts, longest - len(facts)):  # a shorter story has empty facts in front
                out[place, : len(fact)] = fact
        return torch.from_numpy(ids), padded([question for _, question in stories])

    def numbered(self, model: "LoadedModel", story: Story) -> tuple[list[list[int]], list[int]]:
        """Return the ids of the facts and of the question."""
        *facts, question = story_of(story)
        divide, entries = tokeniser("words", {}), model.entries("words")
        numbers = [ids_of(divide(text, "en")[: self.most], entries) for text in (*facts[-self.slots :], question)]
        return numbers[:-1], numbers[-1]


def story_of(story: Story) -> list[str]:
    """Return the facts and the question of a story. ValueError: it is none."""
    if isinstance(story, str):
        parts = [part.strip() for part in re.split(r"[.?!]", story) if part.strip()]
    else:
        facts, question = story
        parts = [*facts, question]
    if len(parts) < 2:
        raise ValueError(
            f"{str(story)[:60]!r} is no story: give facts and then a question, each with a mark at its end"
        )
    return parts


def described(structure: Structure) -> dict[str, Any]:
    """Return a structure as exported models name it: of one of the user's own, that it is."""
    if not isinstance(structure, Levels | Dependencies):
        return {"kind": OWN}
    return {"kind": type(structure).__name__, **dataclasses.asdict(structure)}


PROBLEMS: Mapping[str, type[Predictor]] = {
    kind.__name__: kind
    for kind in (Translation, Tagging, Parsing, Entailment, Classification, Decomposition, Answering)
}
