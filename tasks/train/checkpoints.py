"""Checkpoints: safetensors and JSON, written aside, synced, renamed; read back only if every digest is right."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phrasemodels.data.store.artifacts import describe
from phrasemodels.data.store.step import digest_of

KEEP = 2


@dataclass
class Progress:
    """Where a training is. The random numbers of every worker are a function of (seed, step, rank): no state of them.

    starts: each time that it began or went on, after how many steps and on how many workers.
    """

    step: int = 0
    epoch: int = 0
    best: float = float("inf")
    best_step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights of a model, each once: a tied one is not written twice. Training does not change it."""
    return {name: parameter.detach().to("cpu", copy=True).contiguous() for name, parameter in model.named_parameters()}


def load_tensors(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put weights into a model. A ValueError names what is missing or superfluous."""
    own = dict(model.named_parameters())
    if own.keys() != weights.keys():
        raise ValueError(
            f"the weights do not fit the model: {sorted(own.keys() ^ weights.keys())[:5]} are on one side only"
        )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {
        f"{index}.{name}": value.cpu().contiguous() for index, slot in state.items() for name, value in slot.items()
    }


def _load_optimiser(optimiser: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    state = optimiser.state_dict()
    for name, value in flat.items():
        index, slot = name.split(".")
        state["state"].setdefault(int(index), {})[slot] = value
    optimiser.load_state_dict(state)


def save(
    folder: Path,
    model: nn.Module,
    best: dict[str, Tensor],
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    key: str,
) -> Path:
    """Write the checkpoint of progress.step, and remove all but the newest KEEP."""
    final = folder / f"step-{progress.step:08d}"
    aside = folder / f".{final.name}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        save_file(tensors(model), aside / "model.safetensors")
        save_file(best, aside / "best.safetensors")
        save_file(_optimiser_tensors(optimiser), aside / "optimiser.safetensors")
        files = {path.name: describe(path) for path in sorted(aside.iterdir())}
        with (aside / "state.json").open("w", encoding="utf-8") as file:
            state = {"key": key, "files": files, "progress": asdict(progress)}
            json.dump(state | {"digest": digest_of(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(final, ignore_errors=True)
        os.replace(aside, final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)  # it has taken its place, or was cut off
    for old in sorted(folder.glob("step-*"))[:-KEEP]:
        shutil.rmtree(old)
    return final


def newest(folder: Path, key: str) -> tuple[Path, dict[str, Any]] | None:
    """The newest whole checkpoint of this very training; damaged ones are passed over."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            state = json.loads((path / "state.json").read_bytes())
            right = state.pop("digest") == digest_of(state) and state["key"] == key
            if right and all(describe(path / name) == digest for name, digest in state["files"].items()):
                return path, state
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return None


def resume(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, key: str
) -> tuple[Progress, dict[str, Tensor]]:
    """Go on from the newest whole checkpoint, or begin; returns the progress and the best weights so far.

    What dead processes left half written is removed.
    """
    for half in folder.glob(".step-*"):
        if _dead(half.name.split(".")[-1]):
            shutil.rmtree(half, ignore_errors=True)
    if (found := newest(folder, key)) is None:
        return Progress(), tensors(model)
    path, state = found
    try:
        load_tensors(model, load_file(path / "model.safetensors"))
        _load_optimiser(optimiser, load_file(path / "optimiser.safetensors"))
        return Progress(**state["progress"]), load_file(path / "best.safetensors")
    except (SafetensorError, ValueError, TypeError, KeyError, IndexError, RuntimeError) as error:
        raise ValueError(
            f"{path} has its digests but cannot be read ({error}); delete the folder and run again"
        ) from error


def _dead(process: str) -> bool:
    """Whether nobody writes any more what is called after a process: it has ended, or its number is ours by now."""
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OverflowError, PermissionError):  # called after none, or after somebody else's
        return False
    return int(process) == os.getpid()
