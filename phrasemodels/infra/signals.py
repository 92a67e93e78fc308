"""How a process ends: in order at a signal, and in any case after SECONDS_TO_END; and the source line of an error."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

SECONDS_TO_END = 20.0  # seconds for an orderly end


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
        watchdog = threading.Timer(SECONDS_TO_END, _exit, [reason])
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


FORWARD = "torch/nn/modules/module.py"


@contextlib.contextmanager
def noting_error_line() -> Iterator[None]:
    """Add the file and line to an error that a module's forward raises, as a note, which is kept without a traceback."""
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        calls = [at for at, frame in enumerate(frames) if frame.filename.endswith(FORWARD)]
        if calls:
            torch = frames[calls[0]].filename.removesuffix("nn/modules/module.py")
            last = [frame for frame in frames if not frame.filename.startswith(torch)][-1]
            error.add_note(f"{last.filename}:{last.lineno}, in {last.name}")
        raise
