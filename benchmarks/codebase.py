"""Size and shape of the source: files, functions, imports, comments and docstrings, of this project or of any folder.

    python benchmarks/codebase.py [FOLDER ...]     by default phrasemodels; tests are left out

A function's lines go from its `def` to its last line. Import lines are those of import statements, comment lines those that hold
nothing else.
"""

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def sources(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder that git knows, or all of them where it knows none; tests and links are left out."""
    listed = subprocess.run(["git", "-C", folder, "ls-files", "*.py"], capture_output=True, text=True, check=False)
    files = [folder / name for name in listed.stdout.splitlines()] or sorted(folder.rglob("*.py"))
    for file in files:
        parts = file.relative_to(folder).parts
        if file.is_file() and not file.is_symlink() and not {"tests", "test"} & set(parts) and parts[-1][:5] != "test_":
            yield file


def measure(folder: Path) -> dict[str, Any]:
    """Return the counts of a folder by name."""
    files, lines, imports, comments, functions = 0, 0, 0, 0, []
    docstrings: list[str] = []
    for file in sources(folder):
        text = file.read_text(encoding="utf-8")
        files, lines = files + 1, lines + text.count("\n")
        comments += sum(line.lstrip().startswith("#") for line in text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstrings.append(ast.get_docstring(node) or "")
    return {
        "files": files,
        "lines": lines,
        "mean lines of a file": round(lines / max(files, 1)),
        "functions": len(functions),
        "mean lines of a function": round(statistics.fmean(functions), 1) if functions else 0,
        "median": statistics.median(functions) if functions else 0,
        "90th percentile": sorted(functions)[int(0.9 * len(functions))] if functions else 0,
        "import lines, %": round(100 * imports / max(lines, 1), 1),
        "comment lines, %": round(100 * comments / max(lines, 1), 1),
        'docstrings that begin with "What"': sum(doc.startswith("What ") for doc in docstrings),
        'docstrings with "those of" or "that of"': sum(bool(re.search(r"\bth(?:ose|at) of\b", d)) for d in docstrings),
    }


if __name__ == "__main__":
    folders = [Path(name) for name in sys.argv[1:]] or [Path(__file__).parents[1] / "phrasemodels"]
    tables = [measure(folder) for folder in folders]
    for name in tables[0]:
        print(f"{name:42}", *(f"{table[name]:>12}" for table in tables))
