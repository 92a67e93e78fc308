"""What a tuning came to: the setting that each row was given, and what a search of each budget is expected to find."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from phrasemodels.flows.report.plots import lines

Trials = Sequence[Mapping[str, Any]]  # of each row, as `trial_records` in flows/run/tune.py returns them


def chosen_settings(rows: Trials) -> list[dict[str, Any]]:
    """Return for each row the setting with the lowest criterion on dev, that criterion, and the one of the row's own."""
    settings = []
    for row in rows:
        ended = [t for t in row["trials"] if not t["pruned"] and t["losses"][-1] is not None]
        best = min(ended, key=lambda trial: trial["losses"][-1])
        own = row["trials"][0]["losses"][-1]
        settings.append(
            {
                "row": row["row"],
                "trials": len(row["trials"]),
                "pruned": sum(trial["pruned"] for trial in row["trials"]),
                "dev loss": round(best["losses"][-1], 4),
                "as defined": None if own is None else round(own, 4),
                "setting": ", ".join(best["changed"]) or "as defined",
            }
        )
    return settings


def expected_bests(rows: Trials) -> Markup:
    """Return as SVG the lowest criterion on dev that each number of settings drawn at random is expected to find, with its
    interval."""
    points, bands = {}, {}
    for row in rows:
        if not (curve := row["expected best dev loss"]):
            continue
        points[row["row"]] = list(enumerate(curve["mean"], 1))
        bands[row["row"]] = list(zip(curve["low"], curve["high"], strict=True))
    return Markup(lines(points, "settings drawn at random", "expected best dev loss", bands) if points else "")
