"""Tables that are run in the test's own process, without Prefect and Ray; and the memory of processes."""

import resource
from pathlib import Path

from phrasemodels.data.store.store import Executor
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.run.execute import Execution
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings


def prepared(settings: Settings, request: Request) -> Execution:
    """Return the execution of a request, none of whose steps has run."""
    return Execution.of(*planned(request, settings), settings)


def executed(execution: Execution) -> Execution:
    """Run every step of a plan in this process."""
    for step in execution.plan.steps:
        execution.store.run(step, Executor(sources=execution.sources))
    return execution


def resident(process: int) -> int:
    """Return the bytes of memory of a process and of all that it started."""
    started = [
        int(child) for path in Path(f"/proc/{process}/task").glob("*/children") for child in path.read_text().split()
    ]
    return own_memory(process) + sum(map(resident, started))


def own_memory(process: int) -> int:
    """Return the bytes of memory of a process alone."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
