"""What the stages of a corpus have in common: a stage maps a step over the shards of another stage."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import SHARD_ROWS, read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import HasKey, Job, Step
from phrasemodels.data.store.store import Store

SHARD = "shard.arrow"
HISTORY = "history.json"  # of a training, with seconds: no two are the same


def history(trained: Artifact) -> list[dict[str, float]]:
    """What a training told, a row for each evaluation."""
    return json.loads(trained.file(HISTORY).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Shard:
    """A shard as the input of a step. It is named by its rows, so dividing a corpus anew redoes only what changed."""

    path: Path
    content: str
    meta: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.content


def shards(artifact: Artifact) -> list[Shard]:
    """The shards of a stage, in order."""
    terms = {name: artifact.meta[name] for name in ("licences", "redistributable", "stand_in")}
    return [Shard(artifact.file(s["file"]), s["content"], terms) for s in artifact.meta["shards"]]


def stage_table(artifact: Artifact) -> pa.Table:
    """All rows of a stage; the shards stay mapped, nothing is copied."""
    return pa.concat_tables([read_shard(shard.path) for shard in shards(artifact)])


def write_stage(out: Path, table: pa.Table) -> dict[str, Any]:
    """Divide a table into shards; returns a stage's meta."""
    made = []
    for index, first in enumerate(range(0, table.num_rows, SHARD_ROWS)):
        name = f"{index:05d}.arrow"
        made.append({"file": name, **write_shard(out / name, table.slice(first, SHARD_ROWS))})
    return {"rows": table.num_rows, "shards": made}


def map_shards(
    job: Job,
    make: Callable[[Job, Any], dict[str, Any]],
    settings: Any,
    beside: Mapping[str, Artifact] | None = None,
    **others: HasKey,
) -> dict[str, Any]:
    """Run a step on every shard of job.inputs["rows"], each kept in the store by itself; returns a stage's meta.

    Stages `beside` have the same rows: a shard is given theirs under their names. `others` are given to every shard.
    """
    rows = shards(job.inputs["rows"])
    columns = {"shard": rows, **{name: shards(stage) for name, stage in (beside or {}).items()}}
    if any(len(column) != len(rows) for column in columns.values()):
        raise ValueError(f"{make.__name__}: {', '.join(columns)} do not have the same rows")
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
        _link(artifact.file(SHARD), job.out / name)
        made.append({"file": name, **{k: artifact.meta[k] for k in ("rows", "schema", "content", "dropped")}})
    return {
        "rows": sum(shard["rows"] for shard in made),
        "dropped": sum(shard["dropped"] for shard in made),
        "shards": made,
    }


def run_step(store: Store, step: Step) -> Artifact:
    """Run one step in whatever process this is called in."""
    return store.run(step)


def _link(source: Path, target: Path) -> None:
    """The same file under a second name; a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
