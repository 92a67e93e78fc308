"""What waits for a store as it grows: `python benchmarks/growth.py [OBJECTS ...]`, by default 1000, 10000 and 100000 objects.

Each object is the artifact of a step that writes 100 bytes, and depends on the one before it in a chain of ten. CPU time of
listing them, of sizes, of what garbage collection would remove, of verification, and of finding one object.
"""

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phrasemodels.data.store.gc import damage, usage, waste
from phrasemodels.data.store.store import Job, Step, Store

OBJECTS = (1_000, 10_000, 100_000)
CHAIN = 10


def write(job: Job, settings: int) -> dict[str, Any]:
    """Write 100 bytes."""
    (job.out / "data").write_bytes(settings.to_bytes(100, "big"))
    return {"licences": ["MIT"], "redistributable": True, "stand_in": False}


def seconds(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return time.process_time() - began


def measured(folder: Path, count: int) -> dict[str, float]:
    """Return the CPU seconds of each operation on a store of `count` objects."""
    store, last = Store(folder).open(), None
    began = time.process_time()
    for number in range(count):
        last = Step(write, f"object {number}", number, {} if number % CHAIN == 0 or last is None else {"before": last})
        store.run(last)
    assert last is not None
    row = {"objects": count, "make": time.process_time() - began}
    row["find"] = seconds(lambda: store.find(last))
    row["list"] = seconds(lambda: list(store.artifacts()))
    row["du"] = seconds(lambda: usage(store))
    row["gc, dry"] = seconds(lambda: waste(store))
    row["verify"] = seconds(lambda: damage(store))
    row["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def main(*counts: str) -> None:
    for count in [int(given) for given in counts] or OBJECTS:
        folder = Path(tempfile.mkdtemp())
        try:
            row = measured(folder / "store", count)
        finally:
            shutil.rmtree(folder)
        each = {name: f"{value:.2f} s" for name, value in row.items() if name not in ("objects", "peak MiB")}
        print(
            f"{count} objects: {', '.join(f'{k} {v}' for k, v in each.items())}, peak {row['peak MiB']:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
