"""Tables that are run in the test's own process, without Prefect and Ray."""

from phrasemodels.data.store.step import Executor
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.run.execute import Execution
from phrasemodels.flows.run.preflight import planned
from phrasemodels.infra.settings import Settings


def prepared(settings: Settings, request: Request) -> Execution:
    """Return the execution of a request, none of whose steps has run."""
    return Execution.of(*planned(request, settings), settings)


def executed(execution: Execution) -> Execution:
    """Run every step of a plan in this process."""
    for step in execution.plan.steps:
        execution.store.run(step, Executor(sources=execution.sources))
    return execution
