"""Training time of structured attention (paper 003): `python benchmarks/structured_attention.py [table ...]`.

Every number is the time of one update divided by that with simple attention: medians over interleaved rounds, CPU time of
one thread. Rows are random words, as long as those of the corpora, at the widths of the profiles `laptop` and `paper`. The
authors' structured attention took 5 times as long as simple attention.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from structs import Run, compare

from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.flows.experiments.paper_003 import ENTAILMENT, PARENTS, SYSTEMS, TRANSLATION, WEIGHTS
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import DecomposableConfig, LearnedEmbedding
from phrasemodels.tasks.train.trainer import keep_freed_memory

WORDS = 5000


def update(model: Any, loss: Callable[[Any], torch.Tensor]) -> Run:
    """Return a run of one update by plain gradient descent, which costs the same for all models."""
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)

    def run() -> None:
        loss(model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return run


def nmt(profile: str, rows: int) -> dict[str, Run]:
    """Return updates on sentences of up to 30 characters and 12 words: simple, sigmoid and structured attention."""
    chosen = TRANSLATION[profile]
    source, target = torch.randint(4, WORDS, (rows, 30)), torch.randint(4, WORDS, (rows, 13))
    lengths, members = torch.randint(15, 31, (rows,)), torch.zeros(rows, 0, 2).long()

    def loss(model: Any) -> torch.Tensor:
        scores = model(source, lengths, members, target[:, :-1])
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())

    encoder = LSTMEncoderConfig(chosen.size.d, chosen.size.layers)
    return {
        name: update(RecurrentConfig(encoder, WORDS, WORDS, chosen.size.layers, weights=weights).build(), loss)
        for name, (_, weights) in WEIGHTS.items()
    }


def babi(profile: str, rows: int) -> dict[str, Run]:
    """Return updates on stories of 25 facts of 7 words: hops, and chains of two facts."""
    facts, question, answer = (torch.randint(1, 40, shape) for shape in ((rows, 25, 7), (rows, 4), (rows,)))
    runs = {}
    for system in SYSTEMS[profile]:
        config = system.model(2, system.starts)
        config = type(config)(**{**vars(config), "vocabulary": 40})
        runs[system.slug] = update(
            config.build(), lambda model: torch.nn.functional.cross_entropy(model(facts, question), answer)
        )
    return runs


def snli(profile: str, rows: int) -> dict[str, Run]:
    """Return updates on premises of up to 15 and hypotheses of up to 9 words: simple, no and structured attention."""
    chosen = ENTAILMENT[profile]
    label = torch.randint(0, 3, (rows,))
    sides = []
    for longest in (16, 10):
        ids, lengths = torch.randint(4, WORDS, (rows, longest)), torch.randint(longest // 2, longest + 1, (rows,))
        sides.append((ids, lengths, torch.full_like(ids, -1)))

    def loss(model: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(*sides), label)

    return {
        name: update(
            DecomposableConfig(PARENTS[name][1](chosen.size.d, chosen.h), WORDS, embed=LearnedEmbedding).build(), loss
        )
        for name in ("simple", "none", "structured")
    }


TABLES = {"nmt": nmt, "babi": babi, "snli": snli}
ROWS = {("nmt", "paper"): 128, ("babi", "paper"): 1}

if __name__ == "__main__":
    torch.manual_seed(0)
    keep_freed_memory()
    for table in sys.argv[1:] or TABLES:
        for profile in ("laptop", "paper"):
            rows = ROWS.get((table, profile), 32)
            compare(f"{table}, {profile}, {rows} rows", TABLES[table](profile, rows), 1, seconds=4.0)
