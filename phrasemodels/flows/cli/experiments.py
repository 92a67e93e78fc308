"""The commands about experiments: list them with their papers, and compare their settings with the papers'."""

from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

import typer

from phrasemodels.flows.cli.terminal import Json, clean, print_json

app = typer.Typer()


@app.command()
def experiments(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Only rows that hold these, like `phrase-k2` or ATIS."),
    ] = None,
    paper: Annotated[str, typer.Option(help="Only this paper, like 000.")] = "",
    table: Annotated[str, typer.Option(help="Only this table, as `reproduce --table` takes it.")] = "",
    profile: Annotated[str, typer.Option(help="Only this size: sample, laptop or paper.")] = "",
    bibtex: Annotated[bool, typer.Option("--bibtex", help="Print entries of the papers for a bibliography.")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show each setting of one experiment for `--set`.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the tables of the papers, or the experiments of one.

    With a word or an option it lists experiments, with the printed number that each answers.

    Examples: phrasemodels experiments; phrasemodels experiments --paper 002 --profile laptop; phrasemodels experiments ATIS;
    phrasemodels experiments 000/table1/sample/phrase-k2 --settings
    """
    from phrasemodels.flows.cli.terminal import print_rows

    if bibtex:
        _print_bibtex(paper)
        return
    if settings:
        _print_settings(words or [], as_json)
        return
    rows = chosen(listed(), words or [], {"paper": paper, "number": table, "profile": profile})
    if as_json:
        print_json([{name: row[name] for name in row if name not in HIDDEN} for row in rows])
    elif words or paper or table or profile:
        print_rows("Experiments", ["experiment", "system", "variant", "metric", "published"], rows)
    else:
        from phrasemodels.flows.experiments.published import papers

        for paper, own in groupby(tables(rows), lambda row: row["paper"]):
            print(clean(f"--paper {paper}" + (f": {_cited(papers()[paper])}" if paper in papers() else "")))
            for row in own:
                numbers = f"rows: {row['rows']} · printed numbers: {row['printed numbers']}"
                facts = filter(None, (row["problem"], row["corpora"], row["metrics"], numbers))
                print(clean(f"  --table {row['table']}  {row['about']}\n      {' · '.join(facts)}"))
        print("`reproduce` runs a table, `experiments` lists its rows: both take --paper, --table and --profile")


def _cited(paper: Any) -> str:
    """Return authors, title, venue and link of a paper."""
    later = f" Since then: {paper.later}" if paper.later else ""
    return f"{paper.by}: {paper.title}. {paper.venue}. {paper.url}{later}"


def _print_bibtex(paper: str) -> None:
    """Print the entry of a paper, or of all. ValueError: there is no such paper."""
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.flows.experiments.published import papers

    known = papers()
    if paper and paper not in known:
        raise ValueError(f"no paper {paper!r} here: {closest(paper, known)}")
    for one in [known[paper]] if paper else known.values():
        print(one.bibtex + "\n")


def _print_settings(words: list[str], as_json: bool) -> None:
    """Print the settings of one experiment. ValueError: not one experiment is named."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.experiments.catalogue import experiment
    from phrasemodels.flows.experiments.overrides import settings

    if len(words) != 1:
        raise ValueError("--settings: name one experiment, like 000/table1/sample/phrase-k2")
    rows = list(settings(experiment(words[0])))
    if as_json:
        print_json(rows)
    else:
        print_rows(f"Settings of {words[0]}, for --set", ["setting", "value", "takes", "meaning"], rows)


def listed() -> list[dict[str, Any]]:
    """Return a row for each answer of each experiment, as `phrasemodels experiments` lists them."""
    from phrasemodels.data.store.disk_cache import cached_on_disk

    found: list[dict[str, Any]] = cached_on_disk("experiments", None, _rows)
    return found


def _rows() -> list[dict[str, Any]]:
    """Return a row for each answer of each experiment."""
    from phrasemodels.flows.experiments.catalogue import about
    from phrasemodels.flows.experiments.catalogue import experiments as all_experiments

    return [
        {
            "experiment": e.name,
            "paper": e.paper,
            "table": answer.cell.table if answer.cell else None,
            "system": e.system,
            "variant": e.variant,
            "problem": e.recipe.problem_name,
            "corpus": getattr(e.recipe.corpus, "name", None),
            "dataset": answer.cell.dataset if answer.cell else None,
            "metric": answer.metric,
            "published": answer.cell.published if answer.cell else None,
            "comparable": e.comparable,
            "of": e.table.paper,
            "number": e.table.number,
            "profile": e.profile,
            "about": about(e.table.paper, e.table.number),
        }
        for e in all_experiments()
        for answer in e.answers
    ]


HIDDEN = ("number", "profile", "of", "about")  # columns that are only for choosing


def chosen(rows: list[dict[str, Any]], words: list[str], wanted: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows that hold all words, in any case, and have all wanted values. ValueError: there is none; the nearest
    value is named."""
    from phrasemodels.data.download.manifest import closest

    for name, value in ((name, value) for name, value in wanted.items() if value):
        known = {row["of" if name == "paper" else name] for row in rows}
        if value not in known:
            raise ValueError(f"no {'table' if name == 'number' else name} {value!r} here: {closest(value, known)}")
        rows = [row for row in rows if row["of" if name == "paper" else name] == value]
    found = [row for row in rows if all(word.lower() in " ".join(map(str, row.values())).lower() for word in words)]
    if not found:
        raise ValueError(
            f"no experiment holds {' and '.join(map(repr, words))}; `phrasemodels experiments` lists the tables"
        )
    return found


SHOWN = 4  # metrics of a table that are named


def tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each table: what it is about, its problem, corpora and metrics, its rows, and the printed numbers that
    they answer."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["of"], row["number"]), []).append(row)
    return [
        {
            "paper": paper,
            "table": number,
            "about": own[0]["about"],
            "problem": own[0]["problem"],
            "corpora": ", ".join(_names(own, "corpus")),
            "metrics": ", ".join(_names(own, "metric")),
            "rows": len({row["experiment"].rpartition("/")[2] for row in own}),
            "printed numbers": len({(r["system"], r["variant"], r["dataset"], r["metric"]) for r in own if r["published"] is not None}),
        }
        for (paper, number), own in found.items()
    ]  # fmt: skip


def _names(rows: list[dict[str, Any]], column: str) -> list[str]:
    """Return the values of a column, each once: of real corpora, if there are some, and not of generated ones."""
    real = [row for row in rows if row["profile"] != "sample"]
    names = list(dict.fromkeys(row[column] for row in real or rows if row[column]))
    return names if len(names) <= SHOWN else [*names[:SHOWN], f"and {len(names) - SHOWN} more"]


@app.command("compare-settings")
def compare_settings(
    experiment: Annotated[str, typer.Argument(help="Its name, like 003/tablebabi/paper/binary-qa02.")],
    as_json: Json = False,
) -> None:
    """Compare an experiment with its paper, setting by setting.

    ✓: all as published, ✗: not. Settings marked ≠ differ, so there is no verdict; those marked ~ differ, and each verdict says so;
    those marked · are not published, so they are our choice. Published means in the paper, its code or work that it cites.
    """
    from phrasemodels.flows.experiments.catalogue import experiment as named
    from phrasemodels.flows.experiments.names import plain_reason

    known = named(experiment)
    if as_json:
        print_json({name: asdict(aspect) for name, aspect in known.aspects.items()})
        return
    if not known.aspects:
        print("counted, and not trained: its verdicts are by the digits that are printed")
        return
    for aspect, one in known.aspects.items():
        counts = {
            "as published": one.agreeing,
            "differ (≠)": len(one.differing),
            "differ, as each verdict says (~)": len(one.stated),
            "our choice (·)": len(one.open),
        }
        said = ", ".join(f"{count} {words}" for words, count in counts.items() if count) or "nothing is said of it"
        print(f"{aspect:9} {'✓' if one.as_published else '✗'}  {said}")
        for sign, words in (
            [("≠", w) for w in one.differing] + [("~", w) for w in one.stated] + [("·", w) for w in one.open]
        ):
            print(f"             {sign} {words}")
    but = ", except for what ~ says" * any(one.stated for one in known.aspects.values())
    why = plain_reason(known.differences).replace(f" (phrasemodels compare-settings {known.name})", "")
    print(f"comparable with the paper{but}" if known.comparable else f"not comparable: {why}")
