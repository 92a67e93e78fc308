"""What the recipes of all problems have in common: their stages, and the steps that these become."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class Stage:
    """A step of one model: its inputs by the names of data, or of stages before it.

    spread: it runs where the flow runs, and gives its parts to the cluster by `places.map`.
    """

    make: Callable[[Job, Any], dict[str, Any]]
    settings: Any
    inputs: Mapping[str, str]
    spread: bool = False


class Recipe(Protocol):
    """A problem on a corpus: what an experiment is made of besides its model and its training."""

    @property
    def name(self) -> str:
        """Problem and corpus: what is compared with one another."""

    @property
    def corpus(self) -> Any:
        """What it is run on; has a name."""

    @property
    def curve(self) -> str:
        """What is measured on dev while it trains, and weights are chosen by, with its unit."""

    def data(self) -> dict[str, Step]:
        """The steps that the stages rest on, whatever the seed, by name."""

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        """`model`, `predictions` and `scores`, and others, in the order in which they rest on one another."""

    def bare(self) -> Self:
        """The same without what needs more than torch, pyarrow and sacrebleu."""


def steps_of(name: str, recipe: Recipe, model: Any, config: TrainConfig, seed: int) -> dict[str, Step]:
    """Return the steps of the stages of one training, by stage; `name` and seed make their labels."""
    known = recipe.data()
    stages = recipe.stages(model, config, seed)
    for stage_name, stage in stages.items():
        inputs = {ours: known[theirs] for ours, theirs in stage.inputs.items()}
        label = f"{stage.make.__name__} {name} seed {seed}"
        known[stage_name] = Step(stage.make, label, stage.settings, inputs)
    return {stage_name: known[stage_name] for stage_name in stages}
