"""The plan of a table: the steps that lead from corpora to verdicts. Nothing runs here and nothing is read or written."""

from dataclasses import dataclass
from functools import cached_property

from phrasemodels.data.store.step import Step, with_dependencies
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.tasks.metrics.compare import CompareSettings, RowSettings, compare


@dataclass(frozen=True)
class Plan:
    """The steps of a table whose experiments already refer to the files that the user supplied."""

    table: Table

    @cached_property
    def pipelines(self) -> list[Pipeline]:
        """One for each seed and experiment; all experiments of a seed come before the next seed."""
        return [experiment.steps(seed) for seed in self.table.seeds for experiment in self.table.experiments]

    @cached_property
    def comparison(self) -> Step:
        """The last step: the table compared with the paper."""
        rows = tuple(row for experiment in self.table.experiments for row in self._rows(experiment))
        inputs = {f"{p.experiment.name} seed {p.seed}": p.scored for p in self.pipelines}
        return Step(compare, self.table.title, CompareSettings(self.table.title, rows, self.table.seeds), inputs)

    @cached_property
    def steps(self) -> list[Step]:
        """All steps, inputs first; the comparison comes last."""
        leaks = [leak for experiment in self.table.experiments if (leak := experiment.leak)]
        return with_dependencies([*leaks, self.comparison])

    @cached_property
    def owners(self) -> dict[str, Pipeline]:
        """The pipeline that each step of a model belongs to, by key; steps that prepare data have none."""
        return {step.key: pipeline for pipeline in self.pipelines for step in pipeline.stages.values()}

    @property
    def without_models(self) -> list[Step]:
        """The steps that prepare data, inputs first."""
        return [step for step in self.steps[:-1] if step.key not in self.owners]

    def _rows(self, experiment: Experiment) -> list[RowSettings]:
        return [
            RowSettings(
                experiment.name,
                experiment.system,
                experiment.variant,
                answer.cell.printed if answer.cell else "",
                answer.metric,
                experiment.reason_not(answer),
                answer.statistic,
                next((e.name for e in self.table.experiments if e.row == experiment.baseline), ""),
                experiment.changed,
                answer.exact,
                (answer.note if answer.exact else experiment.caveat) if answer.cell else "",
            )
            for answer in experiment.answers
        ]
