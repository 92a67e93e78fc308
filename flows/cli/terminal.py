"""Tables in a terminal."""

import re
import sys
from typing import Any

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # what a terminal obeys, but ends of lines and tabs
KINDS = ("idiom", "plain", "new", "seen")  # of sentences


def print_rows(title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def shown(value: str) -> Text:
        return Text(CONTROL.sub("\N{REPLACEMENT CHARACTER}", value))

    table = Table(title=shown(title) if title else None, title_justify="left")
    for column in columns:
        numeric = bool(rows) and isinstance(rows[0][column], int | float)
        table.add_column(shown(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *(
                shown("" if row[c] is None else f"{row[c]:.4g}" if isinstance(row[c], float) else str(row[c]))
                for c in columns
            )
        )
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)  # in a file or a pipe a name is one word


def _against(row: dict[str, Any]) -> str:
    """Difference from the baseline, its interval, and the corrected p."""
    if not row["against"]:
        return ""
    found = row["against"]["differences"][row["metric"]]
    p = "<.001" if found["p_holm"] < 0.001 else f"{found['p_holm']:.3f}".removeprefix("0")
    return f"{found['difference']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}] p {p}"


def print_table(result: dict[str, Any]) -> None:
    """Published, ours, verdict; times; where to look further."""
    from phrasemodels.infra.settings import Settings

    rows: list[dict[str, Any]] = []
    for row in result["rows"]:
        ours = row["intervals"][row["metric"]]
        half = "" if ours["half_width"] is None else f" ± {ours['half_width']:.2f}"
        found = {kind: row["intervals"].get(f"{row['metric']}/{kind}") for kind in KINDS}
        groups = {kind: f"{value['mean']:.1f}" for kind, value in found.items() if value}
        rows.append(
            {
                "system": row["system"],
                "variant": row["variant"],
                "metric": row["metric"],
                "published": "–" if row["published"] is None else f"{row['published']:.2f}",
                "ours": f"{ours['mean']:.2f}{half}",
                "− baseline": _against(row),
                **groups,
                "seeds": len(row["seeds"]),
                "verdict": row["verdict"],
            }
        )
    shown = [kind for kind in KINDS if any(kind in row for row in rows)]
    rows = [dict.fromkeys(shown, "") | row for row in rows]
    print_rows(result["title"], [name for name in rows[0] if name not in shown] + shown, rows)
    print("because: " + "; ".join(sorted({row["reason"] for row in result["rows"]})))
    if result["leaks"]:
        print("seen in training: " + "; ".join(sorted(set(result["leaks"].values()))))
    stages = ", ".join(
        f"{name} {seconds:.0f} s"
        for name, seconds in sorted(result["stages"].items(), key=lambda item: -item[1])
        if seconds >= 0.5
    )
    print(
        f"time: {result['seconds']:.0f} s after the services were up; by stage, side by side: {stages or 'everything was in the store'}"
    )
    root = Settings().root
    print(f"report:  {result['report']}")
    print(f"MLflow:  mlflow ui --backend-store-uri {Settings().tracking_uri} --host 127.0.0.1")
    print(f"Prefect: PREFECT_HOME={root / 'prefect'} prefect server start --host 127.0.0.1")
