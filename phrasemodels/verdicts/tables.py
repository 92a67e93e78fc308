"""Cells to rows: which columns of a table name the system, data set, metric and seed, and which hold numbers.

A table has one number a line, in a column value or score; or it is as papers print it, with a column for each metric, data set, system
or seed.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from phrasemodels.verdicts.cells import (
    DIVERGED,
    LONGEST,
    MARKED,
    MISSING,
    Grid,
    Line,
    content,
    grids,
    pairs_of,
    plain,
    suffix,
    uses_decimal_commas,
)
from phrasemodels.verdicts.scales import (
    CHANGING,
    QUALIFIERS,
    SIZES,
    UNITS,
    is_name,
    is_setting,
    known,
    phrase,
    split_of,
    words,
)

ROLES: Mapping[str, tuple[str, ...]] = {  # names of columns in lower case, the first one that is there
    "system": tuple(
        "row;model;system;method;approach;algorithm;modell;verfahren;methode;model name;mlflow runname;run name;experiment;name".split(";")
    ),
    "variant": tuple("variant;setting;configuration".split(";")),
    "dataset": tuple("dataset;data set;data;corpus;task;tasks;groups;benchmark;testset;test set;datensatz;korpus".split(";")),
    "split": ("split",),
    "metric": tuple("metric;measure;metrik".split(";")),
    "filter": ("filter",),
    "number": tuple("value;score;printed;reported;published;result;wert;valeur".split(";")),
    "seed": tuple("seed;random seed;random state;run;trial;fold;repetition;run id;startwert".split(";")),
    "item": tuple("item;item id;example;example id;doc id;sentence;sentence id".split(";")),
    "total": ("total",),
    "paper": ("paper",),
    "state": ("state", "status"),
    "table": ("table",),
    "other": tuple("year;jahr;rank;epoch;epochs;step;steps;no;id;venue".split(";")),  # never a metric
    "n": tuple("n;test items".split(";")),
    "runs": tuple("runs;n runs".split(";")),
    "best of": ("best of",),
    "deviation": tuple("deviation;std;sd;stdev;standard deviation;±".split(";")),
    "stderr": tuple("stderr;se;standard error".split(";")),
    **{name: (name,) for name in ("scale", "unit", "margin", "bound", "lower is better", "arithmetic", "baseline", "our row", "our dataset",
                                  "our metric", "not comparable", "gain over", "notes", "chance", "n of", "same as", "made of", "doubt",
                                  "exchanged with")},
}  # fmt: skip
OURS = (
    "system",
    "dataset",
    "metric",
    "filter",
    "number",
    "seed",
    "item",
    "total",
    "paper",
    "table",
    "variant",
    "stderr",
    "split",
    "state",
    "other",
)  # roles in results
PREFIXES = frozenset("params param metrics config summary tags".split())
SEEDS = re.compile(r"(?:(.*?)[\s_./-]+)?(?:seed|run|trial|fold|rep)[ _.=-]*(\d+)(?:[\s_./-]+(.*))?", re.I)
MOST_HEADERS = 3
NO_NAME = frozenset("score scores percent pct in mean test".split())  # words that make no other metric
# A number, and what may stand beside one: "5-way" is a name.
NUMBER_FIRST = re.compile(r"[<>≥≤~≈±(\[]*\s*[+−–-]?\.?\d[\d.,' ]*(?:$|[\d%±(\[_/|+)\]?^↑↓×{e]|\s*[a-zA-Zµ]{1,4}$)")
MULTIPLE = re.compile(
    r"[×x*]?\s*(?:10+|1e-?\d+|10\s*\^\s*[-−]?\d+)"
)  # behind a metric, whose numbers are such multiples
CITED = re.compile(r"\s*(?:\[\d+(?:[,\s–-]+\d+)*\]|\((?:ours|this work|[^()]*\b(?:19|20)\d\d[a-z]?)\))\s*$", re.I)
JSON = (".json", ".jsonl", ".ndjson")


class Names(NamedTuple):
    """What files don't say: paper, table, system, data set, metric, seed and setting. columns: metric by the name of a column. same: in
    what printed numbers and ours are alike for certain: words of a caption, averages, fields of runs."""

    paper: str = ""
    table: str = ""
    system: str = ""
    dataset: str = ""
    metric: str = ""
    seed: str = "0"
    setting: str = ""
    columns: Mapping[str, str] = {}
    same: frozenset[str] = frozenset()
    systems: frozenset[tuple[str, ...]] = frozenset()  # those that are printed, as `folded`
    datasets: frozenset[tuple[str, ...]] = frozenset()
    metrics: frozenset[tuple[tuple[str, ...], ...]] = frozenset()  # as `folded_metric`


class Row(NamedTuple):
    """A row by the names of its columns. where: file and line. over: columns whose cell stands over several columns or rows.

    group: the line above that has a name alone. marks: footnote marks of each cell, with those of the row's names.
    """

    where: str
    cells: dict[str, Any]
    over: frozenset[str] = frozenset()
    group: str = ""
    marks: Mapping[str, frozenset[str]] = {}

    @property
    def name(self) -> str:
        """The text of its cells, each once."""
        return " ".join(dict.fromkeys(str(cell) for cell in self.cells.values() if cell))

    def number_of(self, column: str) -> Any:
        """Return the cell of a column of numbers. ValueError: it stands over several."""
        if column in self.over and is_value(self.cells[column]):
            raise ValueError(f"{self.cells[column]!r} stands over several columns or rows: write it into each that it is of")
        return self.cells.get(column)

    def get(self, role: str, roles: Mapping[str, str]) -> str:
        """Return the text of the column that has a role; empty if there is none."""
        found = self.cells.get(roles[role], "") if role in roles else ""
        text = "" if found is None else str(found)
        kept = self.get("filter", roles) if role == "metric" and text else ""  # of lm-evaluation-harness
        return text if kept in ("", "none") or is_value(kept) else f"{text},{kept}"


@dataclass
class Table:
    """Rows with one header. comma: decimals stand after commas; None: that isn't known. bad: lines that are no rows; notes: lines that
    are left out; alone: those of them with a name alone; title: its heading; merged: an empty cell is part of the name above it."""

    where: str
    columns: list[str]
    rows: Iterable[Row]
    comma: bool | None = False
    bad: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    alone: list[Row] = field(default_factory=list)
    title: str = ""
    merged: bool = False
    beside: str = ""  # all text above, below and beside it, with marks as in `marked`
    marks: dict[str, frozenset[str]] = field(default_factory=dict)  # of the header

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], where: str) -> "Table":
        """Return the table of rows of JSON or Parquet."""
        made = [Row(f"{where}, row {number}", dict(row)) for number, row in enumerate(rows, 1)]
        return cls(where, list(dict.fromkeys(name for row in made for name in row.cells)), made)


def tables(path: Path, exact: bool = False) -> list[Table]:
    """Return the tables of a file with their headers; exact: see `grids`. ValueError: it cannot be read."""
    if suffix(path) in JSON:
        return [Table.of(rows, str(path))] if (rows := rows_of_json(json_of(path, as_text=True))) else []
    found = grids(path, exact)
    made = [table for grid in found for part in _panels(grid) if (table := _table(part)) is not None]
    notes = [note for grid in found for note in grid.notes]
    if notes and not made:
        raise ValueError(notes[0])
    for table in made[:1]:
        table.notes[:0] = notes
    return made


def json_of(path: Path, as_text: bool = False) -> Any:
    """Return the content of a file of JSON, or of JSON lines as a list. as_text: numbers keep their digits."""
    lines = content(path).splitlines() if suffix(path) in JSON[1:] else [content(path)]
    found = []
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                found.append(json.loads(line, parse_float=str if as_text else None, parse_int=str if as_text else None))
        except (ValueError, RecursionError) as error:
            place = f"{path}, line {number}" if len(lines) > 1 else str(path)
            raise ValueError(f"{place}: no JSON ({(str(error).splitlines() or [''])[0][:100]})") from error
    return found if suffix(path) in JSON[1:] else (found or [None])[0]


def rows_of_json(found: Any) -> list[dict[str, Any]]:
    """Return the rows of JSON: a list of objects, one under rows or data, an object a row, or one of objects by system."""
    if isinstance(found, list):
        return [_flat(row) for row in found] if found and all(isinstance(row, dict) for row in found) else []
    if not isinstance(found, dict):
        return []
    lists = [name for name in ("rows", "data", "results", "scores") if isinstance(found.get(name), list)]
    if lists:
        return [] if len(lists) > 1 else [_of_all(found, lists[0]) | row for row in rows_of_json(found[lists[0]])]
    splits = all(split_of(name) or name.casefold() in ("test", "predict", "eval") for name in found)
    if found and all(isinstance(row, dict) for row in found.values()) and not splits:
        return [{"system": name} | _flat(row) for name, row in found.items()]
    row = _flat(found)
    return [row] if any(map(is_value, row.values())) else []


def _of_all(found: Mapping[str, Any], rows: str) -> dict[str, Any]:
    """Return what stands beside rows of JSON and holds for each: names and settings, but no numbers."""
    beside = _flat({name: value for name, value in found.items() if name != rows and not isinstance(value, list)})
    return {name: value for name, value in beside.items() if not is_value(value) or is_setting(name) or roles_of([name], OURS)}


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return an object of JSON without objects inside; their names are joined by points."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        inner = isinstance(value, dict) and before.count(".") < 3
        made |= _flat(value, f"{before}{name}.") if inner else {before + name: value}
    return made


def csv_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a table by the names of its columns. ValueError: the file is no such table."""
    for table in tables(path):
        if table.bad:
            raise ValueError(table.bad[0])
        yield from (row.cells for row in table.rows)


@lru_cache(10_000)
def folded(name: str) -> tuple[str, ...]:
    """Return a name as it is compared: without markup, punctuation, citations and the case of words.

    Single letters keep their case. Signs and decimal marks count, as in +CRF, λ=-1, A′ and k=1.5.
    """
    text = CITED.sub("", re.sub(r"[−–—]", "-", unicodedata.normalize("NFKC", plain(name))))
    found = re.findall(r"[^\W_]+|(?<![^\W_])(?:-(?=\s*\w)|\.(?=\d))|-$|(?<=\d)[.,](?=\d)|[^\w\s.,;:()\[\]{}\"`|-]", text)
    return tuple(word.casefold() if len(word) > 1 else word for word in found)


Fold = Callable[[str, str, str], tuple[Any, ...]]


def fold_of(printed: Iterable[tuple[str, str, str]]) -> Fold:
    """Return how rows, data sets and metrics are compared: folded, or exactly where several printed names fold alike."""
    folds = (folded, folded, folded_metric)
    apart: list[set[Any]] = []
    for fold, names in zip(folds, map(set, zip(*printed, strict=True)), strict=False):
        counts = Counter(map(fold, names))
        apart.append({key for key, count in counts.items() if count > 1})
    apart = apart or [set(), set(), set()]

    def compared(*names: str) -> tuple[Any, ...]:
        keys = [fold(name) for fold, name in zip(folds, names, strict=True)]
        return tuple(
            ("exactly", name) if key in those else key for key, name, those in zip(keys, names, apart, strict=True)
        )

    return compared


@lru_cache(10_000)
def folded_metric(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a metric as it is compared: its words, with the usual name of a well-known one, and its unit."""
    found = re.search(r"[(\[]([^()\[\]]*)[)\]]\s*$|([^\W_]+)\W*$", re.sub(r"[↑↓]", "", name))
    last, kind = words(found[1] or found[2] or "") if found else (), known(name).kind
    sized = kind == "positive" or (not kind and bool((found and found[1]) or SIZES & {*words(name)}))
    units = [word for word in last if word in UNITS and (sized or (len(word) > 1 and word != "min"))]  # AP_S and Acc_min have none
    said = sorted(word for word in phrase(re.sub(r"[()\[\]↑↓]", " ", name)) if word not in NO_NAME)
    averaged = {"macro", "micro", "weighted"} & {*said}
    kept = tuple(word for word in said if word not in units and not (averaged and word in ("avg", "average")))
    return kept, tuple(sorted(units))


def with_split(dataset: str, split: str, several: bool) -> str:
    """Return the name of a data set with its split, unless it is the only one and the test set."""
    named = several or split.casefold() != "test"
    return ", ".join(filter(None, (dataset, split * named)))


def is_value(cell: Any) -> bool:
    """Return whether a cell holds a number, whatever stands beside it."""
    if isinstance(cell, bool | list | dict):
        return False
    return isinstance(cell, int | float) or bool(NUMBER_FIRST.match(plain(str(cell or "")[:LONGEST])))


def _panels(grid: Grid) -> list[Grid]:
    """Return the parts of a grid that have headers of their own. A header that is repeated as it is begins none."""
    made: list[Grid] = []
    header: list[str] = []
    for line in grid.lines:
        again = bool(header) and _is_header(line.cells, header, made[-1])
        if again and line.cells == header:
            continue
        if again or not made:
            made.append(replace(grid, lines=[], notes=[]))
        if again or (not header and _several(line.cells)):
            header = line.cells
        made[-1].lines.append(line)
    return made or [grid]


def _several(cells: Sequence[str]) -> bool:
    """Return whether a line has several names; one alone may be that of a group of rows."""
    return len({*filter(None, cells)}) > (len(cells) > 2 or bool(cells[0]))


def _is_header(cells: Sequence[str], header: Sequence[str], before: Grid) -> bool:
    """Return whether a line below numbers is a header again: its first name is as above or has the same role, and no number follows."""
    first, above = role_of(cells[0]), role_of(header[0])
    if first != above or not first:
        role = next((known_as for known_as in ROLES.values() if above in known_as), (above,))
        if first not in role or any(cell and (is_value(cell) or cell.casefold() in MISSING | DIVERGED) for cell in cells):
            return False
    return _several(cells) and any(is_value(cell) for line in before.lines for cell in line.cells[1:])


def _table(grid: Grid) -> Table | None:
    """Return a grid as a table; None if it is empty. ValueError: it has no header."""
    lines = [line for line in grid.lines if any(line.cells)]
    width = max((len([cell for cell in line.cells if cell]) for line in lines[:50]), default=0)
    above = _before(lines, width)
    notes = [_note(grid, line) for line in above]
    lines = lines[len(notes) :]
    if not lines:
        return None
    header, body = _header(grid, lines)
    kept = [place for place, name in enumerate(header) if name or any(_at(line, place) for line in body)]
    if kept and not header[kept[0]] and not _is_index(body, kept[0]):
        metrics = all(known(_at(line, kept[0])).kind for line in body) and not any(known(name).kind for name in header if name)
        header[kept[0]] = "metric" if body and metrics and "metric" not in header else "system" if "system" not in header else "name"
    kept = [
        place
        for place in kept
        if header[place] and not (header[place].casefold() in ("index", "unnamed: 0") and _is_index(body, place))
    ]
    names = [header[place] for place in kept]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{grid.where}: two columns have the name {twice[0][:40]!r}: rename one")
    rows: list[Row] = []
    table = Table(grid.where, names, rows, False, [], notes, title=grid.title, merged=not grid.divider)
    for line in body:
        _add(table, rows, grid, line, kept, len(header))
    used = {row.group for row in rows}
    below = [_with_marks(row.name, row.marks) for row in table.alone if row.name not in used]
    for line in lines[: len(lines) - len(body)]:
        for name, place in zip(names, kept, strict=True):
            table.marks[name] = table.marks.get(name, frozenset()) | line.marks.get(place, frozenset())
    texts = [text for text in (*grid.beside, *(_with_marks(_said(line), line.marks) for line in above), *below) if text]
    table.beside = ". ".join(dict.fromkeys(([grid.title] if not any(grid.title in MARKED.sub("", text) for text in texts) else []) + texts))
    cells = [str(cell) for row in rows for name, cell in row.cells.items() if "version" not in words(name)]
    table.comma = uses_decimal_commas(cells, grid.divider)
    return table


def _before(lines: Sequence[Line], width: int) -> list[Line]:
    """Return the lines before the header, such as a title: they have one cell, the others several."""
    found = []
    for line in lines:
        if width < 2 or not line.cells[0] or len({cell for cell in line.cells if cell}) > 1:
            break
        found.append(line)
    return found


def _header(grid: Grid, lines: Sequence[Line]) -> tuple[list[str], list[Line]]:
    """Return the names of columns, of up to three lines where the first has cells over several columns, and the lines below."""
    first = lines[0]
    if len(first.cells) > 1 and sum(map(is_value, first.cells[1:])) > len(first.cells[1:]) / 2:
        raise ValueError(
            f"{grid.where}, line {first.number}: numbers where names of columns belong: add a line such as system,accuracy"
        )
    top = first.cells
    spans = len(set(filter(None, top[1:]))) < len(top[1:])
    heads = [top]
    if len(lines) > 1 and len(lines[1].cells) == len(top) and (spans or _metrics_alone(lines[1])) and any(lines[1].cells[1:]):
        for line in lines[1:MOST_HEADERS]:
            one = len({cell for cell in line.cells if cell}) < 2 and not _metrics_alone(line)
            if one or any(map(is_value, line.cells[1:])):
                break
            heads.append(line.cells)
    if len(heads) == 1:
        units = _units(grid, lines[1], top) if len(lines) > 1 else []
        names = [f"{name.strip()} ({unit})" if unit else name.strip() for name, unit in zip_longest(top, units)]
        return names, list(lines[1 + bool(units) :])
    filled = [_filled(cells) for cells in heads[:-1]] + [heads[-1]]
    parts = (dict.fromkeys(filter(None, (_of(cells, place) for cells in filled))) for place in range(len(top)))
    names = [" ".join(sorted(those, key=lambda part: bool(metrics_of(part)))) for those in parts]  # a metric behind its data set
    return names, list(lines[len(heads) :])


def _metrics_alone(line: Line) -> bool:
    """Return whether a line names the metric of each column, and no row."""
    return any(line.cells) and not line.cells[0] and all(metrics_of(cell) for cell in line.cells if cell)


UNIT_ROW = frozenset(("", "unit", "units", "einheit", "einheiten"))


def _units(grid: Grid, line: Line, top: Sequence[str]) -> list[str]:
    """Return the units of columns that a line below the header has; empty if it is no such line. ValueError: they can't be read."""
    cells = [re.sub(r"^\s*[(\[]\s*(.*?)\s*[)\]]\s*$", r"\1", cell).strip() for cell in line.cells[: len(top)]]
    named, rest = role_of(cells[0]) if cells else "", list(filter(None, cells[1:]))
    units = [word == "%" or {*words(word)} <= UNITS | {"percent", "points", "pct"} for word in rest]
    if named not in UNIT_ROW or not any(units) or any(map(is_value, cells)) or any(line.cells[len(top) :]):
        return []
    place = f"{grid.where}, line {line.number}"
    if not all(units):
        raise ValueError(f"{place}: {rest[units.index(False)][:40]!r} is no known unit: write units in the header, as in time (s)")
    if stated := next((name for name, unit in zip(top, cells, strict=False) if unit and role_of(name) in ROLES["number"]), ""):
        raise ValueError(f"{place}: units below {stated[:40]!r}: write them behind the metric, as in time (s)")
    return ["", *cells[1:]]


def _filled(cells: Sequence[str]) -> list[str]:
    """Return a line of a header with each name over all of its columns."""
    made, last = [], ""
    for cell in cells:
        last = cell or last
        made.append(last)
    return made


def _of(cells: Sequence[str], place: int) -> str:
    return cells[place] if place < len(cells) else ""


def _at(line: Line, place: int) -> str:
    return _of(line.cells, place)


def _is_index(body: Sequence[Line], place: int) -> bool:
    return [_at(line, place) for line in body] in (
        [str(n) for n in range(len(body))],
        [str(n + 1) for n in range(len(body))],
    )


def _note(grid: Grid, line: Line) -> str:
    return f"{grid.where}, line {line.number}: {_said(line)[:60]!r} isn't read: it is no row"


def _with_marks(text: str, marks: Mapping[Any, frozenset[str]]) -> str:
    return "".join(f"⟦{mark}⟧" for mark in sorted(frozenset[str]().union(*marks.values()))) + text


def _said(line: Line) -> str:
    return " ".join(dict.fromkeys(filter(None, line.cells)))


def _add(table: Table, rows: list[Row], grid: Grid, line: Line, kept: Sequence[int], width: int) -> None:
    """Add a line to a table: as a row, a note, or a bad line."""
    place = f"{grid.where}, line {line.number}"
    cells = [cell for cell in line.cells if cell]
    if len(line.cells) > width and any(line.cells[width:]):
        hint = "; a number with a comma stands in quotes" if grid.divider == "," else ""
        table.bad.append(f"{place}: {len(line.cells)} cells, but {width} columns{hint}")
    elif len(kept) > 1 and len(set(cells)) == 1 and not is_value(cells[0]):
        table.notes.append(_note(grid, line))
        table.alone.append(_row(table, place, line, kept))
    elif len(line.cells) < width and grid.divider:
        table.bad.append(f"{place}: {len(line.cells)} cells, but {width} columns")
    else:
        rows.append(_row(table, place, line, kept))


def _row(table: Table, place: str, line: Line, kept: Sequence[int]) -> Row:
    columns = dict(zip(table.columns, kept, strict=True))
    over = frozenset(name for name, one in columns.items() if one in line.over)
    cells = {name: _at(line, one) for name, one in columns.items()}
    of_row = frozenset[str]().union(*(line.marks.get(one, ()) for name, one in columns.items() if not is_value(cells[name])))
    marks = {name: of_row | line.marks.get(one, frozenset()) for name, one in columns.items()}
    return Row(place, cells, over, table.alone[-1].name if table.alone else "", marks)


def role_of(name: str) -> str:
    """Return the text of a column's name by which its role is known."""
    found = re.findall(
        r"[^\W_]+|±", re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name).casefold() if "_" not in name else name.casefold()
    )
    return " ".join(found[1:] if len(found) > 1 and found[0] in PREFIXES else found)


def roles_of(columns: Sequence[str], wanted: Iterable[str] = ROLES) -> dict[str, str]:
    """Return the column of each role that a table has."""
    by_name: dict[str, str] = {}
    for column in columns:
        by_name.setdefault(role_of(column), column)
        by_name.setdefault("".join(role_of(column).split()), column)
    found = {role: next((by_name[name] for name in ROLES[role] if name in by_name), "") for role in wanted}
    return {role: column for role, column in found.items() if column}


@dataclass(frozen=True)
class Column:
    """A column of numbers: the names that stand in its header. long: it is the one column of numbers of a table with a number a line.

    deviation: the column of their deviations.
    """

    name: str
    dataset: str = ""
    metrics: tuple[str, ...] = ()
    system: str = ""
    seed: str = ""
    long: bool = False
    deviation: str = ""
    guessed: bool = False  # the data set is a word before a metric, which may be another metric
    problem: str = ""  # why its numbers judge nothing

    def cells_of(self, cell: Any, metric: str) -> list[tuple[str, Any]]:
        """Return metric and text of each number in a cell. metric: that of its row, if it has one."""
        names = (
            tuple(part.strip() for part in metric.split("/"))
            if metric and "/" in metric
            else (metric,)
            if metric
            else self.metrics
        )
        parts = pairs_of(cell) if isinstance(cell, str) else [cell]
        if len(names) > 1 and len(parts) == len(names):
            return list(zip(names, parts, strict=True))
        if len(names) > 1 and (cell in (None, "") or (isinstance(cell, str) and not is_value(cell))):
            return [(name, cell) for name in names]
        return [("/".join(names), cell)]


NOT_READ = "{}: not read: column {}: no metric, data set or seed"
FIELDS = "{}: column {}: taken as fields of runs, no scores"


def columns_of(table: Table, names: Names, kind: str) -> tuple[dict[str, str], list[Column]]:
    """Return the columns by role, and those of numbers. kind: value (of a paper) or score (of ours).

    What is left out is added to the table's notes.
    """
    roles = roles_of(table.columns, OURS if kind == "score" else ROLES)
    names_metrics = (
        {"system", "number"} <= roles.keys() and "metric" not in roles and role_of(roles["system"]) == "name"
    )
    rows = table.rows if names_metrics and isinstance(table.rows, list) else []
    if rows and all(known(row.get("system", roles)).kind for row in rows):  # as JSON of sacreBLEU does
        roles["metric"] = roles.pop("system")
    if "number" in roles:
        rest = [name for name in table.columns if name not in roles.values()]
        if "system" not in roles and isinstance(table.rows, list):
            _first_names(roles, table, rest, names, kind)
        if kind == "value" and (left := [name for name in rest if name not in roles.values()]):
            table.notes.append(NOT_READ.format(table.where, ", ".join(map(repr, left))[:100]))
        if table.merged:
            _fill(table.rows, roles)
        metric = (names.metric,) if names.metric else ("",)
        return roles, [Column(roles["number"], metrics=metric, long=True, deviation=roles.get("deviation", ""))]
    rows = table.rows = list(table.rows)
    rest = [name for name in table.columns if name not in roles.values()]
    if kind == "value" and role_of(roles.get("n", "")) == "n":  # or the shots, or members of an ensemble
        table.notes.append(
            f"{table.where}: column {roles.pop('n')!r} isn't read: if it holds numbers of test items, name it test items"
        )
    ours = kind == "score"
    numeric = [name for name in rest if any(is_value(row.cells.get(name)) for row in rows) or (ours and _lost(name, table, names, roles))]
    numeric = [name for name in numeric if not CHANGING & {*words(name)} or _is_deviation(name)]
    numeric = [name for name in numeric if role_of(name) not in ROLES["other"]]
    if ("system" not in roles and kind == "value") or not {"system", "dataset", "metric"} & roles.keys():
        _first_names(roles, table, [name for name in rest if name not in numeric], names, kind)
        rest = [name for name in rest if name not in roles.values()]
    if "filter" in roles and "metric" not in roles:
        rest.append(roles.pop("filter"))
    if left := [name for name in rest if name not in numeric]:
        hint = "; call it system if it names systems" if ours and "system" not in roles else ""
        table.notes.append((FIELDS if ours else NOT_READ).format(table.where, ", ".join(map(repr, left))[:100]) + hint)
    transposed = kind == "value" and "system" not in roles and ({"dataset", "metric"} & roles.keys())
    found: list[Column] = []
    tested, doubts = _of_test(numeric, names, table) if ours else ({}, {})
    for name in numeric:
        if _is_deviation(name) and found:
            if "std" not in role_of(found[-1].name):
                found[-1] = replace(found[-1], deviation=name)
        elif transposed:
            found.append(Column(name, system=plain(name), metrics=(names.metric,)))
        else:
            one = replace(_column(tested.get(name, name), names, "metric" in roles), name=name, problem=doubts.get(name, ""))
            found.append(Column(name, metrics=(name,)) if one.guessed and "dataset" in roles else one)
    if table.merged or kind == "value":
        _fill(rows, roles)
    if kind == "score" or table.merged:
        _name_fully(rows, roles, left, names)
    return roles, found


def _name_fully(rows: Sequence[Row], roles: Mapping[str, str], columns: Sequence[str], names: Names) -> None:
    """Write the names of a further column before those of systems, as sizes stand behind encoders.

    Printed systems stand there twice without them, and ours are printed with them.
    """
    of = [tuple(row.get(role, roles) for role in ("paper", "table", "dataset", "metric", "variant", "split", "system")) for row in rows]
    for column in columns if "system" in roles and rows else ():
        if not names.systems and len({*of}) < len(of):
            _fill(rows, {"system": column})
        full = [f"{row.cells.get(column) or ''} {name[-1]}".strip() for row, name in zip(rows, of, strict=True)]
        alone = len({*of}) < len(of) == len({*zip(full, of, strict=True)})
        if any(folded(one) in names.systems for one in full) if names.systems else alone:
            for row, one in zip(rows, full, strict=True):
                row.cells[roles["system"]] = one
            return


def _fill(rows: Iterable[Row], roles: Mapping[str, str]) -> None:
    """Write names into empty cells below them."""
    columns = [roles[role] for role in ("system", "dataset", "metric", "paper", "table") if role in roles]
    above: dict[str, Any] = {}
    bare: set[str] = set()  # columns that named none of the rows above
    for row in rows:
        for name in columns:
            if row.cells.get(name) and name in bare and not above.get(name):
                said = f"{row.where}, column {name}: {str(row.cells[name])[:40]!r}"
                raise ValueError(f"{said} may hold for rows above it too: write the name into each row")
            if any(map(is_value, row.cells.values())):
                bare.add(name)
            row.cells[name] = above[name] = row.cells.get(name) or above.get(name, "")


def _first_names(roles: dict[str, str], table: Table, columns: Sequence[str], names: Names, kind: str) -> None:
    """Give the first column of text a role: of metrics if all of its cells are some and no column is one, else of printed systems.

    A text of ours may be a setting. ValueError: it may name printed systems, and nothing else does.
    """
    cells = {name: [row.cells.get(name) for row in table.rows] for name in columns}
    texts = [name for name, of in cells.items() if any(of) and not any(is_value(cell) or isinstance(cell, bool) for cell in of)]
    if texts:
        metrics = all(known(str(cell)).kind for cell in cells[texts[0]])
        metrics = metrics and not (names.metric or any(split_header(plain(name))[1] for name in table.columns))
        if metrics and "metric" not in roles:
            roles["metric"] = texts[0]
        elif kind == "value":
            roles["system"] = texts[0]
        elif folded(names.system) not in names.systems:
            for name in texts:
                if any(folded(str(cell)) in names.systems for cell in cells[name]):
                    raise ValueError(
                        f"{table.where}: column {name[:40]!r} has names of printed systems: call it system if these are the systems, else "
                        "name the file or folder by the system"
                    )


def _lost(name: str, table: Table, names: Names, roles: Mapping[str, str]) -> bool:
    """Return whether a column without numbers holds scores of ours: of runs that diverged, or by its name."""
    cells = {str("" if (cell := row.cells.get(name)) is None else cell).strip().casefold() for row in table.rows}
    if cells & DIVERGED and cells <= DIVERGED | MISSING:
        return True
    one = _column(name, names, "metric" in roles)
    return bool(one.seed) or _is_printed(one, names)


def _is_printed(one: Column, names: Names) -> bool:
    """Return whether a column of ours has the name of a printed data set and metric."""
    metrics = not one.metrics or any(folded_metric(metric) in names.metrics for metric in one.metrics)
    return metrics and (folded(one.dataset) in names.datasets if one.dataset else bool(one.metrics))


def is_score(one: Column, names: Names) -> bool:
    """Return whether a column of ours holds scores for certain: of something printed, of a seed, or of a well-known metric by its name."""
    named = bool(split_header(plain(one.name))[1])
    return one.long or bool(one.seed or one.system) or named or _is_printed(one, names) or one.name in names.columns


SPLIT = re.compile(r"(?:metrics?[_./])?(test|predict|eval)[\W_]+(?=\w)", re.I)


def _of_test(columns: Sequence[str], names: Names, table: Table) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names without their split of columns of the test set, or of eval where no column is, and why others judge nothing.

    A column whose whole name is printed, or stated, keeps it.
    """
    found = {name: (split[1].casefold(), plain(name)[split.end() :]) for name in columns if (split := SPLIT.match(plain(name)))}
    tests = {folded_metric(rest): name for name, (kind, rest) in found.items() if kind != "eval"}
    tested, doubts = dict[str, str](), dict[str, str]()
    for name in columns:
        kind, rest = found.get(name, ("", name))
        test, one = tests.get(folded_metric(rest), ""), _column(rest, names, False)
        if name in names.columns or (kind and _is_printed(_column(name, names, False), names)):
            continue
        if kind == "eval" and not test:
            tested[name] = rest
            if _is_printed(one, names) and "eval" not in names.same:
                doubts[name] = "eval may be dev or test: say --same eval if it is what is printed"
        elif kind and kind != "eval" and rest not in columns:
            tested[name] = rest
        elif not kind and test and test not in names.columns and _is_printed(one, names):
            doubts[name] = f"{name!r} or {test!r} may be what is printed: take one away, or rename it"
    return tested, doubts


def _is_deviation(name: str) -> bool:
    return role_of(name).split()[-1:] in (["std"], ["sd"], ["stdev"], ["±"], ["stderr"], ["deviation"])


def _column(name: str, names: Names, has_metric: bool) -> Column:
    """Return what a header says: a data set, metrics, a seed."""
    text = re.sub(r"\s*[(\[]?\s*[↑↓]\s*[)\]]?\s*", " ", plain(name)).strip()
    text = re.sub(r"^(?:metrics?|summary)[_./](?=\w)", "", text)
    if stated := names.columns.get(name) or names.columns.get(text):
        dataset = "" if folded(stated) == folded(text) else text
        return Column(name, dataset, tuple(part.strip() for part in stated.split("/")))
    if seed := SEEDS.fullmatch(text):
        rest = " ".join(filter(None, (seed[1], seed[3])))
        if not rest:
            return Column(name, seed=seed[2], metrics=(names.metric,))
        if split_header(rest)[1]:  # such as "seed0 accuracy"
            return replace(_column(rest, names, has_metric), name=name, seed=seed[2], guessed=False)
    if has_metric:
        return Column(name, system=text) if folded(text) in names.systems else Column(name, text)
    dataset, metrics = split_header(text)
    for end in range(1, len(text.split())) if not metrics else ():
        first, rest = " ".join(text.split()[:end]), " ".join(text.split()[end:])
        if folded(rest) in names.datasets and metrics_of(first):
            return Column(name, rest, metrics_of(first))
    if not metrics and folded(text) in names.systems:
        return Column(name, system=text, metrics=(names.metric,))
    if not metrics and folded(text) not in names.datasets and ({*words(text)} & SIZES or is_setting(text)):
        return Column(name, metrics=(text,))
    if not metrics and (names.metric or folded(text) in names.datasets):
        return Column(name, text, tuple(part.strip() for part in names.metric.split("/")))
    return Column(name, dataset, metrics or (text,), guessed=bool(dataset))


def split_header(text: str) -> tuple[str, tuple[str, ...]]:
    """Return data set and metrics of a header, such as "PTB UAS", "MNLI (acc)" or "accuracy/F1"; no metrics if none is well known."""
    outer, inner = re.fullmatch(r"(.*?)\s*(?:[(\[](.+)[)\]])?\s*", text).groups()  # type: ignore[union-attr]
    metrics = metrics_of(text) or metrics_of(outer)
    if inner and not _qualifies(inner):
        if has_two_metrics(text) or MULTIPLE.fullmatch(inner):
            return "", (text,)
        if metrics_of(inner):
            return outer, metrics_of(inner)
        return (inner, metrics_of(outer)) if metrics_of(outer) else ("", ())
    if metrics:
        return "", (text,) if len(metrics) == 1 else metrics
    for divider in (r"\s+", r"[\s_./:]+", r"[\s_./:-]+"):
        parts = re.split(divider, outer)
        for start in range(1, len(parts)):
            if not is_name(" ".join(parts[:start])):
                continue
            if metrics := metrics_of(" ".join(parts[start:])):
                unit = f" ({inner})" if inner else ""
                dataset = " ".join(part for part in parts[:start] if part.casefold() not in PREFIXES)
                return dataset, tuple(metric + unit for metric in metrics)
    return "", ()


def has_two_metrics(header: str) -> bool:
    """Return whether a header names another metric in brackets, as in "EM (F1)"."""
    outer, inner = re.fullmatch(r"(.*?)\s*(?:[(\[](.+)[)\]])?\s*", header).groups()  # type: ignore[union-attr]
    return bool(inner and metrics_of(inner) and metrics_of(outer)) and known(inner).name != known(outer).name


def with_heading(names: Names, table: Table) -> Names:
    """Return the names that files don't say, with the metric that a table's heading is."""
    return names if names.metric else names._replace(metric="/".join(metrics_of(table.title)))


def _qualifies(text: str) -> bool:
    return all(word in QUALIFIERS or word in UNITS or word.isdigit() for word in words(text))


def metrics_of(text: str) -> tuple[str, ...]:
    """Return the well-known metrics that a text consists of, divided by slashes and the like; empty if it says more or less."""
    parts = [part.strip() for part in re.split(r"\s*[/&,]\s*|\s+and\s+", text) if part.strip()]
    return tuple(parts) if all(_pure(part) for part in parts) else ()


def _pure(text: str) -> bool:
    """Return whether a text is a well-known metric, beside words that qualify one."""
    if not known(text).kind:
        return False
    usual = known(text).name.split()
    rest = [word for word in phrase(text) if word not in usual]
    return all(word in QUALIFIERS or word in UNITS or word.isdigit() or word in "@+" for word in rest)
