"""The line that ends a run names the source line of an error, also if Ray returned the error without a traceback."""

import pickle
import re
import subprocess
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.cli import main as cli
from phrasemodels.flows.run import progress
from phrasemodels.flows.run.progress import Watch
from phrasemodels.infra.signals import noting_error_line


class Mine(nn.Module):
    def forward(self, x):
        _b, _n, _heads, d = x.shape
        return x + d


PLACE = f"{__file__}:{Mine.forward.__code__.co_firstlineno + 1}, in forward"


def test_an_error_in_a_layer_keeps_its_line_through_pickle():
    with pytest.raises(ValueError, match="not enough values") as error, noting_error_line():
        nn.Sequential(nn.Identity(), Mine())(torch.zeros(2, 3, 4))
    assert pickle.loads(pickle.dumps(error.value)).__notes__ == [PLACE]
    with pytest.raises(ValueError, match="elsewhere") as error, noting_error_line():
        raise ValueError("elsewhere")
    assert not hasattr(error.value, "__notes__")


def test_the_command_line_prints_the_line_of_an_error(monkeypatch):
    monkeypatch.setattr(cli, "app", lambda **_: Mine()(torch.zeros(2, 3, 4)))
    monkeypatch.delenv("PHRASEMODELS_DEBUG", raising=False)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == f"phrasemodels: not enough values to unpack (expected 4, got 3) ({PLACE})"


def make(job, settings):
    return {}


def test_a_failed_step_is_reported_as_failed(capsys, tmp_path):
    step = Step(make, "train mine seed 0")
    watch = Watch(SimpleNamespace(plan=SimpleNamespace(steps=[step]), store=Store(tmp_path), waits={}))
    with pytest.raises(ValueError, match="no"), watch.step(step):
        raise ValueError("no")
    assert re.fullmatch(r"train mine seed 0: failed after \d+\.\d s\n", capsys.readouterr().err)


def test_only_a_worker_of_this_run_can_be_lost(monkeypatch, capsys):
    monkeypatch.setattr(progress, "GRACE", 0.0)
    step = Step(make, "train mine seed 0")
    watch = Watch(
        SimpleNamespace(plan=SimpleNamespace(steps=[step]), settings=SimpleNamespace(ray_address=""), waits={})
    )
    for written, lines in ((watch.began - 1, 0), (watch.began + 1, 1)):
        with subprocess.Popen(["sleep", "60"]) as worker:
            state = {"pid": worker.pid, "step": 5, "written": written}
            watch._check_worker(step, state)
            worker.kill()
        for _ in range(2):
            watch._check_worker(step, state)
        assert capsys.readouterr().err.count("was lost") == lines
