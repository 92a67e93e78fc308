"""Printed numbers of a paper: their CSV, the values that their digits stand for, and numbers that contradict others.

A printed number is its text ("47.1", "2.00"), because its digits are its precision.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from phrasemodels.verdicts.cells import LONGEST, MARKED, plain, value_of
from phrasemodels.verdicts.scales import (
    CHANGING,
    STATISTICS,
    asked_of,
    explained,
    is_harmless,
    is_share,
    scale_of_unit,
    split_of,
    unit_beside,
    words,
)
from phrasemodels.verdicts.tables import (
    Column,
    Names,
    Row,
    Table,
    columns_of,
    folded,
    folded_metric,
    has_two_metrics,
    is_value,
    metrics_of,
    roles_of,
    split_header,
    tables,
    with_heading,
    with_split,
)


def half_unit(printed: str) -> float:
    """Return half a unit of the last digit: 0.05 for "47.1", 0.5 for "29"."""
    exponent = Decimal(printed).as_tuple().exponent
    assert isinstance(exponent, int), f"{printed} is not a number"
    return 0.5 * 10.0**exponent


def prints_as(printed: str, value: float) -> bool:
    """Return whether a value rounds to a printed number. A tie may go either way."""
    return abs(float(printed) - value) <= half_unit(printed) * (1 + 1e-9)


def counts_of(percent: str, n: int) -> list[int]:
    """Return every k for which k of n rounds to a printed percentage. A tie may go either way."""
    ways = (ROUND_HALF_UP, ROUND_HALF_DOWN)
    return [k for k in _near(percent, n) if any(_percent(k, n, percent, way) == Decimal(percent) for way in ways)]


def least_whole(percents: Sequence[str]) -> int:
    """Return the least n for which all printed percentages, from 0 to 100, are shares k of n."""
    most = 10 ** (2 + max(map(digits, percents)))  # of which every percentage with so many digits is a share
    return next(n for n in range(1, most + 1) if n == most or all(counts_of(percent, n) for percent in percents))


def no_share(percent: str, n: int) -> str:
    """Say why a printed percentage is no share k of n. Empty if it is one."""
    if counts_of(percent, n):
        return ""
    below = math.floor(float(percent) * n / 100)
    shares = ", ".join(f"{k} of {n} is {100 * k / n:.{digits(percent) + 1}f}" for k in (below, below + 1) if k <= n)
    cut = [k for k in _near(percent, n) if _percent(k, n, percent, ROUND_DOWN) == Decimal(percent)]
    said = f"{Decimal(percent):f} % is no share of {n}: {shares}"
    return said + (f"; {cut[0]} of {n} cut off instead of rounded gives it" if cut else "")


def no_mean(printed: str, values: Sequence[str]) -> str:
    """Say why a printed mean is not the mean of the printed values. Empty if it may be, by any rounding.

    If it is the mean of all but one of them, that is said.
    """
    mean, slack = _mean(values)
    if _reaches(printed, mean, slack):
        return ""
    said = f"{printed} is not the mean of the {len(values)} values that it stands below: they give {mean:.2f}"
    for place, value in enumerate(values) if len(values) > 2 else ():
        others, slack = _mean([*values[:place], *values[place + 1 :]])
        if _reaches(printed, others, slack):
            return f"{said}; {WITHOUT} {value}, number {place + 1}, they give {others:.2f}, which prints it"
    return said


WITHOUT = "without"


def _mean(values: Sequence[str]) -> tuple[float, float]:
    """Return the mean of printed values, and how far rounding moves it."""
    return math.fsum(map(float, values)) / len(values), math.fsum(map(half_unit, values)) / len(values)


def no_total(printed: str, weights: Sequence[float], values: Sequence[str]) -> str:
    """Say why a printed number is not the weighted total of printed values. Empty if it may be, by any rounding.

    weights: one for each value, for example 1, -1 for a difference.
    """
    total = math.fsum(weight * float(text) for weight, text in zip(weights, values, strict=True))
    slack = math.fsum(abs(weight) * half_unit(text) for weight, text in zip(weights, values, strict=True))
    if _reaches(printed, total, slack):
        return ""
    terms = "".join(f" {'+-'[weight < 0]} {text}" for weight, text in zip(weights, values, strict=True))
    return f"{printed} is not {terms.removeprefix(' + ').strip()}, which is {total:.{digits(printed) + 1}f}"


def no_f1(printed: str, precision: str, recall: str) -> str:
    """Say why a printed F1 does not follow from a printed precision and recall. Empty if it may, by any rounding."""
    low, middle, high = (
        _harmonic(*(max(0.0, float(text) + sign * half_unit(text)) for text in (precision, recall)))
        for sign in (-1, 0, 1)
    )
    slack = half_unit(printed) * (1 + 1e-9)
    if low - slack <= float(printed) <= high + slack:
        return ""
    return f"precision {precision} and recall {recall} have F1 {middle:.{digits(printed) + 1}f}, not {printed}"


def _harmonic(one: float, other: float) -> float:
    """Return the harmonic mean of two numbers; 0 if both are 0."""
    return 2 * one * other / (one + other) if one + other else 0.0


def no_product(factors: Sequence[tuple[str, str]]) -> str:
    """Say why pairs of printed numbers do not have one product. Empty if they may, by any rounding."""
    ranges = [_product_range(*pair) for pair in factors]
    if max(low for low, _ in ranges) <= min(high for _, high in ranges) + 1e-9:
        return ""
    return ", ".join(f"{one} × {other} is {float(one) * float(other):.2f}" for one, other in factors)


def product_outside(one: str, other: str, least: float, most: float) -> str:
    """Say why two printed numbers do not have a product from `least` to `most`. Empty if they may."""
    low, high = _product_range(one, other)
    if low <= most and least <= high:
        return ""
    return f"{one} × {other} is {float(one) * float(other):.2f}"


def _product_range(one: str, other: str) -> tuple[float, float]:
    """Return the smallest and the largest product of two values that round to these positive numbers."""
    pairs = [(float(text) - half_unit(text), float(text) + half_unit(text)) for text in (one, other)]
    return pairs[0][0] * pairs[1][0], pairs[0][1] * pairs[1][1]


def exchanged(printed: tuple[str, str], values: tuple[float, float]) -> str:
    """Say that two printed numbers stand in each other's place. Empty if they don't."""
    one, other = printed
    here = prints_as(one, values[0]) or prints_as(other, values[1])
    there = prints_as(one, values[1]) and prints_as(other, values[0])
    return f"{one} and {other} are exchanged: each is the other's" if there and not here else ""


def no_sum(printed: str, step: float, base: float, parts: int, slack: float = 0.0) -> str:
    """Say why a printed number is not `base + parts * step`, with a fitting number of parts, if there is one.

    slack: distance of the base from its true value, because it follows from rounded numbers.
    """
    expected = base + parts * step
    if _reaches(printed, expected, slack):
        return ""
    fits = [k for k in range(1, 2 * parts + 1) if _reaches(printed, base + k * step, slack)]
    return f"{parts} layers have {expected:.{digits(printed)}f}, not {printed}" + (
        f", which {fits[0]} have" if fits else ""
    )


def base_of(printed: Mapping[int, str], step: float) -> tuple[float, float]:
    """Return the base of sums `base + parts * step` with these printed values, by their parts, and its possible error.

    ValueError: no base gives all of them.
    """
    low = max(float(text) - half_unit(text) - parts * step for parts, text in printed.items())
    high = min(float(text) + half_unit(text) - parts * step for parts, text in printed.items())
    if low > high:
        raise ValueError(f"{printed} are not sums with a step of {step}")
    return (low + high) / 2, (high - low) / 2


def _reaches(printed: str, value: float, slack: float) -> bool:
    return abs(float(printed) - value) <= (half_unit(printed) + slack) * (1 + 1e-9)


def digits(printed: str) -> int:
    """Return the digits after the decimal point."""
    exponent = Decimal(printed).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _near(percent: str, n: int) -> range:
    """The counts whose share may round to a percentage."""
    middle = float(percent) * n / 100
    reach = half_unit(percent) * 2 * n / 100 + 1
    return range(max(0, math.floor(middle - reach)), min(n, math.ceil(middle + reach)) + 1)


def _percent(k: int, n: int, printed: str, rounding: str) -> Decimal:
    return (Decimal(100 * k) / n).quantize(Decimal(printed), rounding)


NEEDED = ("paper", "table", "row", "dataset", "metric", "value")
OPTIONAL = (
    *("n", "runs", "best_of", "deviation", "scale", "margin", "bound", "lower_is_better", "arithmetic", "baseline"),
    *("our_row", "our_dataset", "our_metric", "not_comparable", "gain_over"),
)
MOST = 100_000  # printed numbers
MOST_ITEMS = 10_000_000
VALUE = re.compile(r"[-−]?\d{1,15}(\.\d{1,60})?\s?%?")
COUNT = "count"
RELATIONS = ("mean of ", "sum of ", "difference of ", "f1 of ")


@dataclass(frozen=True)
class Printed:
    """A printed number and where it stands. value: its text, such as "47.1" or "87.1%".

    n: the items that it is a share of; 0 if it is no share. runs: it is the mean of so many runs, the best of `best_of` runs
    (0: of as many); deviation: printed standard deviation over them. scale: percent, share, positive or count; empty: by its
    metric. margin: how far our mean may lie from it, in its unit; None: by the scale. bound: it is a bound, > or <.
    arithmetic: how the paper's numbers make it, such as "mean of A; B"; "count" if it does not vary by seed. baseline: the
    row that it is tested against. our_row, our_dataset, our_metric: names in our results, if they are others. not_comparable:
    why it cannot be compared with them, such as other data. lower_is_better: None: by its metric. gain_over: the paper claims
    that it is better than this row. columns: its line, by the names of columns, with the system and data set that `row` and
    `dataset` are made of. heading: what data set and metric are made of, if it may be a metric. beside: the text beside its table, and
    the line above its rows. asked: why it is judged only if `--same` says so. ValueError: a value that is none of these.
    """

    paper: str
    table: str
    row: str
    dataset: str
    metric: str
    value: str
    n: int = 0
    runs: int = 0
    best_of: int = 0
    deviation: float | None = None
    scale: str = ""
    margin: float | None = None
    bound: str = ""
    lower_is_better: bool | None = None
    arithmetic: str = ""
    baseline: str = ""
    our_row: str = ""
    our_dataset: str = ""
    our_metric: str = ""
    not_comparable: str = ""
    gain_over: str = ""
    heading: str = field(default="", compare=False, repr=False)
    beside: str = field(default="", compare=False, repr=False)
    asked: str = field(default="", compare=False, repr=False)
    columns: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.value and not VALUE.fullmatch(self.value):
            hint = "; what follows ± stands in the column deviation" if "±" in self.value else ""
            raise ValueError(f"value {self.value[:40]!r} is no printed number, such as 47.1 or 87.1%{hint}")
        if not (self.n >= 0 and self.runs >= 0 and self.n * self.runs <= MOST_ITEMS):
            raise ValueError(f"n={self.n}, runs={self.runs}: must be positive, and n × runs at most {MOST_ITEMS}")
        if self.best_of and self.best_of < max(1, self.runs):
            raise ValueError(f"best_of={self.best_of}: the best {max(1, self.runs)} of fewer runs")
        if self.scale not in ("", "percent", "share", "positive", "count"):
            raise ValueError(f"scale {self.scale[:20]!r}: must be percent, share, positive or count, or empty")
        if self.bound not in ("", ">", "<"):
            raise ValueError(f"bound {self.bound[:20]!r}: must be > or <, or empty")
        if self.margin is not None and not 0 < self.margin < math.inf:
            raise ValueError(f"margin={self.margin}: must be a positive number")
        if self.deviation is not None and not 0 <= self.deviation < math.inf:
            raise ValueError(f"deviation={self.deviation}: must be a number from 0 on")
        if self.arithmetic not in ("", COUNT, "mean") and not self.arithmetic.startswith(RELATIONS):
            known = ", ".join((COUNT, "mean", *(f"{name}A; B" for name in RELATIONS)))
            raise ValueError(f"arithmetic {self.arithmetic[:40]!r}: must be {known}, or empty")

    @property
    def digits(self) -> str:
        """The number without a percent sign, as `judge` reads it."""
        return self.value.replace("−", "-").removesuffix("%").strip()

    @property
    def is_percent(self) -> bool:
        """Whether it is printed with a percent sign."""
        return self.value.endswith("%")

    @property
    def where(self) -> tuple[str, str, str, str, str]:
        """Its identity: paper, table, row, data set, metric."""
        return self.paper, self.table, self.row, self.dataset, self.metric


def read_printed(path: Path, names: Names | None = None, unread: list[str] | None = None) -> list[Printed]:
    """Return the printed numbers of a file.

    Args:
        path: A table of one number a line, with the columns NEEDED and OPTIONAL ones, or a table as papers print it.
        names: What the file doesn't say.
        unread: Gets a line for each cell or line that isn't read, with its place and what to write; None: the first one is an error.

    Raises:
        ValueError: A mistake, with its line.
    """
    problems: list[str] = [] if unread is None else unread
    names = names or Names()
    found: dict[tuple[str, ...], Printed] = {}
    twice: set[tuple[str, ...]] = set()
    found_tables = tables(path)
    stem = re.sub(r"[\W_]+", " ", path.name.partition(".")[0]).strip()
    names = names._replace(paper=names.paper or stem)
    for table in found_tables if split_of(stem) not in ("", "train", "training") else ():
        table.beside = ". ".join(filter(None, (table.beside, stem)))
    for column in names.columns:
        if not any(column in (name, plain(name)) for table in found_tables for name in table.columns):
            problems.append(f"{path}: no column {column[:40]!r}, of which --metric says the metric")
    read = [(table, list(_numbers(table, with_heading(names, table), problems))) for table in found_tables]
    for where, one in _under_headings(read, problems):
        if one.where in found:
            what = " / ".join(filter(None, one.where))[:200]
            problems.append(f"{where}: {what} stands there twice: give each table its own file, or a column table")
            twice.add(one.where)
        found[one.where] = one
        if len(found) > MOST:
            raise ValueError(f"{path}: more than {MOST} numbers; divide it")
    if unread is not None:
        problems += [note for table, _ in read for note in table.notes]
    if unread is None and problems:
        raise ValueError(problems[0])
    if not found.keys() - twice:
        raise ValueError(
            problems[0]
            if problems
            else f"{path}: no printed numbers; a table has system, dataset, metric and value, in CSV, Markdown or LaTeX"
        )
    return [one for where, one in found.items() if where not in twice]


def _under_headings(
    read: Sequence[tuple[Table, list[tuple[str, Printed]]]], problems: list[str]
) -> Iterator[tuple[str, Printed]]:
    """Yield the numbers of tables. If several tables have a metric, and none a data set, their headings name it; all of them have one."""
    tables_of = Counter(
        metric for _, of in read for metric in {folded_metric(one.metric) for _, one in of if not one.dataset}
    )
    bare = {folded_metric(one.metric) for table, of in read if not table.title for _, one in of if not one.dataset}
    for table, of in read:
        unclear = [one.metric for _, one in of if not one.dataset and tables_of[folded_metric(one.metric)] > 1
                   and folded_metric(one.metric) in bare]  # fmt: skip
        if unclear:
            problems.append(
                f"{table.where}: several tables have {unclear[0][:40]}, one without a heading: add a column dataset, or write files"
            )
        for where, one in of:
            if unclear and not one.dataset and one.metric in unclear:
                continue
            named = one.dataset or tables_of[folded_metric(one.metric)] < 2
            yield (
                where,
                one if named else replace(one, dataset=table.title, columns={**one.columns, "dataset": table.title}),
            )


def _numbers(table: Table, names: Names, problems: list[str]) -> Iterator[tuple[str, Printed]]:
    """Yield the printed numbers of a table with their places. problems: gets unreadable ones."""
    groups = {row.group: "/".join(metrics_of(row.group)) for row in table.rows}
    roles, columns = columns_of(table, names if names.metric else names._replace(metric=next(filter(None, groups.values()), "")), "value")
    problems += table.bad
    several = len({row.get("split", roles) for row in table.rows}) > 1
    same = {one.casefold() for one in names.same}
    used = {*roles.values(), *(name for column in columns for name in (column.name, column.deviation))}
    stated = names.metric if names.metric != "/".join(metrics_of(table.title)) else ""
    said = " ".join((*table.columns, stated, *(row.get("system", roles) for row in table.rows)))
    table.notes = [note for note in table.notes if not any(of and f"{group[:60]!r} isn't read" in note for group, of in groups.items())]
    if table.beside:
        table.notes.append(f"{table.where}: beside the table stands: {MARKED.sub(_mark, table.beside)[:200]!r}")
    all_marks = frozenset[str]().union(*table.marks.values(), *(marks for row in table.rows for marks in row.marks.values()))
    text, meanings = explained(table.beside, all_marks)
    for row in table.rows:
        given = {role: row.get(role, roles).strip() for role in roles}
        if all(split_of(word) or word in ("test", "set", "split", "data", "results") for word in words(row.group)):
            given["split"] = given.get("split") or next((word for word in words(row.group) if split_of(word) or word == "test"), "")
        texts = [text for name, cell in row.cells.items() if name not in used and (text := str(cell or "")) and not is_value(text)]
        beside = ". ".join(filter(None, (text, row.group, *texts)))
        own_names = f"{said} {given.get('dataset', '')} {given.get('metric', '')} {given.get('split', '')}"
        asked = asked_of(beside, own_names)
        if names.dataset and (on := ON.search(beside)) and not {*folded(names.dataset)} <= {*folded(beside)}:
            asked = asked or on[1].casefold()
        if group := groups[row.group]:
            names = names._replace(metric=group)
        if {*words(given.get("system", ""))} and {*words(given.get("system", ""))} <= CHANGING:
            table.notes.append(f"{row.where}: not read: {given['system'][:40]!r} is a difference of rows")
            continue
        for column in columns:
            where = f"{row.where}, column {column.name}" if not column.long else row.where
            own = given.get("metric", "") or ("" if split_header(plain(column.name))[1] else group)
            for metric, part in column.cells_of(row.cells.get(column.name), own):
                try:
                    row.number_of(column.name)
                    one = _number(given, column, metric, part, row, names, several, table, problems)
                    no_set = column.dataset and next((word for word in words(column.dataset) if word in STATISTICS), "")
                    marks = {*row.marks.get(column.name, ()), *table.marks.get(column.name, ())} & meanings.keys()
                    doubts = (asked, no_set, unit_beside(beside, f"{metric} {column.name}"),
                              *(_of_mark(mark, meanings[mark], own_names, same) for mark in sorted(marks)))  # fmt: skip
                    doubt = next((ASKED.format(doubt) for doubt in doubts if doubt and doubt not in same), "")
                    yield where, replace(one, beside=MARKED.sub(_mark, ". ".join((beside, *meanings.values()))), asked=doubt)
                except _EmptyError:
                    continue
                except ValueError as error:
                    problems.append(f"{where}: {error}")


def _mark(found: re.Match[str]) -> str:
    return found[1]


def _of_mark(mark: str, meaning: str, columns: str, same: set[str]) -> str:
    """Return the word of what a mark of a number means by which it is another one, or else the mark; empty if it is harmless."""
    if mark in same:
        return ""
    word = asked_of(meaning, columns)
    return word or ("" if is_harmless(meaning) else mark)


ON = re.compile(r"\bon (?:the )?([A-Z0-9][\w.+-]*)")
ASKED = "the text beside the number says {0!r}: if yours are of the same kind, say --same {0!r}"


class _EmptyError(Exception):
    """A cell of a table as it is printed holds nothing."""


def _number(
    given: Mapping[str, str], column: Column, metric: str, cell: str, row: Row, names: Names, several: bool, table: Table,
    problems: list[str],
) -> Printed:  # fmt: skip
    """Return the number of a cell. ValueError: it is none, or a column beside it is wrong. _EmptyError: there is nothing."""
    value = value_of(str(cell or ""), table.comma)
    if re.match(r"[+↑↓▲▼]\s*[\d.]", plain(str(cell or "")[:LONGEST])) and not CHANGING & {*words(f"{metric} {column.name}")}:
        raise ValueError(f"{str(cell)[:40]!r} may be a gain over another row: write the number itself, without sign or arrow")
    if not value.text and not column.long:
        raise _EmptyError
    if value.text == "nan":
        raise ValueError(f"{str(cell)[:40]!r} is no printed number")
    if value.note:
        problems.append(f"{row.where}: {value.note}")
    own = {
        "system": given.get("system") or column.system or names.system,
        "dataset": given.get("dataset") or column.dataset or names.dataset,
    }
    if value.deviation is not None and "±" not in plain(str(cell)) and has_two_metrics(plain(column.name)):
        outer, inner = (part.strip(" ()[]") for part in re.split(r"(?=[(\[])", plain(column.name), maxsplit=1))
        raise ValueError(
            f"{str(cell)[:40]!r} may be {outer} and {inner}: write both with a slash, in the header and in the cell"
        )
    system, dataset = ", ".join(filter(None, (own["system"], given.get("variant")))), own["dataset"]
    dataset = with_split(dataset, given.get("split", ""), several)
    spread = given.get("deviation") or (str(row.cells.get(column.deviation, "")) if column.deviation else "")
    deviation = value_of(spread, table.comma).text.removesuffix("%") if spread else value.deviation
    if "%" in f"{spread} {column.deviation}" and "%" not in f"{value.text} {metric}" and abs(value.number) <= 1:
        raise ValueError(f"{value.text} and its deviation {spread[:20]} %: write both in one unit")
    if not system and "row" not in roles_of(table.columns):
        raise ValueError("no system: add a column of systems, or say --system")
    if {dataset.casefold(), plain(column.name).casefold(), metric.casefold()} & {one.casefold() for one in names.same}:
        own["same"] = "yes"
    fields: dict[str, Any] = {
        "paper": plain(given.get("paper") or names.paper),
        "table": plain(given.get("table") or names.table),
        "row": plain(system),
        "dataset": plain(dataset),
        "metric": plain(metric or names.metric),
        "value": value.text,
        "deviation": None if deviation in ("", None) else float(deviation),
        "bound": given.get("bound") or value.bound,
        "lower_is_better": _less(given.get("lower is better", ""), f"{metric} {column.name}"),
        "scale": given.get("scale") or scale_of_unit(given.get("unit", "")),
        **{name: given.get(name.replace("_", " "), "") for name in TEXTS},
        **{name: _whole(name, given.get(name.replace("_", " "), "")) for name in ("n", "runs", "best_of")},
        "columns": {role.replace(" ", "_"): text for role, text in given.items()} | own,
        "heading": column.name if column.guessed and dataset else "",
    }
    if not fields["metric"]:
        raise ValueError("no metric: add a column metric, or say --metric")
    if fields["n"] and not is_share(said := fields["heading"] or fields["metric"]):
        table.notes.append(f"{row.where}: n isn't used: {said[:40]} is no share of items")
    margin = given.get("margin", "")
    return Printed(**fields, margin=_positive("margin", margin) if margin else None)


TEXTS = ("arithmetic", "baseline", "our_row", "our_dataset", "our_metric", "not_comparable", "gain_over")


def _whole(name: str, text: str) -> int:
    if text and not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f"{name}={text[:20]!r} is no whole number")
    return int(text or 0)


def _positive(name: str, text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        raise ValueError(f"{name}={text[:20]!r} is no positive number")
    return float(text)


def _less(text: str, header: str) -> bool | None:
    """Return whether less is better, by a column or by an arrow; None if nothing says it."""
    if text.lower() not in ("", "yes", "no", "true", "false", "1", "0"):
        raise ValueError(f"lower_is_better={text[:20]!r}: must be yes or no")
    if text:
        return text.lower() in ("yes", "true", "1")
    return "↓" in header if ("↓" in header) != ("↑" in header) else None


def impossible(one: Printed, others: Sequence[Printed]) -> str:
    """Say why a printed number cannot be, with the arithmetic. Empty if it can. others: all numbers of the paper.

    ValueError: its arithmetic names a missing number.
    """
    if not one.value:
        return ""
    several = one.deviation is not None and not one.runs  # a mean over runs, of which the number is not known
    if (
        one.n
        and not several
        and is_share(one.heading or one.metric)
        and (said := no_share(_as_percent(one), one.n * max(1, one.runs)))
    ):
        runs = f" ({one.runs} runs of {one.n})" if one.runs > 1 else ""
        return said + (runs or "; a mean over runs could be: then give `runs`")
    if one.arithmetic in ("", COUNT):
        return ""
    kind, _, names = one.arithmetic.partition(" of ")
    parts = [part.digits for part in _parts(one, names, others)]
    if kind == "mean":
        return no_mean(one.digits, parts)
    if kind == "sum":
        return no_total(one.digits, [1] * len(parts), parts)
    if len(parts) != 2:
        raise ValueError(f"{' / '.join(one.where)[:200]}: {kind} is of two numbers, A; B")
    return no_total(one.digits, (1, -1), parts) if kind == "difference" else no_f1(one.digits, *parts)


def _as_percent(one: Printed) -> str:
    """Return a share in percent: 0.871 is 87.1."""
    share = Decimal(one.digits)
    return one.digits if one.is_percent or share > 1 else str(share.scaleb(2))


def _parts(one: Printed, names: str, others: Sequence[Printed]) -> list[Printed]:
    """Return the numbers in another's arithmetic: other data sets of its row, rows of its data set, or metrics.

    Without names they are all other data sets of its row.
    """
    table = [other for other in others if other.where[:2] == one.where[:2] and other.value and other is not one]
    by_dataset = {o.dataset: o for o in table if (o.row, o.metric) == (one.row, one.metric)}
    if not names:
        if by_dataset:
            return list(by_dataset.values())
        raise ValueError(f"{' / '.join(one.where)[:200]}: a mean, but no other data set of its row is there")
    by_row = {o.row: o for o in table if (o.dataset, o.metric) == (one.dataset, one.metric)}
    by_metric = {o.metric: o for o in table if (o.row, o.dataset) == (one.row, one.dataset)}
    wanted = [name.strip() for name in names.split(";")]
    for known in (by_dataset, by_row, by_metric):
        if all(name in known for name in wanted):
            return [known[name] for name in wanted]
    raise ValueError(
        f"{' / '.join(one.where)[:200]}: {one.arithmetic[:80]!r} names no other data sets of its row, rows of its data set, or "
        "metrics of both"
    )
