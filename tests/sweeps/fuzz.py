"""Fuzz every reader of external input: python tests/sweeps/fuzz.py MINUTES FOLDER [NAME ...]

MINUTES of processor time are spent on each reader. Inputs that reach new lines of the project are kept in
FOLDER/NAME/kept and mutated further. Inputs that a reader does not refuse properly are in FOLDER/NAME/found, one for
each place in the code. A later call continues with these folders.
"""

import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

PROJECT = Path(__file__).parents[2]
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests")]

from outside import OUTSIDE, attempt, broken  # noqa: E402

PACKAGE = f"{PROJECT}/phrasemodels/"
SECONDS, BYTES = 10, 6 << 30  # of processor time and of memory for one input


class Lines:
    """A tracer that collects the pairs of consecutive lines of the project."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()
        self.last: Any = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        here = (frame.f_code, frame.f_lineno)
        self.seen.add((self.last, here))
        self.last = here
        return self.line


def fuzz(name: str, seconds: float, folder: Path) -> None:
    """Fuzz one reader; its inputs and findings are in the folder."""
    chance, lines = random.Random(), Lines()
    kept = [*OUTSIDE[name].seeds, *(path.read_bytes() for path in (folder / "kept").iterdir())]
    count, queue = 0, list(kept)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="pm-fuzz-") as place:
        while time.process_time() < seconds:
            content = queue.pop() if queue else broken(chance.choice(kept), kept, chance)
            (folder / "now").write_bytes(content)  # the input that is left if this process dies
            before, count = len(lines.seen), count + 1
            where, message = attempted(name, content, Path(place, str(count)), lines)
            if where:
                keep(folder / "found", content, where, message)
            elif len(lines.seen) > before:
                kept.append(content)
                keep(folder / "kept", content)
    (folder / "now").unlink()
    with (folder / "log").open("a") as log:
        print(f"{count} inputs in {seconds:.0f} s, {len(lines.seen)} pairs of lines", file=log)


def attempted(name: str, content: bytes, place: Path, lines: Lines | None) -> tuple[str, str]:
    """Return the place and the message of an improper error of a reader; empty if there is none."""
    sys.settrace(lines)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        attempt(name, content, place)
        return "", ""
    except TimeoutError as error:  # without the tracer the reader may be fast enough
        return attempted(name, content, place.with_name("again"), None) if lines else ("too long", str(error))
    except BaseException as error:
        sys.settrace(None)
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]
        where = f"{Path(frames[-1].filename).relative_to(PROJECT)}, {frames[-1].name}" if frames else "outside"
        return f"{type(error).__name__} in {where}", str(error)
    finally:
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(place, ignore_errors=True)


def keep(folder: Path, content: bytes, where: str = "", message: str = "") -> None:
    """Write an input; of findings, one for each place and type of error."""
    path = folder / hashlib.sha256(where.encode() or content).hexdigest()[:12]
    if not path.exists():
        path.write_bytes(content)
        if where:
            path.with_suffix(".txt").write_text(f"{where}: {message}\n")
            print(f"{folder.parent.name}: {where}: {message!r:.200} [{path}]", flush=True)


def too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def children() -> float:
    """Return the seconds of processor time of ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(minutes: str, to: str, *names: str) -> None:
    """Fuzz each reader in a child process, so that a crash is a finding and does not end the fuzzing."""
    for name in names or OUTSIDE:
        folder = Path(to, name).absolute()
        for part in ("kept", "found"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        until = children() + 60 * float(minutes)
        while (left := until - children()) > 1:
            if (child := os.fork()) == 0:
                resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
                signal.signal(signal.SIGPROF, too_long)
                fuzz(name, left, folder)
                os._exit(0)
            if status := os.waitpid(child, 0)[1]:
                last = folder / "now"
                keep(folder / "found", last.read_bytes() if last.exists() else b"", f"the process died: {status}")
        print(
            f"{name}: {len(list((folder / 'found').glob('*.txt')))} finds, {(folder / 'log').read_text()}", flush=True
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
