"""Compiled updates of memory networks (paper 003, bAbI) against torch's: `python benchmarks/compiled_answering.py`.

CPU time of one thread in µs for an update with one question, the least of five rounds of 900 compiled and of 100 torch updates.
Stories are random words: 15 facts of 6 words, about what task 2 has. Models and training are those of the paper's size.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from phrasemodels.flows.experiments.paper_003 import CHOSEN
from phrasemodels.tasks.problems.compiled_answering import compiled
from phrasemodels.tasks.problems.memory_stories import Schedule, Stories

STORIES, SLOTS, FACTS, WORDS, V = 900, 25, 15, 6, 40


def least(run: Callable[[], object], updates: int) -> float:
    """Return the CPU time of an update, in µs: the least of five runs of so many updates."""
    times = []
    for _ in range(5):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times) / updates * 1e6


def main() -> None:
    rng = np.random.default_rng(0)
    facts, questions = rng.integers(1, V, (STORIES, SLOTS, WORDS)), rng.integers(1, V, (STORIES, 4))
    facts[:, : SLOTS - FACTS] = 0
    answers, first = rng.integers(1, V, STORIES), np.full(STORIES, SLOTS - FACTS)
    stories = Stories(facts, (facts > 0).sum(-1), first, questions, np.full(STORIES, 4), answers)
    tensors = [torch.from_numpy(part).split(1) for part in (facts, questions, answers)]
    torch.set_num_threads(1)
    for system in CHOSEN:
        model = replace(system.model(2, system.starts), vocabulary=V).build()
        fast = compiled(model, WORDS)
        schedule = Schedule(rng.permutation(STORIES), np.full(STORIES, 1e-3), fast.phases(10**6, STORIES), 40.0)
        optimiser = torch.optim.SGD(model.parameters(), 1e-3)

        def by_torch(model: torch.nn.Module = model, optimiser: torch.optim.Optimizer = optimiser) -> None:
            for story, question, answer in list(zip(*tensors, strict=True))[:100]:
                optimiser.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(model(story, question), answer).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 40.0)
                optimiser.step()

        quick = least(lambda: fast.updates(fast.parameters, fast.reading, stories, schedule), STORIES)  # noqa: B023
        slow = least(by_torch, 100)
        print(f"{system.slug:8} compiled {quick:6.1f} µs   torch {slow:6.0f} µs   {slow / quick:4.0f} times")


if __name__ == "__main__":
    main()
