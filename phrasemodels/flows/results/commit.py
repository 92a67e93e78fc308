"""The commit of the code that runs."""

import subprocess
from functools import cache
from pathlib import Path

import phrasemodels
from phrasemodels import project

CHECKOUT = Path(__file__).resolve().parents[3]


@cache
def commit() -> str:
    """Return the commit of the code, marked `-dirty` if files were changed since; of an installed package its version. In a
    project folder that of the project comes first."""
    own, ours = project.folder(), _commit(CHECKOUT) or f"version {phrasemodels.__version__}"
    mine = _commit(own) if own else ""
    return f"{mine} with {ours}" if mine else ours


def _commit(folder: Path) -> str:
    """Return the commit of a folder; empty if it is no checkout."""
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    if not (folder / ".git").exists():
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return "unknown"
    return done.stdout.strip() or "unknown"
