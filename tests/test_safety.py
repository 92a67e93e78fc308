"""What the code itself must not contain, and what text that nobody vouches for must not become."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import PROJECT

from flows.attention_plots import attention
from flows.plots import curves

PACKAGES = ("phrasemodels", "data", "tasks", "infra", "flows")
FILES = [path for package in PACKAGES for path in sorted((PROJECT / package).rglob("*.py"))]
UNSAFE = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib", "yaml", "telnetlib"}
EVIL = """--><script>alert(1)</script><b x="'& $ \\{ $"""
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp"}


def name(node: ast.AST) -> str:
    """A dotted name as it stands."""
    if isinstance(node, ast.Attribute):
        return f"{name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(path: Path) -> Iterator[str]:
    """What a file does that can run bytes from outside."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (f"{where} imports {module}" for module in modules if module.split(".")[0] in UNSAFE)
        if not isinstance(node, ast.Call):
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        called = name(node.func)
        only = given.get("weights_only")
        if called in CALLS:
            yield f"{where} calls {called}"
        if called == "torch.load" and not (isinstance(only, ast.Constant) and only.value is True):
            yield f"{where} loads without weights_only=True"
        if any(
            isinstance(value := given.get(word), ast.Constant) and value.value for word in ("shell", "allow_pickle")
        ):
            yield f"{where} calls {called} with a shell, or with pickles"


def test_nothing_unpickles_evaluates_or_calls_a_shell() -> None:
    assert len(FILES) > 100
    assert [found for path in FILES for found in unsafe(path)] == []


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from joblib import load", "eval(x)", "torch.load(p)", "torch.load(p, weights_only=False)",
     "subprocess.run(x, shell=True)", "np.load(p, allow_pickle=True)", "import yaml"],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(text)
    assert list(unsafe(tmp_path / "x.py"))


def test_nothing_that_is_kept_is_a_pickle() -> None:
    """Of what the project carries, nothing begins like a pickle or a zip of pickles."""
    kept = [path for path in (PROJECT / "results").rglob("*") if path.is_file()]
    assert [path for path in kept if path.read_bytes()[:2] in (b"\x80\x02", b"\x80\x04", b"\x80\x05", b"PK")] == []


def test_neither_pages_nor_plots_trust_text() -> None:
    """A page escapes all but plots, which escape what stands in them."""
    pages = sorted((PROJECT / "flows" / "pages").glob("*.jinja"))
    assert pages
    for page in pages:
        assert not re.search(r"\|\s*safe|autoescape|Markup", page.read_text(encoding="utf-8")), page.name
    history = [{"step": step, "dev_loss": 1.0 / step} for step in (1, 2, 3)]
    plots = [curves({EVIL: history}), attention([EVIL, "b"], [[0, 1], [1]], np.eye(4), EVIL)]
    assert all("<svg" in plot and "<script" not in plot for plot in plots)
