"""Question answering over stories (bAbI)."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Job, Step, Store
from phrasemodels.inference.inputs import words
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import Answering, story_of
from phrasemodels.layers.blocks import PAD, SPECIAL, UNKNOWN
from phrasemodels.models.memory import Chain, ChainConfig, Hops, HopsConfig
from phrasemodels.saved import check_finite
from phrasemodels.tasks.metrics.scores import Score, write_scores
from phrasemodels.tasks.prepare.corpora import AnyCorpus
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required, run_step, shards
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_ids, read_words, write_words
from phrasemodels.tasks.problems.recipe import Recipe, Stage
from phrasemodels.tasks.problems.sentence_data import attention_row
from phrasemodels.tasks.train.batches import Batch, ListExamples, Rows, in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, load_tensors, load_trained
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import HISTORY, PROGRESS, DivergedError, Objective, TrainSettings, train


def story_vocabulary(job: Job, settings: None) -> dict[str, Any]:
    """Write words.txt: the words and answers of the STORIES job.inputs["rows"].

    An answer of several words is one entry.
    """
    table = read_shards(job.inputs["rows"])
    counts = Counter(answer.lower() for answer in table["answer"].to_pylist())
    for facts, question in zip(table["facts"].to_pylist(), table["question"].to_pylist(), strict=True):
        counts.update(word for text in (*facts, question) for word in words(text))
    return {"words": write_words(job.out, "words", by_frequency(counts))}


def story_schema(width: int) -> pa.Schema:
    """Return the schema of numbered stories.

    facts: ids of the last facts, padded to `width` words. answer: one id. support: places of the supporting facts in
    `facts`. It is -1 if a fact was left out.
    """
    number = pa.field("item", pa.int32(), nullable=False)
    numbers, facts = pa.list_(number), pa.list_(pa.field("item", pa.list_(number, width), nullable=False))
    return required(id=pa.int64(), facts=facts, question=numbers, answer=numbers, support=numbers, group=pa.string())


@dataclass(frozen=True)
class StoryLimits:
    """The part of a story to keep.

    Args:
        slots: Keep so many last facts of a story.
        words: Words of a fact or question, at most.
    """

    slots: int = 25
    words: int = 20

    def __post_init__(self) -> None:
        at_least(self, 1, "slots", "words")


def stories(job: Job, settings: StoryLimits) -> dict[str, Any]:
    """Write shards of ids of the STORIES job.inputs["rows"] in a step for each shard.

    It also reads ["vocabulary"].
    """
    return map_shards(job, story_shard, settings, vocabulary=job.inputs["vocabulary"])


def story_shard(job: Job, settings: StoryLimits) -> dict[str, Any]:
    """Write the ids of one shard. No question is dropped."""
    ids = read_ids(job.inputs["vocabulary"], "words")

    def numbers(text: str) -> list[int]:
        return [ids.get(word, UNKNOWN) for word in words(text)[: settings.words]]

    rows = []
    for row in read_shard(job.inputs["shard"].path).to_pylist():
        facts = [numbers(fact) for fact in row["facts"][-settings.slots :]]
        left_out = len(row["facts"]) - len(facts)
        rows.append(
            {
                "id": row["id"],
                "facts": [fact + [PAD] * (settings.words - len(fact)) for fact in facts],
                "question": numbers(row["question"]),
                "answer": [ids.get(row["answer"].lower(), UNKNOWN)],
                "support": [max(place - left_out, -1) for place in row["support"]],
                "group": row["group"],
            }
        )
    made = pa.Table.from_pylist(rows, schema=story_schema(settings.words))
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}


MemoryConfig = HopsConfig | ChainConfig


@dataclass(frozen=True)
class StoryBatch(Batch):
    """Padded ids of facts (B, n, w) with the last fact last, of questions (B, v), and of answers (B)."""

    facts: Tensor
    question: Tensor
    answer: Tensor


class StoryExamples(ListExamples):
    """Rows of story shards."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths, ("facts", "question", "answer"), ("facts", "question"))

    def batch(self, rows: Rows) -> StoryBatch:
        """Return some rows of stories.

        Stories with fewer facts have empty ones in front. w is the longest fact's length.
        """
        facts = [self.row("facts", row) for row in rows]
        width = max((int(story.any(0).sum()) for story in facts), default=0)
        padded = np.zeros((len(rows), max(1, *map(len, facts)), max(1, width)), np.int64)
        for out, story in zip(padded, facts, strict=True):
            out[len(out) - len(story) :] = story[:, :width]
        answer = self.padded("answer", rows)[:, 0]
        return StoryBatch(torch.from_numpy(padded), self.padded("question", rows), answer)


@dataclass(frozen=True)
class AnsweringObjective(Objective):
    """Facts and a question to a word: mean loss a question.

    The best weights have the fewest wrong answers on dev.
    """

    curve: ClassVar = "wrong answers on dev (share of questions)"

    def configure(self, model: MemoryConfig, vocabulary: Artifact) -> MemoryConfig:
        return replace(model, vocabulary=vocabulary.meta["words"])

    def examples(self, paths: Sequence[Path]) -> StoryExamples:
        return StoryExamples(paths)

    def loss(self, model: nn.Module, batch: StoryBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the answers."""
        scores = model(batch.facts, batch.question)
        return F.cross_entropy(scores, batch.answer, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: nn.Module, batch: StoryBatch) -> Tensor:
        """Return the number of wrong answers."""
        return (model(batch.facts, batch.question).argmax(-1) != batch.answer).sum()


@dataclass(frozen=True)
class RestartSettings:
    """Trainings of one model from `restarts` starts, with the seeds seed · restarts, ..., seed · restarts + restarts - 1.

    trainer: the step for each training. It is `train` or phrasemodels.tasks.problems.compiled_answering.train_compiled.
    """

    objective: AnsweringObjective
    model: MemoryConfig
    config: TrainConfig
    seed: int
    restarts: int
    trainer: Callable[[Job, Any], dict[str, Any]] = train


def run_or_why(store: Store, step: Step) -> Artifact | str:
    """Run a training. Return the reason if it diverged."""
    try:
        return run_step(store, step)
    except DivergedError as error:
        return str(error)


def train_restarts(job: Job, settings: RestartSettings) -> dict[str, Any]:
    """Train a model from several starts, each a step of its own. Inputs are as for `train`.

    Writes restart-N.safetensors. N = 0 is the start with the best dev criterion, and model.safetensors is the same file.
    Diverged starts have no file and come last. progress.json says meanwhile how far it is, in updates of one start.

    Raises:
        DivergedError: All starts diverged.
    """
    seeds = range(settings.seed * settings.restarts, (settings.seed + 1) * settings.restarts)
    steps = [
        Step(
            settings.trainer,
            f"train restart {seed}",
            TrainSettings(settings.objective, settings.model, settings.config, seed),
            job.inputs,
        )
        for seed in seeds
    ]

    made: list[Artifact] = []
    lost: dict[int, str] = {}
    found = job.executor.map(run_or_why, [(job.store, step) for step in steps])
    for seed, artifact in zip(seeds, found, strict=True):
        if isinstance(artifact, str):
            lost[seed] = artifact
            continue
        made.append(artifact)
        _write_progress(job, settings, made)
    if not made:
        raise DivergedError(lost[seeds[0]])
    ranked = sorted(made, key=lambda artifact: artifact.meta["dev_loss"])
    for place, artifact in enumerate(ranked):
        shutil.copyfile(artifact.file("model.safetensors"), job.out / f"restart-{place}.safetensors")
    for name in ("model.safetensors", "config.json", HISTORY):
        shutil.copyfile(ranked[0].file(name), job.out / name)
    of_best = ("parameters", "steps", "epochs", "best_step", "dev_loss", "seed", "peak_memory_mib", "workers")
    return {
        **{name: ranked[0].meta[name] for name in of_best},
        "devices": ranked[0].meta.get("devices", []),
        "train_seconds": sum(artifact.meta["train_seconds"] for artifact in made),
        "restarts": [{name: artifact.meta[name] for name in ("seed", "dev_loss")} for artifact in ranked]
        + [{"seed": seed, "dev_loss": None} for seed in lost],
    }


def _write_progress(job: Job, settings: RestartSettings, made: Sequence[Artifact]) -> None:
    """Write progress.json: the share of finished starts as updates of one start, and their seconds."""
    state = {
        "step": settings.config.steps * len(made) // settings.restarts,
        "steps": settings.config.steps,
        "best": min(artifact.meta["dev_loss"] for artifact in made),
        "pid": os.getpid(),
        "seconds": sum(artifact.meta["train_seconds"] for artifact in made),
    }
    job.checkpoints.mkdir(parents=True, exist_ok=True)
    write_durably(job.checkpoints / PROGRESS, json.dumps(state))


_PLACES = pa.list_(pa.int32())
ANSWERS = required(
    restart=pa.int32(), id=pa.int64(), group=pa.string(), answer=pa.string(), predicted=pa.string(), support=_PLACES,
    facts=_PLACES,
)  # fmt: skip


NO_FACT = -2  # a place that no fact has; -1 is that of a supporting fact which was left out


def answer(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Answer the numbered stories job.inputs["stories"] with each start of ["model"].

    It also reads ["vocabulary"]. It writes predictions.arrow start by start. Each row has the gold and the predicted
    answer. It also has the supporting facts and the best facts of the model in order. A diverged start has no answer
    and facts outside of every story.
    """
    model = load_trained(settings.objective, settings.model, job.inputs)
    words = read_words(job.inputs["vocabulary"], "words")
    files = [shard.path for shard in shards(job.inputs["stories"])]
    data, table = settings.objective.examples(files), pa.concat_tables([read_shard(path) for path in files])
    made = []
    for restart, start in enumerate(job.inputs["model"].meta["restarts"]):
        answers, facts = [""] * len(data), [[NO_FACT]] * len(data)
        if start["dev_loss"] is not None:
            load_tensors(model, load_file(job.inputs["model"].file(f"restart-{restart}.safetensors")))
            check_finite(model)
            predicted, facts = _answers(model, data, settings.batch_tokens)
            answers = [words[i] for i in predicted]
        columns = [
            pa.array(np.full(len(data), restart, np.int32)),
            table["id"],
            table["group"],
            pa.array([words[i] for i in table["answer"].combine_chunks().flatten().to_pylist()]),
            pa.array(answers),
            table["support"].cast(pa.list_(pa.int32())),
            pa.array(facts, pa.list_(pa.int32())),
        ]
        made.append(pa.Table.from_arrays(columns, schema=ANSWERS))
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.concat_tables(made))}


@torch.inference_mode()
def _answers(model: nn.Module, data: StoryExamples, budget: int) -> tuple[NDArray[np.int64], list[list[int]]]:
    """Return the ids of the answers (rows), and the places of each row's best facts."""
    predicted, facts = np.zeros(len(data), np.int64), [[0]] * len(data)
    for rows in in_order(data, budget):
        batch = data.batch(rows)
        predicted[rows] = model(batch.facts, batch.question).argmax(-1).numpy()
        in_front = batch.facts.shape[1] - torch.from_numpy(data.lengths[rows, :1])
        best = model.evidence(batch.facts, batch.question) - in_front  # type: ignore[operator]
        for row, places in zip(rows, best.tolist(), strict=True):
            facts[row] = places
    return predicted, facts


AVERAGED = 10  # best starts over which the accuracy of facts is averaged (paper 003: 10 of 20)


def score_answers(job: Job, settings: int) -> dict[str, Any]:
    """Score job.inputs["predictions"] with starts in the order of held-out answers.

    ["stories"] are the test set. `answer`: right answers (%) of the best start. `answer/mean`: mean right answers of
    all starts. No choice of a start makes it look better. `fact`: questions (%) with all facts right and in order as a
    mean of so many best starts as the settings say. An answer unknown to train is never right.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    starts = int(table["restart"][-1].as_py()) + 1
    pairs = [("answer", "predicted"), ("support", "facts")]
    right, sound = (
        np.array([a == b for a, b in zip(table[x].to_pylist(), table[y].to_pylist(), strict=True)]).reshape(starts, -1)
        for x, y in pairs
    )
    right &= np.array([answer != SPECIAL[UNKNOWN] for answer in table["answer"].to_pylist()]).reshape(starts, -1)
    averaged = min(settings, starts)
    parts = {
        "answer": (right[0], f"of the best of {starts} starts on held-out questions"),
        "fact": (sound[:averaged], f"mean of the best {averaged} of {starts} starts; all facts, in order"),
        "answer/mean": (right, f"mean of {starts} starts"),
    }
    n = right.shape[1]
    scores = {name: Score(100 * float(hits.mean()), signature, n) for name, (hits, signature) in parts.items()}
    statistics = {"answer_right": right[0], "facts_right": sound[:averaged].mean(0)}
    columns = {"id": table["id"][:n], "group": table["group"][:n]}
    columns |= {name: pa.array([[float(v), 1.0] for v in values]) for name, values in statistics.items()}
    return write_scores(job, scores, pa.table(columns), job.inputs["stories"].meta["shards"])


@torch.inference_mode()
def fact_weights(loaded: LoadedModel, text: str) -> dict[str, Any]:
    """Return a row of ATTENTION: the weights of a story's facts at each step, with the best fact.

    text: facts and then a question, each with a mark at its end. ValueError: it is no story.
    """
    how, model = cast(Answering, loaded.predictor), cast(Hops | Chain, loaded.module)
    facts = story_of(text)[-how.slots - 1 : -1]
    ids, asked = (part.to(loaded.device) for part in how.batch([how.numbered(loaded, text)]))
    best = model.evidence(ids, asked)[0].tolist()
    steps = [f"{step}: {facts[fact]}" for step, fact in enumerate(best, 1)]
    return attention_row("facts", facts, model.weights(ids, asked), []) | {"written": steps}


@dataclass(frozen=True)
class AnsweringRecipe(Recipe):
    """Stories with questions.

    Args:
        restarts: Starts of each training.
        trainer: The step that trains each start, `train` or the faster `train_compiled`.
    """

    corpus: AnyCorpus
    restarts: int = 20
    kept: StoryLimits = field(default_factory=StoryLimits)
    trainer: Callable[[Job, Any], dict[str, Any]] = train

    slug: ClassVar = "answering"
    answer_columns: ClassVar = ("answer", "predicted")

    def __post_init__(self) -> None:
        at_least(self, 1, "restarts")

    @property
    def averaged(self) -> int:
        """The number of starts to average facts over. It is at most the number of all starts."""
        return min(AVERAGED, self.restarts)

    def data(self) -> dict[str, Step]:
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        words = Step(story_vocabulary, f"vocabulary {self.corpus.name}", None, {"rows": raw["train"]})
        numbers = {
            split: Step(
                stories, f"stories {self.corpus.name} {split}", self.kept, {"rows": raw[split], "vocabulary": words}
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words}

    def stages(self, model: MemoryConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = AnsweringObjective()
        data = {name: name for name in ("train", "dev", "vocabulary")}
        return {
            "model": Stage(
                train_restarts,
                RestartSettings(objective, model, config, seed, self.restarts, self.trainer),
                data,
                fans_out=True,
            ),
            "predictions": Stage(
                answer,
                PredictSettings(objective, model, 8192),
                {"model": "model", "stories": "test", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(score_answers, self.averaged, {"predictions": "predictions", "stories": "test"}),
        }

    def predictor(self, vocabulary: Artifact) -> Answering:
        return Answering(self.kept.slots, self.kept.words)

    def question(self, prediction: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        return " / ".join(filter(None, (" ".join(record["facts"]), record["question"])))

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        return [fact_weights(model, text)]
