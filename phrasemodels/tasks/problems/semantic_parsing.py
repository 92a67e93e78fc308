"""Semantic parsing: from questions to logical forms."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import HasKey, Job, Step
from phrasemodels.inference.inputs import Tokeniser, no_phrases, spaces, without_pieces
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import Translation
from phrasemodels.layers.blocks import PAD
from phrasemodels.models.translation import BeamSearch, TranslationConfig
from phrasemodels.tasks.metrics.logic_match import KINDS, MATCHES, error_kind
from phrasemodels.tasks.metrics.scores import Score, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, phrases
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.tokenise import Tokenise, tokenise
from phrasemodels.tasks.prepare.vocabulary import (
    LearnBpe,
    VocabularySettings,
    apply_bpe,
    joined,
    learn_bpe,
    vocabulary,
)
from phrasemodels.tasks.problems.recipe import (
    ErrorKind,
    Outcome,
    Recipe,
    Section,
    Stage,
    Sweep,
    text_name,
    training_stage,
)
from phrasemodels.tasks.problems.sentence_data import PhraseBatch
from phrasemodels.tasks.problems.translation import (
    AnyTranslator,
    TranslateSettings,
    TranslationObjective,
    translate,
    translator_attention,
)
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import history

SIGNATURES = {
    "exact": "exact match, %",
    "logic": "logic match of Dong and Lapata (2018), %",
    "structure": "equal but for names of bound variables and order of arguments that commute, %",
}
AsText = Callable[[list[str]], str]  # tokens of a model -> the form that is compared


@dataclass(frozen=True)
class FormScoring:
    """How the tokens of a model become the form to compare."""

    text: AsText


def score_forms(job: Job, settings: FormScoring) -> dict[str, object]:
    """Score job.inputs["predictions"] with the raw pairs ["rows"]. ["train"] are the raw pairs of train.

    Each kind of match is given for all pairs and by group. `exact/new` is of pairs absent from train. `dev/exact` is on
    dev if there are ["dev_predictions"]. `parameters`: millions. `speed`: thousands of target words a second of the
    training ["model"].
    """
    new = ~_in_train(job.inputs["rows"], job.inputs["train"])
    right, table = matches(job.inputs["predictions"], settings.text)
    groups = np.array(
        [group or ("new" if fresh else "seen") for group, fresh in zip(table["group"].to_pylist(), new, strict=True)]
    )
    chosen = {"": np.ones(len(new), bool), "/new": new, **{f"/{g}": groups == g for g in sorted(set(groups))}}
    scores = {
        f"{name}{suffix}": _percent(name, found[rows])
        for name, found in right.items()
        for suffix, rows in chosen.items()
        if rows.any()
    }
    if "dev_predictions" in job.inputs:
        dev, _ = matches(job.inputs["dev_predictions"], settings.text)
        scores |= {f"dev/{name}": _percent(name, found) for name, found in dev.items()}
    model = job.inputs["model"]
    speed = float(np.median([row["items_per_second"] for row in history(model)])) / 1000
    scores["parameters"] = Score(model.meta["parameters"] / 1e6, "parameters, M", len(new))
    scores["speed"] = Score(speed, "target words of training a second, evaluation counted, K", len(new))
    statistics = {name: pa.array(np.stack([found, np.ones_like(found)], 1).tolist()) for name, found in right.items()}
    sentences = pa.table({"id": table["id"], "group": pa.array(groups), **statistics})
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])


def matches(predictions: Artifact, text: AsText) -> tuple[dict[str, NDArray[np.int64]], pa.Table]:
    """Return right predictions of each kind of match as 0 and 1 (rows) and the table of predictions."""
    table = read_shard(predictions.file("predictions.arrow"))
    hypotheses, references = (
        [text(tokens) for tokens in table[side].to_pylist()] for side in ("hypothesis", "reference")
    )
    right = {
        name: np.array([match(h, r) for h, r in zip(hypotheses, references, strict=True)], np.int64)
        for name, match in MATCHES.items()
    }
    return right, table


def _percent(name: str, right: NDArray[np.int64]) -> Score:
    return Score(100 * float(right.mean()), SIGNATURES[name], len(right))


def _in_train(rows: Artifact, train: Artifact) -> NDArray[np.bool_]:
    """Return which pairs of `rows` are also in train, word for word."""
    known = set(_pairs(train))
    return np.array([pair in known for pair in _pairs(rows)], bool)


def _pairs(rows: Artifact) -> list[tuple[str, str]]:
    table = read_shards(rows)
    return list(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))


EXAMPLES = 2
OVER_SEEDS = "Means over seeds, with bars from the lowest to the highest."


def merges(outcomes: Sequence[Outcome]) -> Iterator[Section]:
    """Yield matches on test against the merges of the byte-pair encoding, if rows differ in them (Figure 3)."""
    found: dict[str, dict[float, list[float]]] = {}
    for outcome in outcomes:
        count = outcome.recipe.forms.merges  # type: ignore[attr-defined]
        for metric in ("logic", "exact"):
            line = found.setdefault(f"{outcome.system} {outcome.variant}, {metric} match", {})
            line.setdefault(count, []).append(outcome.scored.meta["scores"][metric]["value"])
    if all(len(line) > 1 for line in found.values()):
        figure = Sweep(found, "merges of the byte-pair encoding", "matches")
        yield Section("Merges", f"{OVER_SEEDS} 0 merges are whole words.", figure=figure)


def accuracy_on_test(outcomes: Sequence[Outcome]) -> Iterator[Section]:
    """Yield the share of right words of the test set against updates (Figure 4).

    The gold words before a word are given. The trainings must have been watched there.
    """
    found: dict[str, dict[float, list[float]]] = {}
    for outcome in outcomes:
        for row in history(outcome.trained):
            line = found.setdefault(f"{outcome.system} {outcome.variant}", {})
            line.setdefault(row["step"], []).append(100 * (1 - row["dev_loss"]))
    figure = Sweep(found, "updates", "right words of test")
    text = f"{OVER_SEEDS} Each word is predicted from the gold words before it. The last weights are the model: nothing is chosen here."
    yield Section("Token accuracy against updates", text, figure=figure)


@dataclass(frozen=True)
class AnsweredQuestion:
    """A test question with its gold form and its predicted form.

    It says whether the form is right by logic match. It also says whether the licence allows to show its text.
    """

    question: str
    gold: str
    predicted: str
    right: bool
    shown: bool


def answered_questions(outcome: Outcome, text: AsText) -> list[AnsweredQuestion]:
    """Return all test questions of an outcome, in order."""
    right, table = matches(outcome.predicted, text)
    shown = bool(outcome.predicted.meta["redistributable"])
    columns = ([text(tokens) for tokens in table[side].to_pylist()] for side in ("source", "reference", "hypothesis"))
    rows = zip(*columns, right["logic"], strict=True)
    return [AnsweredQuestion(q, gold, predicted, bool(hit), shown) for q, gold, predicted, hit in rows]


def improvements(first_seeds: Sequence[Outcome], text: Callable[[Outcome], AsText]) -> Iterator[Section]:
    """Yield for each row its right questions that the first row on the same data gets wrong, by kind of error."""
    bases: list[tuple[Outcome, list[AnsweredQuestion]]] = []
    for outcome in first_seeds:
        answered = answered_questions(outcome, text(outcome))
        base = next((one for one in bases if one[0].recipe == outcome.recipe), None)
        if base is None:
            bases.append((outcome, answered))
        else:
            yield improvement(base[0].row, base[1], outcome.row, answered)


def improvement(base: str, first: Sequence[AnsweredQuestion], row: str, second: Sequence[AnsweredQuestion]) -> Section:
    """Return one row's right answers that are wrong in its base, another row on the same questions."""
    pairs = list(zip(first, second, strict=True))
    better = [one for one, other in pairs if other.right and not one.right]
    worse = sum(one.right and not other.right for one, other in pairs)
    by_kind: dict[str, list[AnsweredQuestion]] = {kind: [] for kind in KINDS}
    for one in better:
        by_kind[error_kind(one.predicted, one.gold)].append(one)
    kinds = []
    for kind, of_kind in by_kind.items():
        shown = [one for one in of_kind[:EXAMPLES] if one.shown]
        examples = [{"question": one.question, "gold": one.gold, base: one.predicted} for one in shown]
        kinds.append(ErrorKind(kind, len(of_kind), 100 * len(of_kind) / max(1, len(better)), examples))
    text = (
        f"{len(better)} questions that {row} gets right and {base} wrong, first seeds, by logic match; {worse} the other way "
        "round. The paper's three kinds of errors (Table 6), told apart by rule."
    )
    return Section(f"What {row} gets right", text, errors=kinds)


SAME = {"train": "train", "dev": "dev", "test": "test"}


@dataclass(frozen=True)
class Forms:
    """From questions and forms to tokens and ids.

    Args:
        tokeniser: The tokeniser of questions and forms.
        merges: Merges of the byte-pair encoding. 0: whole words.
        min_count: Words with fewer occurrences in train are unknown.
        joint: One vocabulary for both sides.
        longest: Drop longer sentences from train. 0: drop none.
        marks: Questions stand between <s> and </s>.
    """

    tokeniser: Tokeniser = spaces
    merges: int = 0
    min_count: int = 1
    joint: bool = True
    longest: int = 0
    marks: bool = True

    def __post_init__(self) -> None:
        at_least(self, 0, "merges", "longest")
        at_least(self, 1, "min_count")


@dataclass(frozen=True)
class SemanticParsingObjective(TranslationObjective):
    """Questions to logical forms. As in the paper, the best weights have the fewest wrong words on dev."""

    curve: ClassVar = "wrong words on dev (share)"

    def criterion(self, model: AnyTranslator, batch: PhraseBatch) -> Tensor:
        """Return the number of words unlike the likeliest one, given the gold words before them."""
        gold = batch.target[:, 1:]
        likeliest = model(batch.source, batch.lengths, batch.members, batch.target[:, :-1]).argmax(-1)
        return ((likeliest != gold) & (gold != PAD)).sum()


@dataclass(frozen=True)
class WatchedOnTest(SemanticParsingObjective):
    """The same with the test set as dev, as in Figure 4. The last weights are the model, so that nothing is chosen there."""

    curve: ClassVar = "wrong words on test (share)"
    keeps_last: ClassVar = True


@dataclass(frozen=True)
class SemanticParsingRecipe(Recipe):
    """A corpus of logical forms.

    Args:
        splits: Splits of the corpus for train, dev and test.
        score_dev: Score dev beside test. It is off if dev is a part of train, or test itself.
    """

    corpus: Corpus | SampleCorpus
    forms: Forms = field(default_factory=Forms)
    search: BeamSearch = field(default_factory=BeamSearch)
    splits: Mapping[str, str] = field(default_factory=lambda: dict(SAME))
    score_dev: bool = True
    objective: SemanticParsingObjective = SemanticParsingObjective()

    slug: ClassVar = "semantic-parsing"
    answer_columns: ClassVar = ("reference", "hypothesis")
    takes_text: ClassVar = True

    def data(self) -> dict[str, Step]:
        name = self.corpus.name
        raw = {ours: self.corpus.split(theirs) for ours, theirs in self.splits.items()}
        whole = {split: self._tokens(raw[split], f"{name} {split}") for split in raw}
        known: dict[str, Step] = {}
        if self.forms.merges:
            label = f"learn {self.forms.merges} merges of {name}"
            known["bpe"] = Step(learn_bpe, label, LearnBpe(self.forms.merges), {"rows": whole["train"]})
        tokens = {split: self._pieces(whole[split], known, f"{name} {split}") for split in raw}
        counting = VocabularySettings(self.forms.min_count, self.forms.joint)
        known["vocabulary"] = Step(vocabulary, f"vocabulary {name}", counting, {"rows": tokens["train"]})
        limits = {"train": self.forms.longest, "dev": 0, "test": 0}
        for split in raw:
            inputs = {"rows": tokens[split], "vocabulary": known["vocabulary"]}
            numbers = Phrases(no_phrases, 2, limits[split], self.forms.marks)
            known[split] = Step(phrases, f"numbers {name} {split}", numbers, inputs)
        tokens = {f"{split}_tokens": step for split, step in tokens.items()}
        return {**known, **tokens, **{f"{split}_raw": step for split, step in raw.items()}}

    def _tokens(self, rows: HasKey, label: str) -> Step:
        return Step(tokenise, f"tokenise {label}", Tokenise(self.forms.tokeniser, "en", "lf"), {"rows": rows})

    def _pieces(self, tokens: Step, known: Mapping[str, HasKey], label: str) -> Step:
        if "bpe" not in known:
            return tokens
        return Step(apply_bpe, f"pieces of {label}", None, {"rows": tokens, "bpe": known["bpe"]})

    def stages(self, model: TranslationConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        searching = TranslateSettings(self.objective, model, self.search)
        stages = {"model": training_stage(self.objective, model, config, seed)}
        inputs = {"rows": "test_raw", "train": "train_raw", "model": "model"}
        for split, name in (("test", "predictions"), ("dev", "dev_predictions")):
            if split == "test" or self.score_dev:
                own = {"model": "model", "phrases": split, "rows": f"{split}_tokens", "vocabulary": "vocabulary"}
                stages[name] = Stage(translate, searching, own)
                inputs[name] = name
        stages["scores"] = Stage(score_forms, FormScoring(self.form), inputs)
        return stages

    @property
    def form(self) -> AsText:
        """How the tokens of a model become a logical form."""
        return without_pieces if self.forms.merges else joined

    def test_rows(self) -> Step:
        return self.corpus.split(self.splits["test"])

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        return translator_attention(model, text)

    def own_parts(self) -> Mapping[str, Any]:
        return {text_name(self.forms.tokeniser): self.forms.tokeniser}

    def predictor(self, vocabulary: Artifact) -> Translation:
        search = self.search.within(vocabulary.meta.get("longest", 0))
        name, marks, pieces = text_name(self.forms.tokeniser), self.forms.marks, bool(self.forms.merges)
        return Translation(name, marks=marks, target="lf", pieces=pieces, search=dataclasses.asdict(search))

    def sections(self, outcomes: Sequence[Outcome], run: Callable[[Step], Artifact]) -> list[Section]:
        """Return merges or accuracy on test, and improvements by kind of error."""
        first = [outcome for outcome in outcomes if outcome.seed == outcomes[0].seed]
        forms = improvements(first, lambda outcome: outcome.recipe.form)  # type: ignore[attr-defined]
        watched = accuracy_on_test(outcomes) if isinstance(self.objective, WatchedOnTest) else merges(outcomes)
        return [*watched, *forms]
