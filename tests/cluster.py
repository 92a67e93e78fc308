"""A cluster of processes on this machine: Postgres, Prefect and MLflow servers that use it, S3, Ray, all with passwords.

Every process that is started here is ended here, by its process id.
"""

import base64
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import PROJECT

from phrasemodels.infra.services import free_port

NODES = ("node-1", "node-2")
USER, PASSWORD = "admin", "a password of tests"


def until(true: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Call a function until its result is true; return the result. TimeoutError: it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if found := true():
                return found
        time.sleep(0.3)
    raise TimeoutError(true)


class Place:
    """Processes that share an environment and a folder of logs. The path of the folder must be short, for Ray's sockets."""

    def __init__(self, folder: Path, project: Path = PROJECT) -> None:
        self.folder = folder
        path = os.pathsep.join([str(project), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environment = os.environ | {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
        self.started: dict[str, tuple[list[str], str | None, subprocess.Popen]] = {}

    def start(self, name: str, *command: str, user: str | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=log, stderr=log,
                                       user=user, start_new_session=True)  # fmt: skip
        self.started[name] = (list(command), user, process)
        self.say(*command)

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL, and start it again."""
        command, user, process = self.started[name]
        print(f"# SIGKILL to {name}", flush=True)
        send(process, signal.SIGKILL)
        process.wait()
        self.start(name, *command, user=user)

    def run(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, text=True,
                              timeout=580, user=user)  # fmt: skip
        self.say(*command)
        print(done.stdout, end="", flush=True)
        return done

    def say(self, *command: str) -> None:
        """Print a command, for `pytest -s`."""
        words = shlex.join(command).replace(sys.executable, "python").replace(f"{Path(sys.executable).parent}/", "")
        print("$", words.replace(str(self.folder), "PLACE"), flush=True)

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "prefect", "--no-prompt", *arguments)

    def processes(self) -> list[int]:
        """Return the ids of all processes that run now, with their descendants."""
        return [pid for *_, process in self.started.values() for pid in below(process.pid)]

    def ended(self) -> None:
        """End all processes, the last one first."""
        for *_, process in reversed(self.started.values()):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            send(process, signal.SIGKILL)
            process.wait()


def send(process: subprocess.Popen, number: signal.Signals) -> None:
    """Send a signal to the process group of a service: the process that answers is a child of `mlflow server`."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def begin(here: Place) -> None:
    """Start all services, and wait until they answer."""
    database, s3, prefect, mlflow, gcs = (free_port() for _ in range(5))
    python = (sys.executable, "-m")
    url = f"postgresql://postgres@127.0.0.1:{database}"
    begin_postgres(here, database)
    here.environment |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "PREFECT_HOME": str(here.folder / "prefect"), "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api",
        "PREFECT_API_DATABASE_CONNECTION_URL": f"{url}/prefect".replace("postgresql:", "postgresql+asyncpg:"),
        "PHRASEMODELS_STORE": "s3://phrases/store", "PHRASEMODELS_CACHE": str(here.folder / "cache"),
        "PHRASEMODELS_MLFLOW_URI": f"http://127.0.0.1:{mlflow}", "PHRASEMODELS_RAY_ADDRESS": f"127.0.0.1:{gcs}",
        "PHRASEMODELS_CLUSTER": "true",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }  # fmt: skip
    lock(here)
    here.start("s3", *python, "moto.server", "-H", "127.0.0.1", "-p", str(s3))
    here.start(
        "prefect", *python, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(prefect), "--no-ui"
    )
    here.start("mlflow", *python, "mlflow", "server", "--app-name", "basic-auth", "--host", "127.0.0.1", "--port",
               str(mlflow), "--workers", "1", "--backend-store-uri", f"{url}/mlflow", "--artifacts-destination",
               str(here.folder / "artifacts"))  # fmt: skip
    ray = str(Path(sys.executable).parent / "ray")
    at = ("--node-ip-address=127.0.0.1", "--object-store-memory=100000000", "--disable-usage-stats", "--block")
    here.start("head", ray, "start", "--head", f"--port={gcs}", f"--temp-dir={here.folder / 'r'}", "--num-cpus=0",
               "--include-dashboard=false", *at)  # fmt: skip
    until(lambda: urllib.request.urlopen(f"http://127.0.0.1:{s3}", timeout=2).close() is None)
    bucket = "import fsspec; fsspec.filesystem('s3').mkdir('phrases')"
    assert here.run(sys.executable, "-c", bucket).returncode == 0
    for port, path in ((prefect, "/api/health"), (mlflow, "/health")):
        until(lambda at=f"http://127.0.0.1:{port}{path}": urllib.request.urlopen(at, timeout=2).close() is None)
    for node in NODES:  # one after another: Ray allows each 30 seconds
        here.start(node, ray, "start", f"--address=127.0.0.1:{gcs}", "--num-cpus=1", *at)
        until(lambda log=here.folder / f"{node}.log": "runtime started" in log.read_text())


def begin_postgres(here: Place, port: int) -> None:
    """Start a Postgres server on loopback; Postgres refuses to run as root."""
    home = here.folder / "pg"
    programs = Path(os.path.realpath(shutil.which("postgres"))).parent
    user = "postgres" if os.getuid() == 0 else None
    home.mkdir()
    if user:
        here.folder.chmod(0o755)
        shutil.chown(home, user)
    made = here.run(str(programs / "initdb"), "-D", str(home), "-U", "postgres", "-A", "trust", user=user)
    assert made.returncode == 0, made.stderr
    here.start("postgres", str(programs / "postgres"), "-D", str(home), "-p", str(port), "-h", "127.0.0.1", "-k",
               str(home), user=user)  # fmt: skip
    psql = (
        "psql",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-U",
        "postgres",
        "-f",
        str(PROJECT / "phrasemodels/infra/databases.sql"),
    )
    until(lambda: here.run(*psql).stderr.count("already exists") == 2)


def lock(here: Place) -> None:
    """Set a password or token for every service that supports one."""
    (here.folder / "auth.ini").write_text(
        f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{here.folder}/auth.db\n"
        f"admin_username = {USER}\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    here.environment |= {
        "PREFECT_SERVER_API_AUTH_STRING": f"{USER}:{PASSWORD}", "PREFECT_API_AUTH_STRING": f"{USER}:{PASSWORD}",
        "MLFLOW_AUTH_CONFIG_PATH": str(here.folder / "auth.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": PASSWORD,
        "MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": PASSWORD,
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "7" * 32,
    }  # fmt: skip


def request(url: str, data: bytes | None = None, secret: str = f"{USER}:{PASSWORD}") -> bytes:
    """Return the answer of a server to a request with a password."""
    headers = {"content-type": "application/json"}
    if secret:
        headers["authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as answer:
        return bytes(answer.read())


def children(pid: int) -> list[int]:
    """Return the ids of the children of a process."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    return [int(line) for line in found.split()]


def below(pid: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    return [pid, *(found for child in children(pid) for found in below(child))]


def alive(pids: list[int]) -> list[str]:
    """Return the commands of those processes that still run; a zombie has no command."""
    found = []
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [command for command in found if command]


def logs(here: Place) -> str:
    """Return the ends of all logs."""
    return "\n".join(f"== {log.name}\n{log.read_text()[-2500:]}" for log in sorted(here.folder.glob("*.log")))
