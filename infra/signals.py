"""Ending at once when asked to."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

PATIENCE = 20.0  # seconds for an orderly end
ENDED = "the same command goes on from the last checkpoint"


class Stopped(BaseException):
    """A signal asked the process to end; str() says which and what to do."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Meanwhile SIGTERM and SIGINT raise Stopped in the main thread, whatever handlers Ray and Prefect have set.

    Whoever does not let go within PATIENCE seconds is left behind: nothing half-written counts, and children end with
    their parent.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        reason = f"{ {signal.SIGINT: 'interrupted', signal.SIGTERM: 'terminated'}[signal.Signals(signum)] }; {ENDED}"
        watchdog = threading.Timer(PATIENCE, _leave, [reason])
        watchdog.daemon = True
        watchdog.start()
        raise Stopped(reason)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(reason: str) -> None:
    print(reason, file=sys.stderr, flush=True)
    os._exit(1)
