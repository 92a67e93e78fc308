"""Signals: end a run in an orderly way, and in any case after PATIENCE seconds."""

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
    """A signal asked the process to end; the message names the signal and how to continue."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """In the block, SIGTERM and SIGINT raise Stopped in the main thread, whatever handlers Ray and Prefect have set.

    If the process has not ended PATIENCE seconds later, it is ended. That is safe: half-written files do not count, and
    children end with their parent.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        reason = f"{ {signal.SIGINT: 'interrupted', signal.SIGTERM: 'terminated'}[signal.Signals(signum)] }; {ENDED}"
        watchdog = threading.Timer(PATIENCE, _exit, [reason])
        watchdog.daemon = True
        watchdog.start()
        raise Stopped(reason)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(reason: str) -> None:
    print(reason, file=sys.stderr, flush=True)
    os._exit(1)
