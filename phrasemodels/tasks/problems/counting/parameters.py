"""The size of a model: its parameters, and the width of its sentence vectors."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from torch import nn

from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.problems.counting.recipe import CountingRecipe
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.problems.translation.objective import TranslationObjective
from phrasemodels.tasks.train.config import TrainConfig

NO_SENTENCES = pa.schema({"id": pa.int32(), "group": pa.string()}).empty_table()

NO_DATA = {"licences": [], "redistributable": True, "stand_in": False}  # the terms of what is made of no data


@dataclass(frozen=True)
class ModelSize:
    """A model by its configuration, and another one that it is compared with (None: none).

    without: the name of a module whose parameters are not counted, such as word vectors that are given; "": none.
    """

    model: Any
    other: Any = None
    without: str = ""


def count_parameters(job: Job, settings: ModelSize) -> dict[str, Any]:
    """Build a model and count it: `parameters` (millions), `width` of a sentence vector if the model makes any, and, beside
    another model, `share` (percent of its parameters) and `increase` (percent more than it has).

    job.inputs["vocabulary"], if there is one, says how many words both sides of the model have.
    """
    models = [_built(model, job) for model in (settings.model, settings.other) if model is not None]
    counts = [_parameters(model, settings.without) for model in models]
    signature = f"parameters{f' without those of {settings.without}' * bool(settings.without)}, M"
    scores = {"parameters": Score(counts[0] / 1e6, signature, 0)}
    if hasattr(models[0], "width"):
        scores["width"] = Score(float(models[0].width), "numbers of a sentence vector", 0)
    if settings.other is not None:
        scores["share"] = Score(100 * counts[0] / counts[1], "parameters, of those of the other model, %", 0)
        scores["increase"] = Score(100 * (counts[0] / counts[1] - 1), "parameters more than the other model has, %", 0)
    return {**write_scores(job, scores, NO_SENTENCES, []), **NO_DATA}


def _built(model: Any, job: Job) -> Any:
    if "vocabulary" in job.inputs:
        model = TranslationObjective().configure(model, job.inputs["vocabulary"])
    return model.build()


def _parameters(model: nn.Module, without: str) -> int:
    """Return the number of a model's parameters, each counted once."""
    names = [f"{without}."] if without else []
    return sum(p.numel() for name, p in model.named_parameters() if not name.startswith(tuple(names)))


@dataclass(frozen=True)
class ModelSizeRecipe(CountingRecipe):
    """The size of a model. corpus: whose words it has; None: the model has its own number of words.

    text: a recipe of `corpus` whose data has a `vocabulary`. other, without: as in ModelSize.
    """

    corpus: Any = None
    text: Any = None
    other: Any = None
    without: str = ""

    slug: ClassVar = "parameters"

    @property
    def name(self) -> str:
        return self.slug if self.corpus is None else super().name

    def data(self) -> dict[str, Step]:
        return {"vocabulary": self.text.data()["vocabulary"]} if self.text is not None else {}

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        inputs = {"vocabulary": "vocabulary"} if self.text is not None else {}
        return {"scores": Stage(count_parameters, ModelSize(model, self.other, self.without), inputs)}
