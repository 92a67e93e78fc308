"""Running a table: its plan, its execution on Ray, its record in MLflow and the Prefect flows.

Here is how all commands tell their progress: by lines on stderr, with the time that is left at the speed so far.
"""

import datetime
import math
import time

LINES_EVERY = 15.0  # seconds between lines of one piece of work


class Pace:
    """The speed of a piece of work since its first progress that was seen. If it falls back, it begins anew."""

    def __init__(self) -> None:
        self.began: tuple[float, float] | None = None  # how much was done, and when (seconds)
        self.printed = -math.inf

    def is_due(self) -> bool:
        """Return whether the next line is due. The one after it is due LINES_EVERY later."""
        due = time.monotonic() - self.printed > LINES_EVERY
        if due:
            self.printed = time.monotonic()
        return due

    def time_left(self, done: float, total: float, at: float | None = None) -> str:
        """Return the time that is left as text. It is empty if nothing is known. at: when so much was done. Default: now."""
        now = time.monotonic() if at is None else at
        if self.began is None or done < self.began[0]:
            self.began = done, now
        begun, since = self.began
        if not total or done <= begun:
            return ""
        return f", about {datetime.timedelta(seconds=round((now - since) / (done - begun) * (total - done)))} left"
