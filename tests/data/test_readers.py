"""The register of all code that reads from outside, `tests/readers.tsv`: complete, and each reader attacked or trusted for a reason."""

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PROJECT
from outside import OUTSIDE
from test_safety import FILES, imported, name

REGISTER = PROJECT / "tests" / "readers.tsv"
PROMISES = {
    "refused": "one line that names the file, and nothing is left",
    "equal": "the same result as of the good input, or refused",
    "missing": "made again, as if it were not there",
    "closed": "the question or request reaches nothing else",
    "trusted": "written by this project, its user or a pinned library",
}
METHODS = {"read_bytes", "read_text", "open", "from_pretrained", "receive", "recv"}  # of any object
CALLS = re.compile(
    r"open|receive|os\.open|io\.open|json\.loads?|tomllib\.loads?|csv\.(reader|DictReader)|(sqlite3|duckdb)\.connect|mmap\.mmap|"
    r"urllib\.request\.urlopen|httpx\.(Client|AsyncClient|get|post|stream)|socket\.create_connection|torch\.load|"
    r"safetensors\.(\w+\.)?(load\w*|safe_open)|pyarrow\.(memory_map|OSFile|csv\.\w+|json\.\w+|ipc\.open_\w+|"
    r"parquet\.(ParquetFile|read_\w+))|zipfile\.ZipFile|tarfile\.(open|TarFile)|(gzip|bz2)\.(open|decompress|\w+File)|"
    r"lzma\.(open|decompress|LZMA\w+)|zlib\.decompress(obj)?|numpy\.(load|loadtxt|fromfile|memmap|genfromtxt)|"
    r"pandas\.read_\w+|polars\.(read|scan)_\w+|fsspec\.core\.url_to_fs|stanza\.(Pipeline|download)|xml\.\w+\.\w+\.parse|"
    r"huggingface_hub\.\w*download\w*|asyncio\.(start_server|open_connection)"
)


def writes(call: ast.Call) -> bool:
    """Return whether the mode of a call that opens a file says that it only writes."""
    modes = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    said = {str(mode.value) for mode in modes if isinstance(mode, ast.Constant)}
    return any(re.fullmatch(r"[wax]b?", mode) for mode in said)


class Readers(ast.NodeVisitor):
    """Collects the functions of a file that call something that reads."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known, self.within, self.found = known, list[str](), set[str]()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.within.append(node.name)
        self.generic_visit(node)
        self.within.pop()

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815  names of ast

    def visit_Call(self, node: ast.Call) -> None:
        called, method = name(node.func, self.known), node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if (CALLS.fullmatch(called) or method in METHODS) and not writes(node):
            self.found.add(".".join(self.within))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if name(node, self.known) in ("sys.stdin.buffer", "self.rfile.read"):
            self.found.add(".".join(self.within))
        self.generic_visit(node)


def readers(path: Path) -> Iterator[str]:
    """Yield the functions of a file that read, as path:function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    visitor = Readers({word: whole for node in ast.walk(tree) for word, whole in imported(node).items()})
    visitor.visit(tree)
    where = path.relative_to(PROJECT / "phrasemodels") if path.is_relative_to(PROJECT) else path.name
    yield from (f"{where}:{function}" for function in visitor.found)


def register() -> dict[str, dict[str, str]]:
    with REGISTER.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len({row["reader"] for row in rows}) == len(rows)
    return {row["reader"]: row for row in rows}


def test_every_reader_is_on_the_register() -> None:
    """A new reader gets a line: what it reads, by which hostile input it is attacked, and what is promised."""
    assert {reader for path in FILES for reader in readers(path)} == register().keys()


@pytest.mark.parametrize(
    "text",
    ["open(p)", "p.open()", "p.open('r+b')", "import json as j; j.load(f)", "from tomllib import loads; loads(t)",
     "p.read_bytes()", "import pyarrow as pa; pa.ipc.open_file(p)", "import sqlite3; sqlite3.connect(p)",
     "from safetensors.torch import load_file; load_file(p)", "import numpy as np; np.load(p)", "A.from_pretrained(p)",
     "import httpx; httpx.Client()", "import pandas as pd; pd.read_csv(p)", "import sys; sys.stdin.buffer.read()"],
)  # fmt: skip
def test_the_search_finds_readers(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(f"def f():\n    {text}")
    assert list(readers(tmp_path / "x.py")) == ["x.py:f"]


@pytest.mark.parametrize("text", ["open(p, 'w')", "p.open('xb')", "json.dumps(x)", "p.write_text(x)"])
def test_the_search_finds_nothing_that_only_writes(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(f"def f():\n    {text}")
    assert not list(readers(tmp_path / "x.py"))


def test_every_reader_is_attacked_or_trusted_for_a_reason() -> None:
    """By inputs of `outside.py` or `hostile.py`, or by a test that exists."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "tests").rglob("test_*.py"))
    for reader, row in register().items():
        assert row["promise"] in PROMISES, reader
        assert row["reads"] and row["attacked by"], reader
        if row["promise"] != "trusted":
            for attack in row["attacked by"].split("; "):
                assert attack in OUTSIDE or f"def {attack}(" in tests, f"{reader}: no input or test {attack!r}"


def test_the_tests_that_the_promises_name_exist() -> None:
    promises = (PROJECT / "SECURITY.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", promises)
    assert len(named) > 15 and [name for name in named if f"def {name}(" not in tests] == []
    assert [path for path in re.findall(r"`(tests/[\w/]+\.\w+)`", promises) if not (PROJECT / path).is_file()] == []
