"""A finished table: the outcomes, the comparison and the leaks that its report shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from phrasemodels.data.corpora.leakage import Leak
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Step
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.tasks.problems.report import Outcome


@dataclass(frozen=True)
class FinishedTable:
    """A table whose steps are all in the store. comparison: the table compared with the paper. run_ids: of MLflow, by the
    keys of trainings."""

    table: Table
    pipelines: Sequence[Pipeline]
    store: Store
    comparison: Artifact
    run_ids: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """The experiments of the table, in order."""
        return [p.experiment for p in self.pipelines if p.seed == self.pipelines[0].seed]

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each pipeline that trains; all rows of the first seed come before the next seed."""
        return [
            Outcome(
                p.experiment.name,
                p.experiment.row,
                p.experiment.system,
                p.experiment.variant,
                p.seed,
                p.experiment.recipe,
                p.experiment.model,
                p.experiment.train,
                *(self.artifact(step) for step in (p.trained, p.predicted, p.scored)),
            )
            for p in self.pipelines
            if p.trains
        ]

    @property
    def first_seeds(self) -> list[Outcome]:
        """The outcomes of the first seed, one for each row."""
        return [outcome for outcome in self.outcomes if outcome.seed == self.outcomes[0].seed]

    @cached_property
    def leaks(self) -> dict[str, str]:
        """For each experiment, that trains, how much of its test set is also in its training set."""
        counted = {e.name: leak for e in self.experiments if (leak := e.leak)}
        return {name: str(Leak(**self.artifact(leak).meta["leak"])) for name, leak in counted.items()}

    def artifact(self, step: Step) -> Artifact:
        """Return the artifact of a step of the table."""
        artifact = self.store.find(step, verify=False)
        assert artifact is not None, "all steps of a finished table are in the store"
        return artifact
