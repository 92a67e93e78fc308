"""The code must not contain unsafe calls, and pages must escape untrusted text."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import PROJECT

from phrasemodels.flows.report.plots import attention, curves

FILES = sorted((PROJECT / "phrasemodels").rglob("*.py"))
UNSAFE = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib", "yaml", "telnetlib"}
EVIL = """--><script>alert(1)</script><b x="'& $ \\{ $"""
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp", "torch.jit.load"}


def name(node: ast.AST, known: dict[str, str]) -> str:
    """Return a dotted name, its first part replaced by the name that it was imported from."""
    if isinstance(node, ast.Attribute):
        return f"{name(node.value, known)}.{node.attr}"
    return known.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> dict[str, str]:
    """Return the full names that an import binds, by the names that it gives them."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                for alias in node.names} | {alias.name: alias.name for alias in node.names}  # fmt: skip
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {}


def says(node: ast.AST | None, *values: object) -> bool:
    return isinstance(node, ast.Constant) and node.value in values


def unsafe(path: Path) -> Iterator[str]:
    """Yield the imports and calls of a file that could run untrusted bytes."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    known = {word: whole for node in nodes for word, whole in imported(node).items()}
    for node in nodes:
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        yield from (f"{where} imports {whole}" for whole in imported(node).values() if UNSAFE & {*whole.split(".")})
        if not isinstance(node, ast.Call):
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        called = name(node.func, known)
        if called in CALLS or called.endswith("pickle"):
            yield f"{where} calls {called}"
        if called == "importlib.import_module" and any(says(argument, *UNSAFE) for argument in node.args):
            yield f"{where} imports what unpickles"
        if called == "torch.load" and not says(given.get("weights_only"), True):
            yield f"{where} loads without weights_only=True"
        if any(word in given and not says(given[word], False, None) for word in ("shell", "allow_pickle")):
            yield f"{where} calls {called} with a shell, or with pickles"


def test_no_code_unpickles_evaluates_or_calls_a_shell() -> None:
    assert len(FILES) > 100
    assert [found for path in FILES for found in unsafe(path)] == []


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from joblib import load", "eval(x)", "torch.load(p)", "torch.load(p, weights_only=False)",
     "subprocess.run(x, shell=True)", "np.load(p, allow_pickle=True)", "np.load(p, allow_pickle=x)", "import yaml",
     "from torch import load; load(p)", "import torch as t; t.load(p)", "import torch.jit; torch.jit.load(p)",
     "import importlib; importlib.import_module('pickle')", "import _pickle", "from ray import cloudpickle",
     "import pandas as pd; pd.read_pickle(p)", "from os import system; system(x)", "import ray.cloudpickle as c"],
)  # fmt: skip
def test_the_search_finds_unsafe_code(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(text)
    assert list(unsafe(tmp_path / "x.py"))


def test_no_kept_result_is_a_pickle() -> None:
    """No file in results/ begins like a pickle or like a zip, which may hold pickles."""
    kept = [path for path in (PROJECT / "results").rglob("*") if path.is_file()]
    assert [
        path for path in kept if path.read_bytes()[:2] in (*(bytes((128, version)) for version in range(2, 6)), b"PK")
    ] == []


def test_pages_and_plots_escape_text() -> None:
    """Pages escape everything except plots, and plots escape their own text."""
    pages = sorted((PROJECT / "phrasemodels" / "flows" / "report" / "pages").glob("*.jinja"))
    assert pages
    for page in pages:
        assert not re.search(r"\|\s*safe|autoescape|Markup", page.read_text(encoding="utf-8")), page.name
    history = [{"step": step, "dev_loss": 1.0 / step} for step in (1, 2, 3)]
    plots = [curves({EVIL: [history]}), attention([EVIL, "b"], [[0, 1], [1]], np.eye(4), EVIL)]
    assert all("<svg" in plot and "<script" not in plot for plot in plots)
