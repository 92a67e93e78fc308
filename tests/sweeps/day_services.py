"""The services of a simulated day: a Prefect server, an MLflow server and a Ray node, on a disk that is measured."""

import contextlib
import os
import signal
import sys
import tempfile
import urllib.request
from pathlib import Path

from cluster import Place, below, until
from running import own_memory

from phrasemodels.data.store.gc import folder_bytes
from phrasemodels.infra.services import free_port

RAY = ("gcs_server", "raylet")


def bytes_of(path: Path) -> int:
    """Return the bytes of a file or of a folder."""
    return path.stat().st_size if path.is_file() else folder_bytes(path)


class Services(Place):
    """The servers of the day, and the environment of its runs. Ray's folder is elsewhere, as its path must be short."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ray = Path(tempfile.mkdtemp(prefix="pm-day-", dir="/tmp"))
        prefect, mlflow, gcs = (free_port() for _ in range(3))
        self.environment |= {
            "PHRASEMODELS_STORE": str(folder / "store"), "PHRASEMODELS_RAY_ADDRESS": f"127.0.0.1:{gcs}",
            "PHRASEMODELS_MLFLOW_URI": f"http://127.0.0.1:{mlflow}", "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api", "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "7" * 32, "TMPDIR": str(folder / "tmp"),
        }  # fmt: skip
        (folder / "tmp").mkdir()
        python = (sys.executable, "-m")
        self.start("prefect", *python, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(prefect),
                   "--no-ui")  # fmt: skip
        self.start("mlflow", *python, "mlflow", "server", "--host", "127.0.0.1", "--port", str(mlflow), "--workers", "1",
                   "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination",
                   str(folder / "artifacts"))  # fmt: skip
        self.start("ray", str(Path(sys.executable).parent / "ray"), "start", "--head", f"--port={gcs}", "--num-cpus=2",
                   f"--temp-dir={self.ray}", "--include-dashboard=false", "--node-ip-address=127.0.0.1",
                   "--object-store-memory=200000000", "--disable-usage-stats", "--block")  # fmt: skip
        self.healthy = {
            "prefect": f"http://127.0.0.1:{prefect}/api/health",
            "mlflow": f"http://127.0.0.1:{mlflow}/health",
        }
        for name in self.started:
            self.wait(name)

    def say(self, *command: str) -> None:
        """Commands are not printed, as they are the same all day."""

    def wait(self, name: str) -> None:
        """Wait until a service answers."""
        if name == "ray":
            until(lambda: "runtime started" in (self.folder / "ray.log").read_text(), 300)
        else:
            until(lambda: urllib.request.urlopen(self.healthy[name], timeout=2).close() is None, 300)

    def lose(self, name: str) -> None:
        """Kill a service with all its processes, and start it again."""
        command, _, process = self.started[name]
        for pid in below(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        (self.folder / f"{name}.log").unlink()
        self.start(name, *command)
        self.wait(name)

    def disk(self) -> dict[str, int]:
        """Return the MiB on disk of artifacts; of records: MLflow's, Prefect's, and all others with logs."""
        parts = {"artifacts": ["store/objects"], "MLflow's": ["artifacts", "mlflow.db"], "Prefect's": ["prefect"]}
        found = {what: sum(bytes_of(self.folder / name) for name in names) for what, names in parts.items()}
        found["other records"] = folder_bytes(self.folder) - sum(found.values())
        return {what: size >> 20 for what, size in found.items()}

    def memory(self) -> dict[str, int]:
        """Return the MiB of memory of each service; of Ray's, without its workers and agents."""
        found = {}
        for name, (*_, process) in self.started.items():
            pids = [p for p in below(process.pid) if name != "ray" or Path(f"/proc/{p}/exe").resolve().name in RAY]
            found[f"{name}'s memory"] = sum(map(own_memory, pids)) >> 20
        return found
