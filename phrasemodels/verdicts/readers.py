"""Readers of scores: tables of seed × item × score, and the logs of evaluation tools. Files are untrusted: a mistake is a
ValueError of one line that names the file.

Scores of one's own runs: of each seed and test item, or of each seed alone.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phrasemodels.verdicts.significance import Array

MOST = 5_000_000  # observations that are read at most
LARGEST = 1e15  # score or total: sums of them stay exact enough, and finite
INFINITY = 1.797e308  # as MLflow stores an infinite metric: the largest float64


class Observation(NamedTuple):
    """The score of one item by one seed. item: empty if the score is of all of them. total: what the score is out of, such as 1,
    or the words of a sentence. where: the file and line that it was read from."""

    row: str
    dataset: str
    metric: str
    seed: str
    item: str
    score: float
    total: float = 1.0
    where: str = ""


@dataclass(frozen=True, eq=False)  # arrays have no one truth value
class Scores:
    """The scores of one row, data set and metric; sums: (S, n, 2), score and total of each seed and item.

    The metric is Σ score / Σ total. So it is a mean over items, a share of words, or the F1 of 2 · matches in gold + predicted.
    """

    row: str
    dataset: str
    metric: str
    seeds: tuple[str, ...]
    items: tuple[str, ...]
    sums: Array

    @property
    def is_share(self) -> bool:
        """Whether the scores of several items lie between 0 and their totals, so that the metric cannot exceed 1."""
        score, total = self.sums[..., 0], self.sums[..., 1]
        return len(self.items) > 1 and bool((np.isnan(score) | (score >= 0) & (score <= total)).all())

    @property
    def diverged(self) -> tuple[str, ...]:
        """The seeds that have a score which is not finite."""
        return tuple(seed for seed, sums in zip(self.seeds, self.sums, strict=True) if not np.isfinite(sums).all())

    @property
    def repeats(self) -> bool:
        """Whether there are several seeds, and all have the same score of each item."""
        return len(self.seeds) > 1 and bool((self.sums == self.sums[:1]).all())

    def values(self) -> list[float]:
        """Return the metric of each seed."""
        return [float(value) for value in ratio(self.sums.sum(1))]


def ratio(sums: Array) -> Array:
    """Return score / total of sums (..., 2) -> (...); 0 where the total is 0."""
    return np.divide(sums[..., 0], sums[..., 1], out=np.zeros(sums.shape[:-1]), where=sums[..., 1] != 0)


def collected(observations: Iterable[Observation], metrics: Container[str] | None = None) -> list[Scores]:
    """Return the scores of each row, data set and metric, in the order in which they first occur.

    A score that is not finite, or as large as MLflow stores infinity, becomes NaN: its run diverged. metrics: the printed ones; of
    others, scores with such a value, or a wrong total, are left out. None: all are printed. ValueError: a score is too large, a
    total is negative, not finite or too large, a seed has an item twice, seeds have different items, or there are too many.
    """
    found: dict[tuple[str, str, str], dict[str, dict[str, tuple[float, float]]]] = {}
    left_out = set()
    for count, one in enumerate(observations):
        if count >= MOST:
            raise ValueError(f"more than {MOST} scores; judge fewer rows at a time")
        key = (one.row, one.dataset, one.metric)
        items = found.setdefault(key, {}).setdefault(one.seed, {})
        place = f"{one.where}: " if one.where else ""
        diverged = not abs(one.score) < INFINITY
        finite = math.isfinite(one.total) and one.total >= 0
        printed = metrics is None or one.metric in metrics or not one.metric
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
        elif one.item in items:
            twice = f"item {one.item[:40]!r} has two scores; a seed has one for each item"
            raise ValueError(
                f"{place}{_named(one)}: {twice if one.item else 'two scores; give them a column item, or other seeds'}"
            )
        items[one.item] = (math.nan if diverged else one.score, one.total)
    return [_scores(key, seeds) for key, seeds in found.items() if key not in left_out]


def _scores(key: tuple[str, str, str], seeds: dict[str, dict[str, tuple[float, float]]]) -> Scores:
    items = tuple(sorted(set().union(*seeds.values())))
    for seed, own in seeds.items():
        if lacking := [item for item in items if item not in own]:
            where = _named(Observation(*key, seed, "", 0))
            raise ValueError(
                f"{where}: {len(lacking)} of {len(items)} items have no score, such as {lacking[0][:40]!r}; all seeds must have "
                "the same items"
            )
    sums = np.array([[own[item] for item in items] for own in seeds.values()], np.float64)
    return Scores(*key, tuple(seeds), items, sums)


def _named(one: Observation) -> str:
    names = (("row", one.row), ("data set", one.dataset), ("metric", one.metric), ("seed", one.seed))
    return ", ".join(f"{kind} {name[:60]!r}" for kind, name in names if name)


Reader = Callable[[Path], Iterator[Observation]]

NAMES_OF_ROWS = ("row", "model", "system")  # columns and parameters that name a row; the first one that is there
NO_MEASURES = frozenset((*NAMES_OF_ROWS, "dataset", "metric", "seed", "item", "total"))
MOST_FILES = 10_000
MOST_BYTES = 1 << 30  # of one file
MOST_TEXT = 300  # characters of a name
# Fields of a line of lm-evaluation-harness' samples that are no metrics.
NO_METRICS = frozenset(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash schema_version".split()
)
LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # inspect_ai: correct, incorrect, partial, no answer


def from_rows(rows: Iterable[Mapping[str, Any]], where: str, row_name: str) -> Iterator[Observation]:
    """Yield the scores of a table with a column score, and optionally row (or model, system), dataset, metric, seed, item, total.

    Without a column score, each other column is a metric, and an empty cell no score. row_name: the row of a table that has no
    such column. Without a seed there is one run; without an item the score is of all items of the seed. ValueError: there is no
    score, a column seed has an empty cell, or a score is no number.
    """
    for number, row in enumerate(rows, 1):
        place = f"{where}, row {number}"
        measures = {row.get("metric", ""): row["score"]} if "score" in row else _measures(row, place)
        if row.get("seed", "0") in (None, ""):
            raise ValueError(f"{place}: no seed")
        named = next((row[name] for name in NAMES_OF_ROWS if name in row), row_name)
        total = row.get("total")
        for metric, score in measures.items():
            yield Observation(
                _text(named),
                _text(row.get("dataset", "")),
                _text(metric),
                _text(row.get("seed", "0")),
                "" if (item := row.get("item")) is None else _text(item),
                _number(score, place),
                1.0 if total in (None, "") else _number(total, place),
                place,
            )


def _measures(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the scores of a row by metric, each of a column of its own. ValueError: there is none."""
    measures = {name: value for name, value in row.items() if name not in NO_MEASURES and value not in (None, "")}
    if not measures or "metric" in row:
        raise ValueError(f"{place}: no score; a table of scores has a column score, or a column for each metric")
    return measures


def from_csv(path: Path) -> Iterator[Observation]:
    """Yield the scores of a CSV; see `from_rows`."""
    yield from from_rows(csv_rows(path), str(path), path.stem)


def csv_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV in UTF-8 by the names of its columns. ValueError: the file is not such a CSV.

    Its cells are divided by what divides its first line: commas, semicolons, as spreadsheets of many countries write, or tabs.
    """
    with _opened(path).open(encoding="utf-8-sig", newline="") as file:
        try:
            first = file.readline(MOST_BYTES)
            file.seek(0)
            reader = csv.reader(file, strict=True, delimiter=max(",;\t", key=first.count))
            columns = [name.strip() for name in next(reader, [])]
            if len(set(columns)) < len(columns):
                raise ValueError(f"{path}: two columns have one name")
            for cells in reader:
                if not any(map(str.strip, cells)):  # an empty line
                    continue
                if len(cells) != len(columns):
                    raise ValueError(f"{path}, line {reader.line_num}: {len(cells)} cells, but {len(columns)} columns")
                yield dict(zip(columns, map(str.strip, cells), strict=True))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: no CSV in UTF-8 ({error})") from error
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num + 1}: no CSV in UTF-8 ({error})") from error


def from_lm_eval(path: Path) -> Iterator[Observation]:
    """Yield the scores of samples_TASK_DATE.jsonl, which lm-evaluation-harness writes with --log_samples (0.4.13).

    The row is the name of the model, in results_DATE.json beside it, or else the folder; a file is a seed. A metric that is no
    number for each sample, such as a perplexity, is left out.
    """
    found = re.fullmatch(r"samples_(.+)_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl", path.name)
    task, date = found.groups() if found else (path.stem.removeprefix("samples_"), path.stem)
    model = _model_of(path.with_name(f"results_{date}.json")) or path.resolve().parent.name
    with _opened(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            sample = _json(line, f"{path}, line {number}")
            if not isinstance(sample, dict) or "doc_id" not in sample:
                raise ValueError(f"{path}, line {number}: no sample of lm-evaluation-harness: it has no doc_id")
            kept = "" if (kind := sample.get("filter", "none")) == "none" else f",{kind}"
            for name in sorted(sample.keys() - NO_METRICS):
                if isinstance(value := sample[name], int | float):
                    score = _number(value, where := f"{path}, line {number}")
                    item = _text(sample["doc_id"])
                    yield Observation(model, task, _text(name + kept), date, item, score, where=where)


def _model_of(path: Path) -> str:
    """Return the name of the model in lm-evaluation-harness' results; empty if there is no such file."""
    if not path.is_file():
        return ""
    results = _json(_opened(path).read_bytes(), str(path))
    return _text(results.get("model_name") or "") if isinstance(results, dict) else ""


def from_inspect(path: Path) -> Iterator[Observation]:
    """Yield the scores of a JSON log of inspect_ai (0.3; `inspect eval --log-format json`).

    The row is the model, the data set the task, the metric the scorer; an epoch of a run is a seed. ValueError: the run did
    not succeed.
    """
    log = _json(_opened(path).read_bytes(), str(path))
    if not is_inspect(log):
        raise ValueError(f"{path}: no log of inspect_ai: it has no eval and samples")
    if log.get("status") != "success":
        raise ValueError(
            f"{path}: the run ended with {_text(log.get('status'))!r}; run it again, or take the file away"
        )
    about, run = log["eval"], path.stem
    for place, sample in enumerate(log["samples"]):
        where = f"{path}, sample {place + 1}"
        if not isinstance(sample, dict) or not isinstance(scores := sample.get("scores"), dict):
            raise ValueError(f"{where}: it has no scores")
        seed, item = f"{run} epoch {_text(sample.get('epoch', 1))}", _text(sample.get("id", place))
        for scorer, score in scores.items():
            for metric, value in _values(scorer, score.get("value") if isinstance(score, dict) else None, where):
                names = (_text(about.get("model")), _text(about.get("task")), _text(metric))
                yield Observation(*names, seed, item, value, where=where)


def is_inspect(log: Any) -> bool:
    """Return whether JSON is a log of inspect_ai with its samples."""
    return isinstance(log, dict) and isinstance(log.get("eval"), dict) and isinstance(log.get("samples"), list)


def _values(scorer: str, value: Any, where: str) -> Iterator[tuple[str, float]]:
    """Yield name and value of each number in a score of inspect_ai."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(inner, dict):
                yield from _values(f"{scorer}/{name}", inner, where)
    elif isinstance(value, str) and value in LETTERS:
        yield scorer, LETTERS[value]
    elif isinstance(value, int | float):
        yield scorer, _number(value, where)


def _from_json(path: Path) -> Iterator[Observation]:
    """Yield the scores of a JSON file in a folder: a log of inspect_ai, or nothing."""
    if is_inspect(_json(_opened(path).read_bytes(), str(path))):
        yield from from_inspect(path)


def _compressed(path: Path) -> Iterator[Observation]:
    raise ValueError(
        f"{path}: compressed; `inspect log convert {path.name} --to json --output-dir json` makes JSON of it"
    )


READERS: Mapping[str, Reader] = {
    "*.csv": from_csv,
    "samples_*.jsonl": from_lm_eval,
    "results_*.json": lambda path: iter(()),  # read with the samples beside it
    "*.json": _from_json,
    "*.eval": _compressed,
}


def read(path: Path, readers: Mapping[str, Reader] = READERS) -> Iterator[Observation]:
    """Yield the scores of a file, or of all files of a folder that a reader knows by their names.

    ValueError: no file has scores, or there are too many.
    """
    files = [path] if path.is_file() else _files(path)
    some = False
    for file in files:
        reader = next((one for pattern, one in readers.items() if fnmatch(file.name, pattern)), None)
        for one in reader(file) if reader else ():
            some = True
            yield one
    if not some:
        raise ValueError(f"{path}: no scores; files that are read: {', '.join(readers)}")


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such file or folder")
    found = []
    for place, path in enumerate(folder.rglob("*")):
        if place >= MOST_FILES:
            raise ValueError(f"{folder}: more than {MOST_FILES} files; name a folder with fewer")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            found.append(path)
    return sorted(found)


def _opened(path: Path) -> Path:
    """Return the path of a file. ValueError: it is none, or too large."""
    if not path.is_file():
        raise ValueError(f"{path}: {'a folder; name a file' if path.is_dir() else 'no such file'}")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path}: {size} bytes, at most {MOST_BYTES} are read; divide it")
    return path


def _json(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        said = (str(error).splitlines() or [""])[0][:100]
        raise ValueError(f"{where}: no JSON ({said})") from error


def _text(value: Any) -> str:
    """Return a name that can be printed: of bounded length, without lone surrogates."""
    return str(value)[:MOST_TEXT].encode("utf-8", "replace").decode()


def _number(value: Any, where: str) -> float:
    """Return a number, which may be NaN or infinite. ValueError: it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        said = str(value)[:40]
        plain = said.replace(",", ".").strip(" %")
        hint = f"; write {plain}" if re.fullmatch(r"-?\d+(\.\d+)?", plain) else "; leave it out if there is none"
        raise ValueError(f"{where}: {said!r} is no number{hint}") from None
