"""Scores of one's own runs: of each seed and test item, or of each seed alone.

`collected` decides over all sources together which scores are of runs that can be compared, and says of the others why not.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from phrasemodels.verdicts.significance import Array
from phrasemodels.verdicts.tables import Fold, fold_of

MOST = 5_000_000  # observations that are read at most
LARGEST = 1e15  # score or total: sums of them stay exact enough, and finite
INFINITY = 1.797e308  # as MLflow stores an infinite metric: the largest float64
MOST_FILES = 10_000
MOST_ALIKE = 3  # scores of at most four digits that two runs may have in common
NAME_RUNS = "name runs as in seed0 and seed1, by file, folder or a column seed, and take away what is no run"
HEX = r"(?=[0-9a-f]*\d[a-f])[0-9a-f]{6,}"
# What names a run in the name of a file or folder: a time, a word with a number or a hexadecimal id, or one of them alone.
RUN = re.compile(
    rf"(?:run-)?\d{{8}}[_-]\d{{6}}(?:-\w+)?|\d{{4}}-\d\d-\d\dT[\d.:-]+|^\d+$|^{HEX}$|"
    rf"(?<![^\W_])(?:(?:(?:seed|run|trial|fold|rep|repetition)[ _.=-]*|s=?)\d+|(?:seed|run)[ _.=-]+{HEX})(?![^\W_])",
    re.I,
)
# A name of a run alone: a number or letter, an id, a name of W&B, or a word for runs with a number or letter.
RUN_ALONE = re.compile(
    rf"{RUN.pattern}|-?\d+(?:\.0+)?|[a-z]|(?![a-f]+\d+$)[0-9a-f-]+|[a-z]+-[a-z]+-\d+|\d{{4}}-\d\d-\d\d.*|"
    r"(?:seed|run|trial|fold|rep|repeat|repetition|replicate|replica|init|restart|attempt|job|r)[ _#.=-]*(?:\d+|[a-z])",
    re.I,
)
NUMBERED = rf"{RUN.pattern}|-?\d+(?:\.0+)?"  # a part of a run's name, beside which words are means or deviations


class Observation(NamedTuple):
    """The score of one item by one seed.

    seed: The run; empty if nothing names it. item: Empty if the score is of all of them. total: What the score is out of,
    such as 1, or the words of a sentence. where: The file and line that it was read from. problem: Why the score cannot be
    read. file: The file. setting: All else by which runs of one number must not differ. percent: Whether it is marked as a
    percentage.
    """

    row: str
    dataset: str
    metric: str
    seed: str
    item: str
    score: float
    total: float = 1.0
    where: str = ""
    problem: str = ""
    file: str = ""
    setting: str = ""
    percent: bool = False


def beyond_seed(label: str) -> str:
    """Return what the name of a run says beside its seed, such as a learning rate; empty if it is a seed alone."""
    return "" if RUN_ALONE.fullmatch(label) else RUN.sub("#", label)


@dataclass(frozen=True, eq=False)  # arrays have no one truth value
class Scores:
    """The scores of one row, data set and metric; sums: (S, n, 2), score and total of each seed and item.

    The metric is Σ score / Σ total. So it is a mean over items, a share of words, or the F1 of 2 · matches in gold + predicted.
    problem: why they judge nothing. percent: they are marked as percentages.
    """

    row: str
    dataset: str
    metric: str
    seeds: tuple[str, ...]
    items: tuple[str, ...]
    sums: Array
    problem: str = ""
    percent: bool = False

    @property
    def is_share(self) -> bool:
        """Whether the scores of several items lie between 0 and their totals, so the metric cannot exceed 1."""
        score, total = self.sums[..., 0], self.sums[..., 1]
        return len(self.items) > 1 and bool((np.isnan(score) | (score >= 0) & (score <= total)).all())

    @property
    def diverged(self) -> tuple[str, ...]:
        """The seeds with a score that is not finite."""
        return tuple(seed for seed, sums in zip(self.seeds, self.sums, strict=True) if not np.isfinite(sums).all())

    @property
    def repeats(self) -> bool:
        """Whether there are several seeds, and all have the same score of each item."""
        return len(self.seeds) > 1 and bool((self.sums == self.sums[:1]).all())

    @property
    def halved(self) -> bool:
        """Whether there are four runs or more, of which at most half differ in their scores."""
        return 3 < len(self.seeds) >= 2 * len({sums.tobytes() for sums in self.sums}) and not self.repeats

    @property
    def copied(self) -> str:
        """Why runs may be copies: at most half differ, or two have rare scores alike. Empty if none may be."""
        if self.halved:
            return f"at most half of the {len(self.seeds)} runs differ in their scores: the others may be copies"
        seen: dict[bytes, str] = {}
        for seed, sums, value in zip(self.seeds, self.sums, self.values(), strict=True):
            rare = is_rare(Observation("", "", "", seed, "several" * (len(self.items) > 1), value))
            if rare and (first := seen.setdefault(sums.tobytes(), seed)) != seed:
                return f"seeds {first!r} and {seed!r} have the same scores: one may be a copy"
        return ""

    def same_as(self, other: "Scores") -> bool:
        """Whether another row has the same scores of several seeds, or is this one."""
        if other is self:
            return True
        if len(self.seeds) < 2 or self.repeats or sorted(self.values()) != sorted(other.values()):
            return False
        return np.array_equal(np.sort(self.sums, 0), np.sort(other.sums, 0))

    def values(self) -> list[float]:
        """Return the metric of each seed."""
        return [float(value) for value in ratio(self.sums.sum(1))]


def ratio(sums: Array) -> Array:
    """Return score / total of sums (..., 2) -> (...), or 0 for the total 0."""
    return np.divide(sums[..., 0], sums[..., 1], out=np.zeros(sums.shape[:-1]), where=sums[..., 1] != 0)


Key = tuple[str, str, str]  # row, data set, metric
Item = tuple[float, float]  # score and total


def collected(
    observations: Iterable[Observation],
    is_printed: Callable[[str], bool] | None = None,
    unread: list[str] | None = None,
    fold: Fold | None = None,
) -> list[Scores]:
    """Return the scores of each row, data set and metric, in the order in which they first occur.

    A score that is not finite, or as large as MLflow stores infinity, becomes NaN: its run diverged. Names that are spelled in several
    ways are one. A score that stands twice is counted once.

    Args:
        observations: The scores in any order.
        is_printed: Whether a metric is printed; of others, scores that are wrong are left out. None: all are.
        unread: Gets a line for the scores of a file that aren't counted, and for each name that is spelled otherwise.
        fold: How names are compared; None: as `folded`.

    Raises:
        ValueError: A score or total is too large or no number, a file has an item of a seed twice, a seed lacks one, two files have the
            same scores, or there are too many.
    """
    unread, fold = ([] if unread is None else unread), fold or fold_of(())
    found: dict[Key, _Runs] = {}
    left_out: set[Key] = set()
    spelled: dict[tuple[Any, ...], Key] = {}  # the first spelling of a row, data set and metric
    seen: dict[Key, Key] = {}
    files: dict[str, _File] = {}
    for count, one in enumerate(observations):
        if count >= MOST:
            raise ValueError(f"more than {MOST} scores; judge fewer rows at a time")
        if (key := seen.get(names := (one.row, one.dataset, one.metric))) is None:
            key = seen[names] = spelled.setdefault(fold(*names), names)
        runs = found.setdefault(key, _Runs())
        if one.problem:
            runs.problems.setdefault(one.seed, f"a score of ours isn't read: {one.where}: {one.problem}")
            continue
        place = f"{one.where}: " if one.where else ""
        diverged = not abs(one.score) < INFINITY
        finite = math.isfinite(one.total) and one.total >= 0
        printed = is_printed is None or not one.metric or is_printed(one.metric)
        if (
            not finite
            or one.total > LARGEST
            or (abs(one.score) > LARGEST and not diverged)
            or (diverged and not printed)
        ):
            if printed:
                wrong = f"larger than {LARGEST:.0e}" if finite else "no finite number"
                item = f", item {one.item[:40]!r}" if one.item else ""
                raise ValueError(f"{place}{_named(one)}{item}: score {one.score} of {one.total} is {wrong}")
            left_out.add(key)
        files.setdefault(one.file, _File()).add(one)
        runs.add(one, (math.nan if diverged else one.score, one.total))
    _no_copies(files)
    _say_spellings(seen, unread)
    made, left = [], dict[tuple[str, ...], list[str]]()
    for key, runs in found.items():
        if key not in left_out:
            printed = is_printed is None or not key[2] or is_printed(key[2])
            for *reason, part in list(runs.check(unread if printed else [])):
                if printed:
                    left.setdefault(tuple(reason), []).append(f"{' / '.join(filter(None, key))[:200]}{part}")
            made.append(_scores(key, runs.seeds, runs.problem, runs.percent == {True}))
    for (file, how, why), parts in left.items():
        more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
        _say(unread, f"{file}: {how}: {'; '.join(parts[:3])}{more}: {why}")
    return made


@dataclass
class _Runs:
    """The scores of one number by run. problem: why they judge nothing; unclear: why scores of no named run don't."""

    seeds: dict[str, dict[str, Item]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)  # file of each run
    settings: dict[tuple[bool, str], str] = field(
        default_factory=dict
    )  # file of each setting of runs with a name, and without
    unnamed: dict[str, None] = field(default_factory=dict)  # files
    # by file and seed: the file that has the same scores, and the items
    twice: dict[tuple[str, str], tuple[str, set[str]]] = field(default_factory=dict)
    percent: set[bool] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)  # unreadable score of each run
    problem: str = ""
    unclear: str = ""

    def add(self, one: Observation, score: Item) -> None:
        """Add a score. ValueError: its file has the item of this seed twice."""
        self.percent.add(one.percent)
        items, first = self.seeds.setdefault(one.seed, {}), self.first.setdefault(one.seed, one.file)
        if not one.seed:
            self.unnamed[one.file] = None
        if one.item not in items:
            items[one.item] = score
            self.settings.setdefault((bool(one.seed), one.setting), one.file)
        elif items[one.item] == score and (first != one.file or self._is_copy(one)):
            self.twice.setdefault((one.file, one.seed), (first, set()))[1].add(one.item)
        elif first == one.file:
            twice = f"item {one.item[:40]!r} has two scores; a seed has one for each item"
            place = f"{one.where}: " if one.where else ""
            raise ValueError(
                f"{place}{_named(one)}: {twice if one.item else 'two scores; give them a column system or item, or other seeds'}"
            )
        elif one.seed:
            self.problem = self.problem or f"{first} and {one.file} have different scores of run {one.seed[:40]!r}"
        else:
            self.unclear = f"{first} and {one.file} have different scores, and name no run: {NAME_RUNS}"

    def _is_copy(self, one: Observation) -> bool:
        """Return whether a score of a file that stands there before is of the same run: something names it."""
        return bool(one.seed or one.item) and (bool(one.seed), one.setting) in self.settings

    def check(self, unread: list[str]) -> Iterator[tuple[str, ...]]:
        """Leave out what names no run beside runs, and find what no seeds of one number can be.

        Yield of what isn't counted, or once: file, how it counts, why, and seed or items.
        """
        for seed in no_runs(dict.fromkeys(filter(None, (*self.seeds, *self.problems)))):
            yield self.first.get(seed, "ours"), "not read", f"{seed[:40]!r} is no seed, as others are numbers", ""
            self.seeds.pop(seed, None)
            self.problems.pop(seed, None)
        if named := any(self.seeds):
            if self.seeds.pop("", None) is not None:
                for file in self.unnamed:
                    yield file, "not counted", f"no run is named, as elsewhere; {NAME_RUNS}", ""
        else:
            self.problem = self.problem or self.unclear
        numbers = sorted(int(seed) for seed in self.seeds if re.fullmatch(r"\d{3,15}", seed))
        if 1 < len(numbers) == len(self.seeds) and numbers[0] >= 100 and not any(one % numbers[0] for one in numbers):
            file = next(iter(self.first.values()))
            said = f"{numbers[0]} to {numbers[-1]} are taken as {len(numbers)} seeds"
            _say(unread, f"{file}: {said}: if they are steps, keep one of each run")
        levels = list(zip(*(seed.split("/") for seed in self.seeds), strict=False))
        if sum(len({*level}) > 1 and all(map(str.isdigit, level)) for level in levels) > 1:
            one, other = list(self.seeds)[:2]
            self.problem = self.problem or f"runs {one} and {other}: which number is the seed? name both, as in fold1/seed0"
        self.problem = self.problem or next(iter(self.problems.values()), "")
        for (file, seed), (first, items) in self.twice.items() if not self.problem else ():
            part = f", seed {seed[:40]}" * bool(seed) + f", {len(items)} items" * any(items)
            if first == file:
                yield file, "counted once", "the same score of the same run stands there twice", part
            else:
                yield file, "not counted", f"{first} has the same scores of the same run", part
        if len(self.percent) > 1:
            self.problem = self.problem or "some of its scores are marked as percent, some aren't: mark all or none"
        settings = [(setting, file) for (of, setting), file in self.settings.items() if of == named]
        if len(settings) > 1:
            (one, file), (other, second) = settings[:2]
            self.problem = self.problem or (
                f"{file} and {second} differ by more than the seed ({_differing(one, other)}): judge one setting at a time, or "
                "say --same NAME of a field that makes no difference"
            )
        if not self.seeds:
            self.seeds[""] = {"": (math.nan, 1.0)}


def no_runs(labels: Iterable[str]) -> list[str]:
    """Return the labels that name no run, as others are numbers, or a word with numbers (init 1, init 2). An id is one."""
    words = [one for one in labels if not re.fullmatch(r"[0-9a-f]+|[0-9a-f-]{36}", one, re.I)]
    numbered = {one for one in labels if all(re.fullmatch(NUMBERED, part, re.I) for part in one.split("/"))}
    if numbered:
        return [one for one in words if one not in numbered]
    forms = [re.sub(r"\d+", "#", one) for one in words]
    with_number = [form for form in forms if "#" in form]
    alike = len({*with_number}) < len(with_number)
    return [one for one, form in zip(words, forms, strict=True) if alike and "#" not in form]


@dataclass
class _File:
    """What tells whether two files have the same scores: a digest of them in any order. rare: two runs hardly have them both."""

    digest: int = 0
    count: int = 0
    rare: bool = False
    seeds: set[str] = field(default_factory=set)

    def add(self, one: Observation) -> None:
        self.digest += hash((one.row, one.dataset, one.metric, one.item, one.score, one.total))
        self.count += 1
        self.rare = self.rare or is_rare(one)
        if len(self.seeds) < MOST_FILES:
            self.seeds.add(one.seed)


def _no_copies(files: Mapping[str, _File]) -> None:
    """Check that no file has the scores of another one as those of another run. ValueError: one has."""
    first: dict[tuple[int, int], str] = {}
    for name, file in files.items():
        same = first.setdefault((file.digest, file.count), name)
        seeds = file.seeds | files[same].seeds
        if "" in seeds or file.seeds & files[same].seeds:  # it is left out, or counted once
            continue
        if same != name and (file.rare or file.count > MOST_ALIKE):
            raise ValueError(
                f"{name}: the same scores as {same}; a copy is no further run: take one away, or add a column seed to both"
            )


def is_rare(one: Observation) -> bool:
    """Return whether two runs hardly have this score both: it is of one item of several, or has five digits."""
    return bool(one.item) or len(f"{one.score:.10g}".strip("-0.").replace(".", "")) >= 5


def _say_spellings(seen: Mapping[Key, Key], unread: list[str]) -> None:
    """Say which names are taken as one, and which aren't though they differ in case alone."""
    alike: dict[str, str] = {}
    for names, key in seen.items():
        for name, other in zip(names, key, strict=True):
            if name != other:
                _say(unread, f"{name[:60]!r} and {other[:60]!r} of ours are taken as one name")
            elif (first := alike.setdefault(name.casefold(), name)) != name:
                _say(
                    unread, f"{name[:60]!r} and {first[:60]!r} of ours are two names: spell them alike if they are one"
                )


def _differing(one: str, other: str) -> str:
    """Return the differing parts of two settings."""
    parts = [part for part in one.split("; ") if part not in other.split("; ")]
    others = [part for part in other.split("; ") if part not in one.split("; ")]
    return f"{'; '.join(parts)[:80] or 'nothing'!r} and {'; '.join(others)[:80] or 'nothing'!r}"


def _say(unread: list[str], line: str) -> None:
    if line not in unread:
        unread.append(line)


def _scores(key: Key, seeds: dict[str, dict[str, Item]], problem: str, percent: bool) -> Scores:
    items = tuple(sorted(set().union(*seeds.values())))
    for seed, own in seeds.items() if not problem else ():
        if lacking := [item for item in items if item not in own]:
            where = _named(Observation(*key, seed, "", 0))
            raise ValueError(
                f"{where}: {len(lacking)} of {len(items)} items have no score, such as {lacking[0][:40]!r}; all seeds must have "
                "the same items"
            )
    sums = np.array([[own.get(item, (math.nan, 1.0)) for item in items] for own in seeds.values()], np.float64)
    return Scores(*key, tuple(seeds), items, sums, problem, percent)


def _named(one: Observation) -> str:
    names = (("row", one.row), ("data set", one.dataset), ("metric", one.metric), ("seed", one.seed))
    return ", ".join(f"{kind} {name[:60]!r}" for kind, name in names if name)
