"""Commands and tables that are run in the test's own process, without Prefect and Ray; and the memory of processes."""

import resource
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from phrasemodels.data.store.store import Executor, Store
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import Model, champion
from phrasemodels.flows.results.sql import VIEWS, Answers
from phrasemodels.flows.results.sql import _rows_of as rows_of
from phrasemodels.flows.run.execute import Execution
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings


def run_cli(*arguments: str, **options: Any) -> Result:
    """Run `phrasemodels ...` in this process. options: of CliRunner.invoke, such as input and env."""
    from phrasemodels.flows.cli.main import app

    return CliRunner().invoke(app, list(arguments), prog_name="phrasemodels", **options)


def small_corpus(train: int, dev: int, test: int) -> tuple[str, ...]:
    """Return the changes that make the corpus of an experiment small: its rows of train, dev and test."""
    return f"recipe.corpus.train={train}", f"recipe.corpus.dev={dev}", f"recipe.corpus.test={test}"


def prepared(settings: Settings, request: Request) -> Execution:
    """Return the execution of a request, none of whose steps has run."""
    return Execution.of(*planned(request, settings), settings)


def executed(execution: Execution) -> Execution:
    """Run every step of a plan in this process."""
    for step in execution.plan.steps:
        execution.store.run(step, Executor(sources=execution.sources))
    return execution


def trained(store: Store, name: str, *changes: str) -> Model | None:
    """Return a model of the sample corpus after two updates."""
    small = ("train.steps=2", "train.evaluate_every=1", "recipe.corpus.train=60", "recipe.corpus.dev=10", *changes)
    store.run(experiment(name, small).steps(0).trained)
    return champion(Lineage(store), experiment(name, small).name)


def check_keys(answers: Answers) -> None:
    """Check that the key of each view is unique, and that what its rows name stands in the other views."""
    for name, view in VIEWS.items():
        counted = f"select count(*), count(distinct ({', '.join(view.key)})) from {name}"
        ((rows, distinct),) = answers.answer(counted, rows_of)[1]
        assert rows == distinct, name
        for parent, columns in view.parents.items():
            same = " and ".join(f"one.{column} = other.{column}" for column in columns)
            known = " and ".join(f"{column} is not null" for column in columns)
            lost = f"select {', '.join(columns)} from {name} one where {known} and not exists (from {parent} other where {same})"
            assert not answers.answer(lost, rows_of)[1], f"{name} -> {parent}"


def resident(process: int) -> int:
    """Return the bytes of memory of a process and of all that it started."""
    started = [
        int(child) for path in Path(f"/proc/{process}/task").glob("*/children") for child in path.read_text().split()
    ]
    return own_memory(process) + sum(map(resident, started))


def own_memory(process: int) -> int:
    """Return the bytes of memory of a process alone."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
