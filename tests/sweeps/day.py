"""A simulated day: a table each quarter of an hour, while its processes are killed, the disk fills and the clock jumps.

    python tests/sweeps/day.py FOLDER [QUARTERS] [SEED]

A Prefect server, an MLflow server and a Ray node stay all day, as in a deployment, unless they are killed; the time between
two runs is left out. FOLDER should be a file system of its own, which is filled at times. Each hour has its table, which is
trained in its first quarter and must be found in the others. Six tables take turns, each time with another distance of
checkpoints, so that all are trained anew; garbage is collected every three hours. Prints a line for each quarter, and ends
with an error if anything is lost or there twice, or if disk or memory grow without bound.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster import below, until
from conftest import CLI
from day_services import Services
from running import small_corpus

from phrasemodels.data.store.gc import damage
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.records import records
from phrasemodels.infra.tracking import KEY, Tracker

SIZE = (*small_corpus(60, 10, 10), "train.batch_tokens=600",
        "train.evaluate_every=4")  # fmt: skip
TIMES, TABLES = 4, 6  # each table is asked for so many times; so many take turns
ROUND = TIMES * TABLES  # quarters
# The clock that our own code reads, and time.time for all of Python; a class in place of datetime breaks libraries in C.
JUMP = """
import builtins, datetime, os, time, types
real, began, offset, after = time.time, time.monotonic(), float(os.environ["PM_JUMP"]), float(os.environ["PM_AFTER"])
def now():
    return real() + (offset if time.monotonic() - began > after else 0.0)
class Moved(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(now(), tz)
moved, plain = types.ModuleType("datetime"), builtins.__import__
moved.__dict__.update(datetime.__dict__, datetime=Moved)
def ours(name, globals=None, *rest, **named):
    if name == "datetime" and globals and str(globals.get("__name__")).startswith("phrasemodels"):
        return moved
    return plain(name, globals, *rest, **named)
time.time, builtins.__import__ = now, ours
"""
PATIENCE = 900.0  # seconds for one run
RECORDS = ("MLflow's", "Prefect's", "other records")  # for which people choose what to keep
HEAD = "       fault           ended   seconds" + "".join(f"{name:>10}" for name in (
    "artifacts", "MLflow's", "Prefect's", "others", "Prefect", "MLflow", "Ray"))  # fmt: skip


class Day:
    """The services, the runs, and what there must be after each of them."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.here = folder, chance, Services(folder)
        self.store, self.tables = Store(folder / "store"), list[tuple[int, int]]()
        self.found = False  # whether the table has been trained in an earlier quarter
        self.seconds = {False: 30.0, True: 2.0}  # of the last undisturbed run of either kind
        (folder / "clock").mkdir()
        (folder / "clock" / "sitecustomize.py").write_text(JUMP)

    def command(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        with (self.folder / "runs.log").open("ab") as log:
            self.last = subprocess.Popen([*CLI, *arguments], stdout=log, stderr=log,
                                         env=self.here.environment | variables, cwd=self.folder)  # fmt: skip
        return self.last

    def run(self, **variables: str) -> subprocess.Popen[bytes]:
        """Start the run of the newest table, which has one row."""
        steps, every = self.tables[-1]
        values = (*SIZE, f"train.steps={steps}", f"train.checkpoint_every={every}")
        overrides = (word for value in values for word in ("--set", value))
        return self.command("reproduce", "--seeds", "1", "--row", "transformer", *overrides, **variables)

    def working(self) -> list[int]:
        """Return the ids of Ray workers that do something."""
        found = []
        for pid in below(self.here.started["ray"][-1].pid):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/cmdline").read_text()
                if name.startswith(("ray::step", "ray::train", "ray::_RayTrainWorker", "ray::RayTrainWorker")):
                    found.append(pid)
        return found

    def delay(self) -> float:
        """Return after how many seconds of a run something happens: at any time of one like the last of its kind."""
        return self.chance.uniform(0, self.seconds[self.found])

    def nothing(self) -> list[int]:
        return []

    def run_killed(self) -> list[int]:
        run = self.run()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(self.delay())
        run.kill()
        return [run.wait()]

    def _while_running(self, happens: Callable[[], None]) -> list[int]:
        """Let something happen at a random time of a run; return how the run ended."""
        run = self.run()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(self.delay())
        if run.poll() is None:
            happens()
        return [run.wait(PATIENCE)]

    def worker_killed(self) -> list[int]:
        def kill() -> None:
            with contextlib.suppress(TimeoutError):
                os.kill(self.chance.choice(until(self.working, 20)), signal.SIGKILL)

        return self._while_running(kill)

    def prefect_killed(self) -> list[int]:
        return self._while_running(lambda: self.here.lose("prefect"))

    def mlflow_killed(self) -> list[int]:
        return self._while_running(lambda: self.here.lose("mlflow"))

    def ray_killed(self) -> list[int]:
        return self._while_running(lambda: self.here.lose("ray"))

    def disk_full(self) -> list[int]:
        """Fill the disk at a random time of a run, until it has ended."""
        filler = self.folder / "filler"

        def fill() -> None:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 20))

        try:
            return self._while_running(fill)
        finally:
            filler.unlink(missing_ok=True)

    def clock_jumps(self) -> list[int]:
        """Let the clock of a run move by a day, from its start or at a random time."""
        path = f"{self.folder / 'clock'}:{self.here.environment['PYTHONPATH']}"
        after = self.chance.choice((0.0, self.delay()))
        return [
            self.run(PM_JUMP=str(self.chance.choice((-86400, 86400))), PM_AFTER=str(after), PYTHONPATH=path).wait(
                PATIENCE
            )
        ]

    def quarter(self, number: int, fault: Callable[["Day"], list[int]]) -> list[int]:
        """Run a table while something happens, then again until it is there; return how the runs ended."""
        made, again = divmod(number, TIMES)
        self.found = again > 0
        if not self.found:
            self.tables.append((4 + made % TABLES, 2 + made // TABLES))
        ended = fault(self)
        while not ended or (ended[-1] != 0 and len(ended) < 4):
            began = time.monotonic()
            ended.append(self.run().wait(PATIENCE))
            self.seconds[self.found] = time.monotonic() - began
        return ended

    def trained(self) -> list[tuple[int, int]]:
        """Return the updates and the distance of checkpoints of each training in the store."""
        configs = [
            a.manifest["parts"]["settings"]["config"] for a in self.store.artifacts() if a.manifest["step"] == "train"
        ]
        return [(config["steps"], config["checkpoint_every"]) for config in configs]

    def problems(self, made: int) -> Iterator[str]:
        """Yield what is wrong: each of the tables made must be there once, whole, and once in MLflow, and no work be left."""
        yield from (f"damaged: {found.problem}" for found in damage(self.store))
        if (trained := Counter(self.trained())) != Counter(self.tables):
            yield f"lost {Counter(self.tables) - trained}, or too many {trained - Counter(self.tables)}"
        runs = Tracker(self.here.environment["PHRASEMODELS_MLFLOW_URI"]).runs()
        if twice := [key for key, count in Counter(run.data.tags.get(KEY) for run in runs).items() if count > 1]:
            yield f"in MLflow twice: {twice}"
        kinds = Counter((run.data.tags["phrasemodels.kind"], run.info.status) for run in runs)
        if kinds != {("table", "FINISHED"): made, ("training", "FINISHED"): made}:
            yield f"in MLflow: {kinds}"
        states = Counter(record["state"] for record in records(self.store))
        if states["completed"] < len(self.tables) or states["running"] or states["damaged"]:
            yield f"records: {states}"
        if left := sorted(map(str, self.store.root.glob("work/**/*"))):
            yield f"unfinished work is left: {left}"

    def collect(self) -> None:
        """Collect garbage as the deployment `gc/store` does: of each table the newest verdict stays, and what it rests on."""
        assert self.command("store", "gc", "--days", "0", "--verdicts", "1").wait(PATIENCE) == 0
        before, self.tables = {steps for steps, _ in self.tables}, self.trained()
        assert {steps for steps, _ in self.tables} == before, "the newest verdict of each table stays"


FAULTS = (Day.nothing, Day.run_killed, Day.worker_killed, Day.prefect_killed, Day.disk_full, Day.clock_jumps, Day.mlflow_killed,
          Day.ray_killed)  # fmt: skip
OF_FOUND = (Day.nothing, Day.nothing, Day.run_killed, Day.disk_full, Day.clock_jumps)  # such a run starts no service


def main(folder: str, quarters: str = "96", seed: str = "0") -> None:
    chance = random.Random(int(seed))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    print(f"{quarters} quarters of an hour, seed {seed}\n{HEAD}", flush=True)
    day, log, faults, wrong = Day(Path(folder).absolute(), chance), list[dict[str, int]](), Counter[str](), list[str]()
    left = list[Callable[[Day], list[int]]]()
    try:
        for number in range(int(quarters)):
            left = left or chance.sample(FAULTS, len(FAULTS))  # each of them comes before one comes again
            fault = chance.choice(OF_FOUND) if number % TIMES else left.pop()
            began = time.monotonic()
            ended = day.quarter(number, fault)
            found = [f"the table did not come: {ended}"] * (ended[-1] != 0) + list(day.problems(number // TIMES + 1))
            if number % 12 == 11:
                day.collect()
            name = fault.__name__.replace("_", " ")
            faults[name] += 1
            log.append(day.here.disk() | day.here.memory())
            row = "".join(f"{size:>10}" for size in log[-1].values())
            print(f"{number // 4:02d}:{number % 4 * 15:02d}  {name:<14}  {' '.join(map(str, ended)):<8}"
                  f"{time.monotonic() - began:>5.0f}{row}", *found, sep="\n       ", flush=True)  # fmt: skip
            wrong += found
    finally:
        day.last.kill()
        day.here.ended()
        shutil.rmtree(day.here.ray, ignore_errors=True)
    print(json.dumps({"quarters": len(log), "faults": faults, "first": log[0], "last": log[-1]}))
    assert wrong == [], wrong
    if len(log) >= 3 * ROUND:
        bounded(log)


def bounded(log: list[dict[str, int]]) -> None:
    """Check that memory and the store stay as they are in the second of the rounds of tables, and that records grow evenly."""
    for what in log[0]:
        first, last = (max(row[what] for row in rows) for rows in (log[ROUND : 2 * ROUND], log[-ROUND:]))
        grown = (log[-1][what] - log[ROUND][what]) / (len(log) - ROUND)
        assert grown < 4.0 if what in RECORDS else last < 1.25 * first + 8, (
            f"{what} grows: {[row[what] for row in log]}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
