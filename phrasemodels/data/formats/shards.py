"""Shards: uncompressed Arrow IPC files, which trainings map into memory without a copy."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from phrasemodels.data.store.artifacts import atomic_replace

SHARD_ROWS = 10_000
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


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, for other programs: half the size of a shard, but slower to read."""
    with atomic_replace(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=BATCH_ROWS)


def read_shard(path: Path) -> pa.Table:
    """Map a shard into memory. ValueError: it is damaged; it names the file."""
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            table.validate(full=True)  # a wrong offset would crash the process
            return table
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a whole Arrow file ({error}); delete it and run again") from error


def content_digest(table: pa.Table) -> str:
    """Return the sha256 of the schema and of the values in row order, which does not depend on chunks or files.

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
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        if len(array):
            digest.update(memoryview(array.buffers()[2] or b"")[offsets[0] : offsets[-1]])
    elif pa.types.is_boolean(kind):
        _update(digest, array.cast(pa.uint8()))
    elif pa.types.is_primitive(kind):
        digest.update(np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).tobytes())
    else:
        raise TypeError(f"{kind}: its values have no digest; cast the column to a type of data/formats/schemas.py")
