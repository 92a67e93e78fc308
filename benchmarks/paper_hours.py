"""Core hours of one training of every row at the paper's size: `python benchmarks/paper_hours.py` writes
phrasemodels/data/training_hours.csv, from which verdicts say what a number takes.

    hours = updates × words of an update × CPU seconds of a word / 3600

The updates of a row that stops by itself are the fewest that it can make: until the first evaluation, and as many as its patience.
ATIS is by hand: 48 (Transformer) and 61 (model 4) seconds an update of eight batches of 4,096 words; the others lie between. With
the printed batch, of which none are summed, it is an eighth.

The seconds are those of whole updates at the published size on one thread, on sentences of the sample grammar; the lower of two. Words
are padded tokens of all sides. Batches of rows have as many words as sentences of the paper's corpus have, on average (`WORDS`).
Pretrained encoders are made by their published configurations, with random weights, and run and differentiated beside the rest. What
is kept in results/ at the paper's size has the seconds of that training, which are by the clock.
"""

import csv
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gpu import prepared

from phrasemodels.data.store.store import Store
from phrasemodels.encoders.inputs import PretrainedConfig
from phrasemodels.flows.experiments.catalogue import experiments
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.tasks.train.batches import batches_from

PROJECT = Path(__file__).parents[1]
TO = PROJECT / "phrasemodels/data/training_hours.csv"
MOST = 1024  # padded tokens of a measured batch
ROUNDS = 2
WORDS = {  # of a training example, all sides, mean
    "multi30k": 11.1 + 11.9,  # counted in train
    "snli_official": 15.2 + 8.4,  # counted in dev
    "penn_treebank": 950_028 / 39_832,  # sections 2 to 21
    "aspec_segmented": 25 + 25,  # not at hand; half of the longest
}
SUBWORDS = 1.3  # of a word of the Penn Treebank; not at hand
PUBLISHED = {
    "bert-large-uncased": ("BertConfig", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
                                          "intermediate_size": 4096}),
    "xlnet-large-cased": ("XLNetConfig", {}),  # its defaults
}  # fmt: skip


def kept() -> dict[str, float]:
    """Return the hours by the clock of the trainings at the paper's size that are kept and were on processors."""
    found = {}
    for file in PROJECT.glob("results/*-paper/result.json"):
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            if row["training"].get("devices", "cpu") == "cpu":
                found[row["experiment"]] = row["training"]["train_seconds"] / 3600
    return found


def words(one: Experiment) -> float:
    """Return the words of one training."""
    batch = one.train.batch_tokens
    if (
        one.train.batch_rows is not None
    ):  # a training of bAbI that is not kept takes as long as one of another task with its K
        batch = one.train.batch_rows * WORDS.get(one.recipe.corpus.name, 1.0)
    return updates(one) * batch


def updates(one: Experiment) -> int:
    """Return the updates of a training; of one that stops by itself the fewest."""
    patience = one.train.patience
    return one.train.steps if patience is None else min(one.train.steps, (patience + 1) * one.train.evaluate_every)


def measured(one: Experiment, small: Experiment, store: Store) -> float:
    """Return the CPU seconds of a word of one training."""
    limit = min(MOST, one.train.batch_tokens)
    trainer = prepared(
        dataclasses.replace(one, train=dataclasses.replace(one.train, precision="float32")), small, store, limit
    )
    config = trainer.config
    batches: Iterator[Any] = (
        rows
        for _, _, rows in batches_from(
            trainer.data, 0, 0, limit, 0, config.batch_rows, config.arrange, config.equal_sides
        )
    )
    seconds = []
    for _ in range(ROUNDS + 1):  # the first is not counted
        rows, begun = next(batches), time.process_time()
        trainer.update(rows)
        lengths = trainer.data.lengths[rows]
        seconds.append((time.process_time() - begun) / float(lengths.max(0).sum() * len(rows)))
    return min(seconds[1:])


@cache
def pretrained(name: str) -> float:
    """Return the CPU seconds of a word of a pretrained encoder."""
    import transformers

    kind, sizes = PUBLISHED[name]
    model = transformers.AutoModel.from_config(getattr(transformers, kind)(**sizes))
    ids, seconds = torch.randint(100, 1000, (8, 32)), []
    for _ in range(2):
        begun = time.process_time()
        model(ids)[0].sum().backward()
        seconds.append((time.process_time() - begun) / ids.numel())
    return SUBWORDS * seconds[-1]


def main() -> None:
    torch.set_num_threads(1)
    every = [e for e in experiments() if e.recipe.trains]
    samples: dict[tuple[str, str], list[Experiment]] = {}
    for one in every:
        if one.profile == "sample":
            samples.setdefault((one.table.paper, one.table.number), []).append(one)
    known, same = kept(), {}
    if TO.exists() and "--again" not in sys.argv:
        known |= {line["experiment"]: float(line["hours"]) for line in csv.DictReader(TO.open(encoding="utf-8"))}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder)).open()
        for one in every:
            if one.profile != "paper" or not any(answer.cell for answer in one.answers):
                continue
            alike = repr((one.model, one.train.batch_rows))
            if one.name in known:
                found[one.name] = known[one.name]
            else:
                if alike not in same:
                    rows = samples[one.table.paper, one.table.number]
                    small = next((s for s in rows if s.row == one.row), rows[0])
                    same[alike] = measured(one, small, store)
                    if isinstance(inputs := getattr(one.model, "inputs", None), PretrainedConfig):
                        same[alike] += pretrained(inputs.name)
                found[one.name] = words(one) * same[alike] / 3600
            same.setdefault(alike, 3600 * found[one.name] / words(one))
            print(f"{one.name:45} {found[one.name]:10.2f}", flush=True)
            lines = [f"{name},{hours:.3g}\n" for name, hours in found.items()]
            TO.write_text("experiment,hours\n" + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
