"""Readers of external input: broken input is refused in one line, or treated as missing.

FINDS are inputs of fuzz.py that broke a reader once.
"""

import contextlib
import io
import random
import resource
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from outside import OUTSIDE, attempt, broken


@contextlib.contextmanager
def no_more_than(memory: int) -> Iterator[None]:
    """Limit the address space of this process to `memory` more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def nameless() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x", "text")
    return out.getvalue().replace(b"x", b"\0")  # a NUL ends the name


def misnamed(central: bool = True) -> bytes:
    """A zip with a name that is not UTF-8, although its flag says so: in the central directory, or in the entry."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("é", b"x")
    content, name = out.getvalue(), "é".encode()
    place = content.rindex(name) if central else content.index(name)
    return content[:place] + b"\xff\xff" + content[place + 2 :]


def with_pax_header(header: bytes) -> bytes:
    """A tar archive with a pax header of these bytes."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(header)
    return info.tobuf() + header.ljust(512, b"\0") + tarfile.TarInfo("y").tobuf() + bytes(1024)


def weighted(change: Callable[[torch.Tensor], torch.Tensor]) -> bytes:
    """The weights of an exported model, in which the first matrix is changed."""
    known = safetensors.torch.load(OUTSIDE["weights of an exported model"].seeds[0])
    first = next(name for name, weight in known.items() if weight.dim() == 2)
    return safetensors.torch.save(known | {first: change(known[first]).contiguous()})


FINDS = [
    ("zip", b"PK\x05\x06" + bytes(18)),
    ("zip", nameless()),
    ("zip", b"none"),
    ("zip", misnamed()),
    ("zip", misnamed(central=False)),
    ("tar", b"\x1f\x8b\x08" + bytes(40)),
    ("tar", with_pax_header(b"9" * 20 + b" x=y\n")),
    ("xz", b"Z" + b"\xff" * 100),
    ("manifest of a corpus", b'name = "\xff"'),
    ("manifest of a corpus", b"x = " + b"[" * 100_000),
    ("manifest of a corpus", OUTSIDE["manifest of a corpus"].seeds[0].replace(b'"concatenate', b'"con\\ncat')),
    ("manifest of a parser", b'name = "\xff"'),
    ("manifest of a parser", b"x = " + b"[" * 100_000),
    ("manifest of a parser", b"x = "),
    ("word vectors", b"the 1 \xff\n"),
    ("word vectors", b"the 1 x\n"),
    ("word vectors", b"the 1\n"),
    ("word vectors", b"the 1 1e999\n"),
    ("word vectors", b"the 1 1e200\n"),
    ("word vectors", b"the 1 nan\n"),
    *(
        ("exported model", OUTSIDE["exported model"].seeds[0].replace(old, new))
        for old, new in [
            (b"seed 0", b"seed x"),
            (b"train ", b"train"),
            (b'"heads"', b'"heds"'),
            (b'"d": 8', b'"d": "8"'),
            (b'"d": 8', b'"d": 16'),
            (b'"d": 8', b'"d": 800000'),
            (b'"d": 8', b'"d": 1e3'),
            (b'"heads": 2', b'"heads": true'),
            (b'"layers": 1', b'"layers": 1000000000'),
            (b'"layers": 1', b'"layers": 0'),
            (b'"d_ff": 16', b'"d_ff": 99999999999999999999'),
            (b'"tied": true', b'"tied": 2'),
            (b'"dropout": 0.0', b'"dropout": null'),
            (b'"model": {', b'"modl": {'),
            (b'"settings": {', b'"settings": 1, "x": {'),
            (b'"encoder": {', b'"encoder": [], "x": {'),
            (b'"dev_loss"', b'"dev_los"'),
        ]
    ),
    ("card of an exported model", b"[]"),
    ("card of an exported model", b'{"corpse": ""}'),
    ("card of an exported model", b"[" * 100_000),
    (
        "vocabulary of an exported model",
        OUTSIDE["vocabulary of an exported model"].seeds[0].replace(b'"source": ', b'"source": 1'),
    ),
    (
        "vocabulary of an exported model",
        OUTSIDE["vocabulary of an exported model"].seeds[0].replace(b'"source": ', b'"source": -'),
    ),
    (
        "vocabulary of an exported model",
        OUTSIDE["vocabulary of an exported model"].seeds[0].replace(b'"target": ', b'"target": "9", "x": '),
    ),
    ("words of an exported model", b"the\n"),
    ("words of an exported model", b"\xff\n"),
    ("weights of an exported model", weighted(lambda x: x[:1, :1])),
    ("weights of an exported model", weighted(lambda x: x.long())),
    ("weights of an exported model", weighted(lambda x: x * float("nan"))),
    ("weights of an exported model", weighted(lambda x: x.double())),
    ("weights of an exported model", b""),
    ("weights of an exported model", b"no weights at all"),
    ("snli.official", b'{"gold_label": ' + b"9" * 5000 + b"}\n"),
    ("file of a project", b'[papers]\nx = "\xff"'),
    ("file of a project", b"x = " + b"[" * 100_000),
    ("record of a run", b'{"id" 1}'),
    ("record of a run", b'{"id": "a"}'),
    ("record of a run", b'"\xff"'),
    ("record of a run", b"1"),
    ("record of a run", b"[" * 100_000),
    ("lease", b'["'),
    ("lease", b'"\xff"'),
    ("lease", b"1.5"),
    ("lease", b"[" * 100_000),
    ("lease in object storage", b'["'),
    ("lease in object storage", b'"\xff"'),
    ("lease in object storage", b"[" * 100_000),
    ("lease in object storage", b'{"keys": "ab", "until": 1}'),
    ("lease in object storage", b'{"keys": [[]], "until": 9999999999}'),
    ("lease in object storage", b'{"keys": []}'),
    *(
        (name, OUTSIDE[name].seeds[0].replace(old, new))
        for name in ("manifest in the store", "manifest in object storage")
        for old, new in [
            (b"files", b"fles"),
            (b'"step"', b'"stop"'),
            (b'"key"', b'"kex"'),
            (b'"finished": "2', b'"finished": "99992'),
            (b"label", b"\xff"),
            (b'"text": {', b'"../../text": {'),
        ]
    ),
    ("shard", OUTSIDE["shard"].seeds[0][:-9]),
    *(
        ("state of a checkpoint", OUTSIDE["state of a checkpoint"].seeds[0].replace(old, new))
        for old, new in [(b"best_step", b"\xff"), (b"best_step", b"best_stop"), (b"progress", b"regress")]
    ),
    ("weights", OUTSIDE["weights"].seeds[0].replace(b"bias", b"bios")),
    ("optimiser", OUTSIDE["optimiser"].seeds[0].replace(b"0.exp_avg", b"0.0.0avg_")),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_well_formed_input_is_read(name: str, tmp_path: Path) -> None:
    for number, seed in enumerate(OUTSIDE[name].seeds):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "given").write_bytes(seed)
        OUTSIDE[name].read(folder)


@pytest.mark.parametrize(("name", "content"), FINDS)
def test_input_that_broke_a_reader_once_is_refused_properly(name: str, content: bytes, tmp_path: Path) -> None:
    assert content not in OUTSIDE[name].seeds
    with no_more_than(2 << 30):
        attempt(name, content, tmp_path / "x")


@pytest.mark.parametrize("name", OUTSIDE)
def test_mutated_input_breaks_no_reader(name: str, tmp_path: Path) -> None:
    chance, seeds = random.Random(name), list(OUTSIDE[name].seeds)
    for number in range(
        10 if "exported" in name or "packed" in name else 40
    ):  # of a model that answers, which takes longer
        attempt(name, broken(chance.choice(seeds), seeds, chance), tmp_path / str(number))
