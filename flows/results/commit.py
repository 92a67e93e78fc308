"""The commit of the code that runs."""

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@cache
def commit() -> str:
    """Return the commit of the code, marked `-dirty` if files were changed since; of an installed package its version."""
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    if not (CHECKOUT / ".git").exists():
        return f"version {version('phrasemodels')}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return "unknown"
    return done.stdout.strip() or "unknown"
