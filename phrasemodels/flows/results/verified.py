"""Fetched corpora compared with their manifests: side by side, and each once while its files and the code are the same."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from phrasemodels.data.corpora.leakage import leakage
from phrasemodels.data.corpora.readers import read, reasons
from phrasemodels.data.download.manifest import Manifest
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.remembered import remembered

Verified = tuple[list[str], bool]


def verified(corpora: Sequence[tuple[Manifest, Artifact]]) -> Iterator[Verified]:
    """Yield for each corpus a line for each split, and whether all splits match the manifest.

    Corpora that were not read before are read in processes of their own, as many at once as there are processors.
    """
    count = min(len(corpora), os.cpu_count() or 1)
    if count < 2:
        yield from (_remembered(manifest, artifact) for manifest, artifact in corpora)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would copy the locks of pyarrow's threads
    with ProcessPoolExecutor(count, spawn) as processes, ThreadPoolExecutor(count) as threads:
        yield from threads.map(lambda one: _remembered(one[0], one[1], processes), corpora)


def _remembered(manifest: Manifest, artifact: Artifact, processes: ProcessPoolExecutor | None = None) -> Verified:
    def make() -> Verified:
        return (
            processes.submit(read_all, manifest, artifact.path).result()
            if processes
            else read_all(manifest, artifact.path)
        )

    lines, whole = remembered("verified", [artifact.key, manifest.model_dump(mode="json")], make)
    return lines, whole


def read_all(manifest: Manifest, folder: Path) -> Verified:
    """Read every split of a corpus; count the test records that are also in train."""
    tables: dict[str, pa.Table] = {}
    lines, whole = [], True
    for name, split in manifest.splits.items():
        if not all((folder / file).exists() for file in split.files.values()):
            lines.append(f"{manifest.name}\t{name}\tnot put in by hand")
            continue
        try:
            table = tables[name] = read(manifest, name, folder)
        except ValueError as error:
            whole = False
            lines.append(f"{manifest.name}\t{name}\t{error}")
            continue
        line = f"{manifest.name}\t{name}\t{table.num_rows} rows"
        line += "".join(f", {count}: {reason}" for reason, count in reasons(table).items())
        train = f"{name.rpartition('.')[0]}.train".removeprefix(".")
        if name.rpartition(".")[2] in ("dev", "test") and train in tables and tables[train].schema == table.schema:
            line += f", {leakage(tables[train], table)}"
        lines.append(line)
    return lines, whole
