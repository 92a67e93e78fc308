"""The commands that print a verdict on every printed number, and that count those which need no training."""

import json
from typing import Annotated, Any

import typer

from phrasemodels.flows.cli.opened import opened
from phrasemodels.flows.cli.options import Json
from phrasemodels.flows.cli.terminal import clean

app = typer.Typer()


@app.command()
def verdicts(
    paper: Annotated[str, typer.Option(help="Only this paper, like 000.")] = "",
    verdict: Annotated[str, typer.Option(help="Only numbers with this verdict, like lower.")] = "",
    keep_tests: Annotated[
        bool, typer.Option("--keep-tests", help="First write the tests of kept results beside them, in results/.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a verdict on every number that the papers printed, one line each: the printed number, ours, the verdict, its reason and
    the runs behind it. `phrasemodels sql "select * from verdicts"` asks for anything else.

    Example: phrasemodels verdicts --paper 003 --verdict lower
    """
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.flows.results.glance import VERDICTS
    from phrasemodels.flows.results.judged import judged

    if verdict and verdict not in VERDICTS:
        raise ValueError(f"no verdict {verdict!r}: {closest(verdict, VERDICTS)}")

    if keep_tests:
        _keep_tests()
    rows = [row for row in judged(*opened(), paper) if verdict in ("", row["verdict"])]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(clean(_line(row)))
    print_glance(rows)


def _keep_tests() -> None:
    from phrasemodels.flows.results.folder import own
    from phrasemodels.flows.results.results import keep_tests

    for path in sorted(own().glob("*/result.json")):
        keep_tests(path)


@app.command()
def count(
    corpora: Annotated[bool, typer.Option("--corpora", help="Count corpora, too, which are fetched.")] = False,
    as_json: Json = False,
) -> None:
    """Judge the printed numbers that need no training: parameters of models that are only built; sizes, words and phrases
    of corpora. Then show how many of all printed numbers have which verdict.

    Example: phrasemodels count --corpora
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.judged import judged
    from phrasemodels.flows.run.count import count as tables
    from phrasemodels.infra.settings import Settings

    made = list(tables(Settings(), corpora))
    if as_json:
        print(
            json.dumps([{"title": title, "rows": rows, "missing": missing} for title, rows, missing in made], indent=1)
        )
        return
    for title, rows, missing in made:
        if missing:
            print(f"{title}: not counted: {missing}")
        else:
            print_rows(title, list(_counted(rows[0])), [_counted(row) for row in rows])
    print_glance(judged(*opened()))


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a counted table, as it is printed."""
    value = f"{round(row['values'][row['metric']][0], 4):.10g}"
    named = {"system": f"{row['system']} {row['variant']}".strip(), "metric": row["metric"]}
    return {**named, "printed": row["printed"] or "–", "ours": value, "verdict": row["verdict"]}


def print_glance(rows: list[dict[str, Any]]) -> None:
    """Print how many numbers have each verdict, by paper, and with which reasons."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.glance import VERDICTS, needed, reasons, summary

    counts = summary(rows)
    lines: list[dict[str, Any]] = [
        {"paper": name, **{v: of.get(v, 0) for v in VERDICTS}, "all": sum(of.values())} for name, of in counts.items()
    ]
    if len(lines) > 1:
        total = {name: sum(line[name] for line in lines) for name in (*VERDICTS, "all")}
        lines.append({"paper": "all", **total})
    print_rows(f"Verdicts on {len(rows)} printed numbers", ["paper", *VERDICTS, "all"], lines)
    for verdict, found in reasons(rows).items():
        print(f"{verdict}, {sum(found.values())}:")
        _print_counts(found)
    if open_ones := needed(rows):
        print(f"to judge {sum(open_ones.values())} of them takes:")
        _print_counts(open_ones)


def _print_counts(counts: dict[str, int]) -> None:
    for what, n in counts.items():
        print(f"  {n:>4}  {what}")


def _line(row: dict[str, Any]) -> str:
    ours = "" if row["ours"] is None else f"{row['ours']:.2f}"
    half = "" if row["half_width"] is None else f" ± {row['half_width']:.2f}"
    what = " ".join(part for part in (row["system"], row["variant"], row["dataset"], row["metric"]) if part)
    runs = " ".join(f"seed {run['seed']}: {run['run'] or run['train']}" for run in row["runs"] if run["train"])
    where = f"  [{row['source']}{'; ' + runs if runs else ''}]" if row["source"] else ""
    numbers = f"{row['printed']:>9} {ours + half:>14}"
    return f"{row['paper']} {row['table']:<14} {numbers}  {row['verdict']:<14} {what}: {row['reason']}{where}"
