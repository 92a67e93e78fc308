"""Fan-out over a head and two nodes with S3: `python benchmarks/cluster.py [SHARDSxROWS ...]`, by default 10x1 100x1 1000x1 40x10000.

A step that tokenises runs on shards of so many rows. The head is the driver, without processors for tasks; each node has one, and a
folder of its own for its cache, in a mount namespace (so it needs Linux and root). S3 is moto's server, a Python process that
takes some milliseconds a request. Printed: wall seconds, CPU seconds of the driver, requests to S3 a shard, and bytes of shards that
came to the driver's folder. All processes share this machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from stages import write_pairs

from phrasemodels.data.corpora.bitext import column_blocks
from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.shared import ObjectStorage
from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.flows.run.execute import NodeMap
from phrasemodels.inference.inputs import spaces
from phrasemodels.infra.cluster import ray_map
from phrasemodels.infra.services import free_port
from phrasemodels.tasks.prepare.tokenise import Tokenise, tokenise

LAYOUTS = ("10x1", "100x1", "1000x1", "40x10000")
NODES = 2
TERMS = {"licences": ["MIT"], "redistributable": True, "stand_in": False}


def stage(job: Job, settings: tuple[int, int, str]) -> dict[str, Any]:
    """Write a stage of so many shards of so many rows."""
    count, rows, _ = settings
    write_pairs(job.out.parent / "pairs.txt", count * rows)
    table = pa.concat_tables(column_blocks({"pairs": job.out.parent / "pairs.txt"}, 1000))
    made = []
    for index in range(count):
        name = f"{index:05d}.arrow"
        made.append({"file": name, **write_shard(job.out / name, table.slice(index * rows, rows))})
    return {**TERMS, "rows": count * rows, "shards": made}


def begin(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start S3, the head and the nodes, and connect to them; yield each process."""
    port, gcs = free_port(), free_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])),
    }  # fmt: skip
    with (folder / "s3.log").open("wb") as log:
        yield subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    ray = str(Path(sys.executable).parent / "ray")
    at = ["--node-ip-address=127.0.0.1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
    head = [
        ray,
        "start",
        "--head",
        f"--port={gcs}",
        f"--temp-dir={folder / 'r'}",
        "--num-cpus=0",
        "--include-dashboard=false",
        *at,
    ]
    node = [ray, "start", f"--address=127.0.0.1:{gcs}", "--num-cpus=1", *at]
    (folder / "cache").mkdir()
    for name in ("head", *(f"node-{n}" for n in range(NODES))):
        (folder / name).mkdir()
        bound = f"mount --bind {folder / name} {folder / 'cache'} && exec {' '.join(node)}"
        with (folder / f"{name}.log").open("wb") as log:
            yield subprocess.Popen(
                head if name == "head" else ["unshare", "-m", "sh", "-c", bound], stdout=log, stderr=log
            )
        while "runtime started" not in (folder / f"{name}.log").read_text():
            time.sleep(0.3)
    import fsspec

    while True:
        try:
            urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"], timeout=2).close()
            break
        except OSError:
            time.sleep(0.3)
    fsspec.filesystem("s3").mkdir("phrases")
    import ray as runtime

    runtime.init(address=f"127.0.0.1:{gcs}", log_to_driver=False, logging_level="ERROR")


def measured(folder: Path, layout: str, turn: str) -> dict[str, Any]:
    """Return the figures of one layout; turn: makes its keys new."""
    count, rows = map(int, layout.split("x"))
    store = Store(folder / "cache", ObjectStorage("s3://phrases/store")).open()
    raw = Step(stage, "rows", (count, rows, turn))
    tokens = Step(tokenise, "tokens", Tokenise(spaces, "en", "de"), {"rows": raw})
    store.run(raw)
    requests, files = (folder / "s3.log").read_bytes().count(b"HTTP/1.1"), held(folder)
    cpu, wall = time.process_time(), time.perf_counter()
    made = store.run(tokens, Executor(map=NodeMap(ray_map, store, 10**12)))
    driver, took = time.process_time() - cpu, time.perf_counter() - wall
    asked = (folder / "s3.log").read_bytes().count(b"HTTP/1.1") - requests
    assert made.meta["rows"] == count * rows
    size = sum(file["bytes"] for file in made.manifest["files"].values())
    return {"shards": count, "rows": rows, "wall": took, "driver": driver, "requests": asked / count, "bytes": size,
            "to_driver": held(folder) - files}  # fmt: skip


def held(folder: Path) -> int:
    """Return the bytes of shards in the driver's folder."""
    return sum(path.stat().st_size for path in (folder / "cache").glob("objects/*/*/*.arrow"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layouts", nargs="*", default=LAYOUTS)
    folder, processes = Path(tempfile.mkdtemp(prefix="pm-", dir="/tmp")), []
    try:
        processes.extend(begin(folder))
        measured(folder, "4x1", "warm")
        for layout in parser.parse_args().layouts:
            found = measured(folder, layout, "timed")
            print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}), flush=True)
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        os.environ.get("KEEP") or shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
