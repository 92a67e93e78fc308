"""Load: twenty trainings log to one MLflow server at once."""

import os
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import until

from phrasemodels.infra.services import free_port
from phrasemodels.infra.tracking import Tracker

TRAININGS, ROWS = 20, 30


@pytest.mark.slow
def test_twenty_trainings_log_every_row_once_into_one_mlflow(tmp_path: Path) -> None:
    """Each training logs its whole history after every evaluation; every fourth is interrupted and logs again."""
    port = free_port()
    server = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
              "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--artifacts-destination", str(tmp_path)]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(server, stdout=log, stderr=log, env=os.environ, cwd=tmp_path)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: urllib.request.urlopen(f"{url}/health", timeout=2).close() is None)
        tracker = Tracker(url)
        tracker.open_run("load", "table", "table", {})
        with ThreadPoolExecutor(TRAININGS) as pool:
            ids = list(pool.map(lambda number: trained(tracker, number), range(TRAININGS)))
        assert len(set(ids)) == TRAININGS
        for run_id in ids:
            for metric in ("loss", "dev_loss", "items_per_second"):
                found = tracker.client().get_metric_history(run_id, metric)
                assert [row.step for row in found] == list(range(10, 10 * ROWS + 1, 10)), metric
        assert {run.info.status for run in tracker.runs()} == {"RUNNING", "FINISHED"}
    finally:
        process.terminate()
        process.wait(30)


def trained(tracker: Tracker, number: int) -> str:
    """Log a training of ROWS evaluations; return the id of its run."""
    history: list[dict[str, float]] = []
    run_id = tracker.open_run("load", f"training {number}", f"key {number}", {})
    tracker.parameters(run_id, {"seed": number})
    for step in range(10, 10 * ROWS + 1, 10):
        history.append({"step": step, "seconds": step, "loss": 1 / step, "dev_loss": 2 / step, "items_per_second": 1e4})
        tracker.history(run_id, "", history)
        if number % 4 == 0 and step == 150:
            assert tracker.open_run("load", f"training {number}", f"key {number}", {}) == run_id
            tracker.history(run_id, "", history)
    tracker.finish(run_id, {"test.bleu": 1.0}, [], {})
    return run_id
