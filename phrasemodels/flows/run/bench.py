"""How fast this machine runs what people wait for: ratios of one run, kept by commit so that a loss of speed is seen.

A ratio is the CPU time of ours over the CPU time of its peer, the median over interleaved rounds: other work on the
machine hardly changes it. Scripts in benchmarks/ compare more, also with other libraries.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from phrasemodels.data.store.artifacts import write_durably

Run = Callable[[], object]
COMMANDS = (("experiments",), ("plan",), ("sql", "select 1"), ("verdicts",))
SENTENCES, WORDS, WIDTH, HEADS, TAGS = 16, 30, 256, 4, 5  # of what is measured in this process


@dataclass(frozen=True)
class Measure:
    """ratio: CPU time of `what` over CPU time of `against`; seconds: CPU time of `what`."""

    what: str
    against: str
    ratio: float
    seconds: float


def measures(rounds: int, commands: Sequence[tuple[str, ...]] = COMMANDS) -> Iterator[Measure]:
    """Yield what this machine takes: commands, each in a process of its own, then layers and inference on one thread."""
    torch_alone = partial(_run, ["-c", "import torch"])
    for words in commands:
        command = partial(_run, ["-m", "phrasemodels.flows.cli", *words])
        yield _measure("phrasemodels " + " ".join(words), "import torch", command, torch_alone, rounds, _of_children)
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for what, against, ours, theirs in (_attention(), _inference(), _enumeration()):
        yield _measure(what, against, ours, theirs, 5 * rounds, time.process_time)
    torch.set_num_threads(threads)


def _measure(what: str, against: str, ours: Run, theirs: Run, rounds: int, clock: Callable[[], float]) -> Measure:
    taken = []
    for _ in range(rounds + 1):
        start = clock()
        ours()
        between = clock()
        theirs()
        taken.append((between - start, clock() - between))
    kept = taken[1:]  # the first round compiles, and reads files
    return Measure(what, against, statistics.median(a / b for a, b in kept), statistics.median(a for a, _ in kept))


def _run(arguments: Sequence[str]) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(arguments)} failed: {done.stderr.strip()[-300:]}")


def _of_children() -> float:
    """Return the CPU seconds of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _attention() -> tuple[str, str, Run, Run]:
    """A training step of paper 000's encoder, phrases of two and three words, beside torch's over words alone."""
    import numpy as np
    import torch
    from torch import nn

    from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
    from phrasemodels.tasks.prepare.phrases import LengthsAndHeads, adjacent

    _, phrases = adjacent(LengthsAndHeads(np.array([WORDS])), 3)
    members = torch.from_numpy(phrases).long().expand(SENTENCES, -1, -1)
    lengths, x = torch.full((SENTENCES,), WORDS), torch.randn(SENTENCES, WORDS, WIDTH)
    ours = HypernodeEncoderConfig(WIDTH, HEADS, layers=2, d_ff=4 * WIDTH, dropout=0.0, longest=3).build()
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2)
    return (
        "phrase attention, a training step",
        "torch.nn.TransformerEncoder",
        lambda: ours(x, lengths, members).sum().backward(),
        lambda: theirs(x).sum().backward(),
    )


def _inference() -> tuple[str, str, Run, Run]:
    """log Z of linear chains with its gradient, beside the forward algorithm in torch."""
    import torch

    from phrasemodels.structs import chain

    unary, pairwise = torch.randn(SENTENCES, WORDS, TAGS, requires_grad=True), torch.randn(TAGS, TAGS)

    def forward() -> None:
        state = unary[:, 0]
        for position in range(1, WORDS):
            state = torch.logsumexp(state.unsqueeze(2) + pairwise, 1) + unary[:, position]
        torch.autograd.grad(state.logsumexp(1).sum(), unary)

    return (
        "log Z of chains and its gradient",
        "the same as a loop of torch",
        lambda: torch.autograd.grad(chain.log_partition(unary, pairwise).sum(), unary),
        forward,
    )


def _enumeration() -> tuple[str, str, Run, Run]:
    """Phrases of two and three adjacent words of a thousand sentences, beside lists of Python."""
    import numpy as np

    from phrasemodels.tasks.prepare.phrases import LengthsAndHeads, adjacent

    lengths = np.full(1000, WORDS)

    def lists() -> list[list[range]]:
        return [[range(i, i + k) for k in (2, 3) for i in range(n - k + 1)] for n in lengths.tolist()]

    return "phrases of 1,000 sentences", "lists of Python", lambda: adjacent(LengthsAndHeads(lengths), 3), lists


def keep(found: Sequence[Measure], folder: Path, commit: str) -> Path:
    """Write measures to folder/DATE-COMMIT.json and return the path."""
    now = datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y%m%d-%H%M}-{commit[:12] or 'unknown'}.json"
    made = {"commit": commit, "date": f"{now:%Y-%m-%d}", "measures": [asdict(one) for one in found]}
    write_durably(path, json.dumps(made, indent=1) + "\n")
    return path


def history(folder: Path) -> list[tuple[str, dict[str, float]]]:
    """Return the date with the commit, and the ratios by what was measured, of each file in a folder, oldest first."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [(f"{one['date']} {one['commit'][:7]}", {m["what"]: m["ratio"] for m in one["measures"]}) for one in read]
