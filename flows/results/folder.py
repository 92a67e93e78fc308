"""The folder of the results that are kept with the project."""

from pathlib import Path

KEPT = Path(__file__).resolve().parents[2] / "results"
