"""Readers of scores: tables as people have them, and the logs of evaluation tools. Files are untrusted: a mistake is a
ValueError of one line that names the file.

Scores of one's own runs: of each seed and test item, or of each seed alone.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from phrasemodels.verdicts.cells import content, text_of, value_of
from phrasemodels.verdicts.scales import known
from phrasemodels.verdicts.significance import Array
from phrasemodels.verdicts.tables import (
    Column,
    Names,
    Row,
    Table,
    columns_of,
    folded,
    folded_metric,
    json_of,
    rows_of_json,
    tables,
    with_split,
)

MOST = 5_000_000  # observations that are read at most
LARGEST = 1e15  # score or total: sums of them stay exact enough, and finite
INFINITY = 1.797e308  # as MLflow stores an infinite metric: the largest float64


class Observation(NamedTuple):
    """The score of one item by one seed. item: empty if the score is of all of them. total: what the score is out of, such as 1,
    or the words of a sentence. where: the file and line that it was read from. problem: why the score cannot be read."""

    row: str
    dataset: str
    metric: str
    seed: str
    item: str
    score: float
    total: float = 1.0
    where: str = ""
    problem: str = ""


@dataclass(frozen=True, eq=False)  # arrays have no one truth value
class Scores:
    """The scores of one row, data set and metric; sums: (S, n, 2), score and total of each seed and item.

    The metric is Σ score / Σ total. So it is a mean over items, a share of words, or the F1 of 2 · matches in gold + predicted.
    problem: why a score of them cannot be read, so that they judge nothing.
    """

    row: str
    dataset: str
    metric: str
    seeds: tuple[str, ...]
    items: tuple[str, ...]
    sums: Array
    problem: str = ""

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

    @property
    def alike(self) -> tuple[str, ...]:
        """Two seeds with the same score of each item, or with one score of at least five digits; none if they are rare."""
        seen: dict[bytes, str] = {}
        for seed, sums, value in zip(self.seeds, self.sums, self.values(), strict=True):
            rare = is_rare(Observation("", "", "", seed, "several" * (len(self.items) > 1), value))
            if rare and (first := seen.setdefault(sums.tobytes(), seed)) != seed:
                return first, seed
        return ()

    def values(self) -> list[float]:
        """Return the metric of each seed."""
        return [float(value) for value in ratio(self.sums.sum(1))]


def ratio(sums: Array) -> Array:
    """Return score / total of sums (..., 2) -> (...); 0 where the total is 0."""
    return np.divide(sums[..., 0], sums[..., 1], out=np.zeros(sums.shape[:-1]), where=sums[..., 1] != 0)


def collected(observations: Iterable[Observation], is_printed: Callable[[str], bool] | None = None) -> list[Scores]:
    """Return the scores of each row, data set and metric, in the order in which they first occur.

    A score that is not finite, or as large as MLflow stores infinity, becomes NaN: its run diverged.

    Args:
        observations: The scores in any order.
        is_printed: Whether a metric is printed; of others, scores that are wrong are left out. None: all are.

    Raises:
        ValueError: A score or total is too large or no number, a seed has an item twice or lacks one, or there are too many.
    """
    found: dict[tuple[str, str, str], dict[str, dict[str, tuple[float, float]]]] = {}
    left_out: set[tuple[str, str, str]] = set()
    problems: dict[tuple[str, str, str], str] = {}
    spelled: dict[tuple[Any, ...], tuple[str, str, str]] = {}  # the first spelling of a row, data set and metric
    first_of: dict[tuple[str, ...], str] = {}  # file that a seed is from
    for count, one in enumerate(observations):
        if count >= MOST:
            raise ValueError(f"more than {MOST} scores; judge fewer rows at a time")
        key = spelled.setdefault(
            (folded(one.row), folded(one.dataset), folded_metric(one.metric)), (one.row, one.dataset, one.metric)
        )
        if one.problem:
            problems.setdefault(key, f"{one.where}: {one.problem}")
            continue
        items = found.setdefault(key, {}).setdefault(one.seed, {})
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
        elif one.item in items:
            if items[one.item] == (one.score, one.total) and first_of[*key, one.seed] != one.where.partition(", ")[0]:
                continue  # two files tell of one run, as all_results.json and eval_results.json
            twice = f"item {one.item[:40]!r} has two scores; a seed has one for each item"
            raise ValueError(
                f"{place}{_named(one)}: {twice if one.item else 'two scores; give them a column item, or other seeds'}"
            )
        first_of.setdefault((*key, one.seed), one.where.partition(", ")[0])
        items[one.item] = (math.nan if diverged else one.score, one.total)
    return [_scores(key, seeds, problems.get(key, "")) for key, seeds in found.items() if key not in left_out]


def _scores(key: tuple[str, str, str], seeds: dict[str, dict[str, tuple[float, float]]], problem: str) -> Scores:
    items = tuple(sorted(set().union(*seeds.values())))
    for seed, own in seeds.items():
        if lacking := [item for item in items if item not in own]:
            where = _named(Observation(*key, seed, "", 0))
            raise ValueError(
                f"{where}: {len(lacking)} of {len(items)} items have no score, such as {lacking[0][:40]!r}; all seeds must have "
                "the same items"
            )
    sums = np.array([[own[item] for item in items] for own in seeds.values()], np.float64)
    return Scores(*key, tuple(seeds), items, sums, problem)


def _named(one: Observation) -> str:
    names = (("row", one.row), ("data set", one.dataset), ("metric", one.metric), ("seed", one.seed))
    return ", ".join(f"{kind} {name[:60]!r}" for kind, name in names if name)


Reader = Callable[[Path, Names, list[str]], Iterator[Observation]]

MOST_FILES = 10_000
MOST_TEXT = 300  # characters of a name
# Fields of a line of lm-evaluation-harness' samples that are no metrics.
NO_METRICS = frozenset(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash schema_version".split()
)
LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # inspect_ai: correct, incorrect, partial, no answer
NO_SCORE = "no score: write nan if the run diverged, or delete the line"
NO_NAMES = frozenset("results result scores score all eval test predict metrics summary files wandb".split())
MOST_ALIKE = 3  # scores of at most four digits that two runs may have in common
THE_TABLE = Path("the printed table")
SUMMARIES = frozenset(
    "mean average avg std sd stdev median all total max min best worst sum summary aggregate overall".split()
)
ENDED = frozenset(("", "finished", "completed", "complete", "success", "succeeded", "done", "ok"))
SEED = re.compile(r"(?:^|[^a-z])(?:seed|run|trial|fold|rep)[ _.=-]*(\d+)", re.I)


def from_table(table: Table, names: Names, unread: list[str]) -> Iterator[Observation]:
    """Yield the scores of a table: of a column score, or of a column for each metric, data set or seed.

    Without a seed there is one run; without an item the score is of all items of the seed. A cell that is no number stops the
    numbers of its row, data set and metric. names: what the table doesn't say. unread: gets what isn't read.

    ValueError: there is no score, a line has too few cells, or a column seed has an empty cell.
    """
    roles, columns = columns_of(table, names, "score")
    none = f"{table.where}: no score; a table of scores has a column score, or a column for each metric"
    if not columns and table.where.endswith(TEXTS):  # such as requirements.txt
        unread.append(none)
        return
    if table.bad or not columns:
        raise ValueError([*table.bad, none][0])
    unread += table.notes
    if "split" in roles:
        table.rows = list(table.rows)
    several = "split" in roles and len({row.get("split", roles) for row in table.rows}) > 1
    for row in table.rows:
        if roles.get("seed") and row.get("seed", roles) == "":
            raise ValueError(f"{row.where}: no seed")
        if why := _no_run(row, roles):
            unread.append(f"{row.where}: not read: {why}")
            continue
        for column in columns:
            for one in _scores_of(row, column, roles, names, table.comma, several):
                if one.problem and one.problem != NO_SCORE:
                    unread.append(f"{one.where}: {one.problem}")
                yield one


def _no_run(row: Row, roles: Mapping[str, str]) -> str:
    """Return why a row is no run that ended: a mean over seeds, or a run that crashed; empty if it is one."""
    seed, state = row.get("seed", roles).casefold(), row.get("state", roles)
    if seed in SUMMARIES:
        return f"{seed!r} is no seed"
    return "" if state.casefold() in ENDED else f"its state is {state[:40]!r}"


def _scores_of(
    row: Row, column: Column, roles: Mapping[str, str], names: Names, comma: bool | None, several: bool
) -> Iterator[Observation]:
    """Yield the scores of a cell: one for each metric of its column. Where a cell is empty there is none."""
    cell = row.cells.get(column.name)
    given = {
        role: row.get(role, roles)
        for role in ("system", "variant", "dataset", "metric", "seed", "item", "total", "split")
    }
    place = {
        "system": ", ".join(filter(None, (given["system"] or column.system or names.system, given["variant"]))),
        "dataset": with_split(
            given["dataset"] or column.dataset or names.dataset, given["split"] if "split" in roles else "test", several
        ),
        "seed": column.seed or given["seed"] or names.seed,
    }
    for metric, part in column.cells_of(cell, given["metric"]):
        where = f"{row.where}, column {column.name}" if not column.long else row.where
        key = (
            _text(place["system"]),
            _text(place["dataset"]),
            _text(metric),
            _text(place["seed"]),
            _text(given["item"]),
        )
        try:
            score, total = _read(part, comma), 1.0 if given["total"] in ("", None) else _read(given["total"], comma)
        except ValueError as error:
            yield Observation(*key, math.nan, where=where, problem=str(error))
            continue
        if score is None or total is None:  # without a seed, and in a table of several metrics, nothing was measured
            if column.long or column.seed or roles.get("seed"):
                yield Observation(*key, math.nan, where=where, problem=NO_SCORE)
            continue
        yield Observation(*key, score, total, row.where)


def _read(cell: Any, comma: bool | None) -> float | None:
    """Return a number, which may be NaN or infinite; None if the cell is empty. ValueError: it is none."""
    if isinstance(cell, bool | int | float):
        return _number(cell, "score")
    if re.fullmatch(r"-?\d{1,15}(\.\d{1,40})?", str(cell)) and not comma:
        return float(cell)  # which is most of them, in less time
    found = value_of(str(cell), comma)
    return found.number if found.text else None


def from_file(path: Path, names: Names, unread: list[str]) -> Iterator[Observation]:
    """Yield the scores of all tables of a text file or of an Excel file; see `from_table`."""
    found = tables(path)
    if not found:
        unread.append(f"{path}: no table")
    for table in found:
        yield from from_table(table, names, unread)


def from_lm_eval(path: Path) -> Iterator[Observation]:
    """Yield the scores of samples_TASK_DATE.jsonl, which lm-evaluation-harness writes with --log_samples (0.4.13).

    The row is the name of the model, in results_DATE.json beside it, or else the folder; a file is a seed. A metric that is no
    number for each sample, such as a perplexity, is left out.
    """
    found = re.fullmatch(r"samples_(.+)_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl", path.name)
    task, date = found.groups() if found else (path.stem.removeprefix("samples_"), path.stem)
    model = _model_of(path.with_name(f"results_{date}.json")) or path.resolve().parent.name
    for number, line in enumerate(content(path).splitlines(), 1):
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
    results = _json(content(path), str(path))
    return _text(results.get("model_name") or "") if isinstance(results, dict) else ""


def from_inspect(path: Path) -> Iterator[Observation]:
    """Yield the scores of a JSON log of inspect_ai (0.3; `inspect eval --log-format json`).

    The row is the model, the data set the task, the metric the scorer; an epoch of a run is a seed. ValueError: the run did
    not succeed.
    """
    log = _json(content(path), str(path))
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


def _from_json(path: Path, names: Names, unread: list[str]) -> Iterator[Observation]:
    """Yield the scores of JSON: a log of inspect_ai, results of lm-evaluation-harness, rows, or one object a run or a row."""
    found = json_of(path)
    if is_inspect(found):
        yield from from_inspect(path)
    elif (
        isinstance(found, dict)
        and isinstance(found.get("results"), dict)
        and ("config" in found or "versions" in found)
    ):
        yield from _of_harness(found, path)
    elif rows := rows_of_json(found):
        config = _config(path.with_name("config.yaml")) if path.name == "wandb-summary.json" else {}
        yield from from_table(Table.of([config | row for row in rows], str(path)), names, unread)
    else:
        said = f"{path}: JSON without rows of scores"
        if not re.search(r"config|args|settings|metadata", path.name):
            raise ValueError(
                f"{said}: write a list of objects such as {{'model': 'A', 'accuracy': 82.3}}, or take it away"
            )
        unread.append(said)


def _of_harness(found: Mapping[str, Any], path: Path) -> Iterator[Observation]:
    """Yield the means of results_DATE.json of lm-evaluation-harness, but of tasks whose samples lie beside it."""
    date = path.stem.partition("_")[2] or path.stem
    about = found.get("config")
    model = (
        found.get("model_name") or (about.get("model") if isinstance(about, dict) else "") or path.resolve().parent.name
    )
    for task, measures in found["results"].items():
        if isinstance(measures, dict) and not path.with_name(f"samples_{task}_{date}.jsonl").is_file():
            for name, value in measures.items():
                metric, _, kept = name.partition(",")
                if isinstance(value, int | float) and not metric.endswith("_stderr"):
                    shown = metric if kept in ("", "none") else name
                    yield Observation(
                        _text(model), _text(task), _text(shown), date, "", _number(value, str(path)), where=str(path)
                    )


def _config(path: Path) -> dict[str, Any]:
    """Return the settings of a run of W&B, in config.yaml beside its summary."""
    text = text_of(path) if path.is_file() else ""
    return dict(re.findall(r"^(\w+):\n(?:  .*\n)*?  value: ?[\"']?([^\n\"']*)", text, re.M))


def _compressed(path: Path, names: Names, unread: list[str]) -> Iterator[Observation]:
    raise ValueError(
        f"{path}: compressed; `inspect log convert {path.name} --to json --output-dir json` makes JSON of it"
    )


TEXTS = (".txt", ".md", ".markdown", ".tex")
TABLES = ("*.csv", "*.tsv", "*.tab", *(f"*{ending}" for ending in TEXTS), "*.xlsx", "*.xlsm")
READERS: Mapping[str, Reader] = {
    "samples_*.jsonl": lambda path, names, unread: from_lm_eval(path),
    **dict.fromkeys(("*.json", "*.jsonl", "*.ndjson"), _from_json),
    "*.eval": _compressed,
    **dict.fromkeys(TABLES, from_file),
}


def read(
    path: Path,
    readers: Mapping[str, Reader] = READERS,
    names: Names | None = None,
    unread: list[str] | None = None,
    seen: dict[bytes, Path] | None = None,
) -> Iterator[Observation]:
    """Yield the scores of a file, or of all files of a folder; names in any case, and packed by gzip.

    Args:
        path: A file or folder.
        readers: Reader by the pattern of a file's name.
        names: What the files don't say.
        unread: Gets a line for each file or line that isn't read.
        seen: Files that were read before by the digest of their content; THE_TABLE is none of them.

    Raises:
        ValueError: No file has scores, a file is the copy of another one, or there are too many.
    """
    unread, seen = ([] if unread is None else unread), ({} if seen is None else seen)
    files = [path] if path.is_file() else _files(path)
    wanted = {file: reader for file in files if (reader := _reader(file, readers))}
    unread += [f"{file}: no file of scores by its name" for file in files if file not in wanted]
    _of_one_setting(wanted)
    some = False
    for file, reader in wanted.items():
        same = seen.setdefault(hashlib.sha256(content(file)).digest(), file)
        if why := _no_file_of_runs(file, same, wanted):
            unread.append(f"{file}: not read: {why}")
            continue
        rare, count = False, 0
        for one in reader(file, _named_by(file, path, names or Names(), len(wanted) > 1), unread):
            some, rare, count = True, rare or is_rare(one), count + 1
            yield one
        if same != file and (rare or count > MOST_ALIKE):
            raise ValueError(f"{file}: the same bytes as {same}; a copy is no further run: take one away")
    if not some:
        raise ValueError(f"{path}: no scores; files that are read: {', '.join(readers)}")


def _reader(file: Path, readers: Mapping[str, Reader]) -> Reader | None:
    name = file.name.lower().removesuffix(".gz")
    return next((one for pattern, one in readers.items() if fnmatch(name, pattern)), None)


def _no_file_of_runs(file: Path, same: Path, wanted: Iterable[Path]) -> str:
    """Return why a file holds no runs by its name or content: the printed table, or a summary of the runs beside it."""
    if same is THE_TABLE:
        return "it is the printed table"
    if _words(file) & SUMMARIES and any(SEED.search(other.name) for other in wanted if other.parent == file.parent):
        return "" if SEED.search(file.name) else "a summary of the runs beside it"
    return ""


def _words(file: Path) -> set[str]:
    return {*re.split(r"[\s_.-]+", file.name.casefold().partition(".")[0])}


def is_rare(one: Observation) -> bool:
    """Return whether two runs hardly have this score both: it is of one item of several, or has five digits."""
    return bool(one.item) or len(f"{one.score:.10g}".strip("-0.").replace(".", "")) >= 5


def _of_one_setting(files: Iterable[Path]) -> None:
    """Check that results of lm-evaluation-harness are of one setting for each model and task. ValueError: two differ."""
    known: dict[tuple[str, str, str], tuple[Any, Path]] = {}
    for file in files:
        found = json_of(file) if fnmatch(file.name, "results_*.json*") else None
        about = found.get("config") if isinstance(found, dict) else None
        if not isinstance(about, dict) or not isinstance(found.get("results"), dict):
            continue
        for task in found["results"]:
            shots = found.get("n-shot")
            own = {
                name: about.get(name) for name in ("model_args", "limit", "gen_kwargs", "model_sha", "model_revision")
            }
            own["n-shot"] = shots.get(task) if isinstance(shots, dict) else about.get("num_fewshot")
            for name, value in own.items():
                place = _text(found.get("model_name") or about.get("model")), _text(task), name
                first, other = known.setdefault(place, (value, file))
                if first != value:
                    raise ValueError(
                        f"{file}: {name} is {_text(value)[:60]!r}, but {_text(first)[:60]!r} in {other.name}: seeds have one "
                        "setting; judge each setting by itself"
                    )


def _named_by(file: Path, root: Path, names: Names, several: bool) -> Names:
    """Return what a file says by its name, and its folders by theirs: system, metric and seed, where nothing else does."""
    parts = [
        file.name[
            : len(file.name) - len("".join(file.suffixes[-2:] if file.name.endswith(".gz") else file.suffixes[-1:]))
        ]
    ]
    parts += reversed(file.relative_to(root).parent.parts if file != root else ())
    if _words(file) <= NO_NAMES and len(parts) > 1:  # the folder is the run
        parts = parts[1:]
    seed = next((found[1] for part in parts if (found := SEED.search(part))), "")
    metric = next((word for part in parts for word in re.split(r"[\s_-]+", part) if known(word).kind), "")
    rest = [
        " ".join(w for w in re.split(r"[\s_-]+", SEED.sub("", part)) if w not in ("", metric, *NO_NAMES))
        for part in parts
    ]
    rest = list(filter(None, rest))
    return names._replace(
        system=names.system or (rest[0] if rest else ""),
        metric=names.metric or metric,
        seed=seed or ("/".join(reversed(parts)) if several else "0"),
    )


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
        raise ValueError(f"{where}: {str(value)[:40]!r} is no number; leave it out if there is none") from None
