"""Checkpoints of a training, and loading of trained weights.

A checkpoint is a folder of safetensors and JSON. It is written under another name, synced and renamed. It is read only if all of
its files match their digests.

Trainings that differ only in the number of their updates have one *course*. While their schedules are equal, so are their
weights. One training goes on from the checkpoint of another, if that one is running or kept its last checkpoint.
"""

import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phrasemodels.data.store.artifacts import Artifact, describe, write_durably
from phrasemodels.data.store.store import digest_of
from phrasemodels.saved import check_finite, check_fit, copied, fill, forms, learned
from phrasemodels.tasks.train.config import TrainConfig

# if the newest is damaged, a training resumes from the one before
KEEP = 2
CPU = torch.device("cpu")


@dataclass
class Progress:
    """Progress of a training.

    Random numbers are functions of (seed, step, rank). So no generator's state is needed. best: the lowest dev
    criterion so far. best_step: the updates before it. history: a row of metrics for each evaluation. starts: (steps
    done, workers) at each start and resume. seconds: of training so far. epoch_step: the updates done in this epoch.
    devices: the kind of device at each start.
    """

    step: int = 0
    epoch: int = 0
    best: float = float("inf")
    best_step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)
    seconds: float = 0.0
    epoch_step: int = 0
    devices: list[str] = field(default_factory=list)

    @property
    def diverged(self) -> bool:
        """Whether the loss or a weight was not finite at the last evaluation."""
        return bool(self.history) and not math.isfinite(self.history[-1].get("loss", 0.0))

    @property
    def why_diverged(self) -> str:
        """Why a finished training has no model."""
        if self.diverged:
            return f"its loss or a weight was not finite after update {self.step}"
        return "its dev loss never was a finite number"


def load_tensors(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy weights into a model. ValueError: a weight is missing, unknown or of another shape or type."""
    check_fit(learned(model), forms(weights))
    fill(model, weights)


def best_device() -> torch.device:
    """Return the GPU if this process sees one, else the CPU. Ray's tasks see only GPUs that a training asked for."""
    if not torch.cuda.is_available():
        return CPU
    without_attention_by_cudnn()
    return torch.device("cuda")


def without_attention_by_cudnn() -> None:
    """Let torch compute attention without cuDNN, the default of H100 and H200.

    cuDNN needs a plan for each new shape. The plan takes longer than an update, and most batches have a new shape.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


@dataclass(frozen=True)
class PredictSettings:
    """A trained model: its objective and configuration. batch_tokens: padded tokens of one prediction."""

    objective: Any
    model: Any
    batch_tokens: int


def load_trained(objective: Any, config: Any, inputs: Mapping[str, Artifact], device: torch.device = CPU) -> Any:
    """Build a model and load its best weights. Return it in evaluation mode.

    Args:
        config: The model's configuration before `objective` has completed it.
        inputs: "model" (the artifact of a training) and "vocabulary".
    """
    model = objective.configure(config, inputs["vocabulary"]).build()
    load_tensors(model, load_file(inputs["model"].file("model.safetensors")))
    check_finite(model)
    return model.eval().to(device)


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {
        f"{index}.{name}": value.cpu().contiguous() for index, slot in state.items() for name, value in slot.items()
    }


def _load_optimiser(optimiser: torch.optim.Optimizer, flat: dict[str, Tensor]) -> None:
    state = optimiser.state_dict()
    shapes = [parameter.shape for group in optimiser.param_groups for parameter in group["params"]]
    for name, value in flat.items():
        index, slot = name.split(".")
        if value.dim() and value.shape != shapes[int(index)]:
            raise ValueError(f"{name} of the optimiser is {tuple(value.shape)}, not {tuple(shapes[int(index)])}")
        state["state"].setdefault(int(index), {})[slot] = value
    optimiser.load_state_dict(state)


def save(
    folder: Path,
    model: nn.Module,
    best: dict[str, Tensor],
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    key: str,
    **others: Any,
) -> Path:
    """Write the checkpoint of progress.step, then remove all but the newest KEEP. Return its folder.

    others: additions to its state.
    """
    final = folder / f"step-{progress.step:08d}"
    aside = folder / f".{final.name}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        save_file(copied(model), aside / "model.safetensors")
        save_file(best, aside / "best.safetensors")
        save_file(_optimiser_tensors(optimiser), aside / "optimiser.safetensors")
        files = {path.name: describe(path) for path in sorted(aside.iterdir())}
        with (aside / "state.json").open("w", encoding="utf-8") as file:
            state = {"key": key, "files": files, "progress": asdict(progress), **others}
            json.dump(state | {"digest": digest_of(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        # a damaged checkpoint of the same step may be there, and os.replace takes the place of an empty folder alone
        shutil.rmtree(final, ignore_errors=True)
        os.replace(aside, final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)  # it is there only if writing failed
    # after the rename, so that at no time fewer than KEEP are whole; names have eight digits, so they sort as numbers
    for old in sorted(folder.glob("step-*"))[:-KEEP]:
        shutil.rmtree(old)
    return final


def newest(folder: Path, key: str) -> tuple[Path, dict[str, Any]] | None:
    """Return the folder and state of the newest undamaged checkpoint of the training with this key, or None."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            state = json.loads((path / "state.json").read_bytes())
            right = state.pop("digest") == digest_of(state) and state["key"] == key
            if right and all(describe(path / name) == digest for name, digest in state["files"].items()):
                return path, state
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return None


def keep(checkpoint: Path, folder: Path) -> None:
    """Move a checkpoint of a finished training into a folder of its course, in place of one with fewer updates."""
    folder.mkdir(parents=True, exist_ok=True)
    if all(old.name < checkpoint.name for old in folder.glob("step-*")):
        os.replace(checkpoint, folder / checkpoint.name)
        for old in sorted(folder.glob("step-*"))[:-1]:
            shutil.rmtree(old)


def adopt(folder: Path, others: Iterable[Path], course: str, key: str, config: TrainConfig) -> None:
    """Give a training the most advanced checkpoint of its course, if it is ahead and this training would have come to it.

    folder: of its checkpoints. others: checkpoints of other trainings.
    """
    candidates = []
    for path in others:
        try:
            state = json.loads((path / "state.json").read_bytes())
            if state.pop("digest") == digest_of(state) and state["course"] == course and _is_prefix(state, config):
                candidates.append((state["progress"]["step"], path, state))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    if not candidates:
        return
    own = newest(folder, key)
    done = own[1]["progress"]["step"] if own else 0
    for step, path, state in sorted(candidates, key=lambda one: one[0], reverse=True):
        if step <= done or _link(path, folder / path.name, state | {"key": key}):
            return


def _link(checkpoint: Path, target: Path, state: dict[str, Any]) -> bool:
    """Give the files of a checkpoint a second name with another state. Return whether they are whole."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        # no copies, as a checkpoint is never changed, and the other training may remove its own at any time
        shutil.copytree(checkpoint, aside, copy_function=os.link, ignore=shutil.ignore_patterns("state.json"))
        write_durably(aside / "state.json", json.dumps(state | {"digest": digest_of(state)}))
        shutil.rmtree(target, ignore_errors=True)
        os.replace(aside, target)
    except (OSError, shutil.Error):
        shutil.rmtree(aside, ignore_errors=True)
        return False
    whole = newest(target.parent, state["key"])
    if whole is not None and whole[0] == target:
        return True
    shutil.rmtree(target)
    return False


def _is_prefix(state: Mapping[str, Any], config: TrainConfig) -> bool:
    """Return whether a training with these settings would have come to the state of another number of updates."""
    progress, theirs = state["progress"], state["steps"]
    step = progress["step"]
    return (
        0 < step <= config.steps
        # the last update of a training is followed by an evaluation, which a longer one would not have made
        and all(row["step"] % config.evaluate_every == 0 for row in progress["history"])
        and (step < config.steps or step % config.evaluate_every == 0)
        and all(
            config.schedule(t, config.warmup, theirs) == config.schedule(t, config.warmup, config.steps)
            for t in range(step)
        )
    )


def resume(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, key: str
) -> tuple[Progress, dict[str, Tensor]]:
    """Load the newest undamaged checkpoint (if any). Return the progress and the best weights so far.

    Unfinished checkpoints of ended processes are removed. ValueError: a checkpoint with right digests cannot be read.
    """
    for unfinished in folder.glob(".step-*"):
        if _ended(unfinished.name.split(".")[-1]):
            shutil.rmtree(unfinished, ignore_errors=True)
    if (found := newest(folder, key)) is None:
        return Progress(), copied(model)
    path, state = found
    try:
        load_tensors(model, load_file(path / "model.safetensors"))
        _load_optimiser(optimiser, load_file(path / "optimiser.safetensors"))
        return Progress(**state["progress"]), load_file(path / "best.safetensors")
    except (SafetensorError, ValueError, TypeError, KeyError, IndexError, RuntimeError) as error:
        raise ValueError(
            f"{path} has its digests but cannot be read ({error}); delete the folder and run again"
        ) from error


def _ended(process: str) -> bool:
    """Return whether a process has ended, by its id. Its id may be ours by now."""
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OverflowError, PermissionError):  # no process id, or the process of another user
        return False
    return int(process) == os.getpid()
