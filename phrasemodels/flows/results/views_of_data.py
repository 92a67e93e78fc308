"""The rows of the views of SQL about data: shards, phrases, levels, leaks, lineage."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.tables import of_step, schema_of, table
from phrasemodels.infra.tracking import Tracker


def shards(store: Store, tracker: Tracker) -> pa.Table:
    """Return the files of records in the store."""
    rows = (
        {
            "step": a.manifest["step"],
            "label": a.manifest["label"],
            **{k: shard[k] for k in ("file", "rows", "content")},
            "licences": ", ".join(a.meta["licences"]),
            "redistributable": a.meta["redistributable"],
            "stand_in": a.meta["stand_in"],
            "key": a.key,
        }
        for a in store.all_artifacts()
        for shard in a.meta.get("shards", [])
    )
    return table("shards", rows)


def phrases(store: Store, tracker: Tracker) -> pa.Table:
    """Return the sentences of corpora whose phrases were made."""
    schema = schema_of("phrases")
    found = [schema.empty_table()]
    for artifact in of_step(store, "phrases"):
        for shard in artifact.meta["shards"]:
            read = read_shard(artifact.file(shard["file"]))
            longest = read.schema.field("phrases").type.value_type.list_size
            known = [artifact.manifest["label"], shard["file"], longest]
            label, file, width = (pa.array([value] * read.num_rows) for value in known)
            lengths = [pc.list_value_length(read[name]).cast(pa.int64()) for name in ("source", "phrases")]
            rows = [label, file, read["id"], read["group"], *lengths, width]
            found.append(pa.table(rows, schema=schema))
    return pa.concat_tables(found)


def levels(store: Store, tracker: Tracker) -> pa.Table:
    """Return the levels of trees that were divided."""
    schema = schema_of("levels")
    found = [schema.empty_table()]
    for artifact in of_step(store, "divide"):
        for shard in artifact.meta["shards"]:
            read = read_shard(artifact.file(shard["file"]))
            lists = read["levels"].combine_chunks()
            words = np.diff(lists.offsets.to_numpy()).astype(np.int64)
            numbers = lists.values.flatten().to_numpy().reshape(-1, lists.type.value_type.list_size)
            last = np.maximum(np.cumsum(words) - 1, 0)
            for place, level in enumerate(artifact.manifest["parts"]["settings"]["levels"]):
                count = np.where(words > 0, numbers[last, place] + 1 if len(numbers) else 0, 0)
                known = (artifact.manifest["label"], level, artifact.key)
                label, at, key = ([value] * read.num_rows for value in known)
                rows = [label, read["id"], read["group"], read["reason"], at, words, count.astype(np.int64), key]
                found.append(pa.table(rows, schema=schema))
    return pa.concat_tables(found)


def leaks(store: Store, tracker: Tracker) -> pa.Table:
    """Return what is in both parts of a corpus."""
    return table("leaks", ({"label": a.manifest["label"], **a.meta["leak"]} for a in of_step(store, "leaks")))


def lineage(store: Store, tracker: Tracker) -> pa.Table:
    """Return what was made from what."""
    rows = (
        {"key": a.key, "step": a.manifest["step"], "label": a.manifest["label"], "role": role, "input": key}
        for a in store.all_artifacts()
        for role, key in a.manifest["parts"]["inputs"].items()
    )
    return table("lineage", rows)
