"""Progress bars on a terminal: done and total work, the rate, the elapsed and the remaining time."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Rate(ProgressColumn):
    """Updates or steps a second. Empty before it is known."""

    def render(self, task: Task) -> Text:
        """Return the rate of a bar."""
        return Text(f"{task.speed:.3g}/s" if task.speed else "")


def bars(console: Console, disable: bool = False) -> Progress:
    """Return bars without a task. Lines printed meanwhile appear above them."""
    columns = (BarColumn(), MofNCompleteColumn(), Rate(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        console=console,
        disable=disable,
        redirect_stdout=sys.stdout.isatty(),  # else what a command prints would not get into its file
    )


@contextmanager
def bar(what: str, total: float | None) -> Iterator[Callable[[float, float | None], None]]:
    """Show one bar on stderr. Yield a function of the done and the total work (None: as before).

    total: None if it is unknown.
    """
    with bars(Console(file=sys.stderr)) as shown:
        task = shown.add_task(what, total=total)

        def update(done: float, of: float | None) -> None:
            shown.update(task, completed=done, total=of)

        yield update
