"""Reading and two stages of data beside Hugging Face's datasets and datatrove: `python benchmarks/stages_peers.py PYTHON [PAIRS]`.

PYTHON is an interpreter that has `datasets`, `datatrove` and `orjson`; PAIRS: by default 100,000. A file of pairs is read; tokens at
spaces of both sides, then ids of the source's words and its phrases of two words, are written: CPU seconds of a process that does
this alone, after the imports, and bytes on the disk. datasets works on Arrow batches with the same operations of pyarrow as ours,
and numpy for the phrases, so the difference is what each adds; datatrove works on one document at a time. Ours also checks each
line, makes the vocabulary of both sides, and keeps the raw rows, digests, schemas and manifests.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEERS = ("datasets", "datatrove")


def by_datasets(file: Path, folder: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from datasets import Dataset, disable_caching, disable_progress_bars
    from pyarrow import csv

    disable_caching()
    disable_progress_bars()
    named = csv.ReadOptions(column_names=["source", "target"])
    rows = Dataset(csv.read_csv(file, named, csv.ParseOptions(delimiter="\t", quote_char=False)))

    def tokens(table: pa.Table) -> pa.Table:
        return pa.table({name: pc.split_pattern(table[name], " ") for name in ("source", "target")})

    def phrases(table: pa.Table) -> pa.Table:
        source = table["source"].combine_chunks()
        source = source.chunk(0) if isinstance(source, pa.ChunkedArray) else source
        ids = pc.index_in(source.flatten(), known).fill_null(0)
        offsets = source.offsets.to_numpy()
        lengths = np.maximum(np.diff(offsets) - 1, 0)
        ends = np.cumsum(lengths)
        position = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        pairs = np.stack([position, position + 1], 1).astype(np.int32)
        pairs_ = pa.ListArray.from_arrays(
            np.concatenate([[0], ends]).astype(np.int32), pa.FixedSizeListArray.from_arrays(pairs.ravel(), 2)
        )
        return pa.table({"source": pa.ListArray.from_arrays(source.offsets, ids), "phrases": pairs_})

    arrow = rows.with_format("arrow")
    made = arrow.map(tokens, batched=True, batch_size=10_000, cache_file_name=str(folder / "tokens.arrow"))
    words = pc.value_counts(pa.chunked_array([c.flatten() for c in made.data["source"].chunks]))
    known = words.field("values")
    made.map(
        phrases,
        batched=True,
        batch_size=10_000,
        cache_file_name=str(folder / "phrases.arrow"),
        remove_columns=["target"],
    )


def by_datatrove(file: Path, folder: Path) -> None:
    from datatrove.data import Document
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    known: dict[str, int] = {}

    def read(data, rank: int = 0, world_size: int = 1):
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                source, target = line.rstrip("\n").split("\t")
                yield Document(
                    text="", id=str(number), metadata={"source": source.split(" "), "target": target.split(" ")}
                )

    def enumerate_phrases(data, rank: int = 0, world_size: int = 1):
        for document in data:
            source = document.metadata["source"]
            numbers = [known.setdefault(word, len(known)) for word in source]
            document.metadata = {"source": numbers, "phrases": [(i, i + 1) for i in range(len(source) - 1)]}
            yield document

    for pipeline in (
        [read, JsonlWriter(str(folder / "tokens"), compression=None)],
        [JsonlReader(str(folder / "tokens"), compression=None, text_key="id"), enumerate_phrases,
         JsonlWriter(str(folder / "phrases"), compression=None)],
    ):  # fmt: skip
        LocalPipelineExecutor(pipeline, logging_dir=str(folder / f"logs-{len(pipeline)}"), tasks=1).run()


def by_us(file: Path, folder: Path) -> None:
    from stages import steps

    from phrasemodels.data.store.store import Store

    store, known = Store(folder / "store").open(), steps(file.parent)
    store.run(known["tokens at spaces"].inputs["rows"])  # type: ignore[arg-type]
    store.run(known["tokens at spaces"])
    store.run(known["phrases"])


WAYS = {"datasets": by_datasets, "datatrove": by_datatrove, "phrasemodels": by_us}


def child(way: str, file: Path) -> None:
    """Print the figures of one way. It runs twice, first on a few lines, so that imports and compilers count for none."""
    with tempfile.TemporaryDirectory() as name:
        small = Path(name, "small", "pairs.txt")
        small.parent.mkdir()
        with file.open(encoding="utf-8") as lines:
            small.write_text("".join(next(lines) for _ in range(100)), encoding="utf-8")
        for which, own in (("warm", small), ("timed", file)):
            folder = Path(name, which)
            folder.mkdir()
            cpu = time.process_time()
            WAYS[way](own, folder)
            took = time.process_time() - cpu
        files = {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    print(json.dumps({"way": way, "cpu": round(took, 2), "mb": round(sum(files.values()) / 1e6, 1)}))


def main(python: str, pairs: str = "100000") -> None:
    from stages import write_pairs

    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "pairs.txt")
        write_pairs(file, int(pairs))
        for _ in range(2):
            for way in WAYS:
                command = [python if way in PEERS else sys.executable, __file__, "--child", way, str(file)]
                environment = os.environ | {"HF_HOME": str(Path(name, "hf"))}
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                print(done.stdout.strip().split("\n")[-1] if done.returncode == 0 else done.stderr[-2000:], flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2], Path(sys.argv[3]))
    else:
        main(*sys.argv[1:])
