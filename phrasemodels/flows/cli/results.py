"""The commands about results: verdicts, report, sql, trace and judge."""

import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from phrasemodels.flows.cli.terminal import Force, Json, clean, opened, print_json, wrapped

app = typer.Typer()


@app.command()
def verdicts(
    paper: Annotated[str, typer.Option(help="Only this paper, like 000.")] = "",
    verdict: Annotated[str, typer.Option(help="Only numbers with this verdict, like lower.")] = "",
    keep_tests: Annotated[
        bool,
        typer.Option(
            "--keep-tests",
            help="First compute the significance tests of kept results anew, and write them to results/.",
        ),
    ] = False,
    count: Annotated[
        bool,
        typer.Option(
            "--count", help="Only count what needs no training, and judge it: parameters of models, one line a table."
        ),
    ] = False,
    corpora: Annotated[
        bool, typer.Option("--corpora", help="With --count: count corpora, too, which are fetched.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a verdict on every number that the papers printed, one line each: the printed number, ours, the verdict, its reason and
    the runs behind it. `phrasemodels sql "select * from verdicts"` asks for anything else.

    Example: phrasemodels verdicts --paper 003 --verdict lower
    """
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.flows.experiments.published import VERDICTS, paper_name
    from phrasemodels.flows.results.judged import judged

    if verdict and verdict not in VERDICTS:
        raise ValueError(f"no verdict {verdict!r}: {closest(verdict, VERDICTS)}")

    if count or corpora:
        _count(corpora, as_json)
        return
    if keep_tests:
        _keep_tests()
    rows = [row for row in judged(*opened(), paper) if verdict in ("", row["verdict"])]
    if as_json:
        print_json(rows)
        return
    for number, own in groupby(rows, lambda row: row["paper"]):
        print(clean(f"{paper_name(number)}: where it stands, printed, ours, verdict, system: reason  [runs]"))
        for row in own:
            print(wrapped(clean(_line(row)), 8))
    print_verdict_counts(rows)


def _keep_tests() -> None:
    from phrasemodels.flows.results.records import own
    from phrasemodels.flows.results.results import keep_tests

    for path in sorted(own().glob("*/result.json")):
        keep_tests(path)


def _count(corpora: bool, as_json: bool) -> None:
    """Judge the printed numbers that need no training: parameters of models, and, if asked, sizes of corpora."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.experiments.published import with_names
    from phrasemodels.flows.results.judged import judged
    from phrasemodels.flows.run.reproduce import count
    from phrasemodels.infra.settings import Settings

    made = list(count(Settings(), corpora))
    if as_json:
        print_json([{"title": title, "rows": rows, "missing": missing} for title, rows, missing in made])
        return
    for title, rows, missing in made:
        if missing:
            print(f"{with_names(title)}: not counted: {missing}")
        else:
            print(f"{with_names(title.partition(', profile')[0])}: {_in_brief(rows)}")
    found = judged(*opened())
    print(f"all {len(found)} printed numbers: {_in_brief(found)}; phrasemodels verdicts prints each with its reason")


def _in_brief(rows: list[dict[str, Any]]) -> str:
    """Return how many numbers have each verdict, in one line; rows without a printed number are left out."""
    from phrasemodels.flows.experiments.published import VERDICTS

    counts = Counter(row["verdict"] for row in rows if row["printed"])
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def print_verdict_counts(rows: list[dict[str, Any]]) -> None:
    """Print the counts of verdicts by paper, and of reasons by verdict."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.experiments.published import JUDGED, VERDICTS, paper_name
    from phrasemodels.flows.results.judged import headline, needed, reasons, summary

    counts = summary(rows)
    lines: list[dict[str, Any]] = [
        {"paper": paper_name(name), **{v: of.get(v, 0) for v in VERDICTS}, "all": sum(of.values())}
        for name, of in counts.items()
    ]
    if len(lines) > 1:
        total = {name: sum(line[name] for line in lines) for name in (*VERDICTS, "all")}
        lines.append({"paper": "all", **total})
    print_rows(f"Verdicts on {len(rows)} printed numbers", ["paper", *VERDICTS, "all"], lines)
    for line in headline(rows):
        print(line)
    for verdict, found in reasons(rows).items():
        if verdict in JUDGED:  # which the lines above say
            continue
        print(f"{verdict}, {sum(found.values())}:")
        _print_counts(found)
    if open_ones := needed(rows):
        print(f"to judge {sum(open_ones.values())} of them takes:")
        _print_counts(open_ones)


def _print_counts(counts: dict[str, int]) -> None:
    from phrasemodels.flows.experiments.names import plain_reason

    for what, n in counts.items():
        print(f"  {n:>4}  {plain_reason(what)}")


def _line(row: dict[str, Any]) -> str:
    from phrasemodels.flows.experiments.names import plain_reason

    ours = "" if row["ours"] is None else f"{row['ours']:.2f}"
    half = "" if row["half_width"] is None else f" ± {row['half_width']:.2f}"
    what = " ".join(part for part in (row["system"], row["variant"], row["dataset"], row["metric"]) if part)
    runs = " ".join(f"seed {run['seed']}: {run['run'] or run['train']}" for run in row["runs"] if run["train"])
    where = f"  [{row['source']}{'; ' + runs if runs else ''}]" if row["source"] else ""
    numbers = f"{row['printed']:>9} {ours + half:>14}"
    takes = f". It takes: {row['needs']}" if row["needs"] else ""
    return f"{row['paper']} {row['table']:<14} {numbers}  {row['verdict']:<14} {what}: {plain_reason(row['reason'])}{takes}{where}"


@app.command()
def report() -> None:
    """Write one page over all papers: verdicts in the papers' own layout, systems across papers, kept results."""
    from phrasemodels.flows.report.page import write_overview

    store, tracker = opened()
    print(write_overview(store.open(), tracker))


@app.command()
def sql(
    question: Annotated[
        str,
        typer.Argument(help="A query of DuckDB; `show tables` lists the views."),
    ] = "",
    to: Annotated[Path | None, typer.Option(help="Write the answer to this Parquet file.")] = None,
    database: Annotated[
        Path | None, typer.Option(help="Write all views to this file, which any DuckDB opens.", metavar="FILE.duckdb")
    ] = None,
    shards: Annotated[
        str, typer.Option(help="Write the records of the store as Parquet to this folder or URL.", metavar="FOLDER")
    ] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Query runs, metrics, predictions, shards and verdicts with SQL. `show tables` lists the views, `describe verdicts` the
    columns of one. Join views of single runs by `using (run_id)`, views over seeds by `using (experiment, metric, origin)`.

    Examples: phrasemodels sql --database results.duckdb
    phrasemodels sql "select system, ours, half_width, verdict from verdicts where ours is not null order by ours desc"
    """
    import pyarrow as pa

    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.data.formats.shards import write_parquet
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.query import answered, arrow_of, query, write_database, write_shards
    from phrasemodels.written import check_replaceable, writing

    if to is not None and to.suffix != ".parquet":
        raise ValueError(f"{to}: answers are written as Parquet; name a file that ends with .parquet")
    if to is not None:
        check_replaceable(to, force)
    if database is not None:
        with writing(database, force=force):
            print(write_database(*opened(), database))
    if shards:
        print(write_shards(opened()[0], shards, force))
    if (database or shards) and not question:
        return
    store, tracker = opened()
    table = None if to is None else answered(store, tracker, question, arrow_of)
    columns, rows = query(store, tracker, question) if table is None else ([], table.to_batches())
    if not rows and not store.present():
        where = store.root if store.shared is None else store.shared.url
        print(f"nothing has been run in {where}; kept results are in verdicts, seeds and published", file=sys.stderr)
    elif not rows and not tracker.runs():
        print(
            "runs and metrics are of `reproduce`; what `train` made is in seeds, costs and predictions", file=sys.stderr
        )
    if to is not None and table is not None:
        try:
            with writing(to, force=force):
                write_parquet(to, table)
        except pa.ArrowNotImplementedError as error:
            raise ValueError(f"Parquet has no such type: {str(error).splitlines()[0]}; cast the column") from error
        print(to)
        return
    answer = [dict(zip(columns, row, strict=True)) for row in rows]
    if as_json:
        print_json(answer)
    else:
        print_rows("", columns, answer)


What = Annotated[
    str, typer.Argument(help="A store key (its first six digits are enough), a label, or a run of MLflow.")
]


@app.command()
def trace(
    what: What,
    against: Annotated[
        str, typer.Option(help="Another result: list the differences of both in place of the inputs.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the inputs of a result, down to the digests of archives, and everything made from it. Also takes a file's sha256.

    With --against: the differences of two results, in settings, inputs, libraries, source and values.

    Example: phrasemodels trace "000/table1/sample/phrase-k2 seed 0"
    """
    from phrasemodels.flows.results.lineage import Lineage, described
    from phrasemodels.flows.results.lineage import as_json as plain

    store, tracker = opened()
    lineage = Lineage(store)
    if against:
        first, second = (lineage.find(one, tracker.keys()) for one in (what, against))
        _print_differences(first, second, as_json)
        return
    holding = lineage.holding(what)
    artifact = holding[0] if holding else lineage.find(what, tracker.keys())
    back, forward = list(lineage.back(artifact)), lineage.forward(artifact)
    if as_json:
        steps = [{"depth": depth, "role": role, **plain(origin)} for depth, role, origin, again in back if not again]
        print_json({"back": steps, "forward": [plain(result) for result in forward]})
        return
    for depth, role, origin, again in back:
        name = f"{role}: " if role else ""
        text = f"{origin.manifest['label']}  (above)" if again else described(origin)  # type: ignore[union-attr]
        print(clean("  " * depth + name + text))
    print(f"\nmade from it: {len(forward) or 'nothing'}")
    for result in forward:
        print(clean("  " + described(result)))


def _print_differences(one: Any, other: Any, as_json: bool) -> None:
    """Print the differences of two artifacts."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.lineage import difference

    rows = [{"": name, "one": mine, "other": theirs} for name, mine, theirs in difference(one, other)]
    if as_json:
        print_json([dict(zip(("name", "one", "other"), row.values(), strict=True)) for row in rows])
    elif rows:
        print_rows(f"{one.manifest['label']} | {other.manifest['label']}", ["", "one", "other"], rows)
    else:
        print("nothing")


@app.command()
def judge(
    printed: Annotated[
        Path,
        typer.Argument(
            help="CSV of printed numbers: paper, table, row, dataset, metric, value; optionally n, runs, arithmetic, baseline, "
            "our_row, our_dataset, our_metric, not_comparable."
        ),
    ],
    results: Annotated[
        list[str],
        typer.Argument(
            help="Files or folders of your results: CSV or Parquet of row, dataset, metric, seed, score and optionally item, or with a "
            "column for each metric; samples_*.jsonl of lm-evaluation-harness; JSON logs of inspect_ai; a folder or URI of MLflow."
        ),
    ],
    page: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("judged.html"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Judge the printed numbers of any paper by results of your own: verdicts, tests, plots, one HTML page.

    Example: phrasemodels judge printed.csv results/
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.cli.terminal import clean, print_rows
    from phrasemodels.flows.report.judgement import write_judgement
    from phrasemodels.flows.results.exchange import read_scores
    from phrasemodels.verdicts.judgement import judge_table, plain, unused
    from phrasemodels.verdicts.printed import read_printed
    from phrasemodels.written import check_replaceable, writing

    if page.suffix != ".html":
        raise ValueError(f"--page {page}: a page is HTML; name a file that ends with .html")
    check_replaceable(page, force)
    numbers = read_printed(printed)
    scores = read_scores(results, {one.our_metric or one.metric for one in numbers})
    judged = judge_table(numbers, scores)
    with writing(page, force=force):
        write_judgement(judged, unused(numbers, scores), page)
    rows = [plain(one) for one in judged]
    if as_json:
        print_json(rows)
        return
    print_rows(
        "",
        ["row", "dataset", "metric", "printed", "ours", "seeds", "gain over baseline", "verdict"],
        list(map(_judged_line, rows)),
    )
    for reason in dict.fromkeys(row["reason"] for row in rows):
        of = dict.fromkeys(_name_of(row, rows) for row in rows if row["reason"] == reason)
        print(clean(f"  {'; '.join(of)}: {reason}"))
    print(page)


def _name_of(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return the name of a judged number: its row, and of table, data set and metric what the rows differ in."""
    differing = [name for name in ("table", "dataset", "metric") if len({one[name] for one in rows}) > 1]
    return ", ".join(str(row[name]) for name in ("row", *differing))


def _judged_line(row: dict[str, Any]) -> dict[str, Any]:
    """Return a judged number as it is printed."""
    from phrasemodels.flows.report.templates import digits_of

    ours, test, shown = row["ours"], row["test"], digits_of(row["value"])
    half = "" if not ours or ours["half_width"] is None else f" ± {ours['half_width']:.{shown}f}"
    mean = "–" if not ours else "not finite" if ours["mean"] is None else f"{ours['mean']:.{shown}f}{half}"
    p = "" if not test or test["p_holm"] is None else f", p {test['p_holm']:.3f}".replace("p 0.000", "p < 0.001")
    return {
        **{name: row[name] for name in ("row", "dataset", "metric", "verdict")},
        "printed": row["value"] or "–",
        "ours": mean,
        "seeds": ours["n"] if ours else 0,
        "gain over baseline": f"{test['difference']:+.3g}{p}" if test and "difference" in test else "",
    }
