"""`benchmarks/gpu.py`, the first command on a machine with a GPU, with the smallest sizes on the CPU."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROJECT
from running import small_corpus

from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results.records import RESULT
from phrasemodels.flows.run.local import prepare_folder
from phrasemodels.flows.run.trained import keep_trained
from phrasemodels.structs.structure import Structure
from phrasemodels.tasks.train.trainer import PROGRESS

PROGRAM = PROJECT / "benchmarks" / "gpu.py"
ROW = "000/table1/sample/transformer"


@pytest.fixture
def gpu(monkeypatch):
    """Run `gpu.py` with these arguments in this process, without Triton, on one structure and one encoder."""
    monkeypatch.setattr(Structure, "kernel", Structure.kernel)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["gpu.py"])
        program = runpy.run_path(str(PROGRAM))
        monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments])
        for name, kept in (("BY_TRITON", "chain"), ("OTHERS", "nonprojective, one root"), ("ENCODERS", "LSTM states")):
            for other in {*program[name]} - {kept}:
                program[name].pop(other)
        return program["main"]()

    return run


def test_what_was_not_compared_by_triton_is_wrong(gpu, capsys):
    assert gpu("--device=cpu", "--tiny", "kernels", "devices") == 1
    chain, trees = capsys.readouterr().out.splitlines()[2:]
    assert "none by triton" in chain and chain.endswith("| WRONG |")
    assert "calls by numba" in trees and trees.endswith("CPU, float64 |  |")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("kernel",), "no section kernel; there are kernels, "),
        (("kernels",), "sees no GPU; "),
        (("--device", "cpu", "trainings"), "rows after --train"),
        (("--device=cpu", "--train", f"{ROW}:1", "--data", "nowhere"), f"phrasemodels prepare {ROW} --to nowhere/NAME"),
    ],
)
def test_it_says_in_one_line_why_it_cannot_start(gpu, capsys, arguments, words):
    with pytest.raises(SystemExit) as end:
        gpu(*arguments)
    told = capsys.readouterr().err
    assert end.value.code == 2 and words in told and told.count("\n") == 1


@pytest.mark.slow
def test_the_whole_command_with_a_training_that_is_stopped_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    small = (*small_corpus(200, 20, 20), "train.steps=2000", "train.evaluate_every=1000", "train.checkpoint_every=10")
    prepare_folder(experiment(ROW, small), tmp_path / "prepared" / "table1")

    def run(minutes: float, *sections: str) -> str:
        sets = [part for text in small for part in ("--set", text)]
        command = [sys.executable, PROGRAM, *sections, "--device=cpu", "--tiny", "--minutes", str(minutes)]
        command += ["--data", "prepared", "--out", "results", "--train", ROW, *sets] if sections == ("trainings",) else []
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    table = run(30, "kernels", "devices", "times", "updates")
    assert all(f"| {words}" in table for words in ("check: spans |", "check: joint |", "CTC, n=", "update of 000/"))
    assert "the time was up" in run(0.001, "times")
    assert run(0, "trainings").splitlines()[-1].startswith(f"| training of {ROW}, seed 0 | not begun")
    for minutes in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
        assert "its time was up" in run(minutes, "trainings")
        states = list(Path(tmp_path, "results").glob(f"work/*/checkpoints/{PROGRESS}"))
        if states and json.loads(states[0].read_text())["step"] >= 10:
            break
    ended = run(10, "trainings")
    assert "2000 updates, begun at [0, " in ended and "bleu" in ended
    keep_trained(tmp_path / "results", tmp_path / "kept", "")
    assert (tmp_path / "kept" / RESULT).is_file()
