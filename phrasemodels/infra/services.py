"""The services of a run: a Prefect server, a Ray cluster, an MLflow database. A URL in the settings replaces each.

Embedded services start in parallel and listen on loopback only. They end with the process that started them, even if it is
killed. Ray makes its folders for all users (mode 0777), so they lie in a private folder of mode 0700. The path of this
folder is short enough for Ray's sockets. A killed process leaves it behind, and the next run on this machine removes it.
Each run has a new token.
"""

import contextlib
import importlib.metadata
import json
import os
import random
import secrets
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import filelock

from phrasemodels.infra import environment
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.signals import ClusterError, interrupt
from phrasemodels.infra.tracking import Tracker

# bytes of the path in which the folder is made: a socket's path has at most 107, of which Ray needs the rest
LONGEST = 24
PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # if the folder for temporary files has a longer path
PREFIX = "pm-ray-"
YOUNG = 60.0  # seconds in which a new folder may have no lock yet
OLD = 86400.0  # seconds after which one without a lock is removed: a process of Ray that ended late made it again
_locks: dict[Path, filelock.BaseFileLock] = {}  # held until the folder is removed, or this process ends


def start_embedded(cpus: int | None, quiet: dict[str, Any]) -> None:
    """Start Ray, at most three times. Ray gives up after 30 seconds, too few on a busy machine."""
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
            if "timed out" not in str(error).lower():  # a node, or the file with a port
                remove_folder(folder)
                raise
            if attempt == 2:
                remove_folder(folder)
                raise OSError("Ray timed out three times while starting: is the machine overloaded?") from error


def make_folder() -> Path:
    """Return a new folder for Ray, after removing the folders of dead runs. OSError: no folder with a short path is writable."""
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
    """Return the possible parents of Ray's folder. The folder for temporary files comes first if its path is short."""
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
    """Remove a folder of `make_folder`. Any other folder stays."""
    if (lock := _locks.pop(folder.parent, None)) is not None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        lock.release()


def remove_left(place: Path) -> None:
    """Remove the folders of this user's killed runs, and those that Ray made again after a run had removed its own."""
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


PATIENCE = 180.0  # seconds to wait for a service that has been started here to answer
RESTART = 25.0  # seconds to wait for one that others run: it may be starting again
REACH = 10.0  # seconds to wait for a connection
HEAD_LOST = 15.0  # seconds without an answer after which the head node of Ray is lost
JOINING = 30.0  # seconds to wait for a second node of a cluster that is required


@contextlib.contextmanager
def services(settings: Settings) -> Iterator[None]:
    """Start or join Prefect, Ray and MLflow. Prefect's clients in the block ask the server of the settings."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(prefect(settings))
        with ThreadPoolExecutor(2) as pool:
            others = [pool.submit(start_mlflow, settings), pool.submit(wait_for, server)]
            if start_ray(settings):  # in this thread: Ray's processes end with the thread that started them
                stack.callback(stop_ray)
                if settings.ray_address and "://" not in settings.ray_address:
                    stack.enter_context(watching_head())
            with naming_full_disk(settings.root):
                for other in others:
                    other.result()
        yield


@contextlib.contextmanager
def prefect(settings: Settings) -> Iterator["Server"]:
    """Yield the Prefect server of the settings, or start one for the block. In a flow run: its own server."""
    if url := _url_of_flow_run():
        yield Server(url.removesuffix("/api"))
        return
    home = settings.root / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if named := named_server(settings):
            url, variable = named
            server = Server(url.rstrip("/").removesuffix("/api"), variable=variable)
            variables = {"PREFECT_API_URL": url}
        else:
            server = stack.enter_context(prefect_server(home))
            # a password comes before a key, which may be for another server
            variables = {"PREFECT_API_URL": f"{server.url}/api", "PREFECT_API_AUTH_STRING": server.password}
            variables["PREFECT_API_KEY"] = ""
        stack.enter_context(exported({"PREFECT_HOME": str(home)} | variables))
        if "prefect.context" in sys.modules:  # Prefect reads its variables once, at its import
            from prefect.context import refresh_global_settings_context

            refresh_global_settings_context()
        yield server


def _url_of_flow_run() -> str:
    """Return the URL of this flow run's server. Empty outside a flow run."""
    if "prefect.context" in sys.modules:
        from prefect.context import FlowRunContext
        from prefect.settings import get_current_settings

        if FlowRunContext.get() is not None:
            return get_current_settings().api.url or ""
    return ""


def named_server(settings: Settings) -> tuple[str, str] | None:
    """Return a URL from the settings or Prefect's own variable, and the name of the variable."""
    if url := settings.prefect_api_url:
        return url, "PHRASEMODELS_PREFECT_API_URL"
    if url := os.environ.get("PREFECT_API_URL"):
        Settings(prefect_api_url=url)  # the rules of settings hold for it, too
        return url, "PREFECT_API_URL"
    return None


class Server(NamedTuple):
    """A Prefect server: its URL and the variable with this URL.

    If we started it, it also has its process and log file, its password and the lock of its first start.
    """

    url: str
    process: "subprocess.Popen[bytes] | None" = None
    log: Path = Path(os.devnull)
    first: filelock.BaseFileLock | None = None
    password: str = ""
    variable: str = "PHRASEMODELS_PREFECT_API_URL"


# The server ends when its standard input does, so with the process that started it, however that ends.
SERVER = """
import os, sys, threading, uvicorn
def end_with_parent():
    sys.stdin.buffer.read()
    os._exit(1)
threading.Thread(target=end_with_parent, daemon=True).start()
uvicorn.run("prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=int(sys.argv[1]), lifespan="on")
"""


@contextlib.contextmanager
def prefect_server(home: Path) -> Iterator[Server]:
    """Start a Prefect server with a new password on a free port, and stop it after the block.

    It answers once `wait_for` returns. The first server of a version makes the database. Others wait, because two at once
    break it.
    """
    home.mkdir(parents=True, exist_ok=True)
    port, password = free_port(), f"phrasemodels:{secrets.token_hex(32)}"
    url = f"http://127.0.0.1:{port}"
    # variables of the user are for the user's servers
    others = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_") or k in environment.DEFAULTS}
    variables = others | {
        "PREFECT_HOME": str(home),
        "PREFECT_PROFILES_PATH": os.devnull,
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": url,
        "PREFECT_SERVER_UI_ENABLED": "false",
        "PREFECT__SERVER_FINAL": "1",
    }
    first = _first_start(home)
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVER, str(port)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, env=variables, cwd=home,
        )  # fmt: skip
    try:
        yield Server(url, process, home / "server.log", first, password)
    finally:
        if first is not None:
            first.release()
        send_logs()
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


def _first_start(home: Path) -> filelock.BaseFileLock | None:
    """Return the lock for making or migrating the database of a Prefect server. None if it is done."""
    lock = filelock.FileLock(home / "database.lock", thread_local=False)
    lock.acquire()
    if _made(home).exists() and (home / "prefect.db").exists():
        lock.release()
        return None
    return lock


def _made(home: Path) -> Path:
    """Return the mark of a database with the tables of this version of Prefect."""
    return home / f"database-of-{importlib.metadata.version('prefect')}"


def send_logs() -> None:
    """Send Prefect's remaining logs to the server. Otherwise Prefect tries for a minute and prints errors."""
    if "prefect.logging.handlers" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        APILogWorker.drain_all(timeout=5)
        EventsWorker.drain_all(timeout=5)


def free_port() -> int:
    """Return a free TCP port of loopback.

    Neither Ray (up to 19999) nor the kernel chooses from its range. So no other process takes it while the server starts.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port between 20000 and 32000")


def wait_for(server: Server) -> None:
    """Wait until a Prefect server answers. A refusal is an answer, for example without a password.

    Raises:
        OSError: The process has ended, or did not answer within PATIENCE seconds. For a server of others: RESTART seconds.
    """
    patience = RESTART if server.process is None else PATIENCE
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if server.process is not None and (code := server.process.poll()) is not None:
            log = server.log.read_text(errors="replace").splitlines()[-50:]
            why = next((f" ({line.strip()})" for line in reversed(log) if "disk" in line), "")
            raise OSError(f"the Prefect server ended with status {code}{why}: see {server.log}")
        if _answers(server.url):
            if server.first is not None:
                _made(server.log.parent).touch()
                server.first.release()
            return
        time.sleep(0.2)
    mend = f"is {server.variable} right?" if server.process is None else f"see {server.log}, and start the command again"
    raise OSError(f"the Prefect server at {server.url} did not answer within {patience:.0f} s: {mend}")


def _answers(url: str) -> bool:
    """Return whether a Prefect server answers, if only to refuse."""
    try:
        with urllib.request.urlopen(f"{url}/api/admin/version", timeout=10) as answer:
            json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code < 500  # a refusal, or a service that is Prefect's own
    except (OSError, ValueError):
        return False
    return True


def start_ray(settings: Settings) -> bool:
    """Join the Ray cluster of the settings, or start one on loopback with its own temporary directory.

    Returns:
        False if this process has joined a cluster before.

    Raises:
        OSError: The settings require a cluster, and no second node has joined within JOINING seconds.
    """
    import ray

    from phrasemodels.infra.ray_private import on_loopback, read_token

    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    quiet["runtime_env"] = {"worker_process_setup_hook": "phrasemodels.project.watch_users"}
    if settings.ray_address:
        reach_ray(settings.ray_address)
        ray.init(address=settings.ray_address, **quiet)
    else:
        hosts = [urlparse(url).hostname or "" for url in (settings.mlflow_uri, settings.prefect_api_url) if url]
        variables = environment.LOOPBACK | new_token() | {"no_proxy": ",".join([*environment.HERE, *hosts])}
        with exported(variables), on_loopback():
            read_token()
            start_embedded(settings.cpus, quiet)
    if settings.cluster and not settings.autoscaling:
        _await_nodes(JOINING if settings.ray_address else 0)
    return True


def _await_nodes(seconds: float) -> None:
    """Wait until a second node of Ray has joined. OSError: no node has, within these seconds."""
    import ray

    until = time.monotonic() + seconds
    while len([node for node in ray.nodes() if node["Alive"]]) < 2:
        if time.monotonic() >= until:
            raise OSError(
                "PHRASEMODELS_CLUSTER requires a cluster, but Ray has one node: is PHRASEMODELS_RAY_ADDRESS right, and have "
                "the other nodes joined?"
            )
        time.sleep(0.5)


@contextlib.contextmanager
def watching_head() -> Iterator[None]:
    """In the block, interrupt the main thread after HEAD_LOST seconds without an answer of the head node.

    Ray itself ends this process without a word a minute later.
    """
    import ray

    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    ended, answered = threading.Event(), time.monotonic()

    def follow() -> None:
        nonlocal answered
        while not ended.wait(2):
            with contextlib.suppress(OSError):
                socket.create_connection((host, int(port)), timeout=REACH).close()
                answered = time.monotonic()
            if time.monotonic() - answered > HEAD_LOST:
                lost = f"Ray lost a process or a node (the head node, {host}:{port})"
                interrupt(ClusterError(f"{lost}; start again: finished steps are kept"))
                return

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def stop_ray() -> None:
    """Leave the Ray cluster. An embedded cluster is stopped, and its temporary directory removed."""
    import ray

    if not ray.is_initialized():
        return
    from phrasemodels.infra.ray_private import own_folder, read_token

    folder = own_folder()
    ray.shutdown()
    read_token()
    if folder is not None:
        remove_folder(folder)


@contextlib.contextmanager
def exported(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes of the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def naming_full_disk(folder: Path) -> Iterator[None]:
    """Raise SQLite's error of a full disk as an OSError with the folder's name."""
    try:
        yield
    except Exception as error:
        if "disk is full" not in str(error):
            raise
        raise OSError(
            f"the disk of {folder} is full: free some space, or choose another folder with PHRASEMODELS_STORE (if that is a "
            "URL, PHRASEMODELS_CACHE)"
        ) from error


def start_mlflow(settings: Settings) -> None:
    """Create or migrate MLflow's database before tasks use it. Concurrent first uses break it. OSError: it is damaged."""
    uri = settings.tracking_uri
    if uri.startswith("sqlite:///"):
        database = Path(uri.removeprefix("sqlite:///"))
        database.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{database}.lock"), naming_full_disk(settings.root):
            if not database.exists():
                _create(database)
            if damage := Tracker(uri).damage():
                raise OSError(damage)
            _make_tables(uri)
            if settings.artifact_location:
                follow_store(database, settings.root)
    else:
        if uri.startswith("http"):
            reach(uri, "MLflow", "PHRASEMODELS_MLFLOW_URI")
        _make_tables(uri)


IN_DATABASE = {"experiments": "artifact_location", "runs": "artifact_uri"}  # columns with folders of the store


def follow_store(database: Path, root: Path) -> None:
    """Let a database name its artifacts by the place of the store, if the store was copied or moved: it has absolute paths."""
    artifacts, new = database.parent / "artifacts", root.as_uri()
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        known = connection.execute("select name, artifact_location from experiments").fetchall()
        suffixes = ((f"/mlflow/artifacts/{name}", where or "") for name, where in known)
        old = {where.removesuffix(end) for end, where in suffixes if where.endswith(end)} - {new}
        for before in old if artifacts.is_dir() else ():
            for table, column in IN_DATABASE.items():
                connection.execute(
                    f"update {table} set {column} = replace({column}, ?, ?) where instr({column}, ?)",
                    (f"{before}/", f"{new}/", f"{before}/"),
                )
            print(f"the store was {before}: MLflow's artifacts are taken from {new} now", file=sys.stderr, flush=True)


def reach(url: str, service: str, setting: str, port: int = 0) -> None:
    """Wait until something listens at an address. OSError: nothing does within RESTART, or the host is unknown."""
    found, until = urlparse(url), time.monotonic() + RESTART
    place = (found.hostname or "", found.port or port or (443 if found.scheme == "https" else 80))
    while True:
        try:
            socket.create_connection(place, timeout=REACH).close()
            return
        except OSError as error:
            if isinstance(error, socket.gaierror) or time.monotonic() + 1 > until:
                raise OSError(
                    f"{service} does not answer at {place[0]}:{place[1]} ({error}): is {setting} right?"
                ) from error
        time.sleep(1)


def reach_ray(address: str) -> None:
    """Check the address of a Ray cluster. Ray itself tries for many minutes. OSError: no cluster answers."""
    if address in ("auto", "local"):
        return
    reach(address if "://" in address else f"ray-gcs://{address}", "Ray", "PHRASEMODELS_RAY_ADDRESS", 10001)
    if "://" not in address:
        import grpc

        try:
            grpc.channel_ready_future(grpc.insecure_channel(address)).result(REACH)
        except grpc.FutureTimeoutError:
            raise OSError(f"what answers at {address} is no Ray: is PHRASEMODELS_RAY_ADDRESS right?") from None


def _make_tables(uri: str) -> None:
    """Create or migrate the tables. MLflow does so at the first query."""
    Tracker(uri).client().search_experiments(max_results=1)


def _create(database: Path) -> None:
    """Create a database under a temporary name and rename it. MLflow cannot continue an interrupted creation."""
    temporary = database.with_name("new")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    _make_tables(uri := f"sqlite:///{temporary / 'made.db'}")
    Tracker(uri).client().delete_experiment("0")  # MLflow's empty `Default`
    with (
        contextlib.closing(sqlite3.connect(temporary / "made.db")) as made,
        contextlib.closing(sqlite3.connect(temporary / "whole.db")) as whole,
    ):
        made.backup(whole)
        whole.execute("pragma journal_mode=wal")
    os.replace(temporary / "whole.db", database)
    shutil.rmtree(temporary)
