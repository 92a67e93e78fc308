"""One run of a table: its steps, where each of them runs, and what MLflow is told."""

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from phrasemodels.data.corpora.leakage import Leak
from phrasemodels.data.download.mirrors import Sources
from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.data.store.step import Executor, Step, call_here, digest_of, with_dependencies
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.results.finished import FinishedTable
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.stores import open_store
from phrasemodels.flows.run.user_files import missing_encoders, with_supplied
from phrasemodels.infra.registry import register
from phrasemodels.infra.runner import TorchTrainerLaunch, actor_map, on_ray, ray_map
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import ATTEMPT, KEY, StepMetrics, Tracker, flatten
from phrasemodels.tasks.metrics.compare import CompareSettings, RowSettings, compare
from phrasemodels.tasks.parsers.parse import parse, plant
from phrasemodels.tasks.prepare.corpora import leaks
from phrasemodels.tasks.train.loop import history, train

SERVED = Path(__file__).with_name("served.py")


@dataclass(frozen=True)
class Session:
    """A table, with the settings it runs under; attempt: the id of Prefect's run, if it is one.

    shards: of steps that are under way, how many shards are done, of how many begun.
    """

    table: Table
    settings: Settings
    attempt: str = ""
    shards: dict[str, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def store(self) -> Store:
        return open_store(self.settings)

    @cached_property
    def tracker(self) -> Tracker:
        return Tracker(self.settings.tracking_uri, self.settings.artifact_location)

    @property
    def sources(self) -> Sources:
        return Sources(self.settings.mirrors, self.settings.offline, self.settings.private)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """Those of the table, with what the user put in by hand."""
        return [with_supplied(experiment, self.sources) for experiment in self.table.experiments]

    @cached_property
    def pipelines(self) -> list[Pipeline]:
        """One for each experiment and seed; all experiments of a seed come before the next seed."""
        return [e.steps(seed) for seed in self.table.seeds for e in self.experiments]

    @cached_property
    def by_step(self) -> dict[str, Pipeline]:
        """The pipeline that a stage belongs to."""
        return {step.key: p for p in self.pipelines for step in p.stages.values()}

    @cached_property
    def verdicts(self) -> Step:
        """The last step: the table compared with the paper."""
        rows = tuple(
            RowSettings(
                e.name,
                e.system,
                e.variant,
                answer.cell.published if answer.cell else None,
                answer.metric,
                e.reason_not(answer),
                answer.statistic,
                e.baseline,
                e.changed,
            )
            for e in self.experiments
            for answer in e.answers
        )
        inputs = {f"{p.experiment.name} seed {p.seed}": p.scored for p in self.pipelines}
        return Step(compare, self.table.title, CompareSettings(self.table.title, rows, self.table.seeds), inputs)

    @cached_property
    def steps(self) -> list[Step]:
        """Everything that the verdicts rest on, inputs first."""
        return with_dependencies([self.verdicts])

    def missing_files(self) -> list[str]:
        """Files that have to be fetched, are in no mirror, and may not be downloaded: where each can be put."""
        from phrasemodels.data.download.fetch import missing
        from phrasemodels.data.download.manifest import load
        from phrasemodels.data.download.parser_manifest import load as load_parser
        from phrasemodels.tasks.parsers.stanza_models import fetch_parser
        from phrasemodels.tasks.prepare.corpora import fetch_corpus

        if not self.settings.offline:
            return []
        absent = [
            step for step in self.steps if step.make in (fetch_corpus, fetch_parser) and not self.store.find(step)
        ]
        wanted = [load(step.settings.corpus).files for step in absent if step.make is fetch_corpus]
        wanted += [load_parser(step.settings.name).files for step in absent if step.make is fetch_parser]
        files = [file for known in wanted for file in missing(known, self.sources)]
        folder = self.settings.mirror or Path("<the folder that PHRASEMODELS_MIRROR names>")
        supplied = self.settings.supplied or Path("<the folder that PHRASEMODELS_SUPPLIED names>")
        todo = [p.experiment for p in self.pipelines if not self.store.find(p.trained, verify=False)]
        encoders = sorted({name for experiment in todo for name in missing_encoders(experiment)})
        return [f"{folder / file.mirror}  ({', '.join(file.urls) or 'no URL'})" for file in files] + [
            f"{supplied / name}  (a folder of the transformers library)" for name in encoders
        ]

    def execute(self, step: Step) -> Artifact:
        """Run one step where it belongs: shards and searches in Ray, trainings in Ray or Ray Train, the rest here."""
        pipeline = self.by_step.get(step.key)
        if step.make is train:
            return self._train(step) if pipeline else self._parser(step)
        if pipeline is None or step.key in pipeline.spread:
            artifact = self.store.run(step, Executor(map=self._map(step), sources=self.sources))
        else:
            artifact = self.store.find(step) or self._on_ray(step, Executor())
        if pipeline is not None and step.key == pipeline.scored.key:
            self._finish(pipeline, artifact)
        return artifact

    def _map(self, step: Step) -> Any:
        """Fan-out over the cluster, in actors where a parser is kept; with a store that nodes share, what they need and
        make travels through it."""
        spread = partial(actor_map if step.make in (parse, plant) else ray_map, told=partial(self._told, step.key))
        if self.store.shared is None:
            return spread
        from phrasemodels.flows.run.nodes import FarMap

        return FarMap(spread, self.store, self.settings.cache_bytes)

    def _told(self, key: str, done: int, begun: int) -> None:
        self.shards[key] = (done, begun)

    def _on_ray(self, step: Step, executor: Executor) -> Artifact:
        """Run one step on some node; its result is on this one."""
        from phrasemodels.flows.run.nodes import far_run

        made = on_ray(far_run, self.store, self.settings.cache_bytes, step, executor)
        return made if self.store.shared is None else self.store.run(step)

    @cached_property
    def experiment_name(self) -> str:
        """The MLflow experiment: one for each problem and corpus."""
        return self.experiments[0].recipe.name

    @cached_property
    def parent(self) -> str:
        """The MLflow run of the table."""
        key = digest_of([self.table.title, [p.scored.key for p in self.pipelines]])
        return self.tracker.open_run(
            self.experiment_name, self.table.title, key, {"phrasemodels.kind": "table", ATTEMPT: self.attempt}
        )

    def _train(self, step: Step) -> Artifact:
        pipeline = self.by_step[step.key]
        run_id = self.run_of(pipeline)
        report = StepMetrics(self.tracker, run_id, self.attempt)
        try:
            artifact = self.store.find(step) or self._launch(step, pipeline, Executor(report=report))
        except BaseException as error:
            self.tracker.fail(run_id, "FAILED" if isinstance(error, Exception) else "KILLED")
            raise
        report(history(artifact))
        with contextlib.suppress(ValueError):  # a damaged lease may be that of another run that is just making the same
            if (shared := self.store.shared) and shared.leased()[step.key] <= 1:
                shared.remove("checkpoints", step.key)
        return artifact

    def _parser(self, step: Step) -> Artifact:
        """Train a parser that plants trees: a step of the data, with no run of its own in MLflow."""
        return self.store.find(step) or self._on_ray(step, Executor())

    def _launch(self, step: Step, pipeline: Pipeline, executor: Executor) -> Artifact:
        group = self._group(pipeline)
        if group is None:
            return self._on_ray(step, replace(executor, launch=self._reaching(call_here)))
        group.check()
        return self.store.run(step, replace(executor, launch=self._reaching(group)))

    def _group(self, pipeline: Pipeline) -> TorchTrainerLaunch | None:
        """The workers of a training; None if it is a plain task: its seed may be one, and a processor is all it asks."""
        config, through = pipeline.experiment.train, pipeline.experiment.ray_train
        workers = self.settings.workers or max(1, config.workers)
        if through is not None and pipeline.seed not in through and workers * config.threads == 1 and not config.gpus:
            return None
        name = f"{pipeline.trained.key[:12]}-{pipeline.experiment.name.replace('/', '-')}-s{pipeline.seed}"
        return TorchTrainerLaunch(name, workers, config.threads, config.gpus)

    def check(self) -> None:
        """A ValueError, before anything is made, if the cluster can never hold a training that is to come."""
        for pipeline in self.pipelines:
            if (group := self._group(pipeline)) and not self.store.find(pipeline.trained, verify=False):
                group.check()

    def _reaching(self, launch: Callable[..., None]) -> Callable[..., None]:
        """A launch, whose workers share data and checkpoints if each node has a folder of its own."""
        if self.store.shared is None:
            return launch
        from phrasemodels.flows.run.nodes import FarLaunch

        return FarLaunch(launch, self.store, self.settings.cache_bytes)

    def run_of(self, pipeline: Pipeline) -> str:
        """The MLflow run of one model and seed, with its parameters."""
        e = pipeline.experiment
        tags = {
            "mlflow.parentRunId": self.parent,
            "phrasemodels.kind": "training",
            ATTEMPT: self.attempt,
            "paper": e.paper,
            "system": f"{e.system} {e.variant}",
            "corpus": e.recipe.corpus.name,
            "profile": e.profile,
            "experiment": e.name,
            "seed": str(pipeline.seed),
        }
        run_id = self.tracker.open_run(e.recipe.name, f"{e.name} seed {pipeline.seed}", pipeline.trained.key, tags)
        self.tracker.parameters(run_id, flatten(pipeline.trained.parts["settings"]))
        return run_id

    def _finish(self, pipeline: Pipeline, scored: Artifact) -> None:
        """Final metrics with the digest of their test set, configuration, predictions and plot of one training."""
        trained, predicted = self.store.find(pipeline.trained), self.store.find(pipeline.predicted)
        assert trained is not None and predicted is not None, "a score rests on weights and predictions"
        metrics = {f"test/{name}": score["value"] for name, score in scored.meta["scores"].items()}
        metrics |= {
            name: float(trained.meta[name]) for name in ("parameters", "dev_loss", "train_seconds", "peak_memory_mib")
        }
        tags = {
            "test_set": digest_of([s["content"] for s in scored.meta["test_set"]]),
            "score": scored.key,
            "licences": ", ".join(scored.meta["licences"]),
            "workers": " then ".join(map(str, trained.meta["workers"])),
        }
        files = [trained.file("config.json"), *sorted(scored.path.glob("*.json")), *sorted(scored.path.glob("*.arrow"))]
        files = [file for file in files if file.name != MANIFEST]
        if scored.meta["redistributable"]:
            files += sorted(predicted.path.glob("*.arrow"))
        with tempfile.TemporaryDirectory() as folder:
            files.append(_plot(trained, Path(folder) / "learning-curve.png"))
            run_id = self.run_of(pipeline)
            StepMetrics(self.tracker, run_id, self.attempt)(history(trained))  # if another attempt had the run before
            self.tracker.finish(run_id, metrics, files, tags)

    def finished(self, comparison: Artifact) -> FinishedTable:
        """The table, whose steps are all in the store."""
        return FinishedTable(self.table, self.pipelines, self.store, comparison, self.tracker.keys())

    def leaks(self) -> dict[str, str]:
        """For each experiment how much of its test set stands in its training set, counted."""
        found = {}
        for experiment in self.experiments:
            corpus = experiment.recipe.corpus
            rows = {split: corpus.split(split) for split in ("train", "test")}
            artifact = self.store.run(Step(leaks, f"leaks {corpus.name}", None, rows), Executor(sources=self.sources))
            found[experiment.name] = str(Leak(**artifact.meta["leak"]))
        return found

    def close(self, verdicts: Artifact, report: Path) -> None:
        """The table's own run: means, verdicts, report."""
        rows = verdicts.meta["rows"]
        metrics = {
            f"{row['experiment'].rsplit('/', 1)[1]}/{row['metric']}": row["intervals"][row["metric"]]["mean"]
            for row in rows
        }
        self.tracker.finish(self.parent, metrics, [verdicts.file("verdicts.json"), report], {"verdicts": verdicts.key})
        self._register()

    def _register(self) -> None:
        """The best seed of each row, as a model that MLflow can serve, if it can be asked anything."""
        from phrasemodels.flows.results.models import best_of, stored

        lineage = Lineage(self.store)
        for experiment in self.experiments:
            if not experiment.recipe.answers_inputs:
                continue
            trained = [a for p in self.pipelines if p.experiment == experiment if (a := self.store.find(p.trained))]
            model = stored(lineage, best_of(trained))
            run_id = self.tracker.keys()[model.weights.key]
            tags = {KEY: model.weights.key, "licences": ", ".join(model.weights.meta["licences"])}
            with tempfile.TemporaryDirectory() as folder:
                exported = model.export(Path(folder) / "exported")
                register(self.tracker, experiment.name.replace("/", "-"), exported, SERVED, run_id, tags)


def _plot(trained: Artifact, path: Path) -> Path:
    """Loss on train and dev against updates, as PNG."""
    from phrasemodels.flows.report.plots import learning_curve

    learning_curve(history(trained), path)
    return path
