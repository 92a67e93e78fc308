"""Comparison of an experiment's settings with the published ones, in five aspects.

data/published_settings/PAPER.csv has the settings of each table by the paper, its released code or the cited work. An
experiment is comparable with the paper if it differs from no line.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.resources import files
from typing import Any

from phrasemodels import project

ASPECTS = ("data", "size", "model", "training", "tuning")
THEIRS = ("paper", "code", "cited")  # who says a setting: the paper, its released code, or the work that it follows
OURS, UNLIKE = "ours", "unlike"  # the paper leaves it open and this is our choice; known to be unlike the paper's
STATED = "stated"  # known to be unlike what is published, and said beside each verdict in place of withholding it
SETTINGS = "settings.csv"  # beside the module of a paper that a user adds, in place of published_settings/PAPER.csv
PUBLISHED = "paper"  # the profile of the paper's size
COLUMNS = ("table", "row", "aspect", "setting", "value", "by", "source")
NO_VALUE = "empty"  # in words
IF = " if "  # between a setting and another one, without which the first has no effect
WITHOUT = ("none", "0", "")  # values of the other one
EITHER = " | "  # between values in a line that are as good: as printed, and as released
SHOWN = 2  # so many settings are named in a reason; of more their number
NOT = "not the paper's "
STATED_FIRST = "other than published: "
PRECISION = "train.precision"  # processors differ in which is fast: it changes no name where the paper leaves it open


@dataclass(frozen=True)
class Aspect:
    """One aspect of an experiment beside the published one.

    agreeing: number of settings as published. released: number of these by the released code alone. differing: each
    different setting in words. open: gaps of the paper and our choice for each. stated: known differences as said
    beside each verdict.
    """

    agreeing: int
    differing: tuple[str, ...]
    open: tuple[str, ...]
    stated: tuple[str, ...] = ()
    released: int = 0

    @property
    def as_published(self) -> bool:
        """Whether something is published of this aspect, and nothing differs."""
        return not self.differing and bool(self.agreeing or self.open or self.stated)


@cache
def published_settings(paper: str) -> list[dict[str, str]]:
    """Return the lines of data/published_settings/PAPER.csv. There are none without this file.

    Of several lines on one setting the last one counts. A line of `stated` follows one of the published setting.
    Columns: table and row: patterns of names (`table2*`). aspect. setting: the place of a field in an experiment like
    train.steps. `model.tuned if recipe.vectors` counts only with vectors. It is empty if the setting is no field.
    value: JSON-like text or words on the row at the paper's size. In `A | B` the paper prints one and its released code
    has the other. by: paper, code or cited (an experiment with another value differs), ours (the paper leaves it open),
    unlike (known to differ) or stated (known to differ and said beside each verdict). source: its place or the reason
    for the choice.
    """
    added = paper in project.parts("papers")
    path = (
        project.beside(paper, SETTINGS) if added else files("phrasemodels.data") / "published_settings" / f"{paper}.csv"
    )
    if path is None or not path.is_file():
        return []
    with path.open(encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
            raise ValueError(f"{path}: no column {missing[0]!r}; its columns are {', '.join(COLUMNS)}")
        return [_checked(row, f"{path}, line {rows.line_num}") for row in rows]


def _checked(row: dict[str, Any], where: str) -> dict[str, str]:
    """Return a line. ValueError: it is too short, or has a wrong aspect or kind of source."""
    if None in row or None in row.values():
        raise ValueError(f"{where}: too few or too many columns; they are {', '.join(COLUMNS)}")
    for column, known in (("aspect", ASPECTS), ("by", (*THEIRS, OURS, UNLIKE, STATED))):
        if row[column] not in known:
            raise ValueError(f"{where}: {column} {row[column]!r} is none of {', '.join(known)}")
    return row


def compare_settings(paper: str, folder: str, row: str, experiment: Any) -> dict[str, Aspect]:
    """Compare each aspect of an experiment with the lines on its table and row."""
    lines = []
    for line in (line for line in _lines(paper, folder) if fnmatchcase(row, line["row"])):
        other = line["setting"].partition(IF)[2]
        if not other or value_at(experiment, other) not in WITHOUT:  # else it has no effect
            lines.append({**line, "setting": setting_of(line)})
    return {aspect: _compare([line for line in lines if line["aspect"] == aspect], experiment) for aspect in ASPECTS}


@cache
def _lines(paper: str, folder: str) -> list[dict[str, str]]:
    return [line for line in published_settings(paper) if fnmatchcase(folder, line["table"])]


def leaves_precision_open(experiment: Any) -> bool:
    """Return whether the paper leaves the precision of an experiment open, by the last line on it."""
    lines = [line for line in _lines(experiment.table.paper, experiment.table.folder) if setting_of(line) == PRECISION]
    said = [line["by"] for line in lines if fnmatchcase(experiment.row, line["row"])]
    return said[-1:] == [OURS]


def setting_of(line: Mapping[str, str]) -> str:
    """Return the place of a line's setting, without a condition behind it."""
    return line["setting"].partition(IF)[0]


def _compare(lines: Sequence[dict[str, str]], experiment: Any) -> Aspect:
    """Compare one aspect with the published settings.

    A `stated` line applies only if our value equals its value. Otherwise the published line does.
    """
    last = {line["setting"] or line["value"]: line for line in lines}
    theirs = {line["setting"]: line for line in lines if line["by"] in THEIRS}
    elsewhere = "" if experiment.profile == PUBLISHED else "at the paper's size: "  # of which words are said
    agreeing, released, differing = 0, 0, []
    chosen: dict[str, list[str]] = {OURS: [], STATED: []}
    for line in last.values():
        ours = value_at(experiment, line["setting"]) if line["setting"] else line["value"]
        if line["by"] == STATED and _plain(ours) != _plain(line["value"]):
            line = theirs.get(line["setting"], line)
        size = "" if line["setting"] else elsewhere
        said = line["value"].split(EITHER)
        agrees = _plain(ours) in map(_plain, said)
        source = line["source"] if agrees else f"{elsewhere}{line['value']}; {line['source']}"
        if line["by"] == UNLIKE:
            differing.append(f"{size}{line['value']} ({line['source']})")
        elif not agrees and line["by"] != OURS:  # what the paper leaves open may have any value
            differing.append(f"{line['setting']} is {ours or NO_VALUE}, not {' or '.join(said)} ({line['source']})")
        elif line["by"] in chosen:
            chosen[line["by"]].append(size + f"{line['setting']} {ours}".strip() + f" ({source})")
        else:
            agreeing += 1
            released += line["by"] == "code"
    return Aspect(agreeing, tuple(differing), tuple(chosen[OURS]), tuple(chosen[STATED]), released)


def _plain(text: str) -> str:
    """Return a value with its numbers as `value_at` writes them: 1.0 is 1, and 0.9,0.98 is 0.9 0.98."""
    words = []
    for word in text.replace(",", " ").split():
        try:
            words.append(_written(float(word)))
        except ValueError:
            words.append(word)
    return " ".join(words)


def value_at(experiment: Any, place: str) -> str:
    """Return the value of a field of nested configurations as written in the file.

    It is `none` where a part has no such field. Functions and classes are written by their names. A configuration is
    written by the name of its class. Numbers are shortest.
    """
    value = experiment
    for name in place.split("."):
        value = value[int(name)] if name.isdigit() else getattr(value, name, None)
    return _written(value)


def _written(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, (tuple, list)):
        return " ".join(map(_written, value))
    if isinstance(value, str):
        return value
    if isinstance(value, partial):
        return _written(value.func)
    return str(getattr(value, "card_name", None) or getattr(value, "__name__", type(value).__name__))


def reason(aspects: Mapping[str, Aspect], name: str) -> str:
    """Return why an experiment is not comparable in one line. It is empty if all aspects are as published."""
    missing = {aspect: one for aspect, one in aspects.items() if not one.as_published}
    if not missing:
        return ""
    differing = [words for one in missing.values() for words in one.differing]
    unsaid = [aspect for aspect, one in missing.items() if not one.differing]
    return f"{NOT}{_listed(list(missing))}: {_few([*differing, *(f'nothing said of {aspect}' for aspect in unsaid)], name)}"


def kind_of(reason: str) -> str:
    """Return the aspects unlike the paper's in a reason without details. Any other reason stays as it is."""
    parts = (re.sub(f"({NOT}[^:;]*): .*", r"\1", part) for part in reason.split("; "))
    return "; ".join(dict.fromkeys(parts))


def caveat(aspects: Mapping[str, Aspect], name: str) -> str:
    """Return in one line all differences from the published settings, and our choices where the paper leaves them open.

    It is empty if there are none.
    """
    stated = [words for one in aspects.values() for words in one.stated]
    left = [words for one in aspects.values() for words in one.open]
    said = [
        f"{STATED_FIRST}{_few(stated, name)}" if stated else "",
        f"the paper leaves open, and ours is: {_few(left, name)}" if left else "",
    ]
    return "; ".join(filter(None, said))


def _few(said: list[str], name: str) -> str:
    """Return a few settings in words. For many settings return their names and how to see them."""
    if len(said) <= SHOWN:
        return "; ".join(said)
    names = ", ".join(dict.fromkeys(map(_name, said)))
    return f"{len(said)} settings: {names} (phrasemodels compare-settings {name})"


def _name(words: str) -> str:
    """Return the last name of a setting's field, or its words if it is no field."""
    bare = words.replace("at the paper's size: ", "").partition(" (")[0]
    field = bare.partition(" ")[0]
    return field.rpartition(".")[2] if field.startswith(("model.", "train.", "recipe.")) else bare.replace(";", ",")


def _listed(names: list[str]) -> str:
    """Return names as a list in words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
