"""Shards (uncompressed Arrow IPC files) and the schemas of their records.

Trainings map them into memory without a copy. No column is ever null. A missing value is an empty string or an empty
list. `id` is the position of the row in its file from 0. `group` names a subset with a score of its own or is empty.
`reason` says why a row or one of its analyses is unusable. Otherwise it is empty. Unusable rows are kept and counted.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from phrasemodels.data.store.artifacts import atomic_replace


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


_tokens = _list(pa.string())


def _record(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# A sentence and its translation, or its logical form.
BITEXT = _record(id=pa.int64(), source=pa.string(), target=pa.string(), group=pa.string())

# The same as tokens.
TOKENS = _record(id=pa.int64(), source=_tokens, target=_tokens, group=pa.string())

# Tokens and a part of speech for each.
TAGGED = _record(id=pa.int64(), tokens=_tokens, tags=_tokens, group=pa.string(), reason=pa.string())

# Two sentences and their relation: a label, or a score (0 where there is a label). Pairs of one `family` have the same
# premise. Trees are Penn brackets whose leaves are the words of the sentence; binary trees have no labels.
PAIRS = _record(
    id=pa.int64(),
    premise=pa.string(),
    hypothesis=pa.string(),
    label=pa.string(),
    score=pa.float64(),
    family=pa.int64(),
    premise_tree=pa.string(),
    hypothesis_tree=pa.string(),
    premise_binary=pa.string(),
    hypothesis_binary=pa.string(),
    group=pa.string(),
    reason=pa.string(),
)

# A sentence and its class. `tree` is in brackets, or empty.
SENTENCES = _record(
    id=pa.int64(), text=pa.string(), label=pa.string(), tree=pa.string(), group=pa.string(), reason=pa.string()
)

# A question about a story, the facts before the question with their line numbers in the story (ascending, from 1), and
# the answer. `support` holds the positions in `facts` (from 0) of the supporting facts, in the order of the corpus.
STORIES = _record(
    id=pa.int64(),
    task=pa.string(),
    story=pa.int64(),
    facts=_tokens,
    lines=_list(pa.int32()),
    question=pa.string(),
    answer=pa.string(),
    support=_list(pa.int32()),
    group=pa.string(),
    reason=pa.string(),
)

# A sentence of n tokens with its analyses; an analysis that is missing or wrong is empty. `tags` are Penn tags,
# `universal` the relations of Universal Dependencies. `tree` is in Penn brackets `(ROOT (S (NP (DT the) ...`, without traces and
# function tags. `heads` count tokens from 1; 0 is the root.
TREES = _record(
    id=pa.int64(),
    tokens=_tokens,
    tags=_tokens,
    universal=_tokens,
    tree=pa.string(),
    heads=_list(pa.int32()),
    relations=_tokens,
    group=pa.string(),
    reason=pa.string(),
)

# TREES, and beside the gold tags those that another program predicted.
TAGGED_TREES = pa.schema([*TREES, pa.field("predicted", _tokens, nullable=False)])

SCHEMAS = {
    "bitext": BITEXT,
    "tagged": TAGGED,
    "pairs": PAIRS,
    "sentences": SENTENCES,
    "stories": STORIES,
    "trees": TREES,
    "tagged_trees": TAGGED_TREES,
}


def phrase_schema(width: int) -> pa.Schema:
    """Token ids and phrases as the positions of their words (padded to `width` with -1)."""
    ids = _list(pa.int32())
    return _record(id=pa.int64(), source=ids, target=ids, phrases=_rows(width), group=pa.string())


def _rows(width: int) -> pa.DataType:
    return _list(pa.list_(pa.field("item", pa.int32(), nullable=False), width))


def check(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Return the table. ValueError: it has another schema, or a null. The message has `where` and the column."""
    if not table.schema.equals(schema):
        raise ValueError(f"{where}: columns {table.schema.names} do not match {schema.names} (or their types differ)")
    for name in schema.names:
        if (row := _null(table[name])) is not None:
            raise ValueError(f"{where}: column {name!r} is null in row {row}")
    return table


def _null(column: pa.ChunkedArray) -> int | None:
    """Return the first row with a null, also inside of a list. None if there is no null."""
    if column.null_count:
        return pc.index(pc.is_null(column), True).as_py()
    if not (pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)):
        return None
    item = _null(pc.list_flatten(column))
    return None if item is None else pc.list_parent_indices(column.combine_chunks())[item].as_py()


def build(schema: pa.Schema, where: str, columns: Mapping[str, Any], rows: int) -> pa.Table:
    """Return a table of these columns. A missing column `id` counts from 0. Other missing columns are empty."""
    arrays = [_column(field, columns.get(field.name), rows) for field in schema]
    return check(pa.Table.from_arrays(arrays, schema=schema), schema, where)


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows as columns of these names."""
    rows = list(rows)
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _column(field: pa.Field, values: Any, rows: int) -> pa.Array:
    if values is None:
        empty: Any = [] if pa.types.is_list(field.type) else "" if pa.types.is_string(field.type) else 0
        values = range(rows) if field.name == "id" else [empty] * rows
    return pa.array(values, field.type)


SHARD_ROWS = 10_000
# above SHARD_ROWS, so that a shard is one batch, whose columns are views of the mapped file
BATCH_ROWS = 16_384


def write_shard(path: Path, table: pa.Table) -> dict[str, object]:
    """Write one shard and return its entry in the manifest: rows, schema, digest of the content."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)
    return {
        "rows": table.num_rows,
        "schema": [f"{field.name}: {field.type}" for field in table.schema],
        "content": content_digest(table),
    }


def write_parquet(path: Path, rows: pa.Table | Iterator[pa.Table]) -> None:
    """Write a table (or several in turn) as Parquet for other programs.

    It is half the size of a shard but slower to read.
    """
    tables = iter([rows]) if isinstance(rows, pa.Table) else rows
    first = next(tables)
    with atomic_replace(path) as temporary, pq.ParquetWriter(temporary, first.schema, compression="zstd") as writer:
        for table in chain([first], tables):
            writer.write_table(table, row_group_size=BATCH_ROWS)


def read_shard(path: Path) -> pa.Table:
    """Map a shard into memory. ValueError: it is damaged. The error names the file."""
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            table.validate(full=True)  # a wrong offset would crash the process
            return table
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a whole Arrow file ({error}); delete it and run again") from error


READ_FIRST = """
import resource, sys
import pyarrow as pa, pyarrow.parquet as pq
memory, path, columns = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
if path.endswith(".arrow"):
    with pa.memory_map(path) as source:
        pa.ipc.open_file(source).read_all().validate(full=True)
else:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(4096, columns=columns):
            whole = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in batch.columns]
            if sum(column.nbytes for column in whole) > memory // 16:  # as objects of Python it is many times as large
                raise MemoryError
"""
MEMORY = 4 * 2**30  # bytes that a file of others may take


def check_unpacked(path: Path, columns: Sequence[str] = ()) -> None:
    """Read a foreign file (Arrow or Parquet) in a process that may take MEMORY bytes.

    At this limit a library may end the process.

    Args:
        path: The file.
        columns: Those of a Parquet file that are needed.

    Raises:
        ValueError: The file needs more memory or is damaged.
    """
    command = [sys.executable, "-c", READ_FIRST, str(MEMORY), str(path), *columns]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        damaged = done.returncode == 1 and "MemoryError" not in done.stderr and "malloc" not in done.stderr
        why = (done.stderr.strip().splitlines() or [""])[-1]
        raise ValueError(
            f"{path}: {f'damaged ({why[:200]})' if damaged else f'it needs more than {MEMORY / 2**30:g} GiB of memory'}"
        )


DIGEST_BYTES = 16


def digests(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the first 128 bits of the SHA-256 of each value as text."""
    every = b"".join(hashlib.sha256(str(value).encode()).digest()[:DIGEST_BYTES] for value in values.to_pylist())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST_BYTES), len(values), [None, pa.py_buffer(every)])


def as_integers(found: pa.Array) -> np.ndarray:
    """View digests (n) as big-endian integers (n, 2), without a copy."""
    return np.frombuffer(found.buffers()[1] or b"", ">u8").reshape(-1, 2)[found.offset : found.offset + len(found)]


def content_digest(table: pa.Table) -> str:
    """Return the sha256 of the schema and of the values in row order, independent of chunks and files.

    TypeError: a column has a type without a digest.
    """
    digest = hashlib.sha256(str(table.schema).encode())
    for column in table.itercolumns():
        _update(digest, column.combine_chunks())
    return digest.hexdigest()


def _update(digest: "hashlib._Hash", array: pa.Array) -> None:
    kind = array.type
    if pa.types.is_list(kind):
        _update(digest, pc.list_value_length(array))
        _update(digest, array.flatten())
    elif pa.types.is_fixed_size_list(kind):
        _update(digest, array.flatten())
    elif pa.types.is_string(kind):
        _update(digest, pc.binary_length(array))
        # the buffers of a slice are those of the whole array
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        if len(array):
            digest.update(memoryview(array.buffers()[2] or b"")[offsets[0] : offsets[-1]])
    elif pa.types.is_boolean(kind):
        _update(digest, array.cast(pa.uint8()))
    elif pa.types.is_primitive(kind):
        digest.update(np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).tobytes())
    else:
        raise TypeError(f"{kind}: its values have no digest; cast the column to a type of data/formats/shards.py")


def with_text_for_lists(table: pa.Table) -> pa.Table:
    """Return an answer with lists and structures as JSON, since a CSV file has none."""
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if value is None else json.dumps(value, default=str) for value in table[place].to_pylist()]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
    return table
