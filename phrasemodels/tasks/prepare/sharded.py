"""Tables in shards: read them, write them and run a step on each shard by itself."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import SHARD_ROWS, read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import HasKey, Job, Step, Store

SHARD = "shard.arrow"
FIRST_ROWS, FIRST_SHARDS = 2_000, 16  # smaller ones come first, so that a small corpus is work for many processors, too


@dataclass(frozen=True)
class Shard:
    """A shard as the input of a step. Its key is the digest of its rows, so a shard that did not change is a cache hit."""

    path: Path
    content: str
    meta: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.content


def required(**columns: pa.DataType) -> pa.Schema:
    """Return a schema of columns that are never null."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


def shards(artifact: Artifact, here: bool = True) -> list[Shard]:
    """Return the shards of an artifact in order.

    here: with their files on this node. Otherwise a step downloads its own.
    """
    terms = {name: artifact.meta[name] for name in ("licences", "redistributable", "stand_in")}
    file = artifact.file if here else artifact.path.joinpath
    return [Shard(file(s["file"]), s["content"], terms) for s in artifact.meta["shards"]]


def shard_tables(artifact: Artifact) -> Iterator[pa.Table]:
    """Yield the rows of each shard of an artifact as a mapped file. Only one has to fit into memory."""
    return (read_shard(shard.path) for shard in shards(artifact))


def read_shards(artifact: Artifact) -> pa.Table:
    """Return all rows of an artifact's shards. They stay mapped files. Nothing is copied."""
    return pa.concat_tables([read_shard(shard.path) for shard in shards(artifact)])


def write_shards(out: Path, rows: pa.Table | Iterable[pa.Table]) -> dict[str, Any]:
    """Write a table (or tables one after another) as shards. Return `rows` and `shards` for the meta.

    The first FIRST_SHARDS shards have FIRST_ROWS rows and later ones SHARD_ROWS. Where a shard ends depends on no other
    row. So a corpus that grows keeps its shards.

    The store adds the terms of the data (licences, redistributable, stand_in) from the inputs of the step.
    """
    made = []
    for index, table in enumerate(_cut([rows] if isinstance(rows, pa.Table) else rows)):
        name = f"{index:05d}.arrow"
        made.append({"file": name, **write_shard(out / name, table.combine_chunks())})
    return {"rows": sum(shard["rows"] for shard in made), "shards": made}


def _cut(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of tables in tables of the sizes of shards."""
    sizes = itertools.chain([FIRST_ROWS] * FIRST_SHARDS, itertools.repeat(SHARD_ROWS))
    size, left = next(sizes), None
    for table in tables:
        left = table if left is None else pa.concat_tables([left, table])
        while left.num_rows >= size:
            yield left.slice(0, size)
            left, size = left.slice(size), next(sizes)
    if left is not None and left.num_rows:
        yield left


def map_shards(
    job: Job,
    make: Callable[[Job, Any], dict[str, Any]],
    settings: Any = None,
    beside: Mapping[str, Artifact] | None = None,
    **others: HasKey,
) -> dict[str, Any]:
    """Run a step on each shard of job.inputs["rows"] and return the meta of all shards.

    Each shard is an artifact of its own. No byte of a shard passes this process. The steps may run on other nodes. Only
    manifests of their results are here.

    The step's inputs are `shard` and `others`. `others` are the same for every shard. Each artifact in `beside` adds
    its shard with the same rows by its name. ValueError: an artifact in `beside` has another number of shards.
    """
    rows = shards(job.inputs["rows"], here=False)
    columns = {"shard": rows, **{name: shards(artifact, here=False) for name, artifact in (beside or {}).items()}}
    if any(len(column) != len(rows) for column in columns.values()):
        raise ValueError(f"{make.__name__}: {', '.join(columns)} do not have the same rows; make them from one corpus")
    steps = [
        Step(
            make,
            f"{make.__name__} {shard.path.parent.name}/{shard.path.stem}",
            settings,
            {name: column[index] for name, column in columns.items()} | others,
        )
        for index, shard in enumerate(rows)
    ]
    made = []
    for index, artifact in enumerate(job.executor.map(run_step, [(job.store, step) for step in steps])):
        name = f"{index:05d}.arrow"
        job.adopt(artifact, SHARD, name)
        made.append({"file": name, **{k: artifact.meta[k] for k in ("rows", "schema", "content", "dropped")}})
    return {
        "rows": sum(shard["rows"] for shard in made),
        "dropped": sum(shard["dropped"] for shard in made),
        "shards": made,
    }


def run_step(store: Store, step: Step) -> Artifact:
    """Run a step in this process: a function that executors can send to another one."""
    return store.run(step)
