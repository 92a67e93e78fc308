"""Shared by the commands: options, tables on a terminal or a pipe, and the store opened for reading."""

import json
import math
import re
import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from phrasemodels.data.download.manifest import Sources
    from phrasemodels.data.store.store import Store
    from phrasemodels.infra.tracking import Tracker


Paper = Annotated[str, typer.Option(help="Paper, as in `phrasemodels experiments`.")]
TableNumber = Annotated[str, typer.Option("--table", help="Table of the paper.")]
Profile = Annotated[
    str,
    typer.Option(
        help="sample (generated corpus, minutes), laptop (real data, two cores), paper (the paper's setting, GPUs)."
    ),
]
Seeds = Annotated[
    int, typer.Option(help="Seeds of each row. A number's verdict needs 2, with a warning; a claim, and a row of several readings, need 3.")
]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first of these seeds, to add further ones.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting of train, model or recipe in every row, like train.steps=200; repeatable. "
        "`experiments ROW --settings` lists them.",
    ),
]
Rows = Annotated[
    list[str] | None,
    typer.Option("--row", help="Only this row, like phrase-k2; repeatable."),
]
Like = Annotated[
    str,
    typer.Option(
        help="With --row NAME: add a row of your own, like this one but for --set, beside it and its baseline: "
        "--row mine --like phrase-k2 --set model.encoder=mine.",
    ),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        help="Make a row for each value, like train.learning_rate=0.001,0.002; repeatable: rows for all combinations.",
    ),
]
Tune = Annotated[
    int,
    typer.Option(
        min=0,
        help="Try this many random settings of each row, and run the table with those that are best on dev. 0: no tuning.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON with a stable schema; NaN and infinity are null.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there, even if this command did not write it.")]
ExperimentName = Annotated[
    str,
    typer.Argument(help="An experiment, as `phrasemodels experiments` lists them."),
]


def opened() -> tuple["Store", "Tracker"]:
    """Return the store and the tracker, for reading alone: neither is made."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.records import open_to_read

    return open_to_read()


def writable_store() -> "Store":
    """Return the store of the settings, opened to write to it. OSError: it cannot be used."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.records import open_store
    from phrasemodels.infra.settings import Settings

    return open_store(Settings())


def file_sources() -> "Sources":
    """Return where files may come from, by the settings."""
    from phrasemodels.flows.results.records import sources_of
    from phrasemodels.infra.settings import Settings

    return sources_of(Settings())


def print_json(value: Any, indent: int | None = 1) -> None:
    """Print JSON: NaN and infinity, which JSON lacks, are null; what has no form in JSON is text."""
    print(json.dumps(_finite(value), indent=indent, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): _finite(own) for name, own in value.items()}
    return [_finite(own) for own in value] if isinstance(value, list | tuple) else value


# control characters, except line ends and tabs; and those that turn the direction of text
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WHOLE = 16  # characters of a word that a column of a table never breaks; longer ones are names
KINDS = ("idiom", "plain", "new", "seen")  # groups of sentences that get a column


def wrapped(line: str, indent: int) -> str:
    """Return a line as it is for a file or a pipe, where tools read lines; for a terminal broken at its width, indented from the second
    line on."""
    if not sys.stdout.isatty():
        return line
    width = max(40, shutil.get_terminal_size().columns)
    indented = " " * indent
    return textwrap.fill(line, width, subsequent_indent=indented, break_long_words=False, break_on_hyphens=False)


def clean(text: object) -> str:
    """Return a text whose control characters are replaced, so that it cannot change the terminal, or how lines are read."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def one_line(text: str) -> str:
    """Return a text on one line, without control characters."""
    return clean(" ".join(text.splitlines()))


def print_rows(title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, or each as a list of its values where a terminal is too narrow for whole numbers; control
    characters are replaced, so that no value can change the terminal."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def shown(value: object) -> Text:
        return Text(clean("" if value is None else f"{value:.4g}" if isinstance(value, float) else value))

    console = Console(width=None if sys.stdout.isatty() else 10_000)  # in a file or a pipe a name is one word
    table = Table(title=shown(title) if title else None, title_justify="left")
    cells = [[shown(one).plain for one in (column, *(row[column] for row in rows))] for column in columns]
    words = [max((cell_len(word) for cell in own for word in cell.split()), default=0) for own in cells]
    lines = [max(cell_len(line) for cell in own for line in cell.split("\n")) for own in cells]
    room = console.width - 3 * len(columns) - 1
    if not rows or sum(widths := [min(one, WHOLE) for one in words]) <= room:
        for place in sorted(range(len(columns) * bool(rows)), key=lambda place: lines[place] - widths[place]):
            left = sum(line > width for line, width in zip(lines, widths, strict=True)) or 1
            widths[place] += max(0, min(lines[place] - widths[place], (room - sum(widths)) // left))
        for place, column in enumerate(columns):
            numeric = bool(rows) and isinstance(rows[0][column], int | float)
            width = widths[place] if rows else None
            table.add_column(shown(column), justify="right" if numeric else "left", overflow="fold", width=width)
        for row in rows:
            table.add_row(*(shown(row[column]) for column in columns))
    else:
        table.show_header = False
        table.add_column()
        table.add_column(overflow="fold")
        for row in rows:
            for column in columns:
                table.add_row(shown(column), shown(row[column]))
            table.add_section()
    console.print(table)


def _against(row: dict[str, Any]) -> str:
    """Return the difference from the baseline as text, with its interval, the corrected p and a warning about two seeds; of
    one seed nothing but the difference is known."""
    if not row["against"]:
        return ""
    test = row["against"]["differences"][row["metric"]]
    if test["p_holm"] is None:
        return f"{test['difference']:+.2f} (1 seed: no test)"
    p = "<.001" if test["p_holm"] < 0.001 else f"{test['p_holm']:.3f}".removeprefix("0")
    return f"{test['difference']:+.2f} [{test['low']:+.2f}, {test['high']:+.2f}] p {p}{_few(test['seeds'])}"


def _few(seeds: int) -> str:
    """Return what stands beside a number of too few seeds."""
    return "" if seeds > 2 else f" ({seeds} seed{'s' * (seeds > 1)})"


def print_table(result: dict[str, Any]) -> None:
    """Print a compared table: each row with its verdict, the reasons, times, and the commands that open its pages."""
    from phrasemodels.flows.experiments.published import with_names

    rows: list[dict[str, Any]] = []
    for row in result["rows"]:
        ours = row["intervals"][row["metric"]]
        half = "" if ours["half_width"] is None else f" ± {ours['half_width']:.2f}"
        intervals = {kind: row["intervals"].get(f"{row['metric']}/{kind}") for kind in KINDS}
        groups = {kind: f"{interval['mean']:.1f}" for kind, interval in intervals.items() if interval}
        rows.append(
            {
                "system": row["system"],
                "variant": row["variant"],
                "metric": row["metric"],
                "published": "–" if row["published"] is None else f"{row['published']:.2f}",
                "ours": f"{ours['mean']:.2f}{half}{_few(ours['n'])}",
                "gain over baseline": _against(row),
                **groups,
                "seeds": f"{len(row['seeds'])}, {len(lost)} diverged"
                if (lost := row.get("diverged"))
                else len(row["seeds"]),
                "verdict": row["verdict"],
            }
        )
    shown = [kind for kind in KINDS if any(kind in row for row in rows)]
    rows = [dict.fromkeys(shown, "") | row for row in rows]
    printed = any(row["published"] is not None for row in result["rows"])
    left_out = {*shown, *(() if printed else ("published", "verdict"))}
    print_rows(with_names(result["title"]), [name for name in rows[0] if name not in left_out] + shown, rows)
    from phrasemodels.flows.report.table import findings

    print("found: " + "\n       ".join(findings(result["rows"])))
    if printed:
        print(f"verdicts: {_verdicts(result['rows'])}")
    if result["leaks"]:
        print("seen in training: " + "; ".join(sorted(set(result["leaks"].values()))))
    stages = ", ".join(
        f"{name} {seconds:.0f} s"
        for name, seconds in sorted(result["stages"].items(), key=lambda item: -item[1])
        if seconds >= 0.5
    )
    print(
        f"time: {result['seconds']:.0f} s, without starting the services; stages, which overlap: {stages or 'everything was in the store'}"
    )
    print(f"report:  {result['report'] or 'not drawn'}")
    for line in (*_services(), *_next(result["rows"])):
        print(line)


def _services() -> tuple[str, str]:
    """Return how to open the pages of MLflow and Prefect: the address of a server of the settings, or a command that starts one."""
    from phrasemodels.infra.services import named_server
    from phrasemodels.infra.settings import Settings

    settings = Settings()
    mlflow, home = settings.tracking_uri, shlex.quote(str(settings.root / "prefect"))
    if not mlflow.startswith("http"):
        mlflow = f"DO_NOT_TRACK=true mlflow ui --backend-store-uri {shlex.quote(mlflow)} --host 127.0.0.1"
    silent = "PREFECT_SERVER_ANALYTICS_ENABLED=false"  # it would send telemetry
    prefect = f"PREFECT_HOME={home} {silent} prefect server start --host 127.0.0.1"
    if named := named_server(settings):
        prefect = named[0].rstrip("/").removesuffix("/api")
    return f"MLflow:  {mlflow}", f"Prefect: {prefect}"


def _verdicts(rows: list[dict[str, Any]]) -> str:
    """Return how many rows have each verdict, with the reasons of all of them."""
    from phrasemodels.flows.experiments.published import plain_reason
    from phrasemodels.flows.report.table import reasons

    counts = Counter(row["verdict"] for row in rows)
    return "; ".join(
        f"{n} {verdict} ({'; '.join(filter(None, map(plain_reason, reasons([row for row in rows if row['verdict'] == verdict]))))})"
        for verdict, n in counts.items()
    )


def _best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with the best mean of the first row's metric, the last one of equal rows or if none has a mean."""
    from phrasemodels.verdicts.scales import lower_is_better

    metric = rows[0].get("metric", "")
    sign = -1 if lower_is_better(metric) else 1
    means = [row.get("intervals", {}).get(metric, {}).get("mean") for row in rows]
    known = [(sign * mean, place) for place, mean in enumerate(means) if mean is not None and mean == mean]
    return rows[max(known)[1]] if known else rows[-1]


def _next(rows: list[dict[str, Any]]) -> list[str]:
    """Return what to do next: look at the models and the results of this paper, judge what needs no training, take real data."""
    from phrasemodels.flows.experiments.published import divided, papers

    best = _best(rows)
    row, _ = divided(best["experiment"])
    paper, table, profile, *_ = row.split("/", 3)
    last, seeds = shlex.quote(best["experiment"]), max(len(best["seeds"]) + 1, 3)
    if paper not in papers():
        printed = any(row["published"] is not None for row in rows)
        judged = (
            {f"phrasemodels verdicts --paper {paper}": "each number of printed.csv with its verdict"} if printed else {}
        )
        said = judged | {
            f"phrasemodels export {last} FOLDER": "this model for phrasemodels.load; README.md in FOLDER says how to use it",
            f"phrasemodels reproduce --paper {paper} --profile {profile} --seeds {seeds}": "more seeds: narrower intervals",
        }
    else:
        said = {
            f"phrasemodels verdicts --paper {paper}": "each number that this paper printed, with its verdict",
            "phrasemodels report": "one page over all five papers",
        }
    if row.startswith("000/table1/sample/"):
        attend = f'phrasemodels draw {last} --text "the woman took the box ." --to attention.html'
        larger = (
            f"phrasemodels reproduce --paper {paper} --table {table.removeprefix('table')} --profile laptop --seeds 3"
        )
        said = {attend: "where this model attends"} | said | {larger: "the same on real data; evenings, not minutes"}
    width = min(max(map(len, said)), 80)
    return ["next:", *(f"  {command:{width}}  # {why}" for command, why in said.items())]
