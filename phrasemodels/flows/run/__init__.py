"""Running a table: its plan, its execution on Ray, its record in MLflow and the Prefect flows.

Here are bars on a terminal. They show the done part, the rate, the elapsed and the remaining time. Elsewhere they are
lines.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

LINES_EVERY = 15.0  # seconds between plain lines of one step


def bars(disable: bool = False) -> "Progress":
    """Return bars on stderr without a task. Lines that are printed meanwhile appear above them."""
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

    columns = (BarColumn(), MofNCompleteColumn(), Rate(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        console=Console(stderr=True),
        disable=disable,
        redirect_stdout=sys.stdout.isatty(),  # else what a command prints would not get into its file
    )


@contextmanager
def bar(what: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows on stderr how much is done: by a bar, or by lines from time to time.

    Lines are for a stderr that is no terminal, and for a terminal that stdout prints to. total: None if it is not known.
    """
    if sys.stderr.isatty() and not sys.stdout.isatty():
        with bars() as shown:
            task = shown.add_task(what, total=total)
            yield lambda done: shown.update(task, completed=done)
        return
    printed = 0.0

    def tell(done: float) -> None:
        nonlocal printed
        printed = printed or time.monotonic()  # not while the first ones are waited for
        if time.monotonic() - printed > LINES_EVERY:
            printed = time.monotonic()
            print(f"{done:,.0f} {what}" + (f" of {total:,.0f}" if total else ""), file=sys.stderr, flush=True)

    yield tell
