"""MLflow as it may be met: deleted, raced for, gone; and what is no fault of a service."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from flows.cli import main
from infra.tracking import Tracker


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    return Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}", str(tmp_path / "artifacts"))


def test_groups_of_sentences_may_be_called_anything(tracker: Tracker) -> None:
    run = tracker.open_run("x", "run", "key", {})
    names = ["test/exact/" + "g" * 300, "test/exact/" + "g" * 301, "test/exact/<b>'\"%"]
    tracker.finish(run, dict.fromkeys(names, 1.0), [], {})
    assert len(tracker.client().get_run(run).data.metrics) == 3


def test_an_experiment_that_somebody_deleted_is_named(tracker: Tracker) -> None:
    tracker.client().delete_experiment(tracker.experiment("x"))
    with pytest.raises(ValueError, match="'x' was deleted: `mlflow experiments restore --experiment-id 1`"):
        tracker.experiment("x")


def test_of_two_that_make_an_experiment_at_once_both_have_it(tracker: Tracker, monkeypatch) -> None:
    made, find = tracker.experiment("x"), MlflowClient.get_experiment_by_name
    early = iter([True])
    monkeypatch.setattr(
        MlflowClient, "get_experiment_by_name", lambda self, name: None if next(early, False) else find(self, name)
    )
    assert tracker.experiment("x") == made
    with pytest.raises(MlflowException, match="Invalid"):
        tracker.experiment("")


def test_a_server_that_is_not_there_is_said_in_a_line(cli) -> None:
    found = cli("verdicts", PHRASEMODELS_MLFLOW_URI="http://127.0.0.1:9", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    assert found.returncode == 1
    assert found.stderr.startswith(
        "phrasemodels: MLflow does not answer as it should (API request to http://127.0.0.1:9/"
    )
    assert found.stderr.count("\n") == 1


def test_a_mistake_in_a_layer_keeps_its_traceback(monkeypatch) -> None:
    from ray.exceptions import RayTaskError

    def fails(**options: bool) -> None:
        raise RayTaskError("train", "Traceback ...", RuntimeError("shapes differ"))

    monkeypatch.setattr("flows.cli.app", fails)
    with pytest.raises(RayTaskError):
        main()
