"""The command that judges the printed numbers of any paper by results of one's own: judge."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from phrasemodels.flows.cli.options import Json

app = typer.Typer()


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
            help="Files or folders of ours: CSV or Parquet of seed, item, score; samples_*.jsonl of lm-evaluation-harness; JSON "
            "logs of inspect_ai; a folder or URI of MLflow."
        ),
    ],
    page: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("judged.html"),
    as_json: Json = False,
) -> None:
    """Judge the printed numbers of any paper by results of your own: verdicts, tests, plots, one HTML page.

    Example: phrasemodels judge printed.csv results/
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.cli.terminal import clean, print_rows
    from phrasemodels.flows.report.judgement import write_judgement
    from phrasemodels.flows.results.foreign import read_scores
    from phrasemodels.verdicts.paper import read_printed
    from phrasemodels.verdicts.table import judge_table, plain, unused

    if page.suffix != ".html":
        raise ValueError(f"--page {page}: a page is HTML; name a file that ends with .html")
    numbers, scores = read_printed(printed), read_scores(results)
    judged = judge_table(numbers, scores)
    write_judgement(judged, unused(numbers, scores), page)
    rows = [plain(one) for one in judged]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print_rows(
        "", ["row", "dataset", "metric", "printed", "ours", "seeds", "− baseline", "verdict"], list(map(_line, rows))
    )
    for reason in dict.fromkeys(row["reason"] for row in rows):
        of = dict.fromkeys(str(row["row"]) for row in rows if row["reason"] == reason)
        print(clean(f"  {', '.join(of)}: {reason}"))
    print(page)


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """Return a judged number as it is printed."""
    from phrasemodels.flows.report.templates import digits_of

    ours, test, shown = row["ours"], row["test"], digits_of(row["value"])
    half = "" if not ours or ours["half_width"] is None else f" ± {ours['half_width']:.{shown}f}"
    p = "" if not test or test["p_holm"] is None else f", p {test['p_holm']:.3f}".replace("p 0.000", "p < 0.001")
    return {
        **{name: row[name] for name in ("row", "dataset", "metric", "verdict")},
        "printed": row["value"] or "–",
        "ours": f"{ours['mean']:.{shown}f}{half}" if ours else "–",
        "seeds": ours["n"] if ours else 0,
        "− baseline": f"{test['difference']:+.3g}{p}" if test and "difference" in test else "",
    }
