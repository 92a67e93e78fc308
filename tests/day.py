"""A simulated day: a table each quarter of an hour, while its processes are killed, the disk fills and the clock jumps.

    python tests/day.py FOLDER QUARTERS SEED

Prefect (a server that stays), Ray and MLflow (started by each run) are real; the time between two runs is left out. FOLDER
should be a file system of its own, which is filled at times. Prints a line for each quarter, and ends with an error if
anything is lost or there twice, or if disk or memory grow without bound.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

from running import resident

from phrasemodels.data.store.gc import damage, folder_bytes
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.records import records
from phrasemodels.infra.services import free_port
from phrasemodels.infra.tracking import KEY, Tracker

EVENTS = ("nothing", "nothing", "run killed", "server killed", "disk full", "clock jumps")
SIZE = ("recipe.corpus.train=60", "recipe.corpus.dev=10", "recipe.corpus.test=10", "train.batch_tokens=600",
        "train.evaluate_every=4", "train.checkpoint_every=2")  # fmt: skip
JUMP = """
import os, time
real, offset = time.time, float(os.environ["PM_JUMP"])
time.time = lambda: real() + offset
"""
PATIENCE = 900.0  # seconds for one run


class Day:
    """The folder of the day, its Prefect server, and the runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.log = folder, free_port(), (folder / "log").open("ab")
        self.environment = os.environ | {
            "PHRASEMODELS_STORE": str(folder / "store"),
            "PHRASEMODELS_CPUS": "2",
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        (folder / "clock").mkdir()
        (folder / "clock" / "sitecustomize.py").write_text(JUMP)
        self.server = self.start_server()

    def start_server(self) -> subprocess.Popen[bytes]:
        """Start the Prefect server and wait until it answers."""
        command = [
            sys.executable,
            "-m",
            "prefect",
            "server",
            "start",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--no-ui",
        ]
        server = subprocess.Popen(command, env=self.environment, stdout=self.log, stderr=self.log)
        for _ in range(1200):
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.environment['PREFECT_API_URL']}/health", timeout=2),
            ):
                return server
            assert server.poll() is None, "the Prefect server ended"
            time.sleep(0.25)
        raise OSError("the Prefect server does not answer")

    def run(self, steps: int, **variables: str) -> subprocess.Popen[bytes]:
        """Start the run of a table of one row with so many updates."""
        overrides = (word for value in (*SIZE, f"train.steps={steps}") for word in ("--set", value))
        command = [
            sys.executable,
            "-m",
            "phrasemodels.flows.cli",
            "reproduce",
            "--seeds",
            "1",
            "--row",
            "transformer",
            *overrides,
        ]
        return subprocess.Popen(
            command, env=self.environment | variables, stdout=self.log, stderr=self.log, cwd=self.folder
        )

    def fill(self) -> Path:
        """Fill the disk; return the file that fills it."""
        path = self.folder / "filler"
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        return path

    def quarter(self, steps: int, event: str, chance: random.Random) -> str:
        """Run a table while something happens, then again until it is there; return how the runs ended."""
        ended = []
        if event == "disk full":
            filler = self.fill()
            ended.append(self.run(steps).wait(PATIENCE))
            filler.unlink()
        elif event != "nothing":
            away = {
                "PM_JUMP": str(chance.choice((-86400, 86400))),
                "PYTHONPATH": f"{self.folder / 'clock'}:{os.environ['PYTHONPATH']}",
            }
            run = self.run(steps, **(away if event == "clock jumps" else {}))
            if event != "clock jumps":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    run.wait(chance.uniform(5, 40))
                (run if event == "run killed" else self.server).send_signal(signal.SIGKILL)
            if event == "server killed":
                self.server.wait()
                self.server = self.start_server()
            ended.append(run.wait(PATIENCE))
        while not ended or (ended[-1] != 0 and len(ended) < 4):
            ended.append(self.run(steps).wait(PATIENCE))
        assert ended[-1] == 0, f"the table of {steps} updates did not come: {ended}"
        return " ".join(map(str, ended))

    def check(self, tables: set[int]) -> None:
        """Check that every table is there once, whole, and once in MLflow."""
        store = Store(self.folder / "store")
        assert damage(store) == [], "an artifact is damaged"
        trained = [
            a.manifest["parts"]["settings"]["config"]["steps"]
            for a in store.artifacts()
            if a.manifest["step"] == "train"
        ]
        assert Counter(trained) == Counter(tables), "a training is lost, or there twice"
        runs = Tracker(f"sqlite:///{self.folder / 'store' / 'mlflow' / 'mlflow.db'}").runs()
        assert max(Counter(run.data.tags.get(KEY) for run in runs).values()) == 1, "a row is in MLflow twice"
        assert not any(
            run.info.status == "RUNNING" for run in runs if run.data.tags.get("phrasemodels.kind") == "training"
        )
        assert sum(record["state"] == "completed" for record in records(store)) >= len(tables)
        assert not list(store.root.glob("work/*")), "unfinished work is left"


def main(folder: str, quarters: str, seed: str = "0") -> None:
    chance, day, tables = random.Random(int(seed)), Day(Path(folder).absolute()), set[int]()
    disk, memory = [], []
    try:
        for quarter in range(int(quarters)):
            event = EVENTS[quarter % len(EVENTS)] if quarter < len(EVENTS) else chance.choice(EVENTS)
            steps = 4 + quarter % 12  # after twelve quarters a table comes again, and is found
            ended = day.quarter(steps, event, chance)
            tables.add(steps)
            day.check(tables)
            disk.append(folder_bytes(day.folder / "store") >> 20)
            memory.append(resident(day.server.pid) >> 20)
            print(f"{quarter // 4:02d}:{quarter % 4 * 15:02d}  {event:<14} ended {ended:<10} store {disk[-1]:>4} MiB  "
                  f"Prefect server {memory[-1]:>4} MiB", flush=True)  # fmt: skip
    finally:
        day.server.terminate()
    if len(disk) >= 48:  # four rounds of the twelve tables
        assert disk[-1] < 2 * disk[23], f"the store grows without bound: {disk}"
        assert max(memory[-12:]) < 1.5 * max(memory[12:24]), f"the server's memory grows: {memory}"
    print(json.dumps({"quarters": len(disk), "tables": len(tables), "MiB": disk[-1], "server MiB": memory[-1]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
