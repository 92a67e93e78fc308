"""The papers, their citations and their printed numbers: the five and users' own."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from phrasemodels import project
from phrasemodels.data.store.store import digest_of
from phrasemodels.verdicts.printed import Printed, read_printed
from phrasemodels.verdicts.rule import PrintedValue, how_made
from phrasemodels.verdicts.scales import decide, words
from phrasemodels.verdicts.tables import Names

COLUMNS = (
    *("paper", "table", "system", "variant", "dataset", "split", "metric", "value", "stdev", "unit", "notes", "chance"),
    *("n", "n_of", "same_as", "made_of", "doubt", "exchanged_with", "not_comparable"),
)
PRINTED = "printed.csv"  # beside the module of a paper that a user adds
Columns = Mapping[str, Any]  # a row of `published_results`


@cache
def published_results() -> list[dict[str, Any]]:
    """Return all printed numbers by columns: texts and `number` as the verdicts read it.

    Raises:
        ValueError: A user's file is wrong.
    """
    ours = Path(str(files("phrasemodels.data") / "published_results.csv"))
    return [*_rows(ours), *(row for paper in project.parts("papers") for row in _added(paper))]


def _added(paper: str) -> list[dict[str, Any]]:
    """Return the rows of the file beside a paper's module."""
    path = project.beside(paper, PRINTED)
    return _rows(path, paper) if path else []


def _rows(path: Path, paper: str = "") -> list[dict[str, Any]]:
    """Return the rows of a file. ValueError: a line isn't read, or lacks its table or value."""
    unread: list[str] = []
    found = read_printed(path, Names(paper), unread)
    if wrong := [
        f"{path}: {' '.join(one.where[2:])}: no table or no value" for one in found if not (one.table and one.value)
    ]:
        unread += wrong
    if unread:
        raise ValueError(unread[0])
    return [
        dict.fromkeys(COLUMNS, "")
        | dict(one.columns)
        | {"paper": paper or one.paper, "table": one.table, "metric": one.metric, "value": one.digits}
        | {"stdev": "" if one.deviation is None else f"{one.deviation:g}", "number": one}
        | {"unit": one.columns.get("unit") or "%" * one.is_percent}
        for one in found
    ]


IDENTITY = ("paper", "system", "variant", "dataset", "split", "metric", "value")


def original(row: Columns) -> Columns:
    """Return the row itself or the original of a repeated row.

    Its column `same_as` gives the original (table, variant, data set).
    """
    if not row["same_as"]:
        return row
    same = dict(zip(("table", "variant", "dataset"), row["same_as"].split(" | "), strict=True))
    wanted = {name: row[name] for name in ("paper", "system", "split", "metric")} | same
    (found,) = [o for o in published_results() if all(o[name] == value for name, value in wanted.items())]
    return found


def same_numbers(row: Columns) -> list[Columns]:
    """Return all rows of the file with the same number as a row, itself among them."""
    return _same()[_identity(row)]


@cache
def _same() -> dict[tuple[str, ...], list[Columns]]:
    found: dict[tuple[str, ...], list[Columns]] = {}
    for row in published_results():
        found.setdefault(_identity(row), []).append(row)
    return found


def _identity(row: Columns) -> tuple[str, ...]:
    return tuple(original(row)[name] for name in IDENTITY)


VERDICTS = ("reproduced", "higher", "lower", "inconclusive", "impossible", "suspect", "not comparable", "not run")
JUDGED = VERDICTS[:4]
# kinds of what cannot be: proved; or it holds if what its reason assumes is so
CONTRADICTION, SUSPECT = "contradiction", "suspect"
EXCHANGED = f"{CONTRADICTION}: exchanged with another number"
MAIN = (("accuracy",), ("bleu",))  # metrics of the pipeline itself, in percent
GROUP = ("paper", "table", "metric")  # numbers of which have one scale


def printed_value(row: Columns) -> PrintedValue:
    """Return how a printed number was made by its line. Its scale is decided once a table and metric."""
    one: Printed = row["number"]
    scale, lower = one.scale, one.lower_is_better
    if not (scale or row["unit"]):
        same = [(other["value"], ()) for other in published_results() if all(other[n] == row[n] for n in GROUP)]
        decision = decide(one.metric, same or [(one.value, ())])
        scale, lower = decision.scale, decision.lower_is_better
    of_user = row["paper"] in project.parts("papers")  # whose own metrics may return shares
    ours_percent = words(one.metric) in MAIN if of_user else scale == "percent"
    return replace(how_made(one, scale, lower_is_better=lower), ours_percent=ours_percent)


@dataclass(frozen=True)
class Paper:
    """The citation of a paper.

    number: its name here. short: a short title. authors: "Family, Given". None if the paper is anonymous. text: the
    reproduced version. later: its later fate.
    """

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
        """One line with authors and title and with venue and link."""
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
    """Return the short title of a paper with its number. A user's paper is called by its name."""
    return papers()[number].name if number in papers() else number


def with_names(text: str) -> str:
    """Return a text with the paper's name in place of "Paper 000"."""
    return re.sub(r"\bPaper (\d{3})\b", lambda found: paper_name(found[1]), text)


CHANGE = "+"  # stands before each override in the name of a changed row
_CHANGES = re.compile(r"\+(?=(?:recipe|model|train)\.)")
TAKEN = ("across",)  # names of ours in the place of a paper's number
LONGEST = 120  # characters of a file's name, before its ending


def divided(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the row and the overrides in the name of an experiment: `ROW+train.steps=2` has one override."""
    row, *changes = _CHANGES.split(name)
    return row, tuple(changes)


def file_name(name: str) -> str:
    """Return a name without slashes for files and folders.

    A long name is cut and gets a digest.
    """
    plain = re.sub(r"[^\w.,=+-]", "-", name)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 17]}-{digest_of(name)[:16]}"


def plain_reason(reason: str) -> str:
    """Return a reason of a verdict in words of a sentence: another corpus or 5 different settings."""
    text = reason.replace("a stand-in, not the paper's data", "another corpus than the paper's")
    text = re.sub(r"other than published: (\d+) settings", r"\1 settings are not as published", text)
    text = re.sub(r"the paper leaves open, and ours is: (\d+) settings", r"the paper leaves \1 open", text)
    text = re.sub(
        r" (\(phrasemodels compare-settings [^()]+\)); (the paper leaves \d+ open[^()]*) \1", r", and \2 \1", text
    )
    text = text.replace("other than published: ", "not as published: ")
    text = text.replace("the paper leaves open, and ours is: ", "chosen by us, as the paper leaves it open: ")
    text = re.sub(r"not the paper's ([a-z, ]+): (\d+) settings", r"\2 settings differ, of \1", text)
    text = re.sub(r"not the paper's ([a-z, ]+): 1 setting\b", r"1 setting differs, of \1", text)
    return re.sub(r"not the paper's ([a-z, ]+)(?=;|$)", r"settings differ, of \1", text)


SHORT = (  # words of a kind of reason, and that reason in at most four words
    ("counted", "counted"),
    ("re-tuning", "settings of our own"),
    ("as released", "the code's settings"),
    ("as published", "the paper's settings"),
    ("contradiction", "contradicts other numbers"),
    ("suspect", "under an assumption"),
    ("too few runs", "too few runs"),
    ("true by construction", "true by construction"),
    ("chosen because", "true by construction"),
    ("no logical forms", "answers aren't public"),
    ("stand-in", "other data"),
    ("trees by", "trees of another parser"),
    ("not the paper's size", "a small size"),
    ("not the paper's", "other settings"),
    ("literature", "work of others"),
    ("corpus is not here", "no corpus"),
    ("P100", "another machine"),
    ("memory", "what counts isn't said"),
    ("not counted", "not counted yet"),
    ("no run", "no run yet"),
    ("another model", "another model"),
)


def shown(row: Mapping[str, Any]) -> str:
    """Return our value with half its interval and the seeds."""
    if row["ours"] is None:
        return ""
    half = "" if row["half_width"] is None else f" ± {row['half_width']:.2f}"
    return f"{row['ours']:.2f}{half}" + ("" if row["exact"] else f" ({row['seeds']})")


def reading_lines(row: Mapping[str, Any]) -> list[str]:
    """Return a line for each reading of a number or a claim with its numbers, if there are several."""
    lines = []
    for r in row["readings"]:
        votes = f"{r['verdict']}, {'votes' if r['votes'] else 'has no vote'}"
        said = f"{shown(r)}, {votes}; {r['source']}" if "ours" in r else f"{votes}; {r['reason']}"
        lines.append(f"{r.get('name') or r.get('reading') or 'main'}: {said}")
    return lines if len(lines) > 1 else []


def short_reason(row: Mapping[str, Any]) -> str:
    """Return the reason of a verdict in at most four words."""
    if row["reason"].startswith("readings differ"):
        return "readings differ"
    if row["verdict"] == "reproduced" and row["says_nothing"]:
        return "says nothing: chance"
    return next((short for words, short in SHORT if words in row["kind"]), row["kind"][:24])
