"""The papers, how they are cited, and the numbers that they print: the five, and those that users add."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from phrasemodels import project
from phrasemodels.verdicts.cells import value_of
from phrasemodels.verdicts.printed import half_unit
from phrasemodels.verdicts.rule import LARGEST_MARGIN, PrintedValue
from phrasemodels.verdicts.scales import decide, scale_of_unit
from phrasemodels.verdicts.tables import Row, csv_rows, tables

COLUMNS = (
    "paper",
    "table",
    "system",
    "variant",
    "dataset",
    "split",
    "metric",
    "value",
    "stdev",
    "unit",
    "notes",
    "chance",
)
NEEDED = ("table", "system", "metric", "value")
PRINTED = "printed.csv"  # beside the module of a paper that a user adds


@cache
def published_results() -> list[dict[str, str]]:
    """Return all numbers that papers print, as rows of strings. ValueError: a file that a user adds is wrong."""
    ours = list(csv_rows(Path(str(files("phrasemodels.data") / "published_results.csv"))))
    return [*ours, *(row for paper in project.parts("papers") for row in _added(paper))]


def _added(paper: str) -> Iterable[dict[str, str]]:
    """Yield the rows of the file beside a paper's module; missing columns are empty, `paper` is the paper's name."""
    if (path := project.beside(paper, PRINTED)) is None:
        return
    for table in tables(path):
        if unknown := [name for name in table.columns if name not in COLUMNS]:
            raise ValueError(f"{path}: no column is called {unknown[0]!r}; columns: {', '.join(COLUMNS)}")
        if table.bad:
            raise ValueError(table.bad[0])
        for row in table.rows:
            if wrong := [name for name in NEEDED if not row.cells.get(name)]:
                raise ValueError(f"{row.where}: no {wrong[0]}; columns: {', '.join(COLUMNS)}")
            yield dict.fromkeys(COLUMNS, "") | row.cells | _value(row, table.comma) | {"paper": paper}


def _value(row: Row, comma: bool | None) -> dict[str, str]:
    """Return value, deviation and unit of a row. ValueError: its value is no number."""
    try:
        found = value_of(row.cells["value"], comma)
        if not found.text or found.text == "nan":
            raise ValueError(f"{row.cells['value']!r} is no number; write it as printed")
    except ValueError as error:
        raise ValueError(f"{row.where}: value {error}") from None
    deviation = "" if found.deviation is None else f"{found.deviation:g}"
    unit = "%" if found.text.endswith("%") else ""
    return {
        "value": found.text.removesuffix("%"),
        "stdev": row.cells.get("stdev") or deviation,
        "unit": row.cells.get("unit") or unit,
    }


VERDICTS = ("reproduced", "higher", "lower", "inconclusive", "impossible", "suspect", "not comparable", "not run")


JUDGED = VERDICTS[:4]
GROUP = ("paper", "table", "metric")  # numbers of which have one scale


def printed_value(row: Mapping[str, str]) -> PrintedValue:
    """Return how a printed number was made, by its row: unit, and standard deviation over runs.

    Scores of percent and correlations have the margins of their scale; a relative speed is a ratio. A gain in percentage points may
    be off by half of itself, by 2 points at most.
    """
    value, deviation = row["value"], float(row["stdev"]) if row["stdev"] else None
    if row["unit"] == "percentage points":
        return PrintedValue("", max(2 * half_unit(value), min(LARGEST_MARGIN, abs(float(value)) / 2)))
    unit = "positive" if row["metric"].startswith("relative_") else row["unit"]
    same = [] if unit else [(one["value"], ()) for one in published_results() if all(one[n] == row[n] for n in GROUP)]
    scale = scale_of_unit(unit) if unit else decide(row["metric"], same or [(value, ())]).scale
    return PrintedValue(scale, deviation=deviation)


@dataclass(frozen=True)
class Paper:
    """How a paper is cited. number: its name here. short: the title where space is little. authors: "Family, Given"; none if
    the paper is anonymous. text: the version that is reproduced. later: what became of it."""

    number: str
    short: str
    title: str
    authors: tuple[str, ...]
    venue: str
    year: int
    url: str
    key: str
    booktitle: str = ""
    pages: str = ""
    doi: str = ""
    arxiv: str = ""
    code: str = ""
    text: str = ""
    later: str = ""

    @property
    def name(self) -> str:
        """The short title with the number."""
        return f"{self.short} ({self.number})"

    @property
    def by(self) -> str:
        """The authors, given names first."""
        *first, last = [" ".join(reversed(author.split(", "))) for author in self.authors] or ["Anonymous authors"]
        return f"{', '.join(first)} and {last}" if first else last

    @property
    def citation(self) -> str:
        """Authors, title, venue and link on one line."""
        return f"{self.by}: {self.title}. {self.venue}. {self.url}"

    @property
    def bibtex(self) -> str:
        """The entry of a bibliography."""
        fields = {
            "title": f"{{{self.title}}}",
            "author": " and ".join(self.authors) or "{Anonymous authors}",
            "booktitle": self.booktitle,
            "pages": self.pages.replace("–", "--"),
            "year": str(self.year),
            "doi": self.doi,
            "eprint": self.arxiv,
            "archiveprefix": "arXiv" * bool(self.arxiv),
            "note": "" if self.authors else self.text,
            "url": self.url,
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join([f"@{'inproceedings' if self.booktitle else 'misc'}{{{self.key},", *lines, "}"])


@cache
def papers() -> dict[str, Paper]:
    """Return the five papers by number."""
    known = tomllib.loads((files("phrasemodels.data") / "papers.toml").read_text(encoding="utf-8"))
    return {number: Paper(number, **{**about, "authors": tuple(about["authors"])}) for number, about in known.items()}


def paper_name(number: str) -> str:
    """Return the short title of a paper with its number; a paper that a user adds is called by its name."""
    return papers()[number].name if number in papers() else number


def with_names(text: str) -> str:
    """Return a text in which "Paper 000" is the paper's name."""
    return re.sub(r"\bPaper (\d{3})\b", lambda found: paper_name(found[1]), text)
