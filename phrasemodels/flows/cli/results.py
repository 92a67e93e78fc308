"""The commands about results: verdicts, report, sql, trace and judge."""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from phrasemodels.flows.cli.terminal import Force, Json, clean, opened, print_json, wrapped

app = typer.Typer()

LEGEND = """Each line: place, system, printed, ours ± half of the 95 % interval (seeds), verdict, reason.
All about one number: phrasemodels verdicts PAPER/TABLE/SYSTEM/VARIANT; parts of names do."""


@app.command()
def verdicts(
    number: Annotated[
        str, typer.Argument(help="Everything about one number, like 002/table3/transformer/geo; parts of names do.")
    ] = "",
    paper: Annotated[str, typer.Option(help="Only this paper, like 000.")] = "",
    verdict: Annotated[str, typer.Option(help="Only numbers with this verdict, like lower.")] = "",
    claims: Annotated[bool, typer.Option("--claims", help="Which of the papers' claims hold.")] = False,
    needs: Annotated[
        bool, typer.Option("--needs", help="What open numbers need, and how many each thing decides.")
    ] = False,
    keep_tests: Annotated[
        bool, typer.Option("--keep-tests", help="First compute the significance tests of kept results anew.")
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
    """Show which printed numbers and claims of the papers hold.

    Alone it prints the counts. With a filter it prints a line a number, with a number all that is known of it.
    Example: phrasemodels verdicts --paper 003 --verdict lower
    """
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.flows.experiments.published import VERDICTS
    from phrasemodels.flows.results.judged import judged

    if verdict and verdict not in VERDICTS:
        raise ValueError(f"no verdict {verdict!r}: {closest(verdict, VERDICTS)}")
    if count or corpora:
        _count(corpora, as_json)
        return
    if keep_tests:
        from phrasemodels.flows.results.records import own
        from phrasemodels.flows.results.results import keep_tests as keep

        for path in sorted(own().glob("*/result.json")):
            keep(path)
    if claims:
        found = judged(*opened(), paper, claims=True)
        print_json(found) if as_json else _print_claims(found)
        return
    rows = [
        row
        for row in judged(*opened(), paper or number.partition("/")[0])
        if verdict in ("", row["verdict"])
        and _is_named(row, number)
    ]
    if number and not rows:
        of = paper or number.partition("/")[0] or "000"
        raise ValueError(
            f"no printed number {number!r}: `phrasemodels verdicts --paper {of}` lists those of a paper"
        )
    rows = [row for row in rows if _is_named(row, number, whole=True)] or rows
    if as_json:
        print_json(rows)
    elif number and len(rows) == 1:
        _print_number(rows[0])
    elif needs:
        _print_needs(rows)
    elif paper or verdict or number:
        for row in rows:
            print(wrapped(clean(_line(row, sys.stdout.isatty())), 9))
        print(LEGEND, file=sys.stderr)
    else:
        print_verdict_counts(rows)


def _is_named(row: dict[str, Any], number: str, whole: bool = False) -> bool:
    """Return whether the parts of PAPER/TABLE/... are in the names of a row, without regard to case and spaces.

    whole: each part but the table is one of the names.
    """

    def bare(text: str) -> str:
        return "".join(text.split()).lower()

    names = [bare(row[name]) for name in ("table", "system", "variant", "dataset", "split", "metric")]
    return all(bare(part) in (names if whole else "".join(names)) for part in number.split("/")[1 + whole :])


def _print_claims(claims: list[dict[str, Any]]) -> None:
    """Print each claim with its answer, the numbers behind it, and what was found at a small size or on other data."""
    from phrasemodels.flows.results.claims import claim_lines

    for one in claims:
        for line in claim_lines(one):
            print(clean(line))
    counts = Counter(one["verdict"] for one in claims)
    print(
        f"{len(claims)} claim{'s' * (len(claims) != 1)}: {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common())}"
    )


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
    """Print the counts of verdicts by paper, and what they rest on."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.experiments.published import VERDICTS, paper_name
    from phrasemodels.flows.results.judged import headline, summary

    counts = summary(rows)
    if len(counts) > 1:
        counts["all"] = dict(Counter(row["verdict"] for row in rows))
    lines = [{"verdict": verdict} | {name: of.get(verdict, 0) for name, of in counts.items()} for verdict in VERDICTS]
    lines.append({"verdict": "all"} | {name: sum(of.values()) for name, of in counts.items()})
    print_rows(f"Verdicts on {len(rows)} printed numbers", ["verdict", *counts], lines)
    print(wrapped(clean(", ".join(paper_name(name) for name in counts if name != "all")), 0))
    for line in headline(rows):
        print(line)
    print("Each number: phrasemodels verdicts --paper 000. The claims: --claims. What open numbers need: --needs.")


def _print_needs(rows: list[dict[str, Any]]) -> None:
    """Print what numbers without a verdict need, with how many each thing decides, and the command."""
    from phrasemodels.flows.results.judged import commands, needed

    how = commands(rows)
    for what, n in needed(rows).items():
        print(wrapped(clean(f"{n:>4}  {what}"), 6))
        for command in how.get(what, []):
            print(clean(f"      {command}"))


def _line(row: dict[str, Any], short: bool) -> str:
    """Return a number: place, system, printed, ours ± interval (seeds), verdict, reason. short: long names are cut."""
    from phrasemodels.flows.experiments.published import short_reason, shown

    place = row["table"].replace("Table ", "T").replace("Slide: ", "")
    what = " ".join(part for part in (row["system"], row["variant"], row["dataset"], row["metric"]) if part)
    paper = row["paper"]
    if short:
        paper, place, what = paper[:8], place[:9], what if len(what) <= 32 else f"{what[:15]}…{what[-16:]}"
    return (
        f"{paper} {place:<9} {what:<32} {row['printed']:>6} {shown(row):<18} {row['verdict']:<14} {short_reason(row)}"
    ).rstrip()


def _print_number(row: dict[str, Any]) -> None:
    """Print all that is known of one number, a sentence a line."""
    from phrasemodels.flows.experiments.published import plain_reason, reading_lines, shown

    print(
        clean(
            " / ".join(
                filter(None, (row[n] for n in ("paper", "table", "system", "variant", "dataset", "split", "metric")))
            )
        )
    )
    print(clean(f"printed {row['printed']}; ours {shown(row) or 'not run'}; {row['verdict']}"))
    for n, part in enumerate(re.split(r"; (?![^()]*\))", plain_reason(row["reason"]))):
        print(wrapped(clean(f"{'  ' if n else 'reason: '}{part}"), 2))
    for line in reading_lines(row):
        print(wrapped(clean(f"reading {line}"), 2))
    for name in ("needs", "command", "notes", "experiment", "source"):
        if row[name]:
            print(wrapped(clean(f"{name}: {row[name]}"), 2))
    for run in row["runs"]:
        commits = ", ".join(commit[:12] for commit in run.get("commit", "").split("; "))
        known = {"commit": commits, "training": run["train"], "run": run["run"]}
        print(wrapped(clean(f"seed {run['seed']}: " + ", ".join(f"{k} {v}" for k, v in known.items() if v)), 2))


@app.command()
def report() -> None:
    """Write one page over all papers.

    It has the verdicts in the papers' own layout, and kept results.
    """
    from phrasemodels.flows.report.page import write_overview

    store, tracker = opened()
    print(write_overview(store.open(), tracker))


@app.command()
def sql(
    question: Annotated[
        str,
        typer.Argument(help="A query of DuckDB; `show tables` lists the views."),
    ] = "",
    to: Annotated[Path | None, typer.Option(help="Write the answer to this file: .parquet or .csv.")] = None,
    database: Annotated[
        Path | None, typer.Option(help="Write all views to this file, which any DuckDB opens.", metavar="FILE.duckdb")
    ] = None,
    shards: Annotated[
        str, typer.Option(help="Write the records of the store as Parquet to this folder or URL.", metavar="FOLDER")
    ] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Ask the results with SQL.

    `show tables` lists the views, `describe verdicts` the columns of one. Join views of single runs by `using
    (run_id)`, views over seeds by `using (experiment, metric, origin)`.

    Example: phrasemodels sql --database results.duckdb

    Example: phrasemodels sql "select system, ours, half_width, verdict from verdicts where ours is not null"
    """
    import pyarrow as pa
    from pyarrow import csv

    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.data.formats.shards import with_text_for_lists, write_parquet
    from phrasemodels.data.store.artifacts import atomic_replace
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.sql import Answers, arrow_of, query, write_database, write_shards
    from phrasemodels.folders import check_replaceable

    if to is not None and to.suffix not in (".parquet", ".csv"):
        raise ValueError(f"{to}: answers are written as Parquet or CSV; name a file that ends with .parquet or .csv")
    if to is not None:
        check_replaceable(to, force)
    if database is not None:
        check_replaceable(database, force)
        print(write_database(*opened(), database))
    if shards:
        print(write_shards(opened()[0], shards, force))
    if (database or shards) and not question:
        return
    store, tracker = opened()
    table: pa.Table | None = None
    if to is None:
        columns, rows = query(store, tracker, question)
    else:
        with Answers(store, tracker) as answers:
            table = answers.answer(question, arrow_of)
        columns, rows = [], table.to_batches()
    if not rows and not store.present():
        where = store.root if store.shared is None else store.shared.url
        print(f"nothing has been run in {where}; kept results are in verdicts, seeds and published", file=sys.stderr)
    elif not rows and not tracker.listed():
        print("runs are of `reproduce`; those of `train` are in metrics, seeds and experiments", file=sys.stderr)
    if to is not None and table is not None:
        try:
            if to.suffix == ".parquet":
                write_parquet(to, table)
            else:
                with atomic_replace(to) as path:
                    csv.write_csv(with_text_for_lists(table), path)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise ValueError(f"{to}: no such type: {str(error).splitlines()[0]}; cast the column to text") from error
        print(to)
        return
    answer = [dict(zip(columns, row, strict=True)) for row in rows]
    if as_json:
        print_json(answer)
    else:
        print_rows("", columns, answer)


What = Annotated[
    str,
    typer.Argument(
        help="A store key (its first six digits are enough), a label, a run of MLflow, or a kept row: results/NAME/ROW."
    ),
]


@app.command()
def trace(
    what: What,
    against: Annotated[
        str, typer.Option(help="Another result: list the differences of both in place of the inputs.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the inputs of a result, and everything made from it.

    The inputs go down to the digests of archives. You can also give a file's sha256.

    With --against: the differences of two results, in settings, inputs, libraries, source and values.

    Example: phrasemodels trace "000/table1/sample/phrase-k2 seed 0"
    """
    from phrasemodels.flows.results.lineage import Lineage, described, kept_row, parts_of
    from phrasemodels.flows.results.lineage import as_json as plain

    kept = kept_row(what)
    if kept and not against:
        _print_differences(("", what), ({}, kept), as_json)
        return
    store, tracker = opened()
    lineage = Lineage(store)
    if against:
        parts = [kept_row(one) or parts_of(lineage.find(one, tracker.keys())) for one in (what, against)]
        _print_differences((what, against), parts, as_json)
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


def _print_differences(names: Sequence[str], parts: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print the differences of two results. The column of one without a name is left out."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.lineage import difference

    rows = difference(*parts)
    if as_json:
        print_json([dict(zip(("name", "one", "other"), row, strict=True)) for row in rows])
        return
    columns = ["setting", *filter(None, names)]
    shown = [dict(zip(("setting", *names), row, strict=True)) for row in rows]
    print_rows("", columns, shown) if rows else print("nothing")


@app.command()
def judge(
    printed: Annotated[
        Path,
        typer.Argument(
            help="Printed numbers: a table as it stands in the paper (CSV, Excel, Markdown, LaTeX), or with one number a line."
        ),
    ],
    results: Annotated[
        list[str],
        typer.Argument(
            help="Your results: files or folders of tables, JSON, lm-evaluation-harness, inspect_ai or W&B; a folder or URI of MLflow."
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric that the table doesn't name, or COLUMN=METRIC; a/b of cells with two numbers. Repeatable."
        ),
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="METRIC=percent, share, positive or count. Repeatable.")
    ] = None,
    better: Annotated[
        list[str] | None, typer.Option(help="METRIC=lower or higher, where its name doesn't say it. Repeatable.")
    ] = None,
    gain: Annotated[
        list[str] | None, typer.Option(help="SYSTEM:BASELINE: judge the claim that the system is better. Repeatable.")
    ] = None,
    paper: Annotated[str, typer.Option(help="The paper, if no column names it. Default: the file's name.")] = "",
    table: Annotated[str, typer.Option(help="The table, if no column names it.")] = "",
    dataset: Annotated[str, typer.Option(help="The data set, if no column names it.")] = "",
    system: Annotated[str, typer.Option(help="The system, if no column or file name names it.")] = "",
    same: Annotated[
        list[str] | None,
        typer.Option(
            help="If the command asks, what your results share for certain: a word of a caption, an average, a field of runs. Repeatable."
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Show how the files are read, and stop.")] = False,
    page: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("judged.html"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Judge the printed numbers of any paper by your own results.

    You get a verdict on each number, tests, and one HTML page.

    Example: phrasemodels judge table.md results/ --gain Ours:Baseline
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.report.judgement import is_page, write_judgement
    from phrasemodels.flows.results.exchange import read_both
    from phrasemodels.folders import check_replaceable
    from phrasemodels.verdicts.judgement import how_read, judge_gains, judge_table, plain, unmatched, unused
    from phrasemodels.verdicts.tables import Names

    if page.suffix != ".html":
        raise ValueError(f"--page {page}: a page is HTML; name a file that ends with .html")
    if not check:
        check_replaceable(page, force or is_page(page))
    columns = dict(_pair(one, "=", "--metric") for one in metric or () if "=" in one)
    alone = next((one for one in metric or () if "=" not in one), "")
    names = Names(paper, table, system, dataset, alone, columns=columns, same=frozenset(same or ()))
    scales = dict(_pair(one, "=", "--scale") for one in scale or ())
    both = read_both(printed, results, names, scales, dict(_pair(one, "=", "--better") for one in better or ()))
    claims = [_pair(one, ":", "--gain") for one in gain or ()]
    read, apart = how_read(both.printed, both.scores), unmatched(both.printed, both.scores)
    said: dict[str, Any] = {"read": [asdict(one) for one in read], "unread": both.unread, "unmatched": apart}
    if not as_json:
        _print_read(read, [*both.unread, *apart])
    if check:
        _print_check(both, claims, said if as_json else None)
        return
    judged = judge_table(both.printed, both.scores)
    gains = judge_gains(both.printed, both.scores, claims)
    write_judgement(judged, unused(both.printed, both.scores), page, gains, read, both.unread)
    rows = [plain(one) for one in judged]
    if as_json:
        print_json(said | {"numbers": rows, "gains": [asdict(one) for one in gains]})
    else:
        _print_judged(rows, gains)
        print(page)


def _pair(text: str, divider: str, option: str) -> tuple[str, str]:
    """Return both parts of an option. ValueError: it has no divider."""
    first, found, second = text.rpartition(divider)
    if not found or not first.strip() or not second.strip():
        raise ValueError(f"{option} {text!r}: two names with {divider!r} between them")
    return first.strip(), second.strip()


def _print_read(read: Sequence[Any], unread: Sequence[str]) -> None:
    """Print how the files were read: a line for each metric, then what wasn't read."""
    from phrasemodels.flows.cli.terminal import clean, print_rows

    rows = [
        {
            "table": one.table,
            "metric": one.metric,
            "scale": one.scale,
            "systems": _few(one.systems),
            "data sets": _few(one.datasets),
            "printed": one.printed,
            "ours": one.answered,
            "seeds": _span(one.seeds),
            "ours times": "" if one.factor == 1 else f"{one.factor:g}",
        }
        for one in read
    ]
    shown = [name for name in rows[0] if any(row[name] != "" for row in rows)]
    print_rows("How the files are read", shown, rows)
    files: dict[str, list[str]] = {}  # by what is said of them
    for line in (*(one.problem for one in read if one.problem), *unread):
        first, divider, rest = line.partition(": ")
        files.setdefault(divider + rest or first, []).append(first)
    for said, of in files.items():
        print(clean(f"  {of[0]}{f' and {len(of) - 1} more' * (len(of) > 1)}{said * said.startswith(': ')}"))


def _print_check(both: Any, claims: Sequence[tuple[str, str]], said: dict[str, Any] | None) -> None:
    """Print which printed systems have results, and which claims name none. said: all else for JSON; None: as a table."""
    from phrasemodels.flows.cli.terminal import clean, print_rows
    from phrasemodels.verdicts.judgement import matched, unclaimed

    found, lines = matched(both.printed, both.scores), unclaimed(both.printed, claims)
    if said is not None:
        print_json(said | {"systems": [asdict(one) for one in found], "gains": lines})
        return
    rows = [
        {
            "system": one.system,
            "printed": one.printed,
            "with results": one.answered,
            "seeds": _span(one.seeds),
            "name of ours": _few(one.ours) or "–",
            "why not": "; ".join(one.why[:3]) + (f"; and {len(one.why) - 3} reasons more" if len(one.why) > 3 else ""),
        }
        for one in found
    ]
    print_rows("Which printed systems have results", [*rows[0]], rows)
    for line in lines:
        print(clean(f"  {line}"))


def _span(counts: Sequence[int]) -> str:
    """Return the least and the largest of sorted numbers."""
    return " to ".join(map(str, dict.fromkeys((*counts[:1], *counts[-1:])))) or "–"


def _few(names: Sequence[str]) -> str:
    """Return up to three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _print_judged(rows: list[dict[str, Any]], gains: Sequence[Any]) -> None:
    """Print verdicts with their reasons, and the answers to claims."""
    from phrasemodels.flows.cli.terminal import clean, print_rows

    columns = ["row", "dataset", "metric", "printed", "ours", "seeds", "minus baseline", "verdict"]
    print_rows("", columns, list(map(_judged_line, rows)))
    for reason in dict.fromkeys(row["reason"] for row in rows):
        of = dict.fromkeys(_name_of(row, rows) for row in rows if row["reason"] == reason)
        print(clean(f"  {'; '.join(of)}: {reason}"))
    for one in gains:
        where = ", ".join(filter(None, (one.dataset, one.metric)))
        print(clean(f"  {one.system} better than {one.baseline} ({where}): {one.answer.verdict}; {one.answer.reason}"))


def _name_of(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return the name of a judged number: its row, and of table, data set and metric what the rows differ in."""
    differing = [name for name in ("table", "dataset", "metric") if len({one[name] for one in rows}) > 1]
    return ", ".join(str(row[name]) for name in ("row", *differing))


def _judged_line(row: dict[str, Any]) -> dict[str, Any]:
    """Return a judged number as it is printed."""
    from phrasemodels.flows.report import digits_of

    ours, test, shown = row["ours"], row["test"], digits_of(row["value"])
    half = "" if not ours or ours["half_width"] is None else f" ± {ours['half_width']:.{shown}f}"
    mean = "–" if not ours else "not finite" if ours["mean"] is None else f"{ours['mean']:.{shown}f}{half}"
    p = "" if not test or test["p_holm"] is None else f", p {test['p_holm']:.3f}".replace("p 0.000", "p < 0.001")
    return {
        **{name: row[name] for name in ("row", "dataset", "metric", "verdict")},
        "printed": row["value"] or "–",
        "ours": mean,
        "seeds": ours["n"] if ours else 0,
        "minus baseline": f"{test['difference']:+.3g}{p}" if test and "difference" in test else "",
    }
