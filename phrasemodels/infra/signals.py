"""End a process in order at a signal, and in any case after SECONDS_TO_END. Find the source line of an error."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

SECONDS_TO_END = 20.0  # seconds for an orderly end
SECONDS_TO_TELL = 5.0  # seconds for the last message


ENDED = "the same command goes on from the last checkpoint"
STOPPING = threading.Event()  # a signal has asked this process to end: what fails then was ended, and has not failed


class ClusterError(OSError):
    """Ray lost a process or a node."""


class Stopped(BaseException):
    """A signal asked the process to end. The printed message names the signal and how to continue."""


_interrupting: list[Exception] = []  # the error that `interrupt` raises in the main thread


def interrupt(error: Exception) -> None:
    """Raise an error in the main thread if it is in a block of `stoppable`. Call it from another thread."""
    _interrupting.append(error)
    if getattr(signal.getsignal(signal.SIGUSR1), "raises", False):
        os.kill(os.getpid(), signal.SIGUSR1)


@contextlib.contextmanager
def stoppable(ended: Callable[[str], None] = lambda reason: None) -> Iterator[None]:
    """In the block, SIGTERM and SIGINT print how to go on and raise Stopped in the main thread.

    This holds whatever handlers Ray and Prefect have set. `interrupt` can raise an error there, too. A process still alive after
    SECONDS_TO_END is ended. Nothing is lost: half-written files do not count, and children end with their parent.

    Args:
        ended: Called with the reason before the process is ended. It has a few seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    STOPPING.clear()
    _interrupting.clear()

    def end_later(reason: str) -> None:
        watchdog = threading.Timer(SECONDS_TO_END, _exit, [reason, ended])
        watchdog.daemon = True
        watchdog.start()

    def stop(signum: int, frame: Any) -> None:
        STOPPING.set()
        reason = f"{ {signal.SIGINT: 'interrupted', signal.SIGTERM: 'terminated'}[signal.Signals(signum)] }; {ENDED}"
        # at once, since Ray may end the process on the way, and by no buffer, which the handler may have interrupted
        with contextlib.suppress(OSError):
            os.write(2, f"{reason}\n".encode())
        end_later(reason)
        raise Stopped(reason)

    def fail(signum: int, frame: Any) -> None:
        error = _interrupting.pop()
        end_later(f"phrasemodels: {error}")
        raise error

    fail.raises = True  # type: ignore[attr-defined]
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, fail)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(reason: str, ended: Callable[[str], None]) -> None:
    with contextlib.suppress(OSError):
        print(reason, file=sys.stderr, flush=True)
    telling = threading.Thread(target=ended, args=(reason,), daemon=True)
    telling.start()
    telling.join(SECONDS_TO_TELL)
    os._exit(1)


class Unbroken:
    """A text stream that never fails: it drops text if its terminal or its reader is gone."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.stream.flush()


@contextlib.contextmanager
def unbroken_output() -> Iterator[None]:
    """In the block, printing cannot end the run."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Unbroken(before[0]), Unbroken(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


FORWARD = "torch/nn/modules/module.py"


@contextlib.contextmanager
def noting_error_line() -> Iterator[None]:
    """Note file and line of an error in a module's forward. The note is kept without a traceback."""
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
