"""The plan of a table: the steps from corpora to verdicts. Planning runs nothing and writes nothing.

A request is checked as a whole. So every mistake in it is reported before anything starts. The outline of a plan (names
and keys of its steps) is cached on disk. A command that only looks steps up imports neither torch nor the code of the
steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from phrasemodels.data.store.disk_cache import cached_on_disk, states
from phrasemodels.data.store.store import Step, Store, with_dependencies
from phrasemodels.flows.results.records import OutlinedStep, open_store, sources_of
from phrasemodels.infra.settings import Settings

if TYPE_CHECKING:
    from phrasemodels.flows.experiments.catalogue import Request, Table
    from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
    from phrasemodels.tasks.metrics.compare import RowSettings


@dataclass(frozen=True)
class Plan:
    """The steps of a table. Its experiments already refer to the user's files.

    diverged: keys of scores missing because a training diverged.
    """

    table: "Table"
    diverged: frozenset[str] = frozenset()

    @cached_property
    def pipelines(self) -> "list[Pipeline]":
        """One for each seed and experiment. All experiments of a seed come before the next seed."""
        return [experiment.steps(seed) for seed in self.table.seeds for experiment in self.table.experiments]

    @cached_property
    def comparison(self) -> Step:
        """The last step: the table compared with the paper."""
        from phrasemodels.tasks.metrics.compare import CompareSettings, compare

        rows = tuple(row for experiment in self.table.experiments for row in self.rows_of(experiment))
        inputs = {
            f"{p.experiment.name} seed {p.seed}": p.trained.inputs["train"]
            if p.scored.key in self.diverged
            else p.scored
            for p in self.pipelines
        }
        return Step(
            compare, self.table.title, CompareSettings(self.table.title, rows, self.table.seeds), inputs, root=True
        )

    @cached_property
    def steps(self) -> list[Step]:
        """All steps, inputs first. The comparison comes last."""
        return with_dependencies([*self.checks, self.comparison])

    @cached_property
    def checks(self) -> list[Step]:
        """The steps beside the results: counts of test records that are also in train. No other step needs them."""
        return [leak for experiment in self.table.experiments if (leak := experiment.leak)]

    @cached_property
    def owners(self) -> "dict[str, Pipeline]":
        """The pipeline of each step of a model, by key. Steps for preparing data have none."""
        return {step.key: pipeline for pipeline in self.pipelines for step in pipeline.stages.values()}

    def as_compared(self, store: Store) -> "Plan":
        """Return the plan that a run compared: without the missing scores, if it knew that their trainings diverged."""
        missing = frozenset(p.scored.key for p in self.pipelines if store.find(p.scored, verify=False) is None)
        other = Plan(self.table, missing)
        return other if missing and store.find(other.comparison) else self

    @property
    def without_models(self) -> list[Step]:
        """The steps for preparing data, inputs first."""
        return [step for step in self.steps[:-1] if step.key not in self.owners]

    def rows_of(self, experiment: "Experiment") -> "list[RowSettings]":
        """Return the rows of an experiment, one for each of its answers."""
        from phrasemodels.tasks.metrics.compare import RowSettings

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
                answer.cell.how if answer.cell else None,
            )
            for answer in experiment.answers
        ]


def _resolved(request: "Request") -> "Table":
    """Return the table of a request. ValueError: it, or a claim of its paper, is wrong; after the trainings it would be late."""
    from phrasemodels.flows.results.claims import claims, printed_gains

    table = request.resolve()
    for claim in claims():
        if claim.paper == table.paper:
            printed_gains(claim)
    return table


def planned(request: "Request", settings: Settings) -> tuple[Plan, Store]:
    """Return the plan of a request, and its store.

    Raises:
        ValueError: The request is wrong.
        OSError: The store cannot be written to, or files are missing and may not be fetched.
    """
    from phrasemodels.flows.experiments.catalogue import with_user_files

    sources = sources_of(settings)
    table = _resolved(request)
    plan = Plan(with_user_files(table, sources))
    store = open_store(settings)
    if absent := missing_files(plan, store, settings):
        raise OSError("offline, and these files are missing; put each at the place named:\n  " + "\n  ".join(absent))
    return plan, store


def missing_files(plan: Plan, store: Store, settings: Settings) -> list[str]:
    """Return the files that are in no mirror and may not be downloaded, each with a place to put it."""
    from phrasemodels.data.download.fetch import missing
    from phrasemodels.data.download.manifest import find_corpus, load_parser
    from phrasemodels.flows.experiments.catalogue import missing_encoders
    from phrasemodels.tasks.parsers.stanza import fetch_parser
    from phrasemodels.tasks.prepare.corpora import fetch_corpus

    if not settings.offline:
        return []
    absent = [step for step in plan.steps if step.make in (fetch_corpus, fetch_parser) and not store.find(step)]
    sources = sources_of(settings)
    mirror = settings.mirror or "<the folder that PHRASEMODELS_MIRROR names>"
    models = settings.parsers or "<the folder that PHRASEMODELS_PARSERS names>"
    supplied = settings.supplied or "<the folder that PHRASEMODELS_SUPPLIED names>"
    corpora = [
        file for step in absent if step.make is not fetch_parser for file in find_corpus(step.settings.corpus).files
    ]
    parsers = [file for step in absent if step.make is fetch_parser for file in load_parser(step.settings.name).files]
    files = [(mirror, file) for file in missing(corpora, sources)] + [
        (models, file) for file in missing(parsers, sources)
    ]
    untrained = [p.experiment for p in plan.pipelines if p.trains and not store.find(p.trained, verify=False)]
    encoders = sorted({name for experiment in untrained for name in missing_encoders(experiment)})
    return [f"{folder}/{file.mirror}  ({', '.join(file.urls) or 'no URL'})" for folder, file in files] + [
        f"{supplied}/{name}  (a folder of the transformers library)" for name in encoders
    ]


@dataclass(frozen=True)
class Outline:
    """The steps of a plan, inputs first. The last one is the comparison with the paper. slug: the name of its page."""

    title: str
    slug: str
    steps: tuple[OutlinedStep, ...]


def outlined(asked: Mapping[str, Any], settings: Settings) -> Outline:
    """Return the outline of the plan of a request. ValueError: the request is wrong.

    asked: the fields of `Request`.
    """

    def outline(table: "Table") -> dict[str, Any]:
        return {"title": table.title, "slug": table.slug, "steps": [_line(step) for step in Plan(table).steps]}

    made = _of_table("plan", asked, settings, outline)
    return Outline(made["title"], made["slug"], tuple(OutlinedStep(**step) for step in made["steps"]))


def outlined_page(asked: Mapping[str, Any], settings: Settings) -> OutlinedStep:
    """Return the step for drawing the page of a request."""

    def page(table: "Table") -> dict[str, Any]:
        from phrasemodels.flows.report.page import page_step

        return _line(page_step(table, Plan(table).comparison))

    return OutlinedStep(**_of_table("page", asked, settings, page))


def _line(step: Step) -> dict[str, Any]:
    return {"name": step.name, "label": step.label, "key": step.key, "parts": step.parts}


def _of_table(
    name: str, asked: Mapping[str, Any], settings: Settings, make: Callable[["Table"], dict[str, Any]]
) -> dict[str, Any]:
    """Return the result of `make` for the table of a request, cached on disk.

    A table with pretrained encoders is not cached: they may be in any folder below the current one.
    """
    sources = sources_of(settings)

    def made() -> dict[str, Any]:
        from phrasemodels.flows.experiments.catalogue import Request, reads_encoders, with_user_files

        table = _resolved(Request(**asked))
        settled = not any(map(reads_encoders, table.experiments))
        return {"settled": settled, "answer": make(with_user_files(table, sources))}

    # `states`: the digests of files that users supplied are in keys, and change with the files
    known = cached_on_disk(name, [asked, sources, states(sources.mirrors)], made)
    return dict((known if known["settled"] else made())["answer"])
