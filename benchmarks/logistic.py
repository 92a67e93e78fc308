"""Our logistic regression beside scikit-learn's on one SentEval task: `python benchmarks/logistic.py`.

The questions of TREC are vectors of an untrained BiLSTM-Max with hashed words. Both classifiers choose the penalty by the
same folds, and are tested on the official test set. Ours stops early on 5 % of the training set, as SentEval does;
scikit-learn's goes on to the minimum. Needs scikit-learn, and the corpus in PHRASEMODELS_MIRROR.
"""

import tempfile
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.encoders.baselines import BiLSTMMaxConfig
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.transfer import (
    PROTOTYPING,
    PUBLISHED,
    SplitFiles,
    WorkItem,
    averaged,
    folds_and_test,
    since_the_best,
    stratified,
)

D, UNITS, WORDS, FOLDS, SEED = 100, 128, 10_000, 5, 1111
STRENGTHS = [2.0**power for power in range(-2, 4)]  # C, SentEval's grid for scikit-learn
SETTINGS = {
    "ours, published": replace(PUBLISHED, folds=FOLDS),
    "ours, published, counter reset by a better check": replace(PUBLISHED, folds=FOLDS, counter=since_the_best),
    "ours, published, mean of a batch's loss": replace(PUBLISHED, folds=FOLDS, reduction=averaged),
    "ours, prototyping": PROTOTYPING,
}


@torch.inference_mode()
def vectors(texts: list[str]) -> Tensor:
    """Return the vectors (n, 2 UNITS) of texts by an untrained encoder, 100 texts at a time."""
    torch.manual_seed(0)
    words, encoder = nn.Embedding(WORDS, D), BiLSTMMaxConfig(D, UNITS).build().eval()
    rows = [torch.tensor([zlib.crc32(word.encode()) % WORDS for word in text.lower().split()]) for text in texts]
    parts = []
    for first in range(0, len(rows), 100):
        some = rows[first : first + 100]
        padded = nn.utils.rnn.pad_sequence(some, batch_first=True)
        parts.append(encoder(words(padded), torch.tensor([len(row) for row in some])))
    return torch.cat(parts)


def place(folder: Path, name: str, table: pa.Table) -> SplitFiles:
    """A split as the protocol finds it."""
    save_file({"text": vectors(table["text"].to_pylist())}, folder / f"{name}.safetensors")
    columns = {"label": table["label"], "score": pa.array(np.zeros(table.num_rows)), "group": table["group"]}
    write_shard(folder / f"{name}.arrow", pa.table(columns))
    return SplitFiles(folder / f"{name}.safetensors", (folder / f"{name}.arrow",))


def scikit(train: SplitFiles, test: SplitFiles) -> dict[str, float]:
    """The penalty by the same folds, then all of train."""
    from sklearn.linear_model import LogisticRegression

    classes = train.classes()
    learned, tested = train.read(classes), test.read(classes)
    x, y = load_file(train.vectors)["text"].numpy(), learned.labels
    parts = stratified(y, FOLDS, SEED)

    def accuracy(strength: float) -> float:
        right = []
        for part in parts:
            others = np.setdiff1d(np.arange(len(y)), part)
            fitted = LogisticRegression(C=strength, max_iter=300).fit(x[others], y[others])
            right.append(fitted.score(x[part], y[part]))
        return float(np.mean(right))

    dev = {strength: accuracy(strength) for strength in STRENGTHS}
    best = max(dev, key=lambda strength: dev[strength])
    fitted = LogisticRegression(C=best, max_iter=300).fit(x, y)
    return {"accuracy": 100 * fitted.score(tested.features.numpy(), tested.labels), "dev": 100 * dev[best]}


def main() -> None:
    torch.set_num_threads(1)
    settings = Settings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, executor = Store(folder / "store").open(), Executor(sources=Sources(settings.mirrors, settings.offline))
        splits = {
            split: read_shards(store.run(Corpus("senteval", "TREC").split(split), executor))
            for split in ("train", "test")
        }
        train, test = (place(folder, split, table) for split, table in splits.items())
        runs = {
            name: lambda s=setting: folds_and_test(WorkItem((train, test), s, SEED, 0))
            for name, setting in SETTINGS.items()
        }
        for title, run in {**runs, "scikit-learn": lambda: scikit(train, test)}.items():
            start = time.process_time()
            scores = run()
            seconds = time.process_time() - start
            print(f"{title:<42} test {scores['accuracy']:5.1f}  dev {scores['dev']:5.1f}  {seconds:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
