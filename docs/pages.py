"""What the pages of the documentation are made of when they are built: answers of SQL, code, figures, references.

Every number on them comes from here or from a run on the page itself. Their links name files of the site, since mkdocs leaves
them as they are.
"""

import ast
import importlib
import inspect
import math
import pkgutil
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from phrasemodels.flows.experiments import overrides

MARKS = {
    **{"reproduced": "=", "higher": "↑", "lower": "↓", "inconclusive": "?", "impossible": "✗", "not comparable": "≁"},
    **{"suspect": "!", "not run": ""},
}


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as a table of Markdown."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def _cell(value: Any) -> str:
    shown = "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    return shown.replace("|", "\\|").replace("\n", " ")


@cache
def _opened() -> tuple[Any, Any]:
    """Return the store of the documentation, in which everything is counted that needs no corpus, and a tracker."""
    from phrasemodels.flows.results.records import open_store
    from phrasemodels.flows.run.reproduce import count
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker

    for _ in count(Settings(), corpora=False):
        pass
    return open_store(Settings()), Tracker(Settings().tracking_uri)


@cache
def asked(question: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the answer of the results that are kept with the project, and of what is counted, to a question."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.sql import query

    return query(*_opened(), question)


def sql(question: str) -> str:
    """Return a question and its answer."""
    question = textwrap.dedent(question).strip()
    return f"```sql\n{question}\n```\n\n{table(*asked(question))}"


def verdicts(paper: str) -> str:
    """Return every verdict on a paper's numbers for which there is a number of ours, and how many there are of each kind."""
    counted = asked(
        f"select verdict, count(*) as numbers from verdicts where paper = '{paper}' group by all order by 2 desc"
    )
    told = asked(
        "select table_, system, variant, dataset, printed_metric as metric, printed, ours, half_width, seeds, verdict, readings "
        f"from verdicts where paper = '{paper}' and ours is not null order by number"
    )
    rows = [
        (*row[:4], row[4].replace("_", " "), row[5], _ours(row[6], row[7]), row[8], row[9], _readings(row[10]))
        for row in told[1]
    ]
    names = ["where", "system", "variant", "data", "metric", "printed", "ours", "seeds", "verdict", "readings"]
    return f"{table(*counted)}\n{filtered(table(names, rows))}\n[All printed numbers](../results/verdicts.html)\n"


def _readings(lines: Sequence[str]) -> str:
    """Return the readings of a number at the paper's size, the one in front first."""
    return "; ".join(line.rpartition("; ")[0] for line in lines if "not comparable" not in line)


def babi() -> str:
    """Return the cells of paper 003's table of bAbI: ours, the printed number in brackets, and the mark of the verdict."""
    found = asked(
        "select split_part(dataset, ' ', -1), system || ', ' || split_part(printed_metric, ' ', 1), ours, half_width, printed, verdict "
        "from verdicts where paper = '003' and dataset like 'bAbI%' and system in ('MemN2N', 'Binary CRF') and ours is not null"
    )[1]
    columns = [f"{system}, {kind}" for kind in ("answer", "fact") for system in ("MemN2N", "Binary CRF")]
    cells = {
        (task, column): f"{_one_digit(*ours)} ({printed}) {MARKS[verdict]}"
        for task, column, *ours, printed, verdict in found
    }
    tasks = sorted({task for task, _ in cells}, key=lambda task: (task == "AVERAGE", task))
    names = ["task", *(name.replace("Binary CRF", "chain") + "s" for name in columns)]
    return table(names, [[task.lower(), *(cells.get((task, column), "–") for column in columns)] for task in tasks])


def _one_digit(mean: float, half_width: float) -> str:
    return f"{mean:.1f} ± {half_width:.1f}"


def wrong(paper: str) -> str:
    """Return the printed numbers that other numbers contradict, for sure or under an assumption, with the arithmetic."""
    columns = 'table_ as "where", system, variant, printed, verdict, reason'
    names, rows = asked(
        f"select {columns} from verdicts where paper = '{paper}' and verdict in ('impossible', 'suspect') order by number"
    )
    return table(names, rows) if rows else "No printed number is contradicted by the others.\n"


def printed(paper: str, question: str) -> str:
    """Return printed numbers of a paper. question: which, as a condition of SQL over the view verdicts."""
    names = 'table_ as "where", system, variant, dataset as data, printed_metric as metric, printed'
    found = asked(f"select {names} from verdicts where paper = '{paper}' and {question} order by number")
    assert found[1], f"paper {paper} prints no number with {question}"
    return table(*found)


ROW = "split_part(split_part(experiment, '/', 4), '+', 1)"  # the row's name in a table
TUNED = "if(contains(experiment, '+'), 'its own', 'common')"  # settings


def runs(metric: str, name: str, like: str, limit: int = 40) -> str:
    """Return the means of experiments whose names are like this, the best first, with short names of rows."""
    found, width = f"round(mean, 2) as {name}", 'round(high - mean, 2) as "± 95 %"'
    where = f"experiment like '{like}' and metric = '{metric}'"
    many = asked(f"select count(distinct {TUNED}) from seeds where {where}")[1][0][0] > 1
    settings = f", {TUNED} as settings" if many else ""
    question = f"select distinct {ROW} as row{settings}, {found}, {width}, n as seeds from seeds where {where}"
    return table(*asked(f"{question} order by mean desc limit {limit}"))


def claims(paper: str) -> str:
    """Return the claims of a paper: printed gain, our gain with its 90 % interval, the answer, and answers elsewhere.

    A claim with several readings has a line for each below it, one about a resource a ratio in place of a gain.
    """
    from phrasemodels.flows.results.judged import judged

    lines = []
    for one in judged(*_opened(), paper, claims=True):
        several = one["readings"] if len(one["readings"]) > 1 else []
        gain = _ratio if one["kind"] == "resource" else _gain
        others = (f"{other['verdict']} ({gain(other)}; `{Path(other['source']).name}`)" for other in one["elsewhere"])
        ours = "by reading:" if several else gain(one)
        printed = gain({"difference": one["printed"], "low": None, "high": None})
        lines.append([one["claim"], printed, ours, f"**{one['verdict']}**", "; ".join(others)])
        for r in several:
            vote = "" if r["votes"] else ", no vote"
            lines.append([f"– {r['reading'] or 'main'}", "", _gain(r), f"{r['verdict']}{vote}", ""])
    other = "at a small size, or on other data (with the result of the better row)"
    return table(["claim", "printed gain", "our gain [90 %]", "answer", other], lines)


def _gain(one: Mapping[str, Any]) -> str:
    low, high = one["low"], one["high"]
    if one["difference"] is None:
        return "–"
    return (f"{one['difference']:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if low is not None else "")).replace("-", "−")


def _ratio(one: Mapping[str, Any]) -> str:
    return "–" if one["difference"] is None else f"{math.exp(one['difference']):.2f} times"


def code(*things: Any) -> str:
    """Return the lines of code that something is, with their place."""
    parts = []
    for thing in things:
        lines, first = inspect.getsourcelines(thing)
        path = Path(inspect.getsourcefile(thing) or "").resolve().relative_to(Path(__file__).parents[1])
        text = textwrap.dedent("".join(lines)).rstrip()
        parts.append(f"`{path}`, lines {first} to {first + len(lines) - 1}\n\n```python\n{text}\n```\n")
    return "\n".join(parts)


def figure(svg: str, caption: str) -> str:
    """Return a figure with its caption."""
    flat = re.sub(r"\s*\n\s*", " ", svg)
    return f'<figure class="plot">{flat}<figcaption>{caption}</figcaption></figure>\n'


def open_figures() -> str:
    """Return the open figures of matplotlib, and close them."""
    import matplotlib.pyplot as plt

    from phrasemodels.flows.report.plots import svg

    drawn = []
    for number in plt.get_fignums():
        one = plt.figure(number)
        one.set_layout_engine("constrained")  # legends and names of axes are not cut off
        drawn.append(figure(svg(one, "A figure of the code above"), ""))
    return "\n".join(drawn)


def views() -> str:
    """Return the views of SQL with their columns and types."""
    from phrasemodels.flows.results.sql import VIEWS

    parts = [
        f"### {name}\n\nA row is {view.row}.\n\n"
        + table(
            ["column", "type", "meaning"],
            [(f"`{c}`" + " (key)" * (c in view.key), kind, meaning) for c, (kind, meaning) in view.columns.items()],
        )
        for name, view in VIEWS.items()
    ]
    return "\n".join(parts)


def settings() -> str:
    """Return the settings of an installation."""
    from phrasemodels.infra.settings import Settings

    rows = [
        (
            f"`PHRASEMODELS_{name.upper()}`",
            field.description or "",
            f"`{default}`" if (default := field.get_default(call_default_factory=True)) not in (None, "") else "",
        )
        for name, field in Settings.model_fields.items()
    ]
    return table(["variable", "meaning", "default"], rows)


def fields(*kinds: Any) -> str:
    """Return the keys of parts of a manifest, with what their docstrings say."""
    parts = []
    for kind in kinds:
        said = inspect.cleandoc(kind.__doc__ or "")
        rows = [
            (f"`{f.alias or name}`", _type(f.annotation), "required" if f.is_required() else f"`{f.get_default()!r}`")
            for name, f in kind.model_fields.items()
        ]
        parts.append(f"## {kind.__name__}\n\n{said}\n\n{table(['key', 'type', 'default'], rows)}")
    return "\n".join(parts)


def _type(annotation: Any) -> str:
    text = getattr(annotation, "__name__", str(annotation)) if isinstance(annotation, type) else str(annotation)
    return re.sub(r"typing\.|phrasemodels\.data\.download\.manifest\.|annotation=|Annotated\[(\w+).*", r"\1", text)[:60]


def commands() -> str:
    """Return the help of every command, one heading each."""
    import typer
    from typer.main import get_command

    from phrasemodels.flows.cli.main import app

    parts: list[str] = []

    def walk(command: Any, name: str) -> None:
        context = typer.Context(command, info_name=name)
        if hasattr(command, "commands"):
            for sub in command.commands.values():
                walk(sub, f"{name} {sub.name}")
            return
        rows = [(_option(p), getattr(p, "help", "") or "") for p in command.params if p.name != "help"]
        said = re.sub(r"\[/?bold\]|\x08", "", inspect.cleandoc(command.help or ""))
        usage = " ".join(command.collect_usage_pieces(context))
        parts.append(
            f"## {name}\n\n```\n{name} {usage}\n```\n\n{said}\n\n{table(['argument', 'meaning'], rows) if rows else ''}"
        )

    walk(get_command(app), "phrasemodels")
    return "\n".join(parts)


def tasks() -> str:
    """Return every table of every paper as a task: what it is about, problem, corpora, metrics, rows, and printed numbers."""
    from phrasemodels.flows.cli.run import listed, tables
    from phrasemodels.flows.experiments.published import paper_name

    names = ["about", "problem", "corpora", "metrics", "rows", "printed numbers"]
    parts: list[str] = []
    for paper, own in groupby(tables(listed()), lambda row: row["paper"]):
        title = f"[{paper_name(paper)}](../papers/{paper}.html)" if paper != paper_name(paper) else "Across papers"
        rows = [[f"`{row['table']}`", *(row[name] for name in names)] for row in own]
        parts.append(f"## {title}\n\n{table(['table', *names], rows)}")
    return "\n".join(parts)


def corpora() -> str:
    """Return every corpus: its title, kind of records, and the rows of train, dev and test as its manifest has them."""
    from phrasemodels.data.download.manifest import find_corpus, names

    rows = []
    for manifest in map(find_corpus, names()):
        sizes = {name: split.rows for name, split in manifest.splits.items()}
        usual = [f"{sizes[split]:,}" if sizes.get(split) else "" for split in ("train", "dev", "test")]
        if not any(usual):
            usual[0] = f"{len(sizes)} splits"
        rows.append([f"`{manifest.name}`", manifest.title, manifest.schema_, *usual, manifest.licence])
    return table(["corpus", "title", "records", "train", "dev", "test", "licence"], rows)


def _option(parameter: Any) -> str:
    names = [name for name in parameter.opts if name.startswith("-")] or [
        parameter.metavar or str(parameter.name).upper()
    ]
    return ", ".join(f"`{name}`" for name in names)


def configurations(*packages: str) -> Iterator[type]:
    """Yield the configurations of packages, dataclasses that are called …Config, by module and place in it."""
    for package in packages:
        found = importlib.import_module(package)
        below = pkgutil.walk_packages(getattr(found, "__path__", []), f"{package}.")
        for module in (found, *(importlib.import_module(name) for _, name, _ in below)):
            for name, kind in vars(module).items():
                if name.endswith("Config") and kind.__module__ == module.__name__ and is_dataclass(kind):
                    yield kind


def about(kind: type) -> str:
    """Return the first sentences of a configuration's docstring, without what they say of fields."""
    names = "|".join(field.name for field in dataclass_fields(kind))
    text = inspect.cleandoc(kind.__doc__ or "").partition("\n\nArgs:")[0]
    return re.split(rf"(?:^|(?<=[.;] )|(?<=\n))(?:{names})(?:, (?:{names}))*: ", text)[0].strip()


def made_by(kind: type) -> type | None:
    """Return the class of what a configuration's `build` makes, where it is annotated."""
    build = getattr(kind, "build", None)
    made = typing.get_type_hints(build).get("return") if build else None
    return made if isinstance(made, type) and made.__module__.startswith("phrasemodels.") else None


def configuration(kind: type) -> str:
    """Return the reference of a configuration: its fields with types and defaults, and what it builds, with shapes."""
    said, types = overrides.meanings(kind), {}
    for owner in reversed(kind.__mro__[:-1]):
        types |= {
            ast.unparse(f.target): ast.unparse(f.annotation)
            for f in overrides.body_of(owner)
            if isinstance(f, ast.AnnAssign)
        }
    rows = [
        (
            f"`{f.name}`",
            f"`{types[f.name]}`",
            _default(f),
            re.sub(r"^[a-z]+\b(?!_)", lambda w: w[0].capitalize(), said[f.name]),
        )
        for f in dataclass_fields(kind)
    ]
    parts = [
        f"## {kind.__name__}\n\n`from {kind.__module__} import {kind.__name__}`",
        about(kind),
        table(["field", "type", "default", "meaning"], rows),
    ]
    if made := made_by(kind):
        given = ", ".join(list(inspect.signature(kind.build).parameters)[1:])
        parts.append(f"`build({given})` makes `{made.__name__}`. {inspect.cleandoc(made.__doc__ or '')}")
        if vars(made).get("forward") and made.forward.__doc__:
            read = ", ".join(list(inspect.signature(made.forward).parameters)[1:])
            parts.append(f"`forward({read})`: {inspect.cleandoc(made.forward.__doc__)}")
    elif hasattr(kind, "build") and kind.build.__doc__:
        parts.append(inspect.cleandoc(kind.build.__doc__))
    return "\n\n".join(parts) + "\n"


def _default(field: Any) -> str:
    if field.default_factory is not MISSING:
        return f"`{field.default_factory.__name__}()`"
    return (
        "required"
        if field.default is MISSING
        else f"`{getattr(field.default, '__name__', None) or repr(field.default)}`"
    )


def diagram(
    title: str, boxes: Mapping[str, tuple[float, float]], arrows: Sequence[tuple[str, str]], caption: str
) -> str:
    """Return a figure of boxes with arrows between them. boxes: the text of each, and its column and row (0: the lowest)."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyBboxPatch

    from phrasemodels.flows.report.plots import svg

    width, height = 0.78, 0.3  # half of what a box has of its cell, in columns and rows
    columns, rows = (max(place[axis] for place in boxes.values()) for axis in (0, 1))
    drawn, axes = plt.subplots(figsize=(8.4, 0.5 + 0.95 * (rows + 1)), layout="constrained")
    axes.set(xlim=(-0.5, columns + 0.5), ylim=(-0.5, rows + 0.5))
    axes.axis("off")
    for text, (x, y) in boxes.items():
        corner, style = (x - width / 2, y - height), "round,pad=0,rounding_size=0.06"
        axes.add_patch(
            FancyBboxPatch(corner, width, 2 * height, boxstyle=style, facecolor="#e8eaf6", edgecolor="#3f51b5")
        )
        axes.text(x, y, text, ha="center", va="center", fontsize=8)
    for one, other in arrows:
        (x, y), (to_x, to_y) = boxes[one], boxes[other]
        side = (to_x > x) - (to_x < x)
        up = 0 if side else (to_y > y) - (to_y < y)
        start, end = (x + side * width / 2, y + up * height), (to_x - side * width / 2, to_y - up * height)
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#444444"})
    return figure(svg(drawn, title), caption)


def picture(name: str, caption: str) -> str:
    """Return a kept figure of results/."""
    drawn = (Path(__file__).parents[1] / "results" / name).read_text(encoding="utf-8")
    return figure(re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.S), caption)


def filtered(text: str) -> str:
    """Return a table of Markdown that readers can filter (site.js)."""
    return f'<div class="filtered" markdown>\n\n{text}\n</div>\n'


def all_verdicts() -> str:
    """Return every printed number with its verdict."""
    from phrasemodels.flows.experiments.published import plain_reason

    rows = asked(
        "select paper, table_, system, variant, dataset, printed_metric, printed, ours, half_width, verdict, reason, needs "
        "from verdicts order by paper, number"
    )[1]
    lines = [
        (
            f"{row[0]}, {row[1]}",
            row[2],
            " ".join(filter(None, row[3:5])),
            row[5].replace("_", " "),
            row[6],
            _ours(row[7], row[8]),
            row[9],
            plain_reason(row[10]) + (f". It takes: {row[11]}" if row[11] else ""),
        )
        for row in rows
    ]
    return filtered(
        table(["where", "system", "variant, data", "metric", "printed", "ours", "verdict", "reason"], lines)
    )


def _ours(mean: float | None, half_width: float | None) -> str:
    if mean is None:
        return ""
    if half_width is None:
        return f"{mean:.0f}" if mean == int(mean) else f"{mean:.2f}"
    return f"{mean:.2f} ± {half_width:.2f}"


def squares(**pictures: Any) -> str:
    """Return matrices of numbers from 0 to 1 as pictures side by side, by their captions: the larger a number, the darker its
    square."""
    drawn = []
    for caption, values in pictures.items():
        rows = [[max(0.0, float(value)) for value in row] for row in values]
        cells = "".join(
            f'<rect x="{12 * x}" y="{12 * y}" width="11" height="11" fill="currentColor" opacity="{0.06 + 0.94 * value:.2f}"/>'
            for y, row in enumerate(rows)
            for x, value in enumerate(row)
        )
        width, height, name = 12 * len(rows[0]), 12 * len(rows), caption.replace("_", " ")
        drawn.append(
            f'<figure><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{name}">'
            f"{cells}</svg><figcaption>{name}</figcaption></figure>"
        )
    return f'<div class="squares">{"".join(drawn)}</div>\n'


def schema() -> str:
    """Return a picture of the views of SQL: each with its key, and an arrow to each view whose values stand in it."""
    from phrasemodels.flows.results.sql import VIEWS

    def depth(name: str) -> int:
        return max((1 + depth(parent) for parent in VIEWS[name].parents), default=0)

    width, gap, height, apart = 215, 90, 44, 58
    columns = [[name for name in VIEWS if depth(name) == level] for level in range(max(map(depth, VIEWS)), -1, -1)]
    places = {name: (x * (width + gap), y * apart) for x, names in enumerate(columns) for y, name in enumerate(names)}
    drawn = []
    for name, view in VIEWS.items():
        x, y = places[name]
        drawn.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="none" stroke="currentColor"/>'
            f'<text x="{x + 8}" y="{y + 18}" font-weight="bold">{name}</text>'
            f'<text x="{x + 8}" y="{y + 35}" font-size="11">{" ".join(view.key)}</text>'
        )
        for parent, joined in view.parents.items():
            to_x, to_y = places[parent][0], places[parent][1] + height / 2
            drawn.append(
                f'<line x1="{x + width}" y1="{y + height / 2}" x2="{to_x}" y2="{to_y}" stroke="currentColor" '
                f'stroke-opacity="0.5" marker-end="url(#to)"><title>{name} → {parent}: {", ".join(joined)}</title></line>'
            )
    across, down = len(columns) * (width + gap) - gap, max(map(len, columns)) * apart
    arrow = (
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
    )
    svg = (
        f'<svg viewBox="-1 -1 {across + 2} {down}" width="100%" role="img" fill="currentColor" font-size="13" '
        f'aria-label="The views and their keys">{arrow}{"".join(drawn)}</svg>'
    )
    joins = [
        (f"`{name}`", f"`{parent}`", f"`{', '.join(by)}`")
        for name, v in VIEWS.items()
        for parent, by in v.parents.items()
    ]
    return (
        figure(svg, "Views, each with its key; an arrow leads to the view that a row belongs to")
        + "\n"
        + table(["view", "belongs to", "by"], joins)
    )
