"""The embedded Ray of a run: a private folder, short enough for its sockets, and a token that only this run knows.

Ray makes its folders for all users (mode 0777), so they are inside one of mode 0700. A process that is killed leaves its
folder behind; the next run on this machine removes it.
"""

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock

LONGEST = (
    24  # bytes of the path in which the folder is made: a socket's path has at most 107, of which Ray needs the rest
)
PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # if the folder for temporary files has a longer path
PREFIX = "pm-ray-"
YOUNG = 60.0  # seconds in which a new folder may have no lock yet
OLD = 86400.0  # seconds after which one without a lock is removed: a process of Ray that ended late made it again
_locks: dict[Path, filelock.BaseFileLock] = {}  # held until the folder is removed, or this process ends


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Keep Ray in this process from replacing 127.0.0.1 by an outside address.

    Ray reads the variable of LOOPBACK when it is imported, which was before LOOPBACK was exported.
    """
    from ray._private import ray_constants

    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def start_embedded(cpus: int | None, quiet: dict[str, Any]) -> None:
    """Start Ray, at most three times: it gives up after 30 seconds, which are too few on a busy machine."""
    import ray

    folder = make_folder()
    for attempt in range(3):
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=200_000_000,
                _node_ip_address="127.0.0.1",
                _temp_dir=str(folder),
                **quiet,
            )
            return
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error):
                remove_folder(folder)
                raise
            if attempt == 2:
                remove_folder(folder)
                raise OSError("Ray did not start within 30 s, three times: is the machine overloaded?") from error


def make_folder() -> Path:
    """Return a new folder for Ray, after removing those of dead runs. OSError: no folder with a short path is writable."""
    for place in places():
        remove_left(place)
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            lock = filelock.FileLock(folder / "lock", thread_local=False)
            lock.acquire()
            _locks[folder] = lock
            (folder / "r").mkdir()
            return folder / "r"
    raise OSError(
        f"none of {', '.join(map(str, places()))} can be written to, and Ray needs a folder with a path of at most {LONGEST} "
        "characters: set TMPDIR to one"
    )


def places() -> list[Path]:
    """Return the folders in which Ray's folder may be made, the one for temporary files first if its path is short."""
    first = os.path.abspath(tempfile.gettempdir())
    return [Path(place) for place in dict.fromkeys([first, *PLACES]) if len(os.fsencode(place)) <= LONGEST]


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a private folder for the block. If this process is killed, the next run on this machine removes it."""
    folder = make_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder that `make_folder` returned; any other one stays."""
    if (lock := _locks.pop(folder.parent, None)) is not None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        lock.release()


def remove_left(place: Path) -> None:
    """Remove the folders of this user's runs that were killed, and what Ray made again after a run had removed its own."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            age, locked = time.time() - status.st_mtime, (folder / "lock").is_file()
            if age > OLD and not locked:
                shutil.rmtree(folder, ignore_errors=True)
            elif age > YOUNG and locked:
                with filelock.FileLock(folder / "lock").acquire(blocking=False):
                    shutil.rmtree(folder, ignore_errors=True)


def new_token() -> dict[str, str]:
    """Return variables that make Ray ask everybody for a new random token."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def read_token() -> None:
    """Make Ray in this process read the variables of its token again: it keeps what it read first."""
    from ray import _raylet

    known: Any = _raylet  # a compiled module without types
    known.Config.initialize("")
    known.AuthenticationTokenLoader.instance().reset_cache()
