"""Readers of scores: tables as people have them, and the logs of evaluation tools. Files are untrusted: a mistake is a
ValueError of one line that names the file.

A run is what names itself: by a seed in a column or in the names of its file and folders (seed0, run 1, s2, a date), by the run of
MLflow, or by the date of an evaluation.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Any

from phrasemodels.folders import check_inside
from phrasemodels.verdicts.cells import DIVERGED, MARKED, MISSING, content, text_of, value_of
from phrasemodels.verdicts.scales import SETTINGS, asked_of, is_measured, is_setting, known, split_of, words
from phrasemodels.verdicts.scores import MOST_FILES, RUN, Observation, beyond_seed, no_runs
from phrasemodels.verdicts.tables import (
    ROLES,
    Column,
    Names,
    Row,
    Table,
    columns_of,
    folded,
    folded_metric,
    is_score,
    is_value,
    json_of,
    role_of,
    roles_of,
    rows_of_json,
    tables,
    with_heading,
    with_split,
)

Reader = Callable[[Path, Names, list[str]], Iterator[Observation]]

MOST_TEXT = 300  # characters of a name
# Fields of a line of lm-evaluation-harness' samples that are no metrics.
NO_METRICS = frozenset(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash schema_version".split()
)
LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # inspect_ai: correct, incorrect, partial, no answer
NO_SCORE = "no score: write nan if the run diverged, or delete the line"
NO_NAMES = frozenset("results result scores score all eval test predict metrics summary files wandb".split())
SAME_RUN = frozenset(
    ("", *"results result scores score all eval metrics summary files wandb".split())
)  # words of a run's files
SUMMARIES = frozenset("mean average avg std sd stdev median all total max min best worst sum summary overall".split())
ENDED = frozenset(("", "finished", "completed", "complete", "success", "succeeded", "done", "ok", "diverged"))
FAILED = frozenset("diverged;failed;crashed;oom;out of memory;timeout;timed out;killed;aborted;interrupted;cancelled;canceled".split(";"))
PASSED = frozenset("success;successful;succeeded;completed;complete;finished;done;ok".split(";"))
CODES = frozenset("exit code;exitcode;return code;returncode;exit status".split(";"))
FAULTS = frozenset("exception;traceback;error message;failure;error".split(";"))
# Values that say where or when a run was made: checkpoints, times, identities.
NAMING = re.compile(r".*(?:checkpoint|ckpt)\b.*[/.]|.*[/.](?:checkpoint|ckpt)|.*\d{4}-\d\d-\d\d|.*\d\d:\d\d|[0-9a-f-]{36}$", re.I)
NO_WORD = MISSING | DIVERGED | {"true", "false", "yes", "no"}


def from_table(table: Table, names: Names, unread: list[str]) -> Iterator[Observation]:
    """Yield the scores of a table: of a column score, or of a column for each metric, data set or seed.

    Without a seed there is one run; without an item the score is of all items of the seed. A cell that is no number stops the
    numbers of its row, data set and metric. names: what the table doesn't say. unread: gets what isn't read.

    ValueError: there is no score, a line has too few cells, or a column seed has an empty cell.
    """
    roles, columns = columns_of(table, names, "score")
    none = f"{table.where}: no score; a table of scores has a column score, or a column for each metric"
    if not columns and any(isinstance(cell, list) for row in table.rows for cell in row.cells.values()):
        none = f"{table.where}: a list of scores; write an object for each run, with its seed"
    if not columns and table.where.endswith(TEXTS):  # such as requirements.txt
        unread.append(none)
        return
    if table.bad or not columns:
        raise ValueError([*table.bad, none][0])
    unread += table.notes
    if "total" in roles and not ("item" in roles and columns[0].long):
        unread.append(
            f"{table.where}: column total isn't read: it stands beside the counts of a column score for each item"
        )
    parts = _split_fields(table, roles)
    if "split" in roles:
        table.rows = list(table.rows)
    several = "split" in roles and len({row.get("split", roles) for row in table.rows}) > 1
    columns = [column for column in columns if column.long or not is_setting(column.name)]
    if CLOCK & {name.casefold() for name in table.columns} and not {"system", "seed", "item"} & {*filter(roles.get, roles)}:
        columns = _of_log(table, columns, unread)
    flags = [name for name in table.columns if folded_metric(name) not in names.metrics and role_of(name) in OUTCOMES]
    used = {name for role, name in roles.items() if role != "other"}
    used |= {*flags, *(column.name for column in columns if is_score(column, names))}
    settings = [name for name in table.columns if name not in used and ("item" not in roles or is_setting(name))]
    names_of_rows = (
        names.systems | {folded(row.get("system", roles)) for row in table.rows} if table.alone else frozenset()
    )
    alone = [row for row in table.alone if folded(row.get("system", roles)) in names_of_rows]
    unread[:] = [line for line in unread if not any(line.startswith(f"{row.where}: ") for row in alone)]
    odd = {*no_runs(dict.fromkeys(row.get("seed", roles) for row in table.rows))} if isinstance(table.rows, list) else set()
    for row in chain(table.rows, alone):
        if any("±" in str(cell) for cell in row.cells.values()):
            unread.append(f"{row.where}: ± isn't read: a mean counts as one run; give the score of each run")
        if roles.get("seed") and row.get("seed", roles) == "":
            raise ValueError(f"{row.where}: no seed")
        state = next(filter(None, (_outcome(role_of(name), row.cells.get(name)) for name in flags)), "") or row.get("state", roles)
        label = row.get("seed", roles)
        if why := _no_run(row, roles, state):
            unread.append(f"{row.where}: not read: {why}")
            continue
        scores = [str(row.cells.get(column.name)) for column in columns if column.name in used]
        places = 2 if not names.metric else 0 if any("." in cell for cell in scores) else -1
        found = [_setting(name, row.cells.get(name), places) for name in settings]
        if label and label not in odd and (rest := beyond_seed(label)):
            found.append(f"{roles['seed']} {rest}")
        setting = "; ".join(filter(None, found))
        doubt = next(filter(None, (_split_doubt(name, row.cells.get(name), names) for name in parts)), "")
        for column in columns:
            for one in _scores_of(row, column, roles, names, table.comma, several):
                one = one._replace(setting="; ".join(filter(None, (one.setting, setting))), problem=one.problem or doubt)
                if state.casefold() == "diverged":
                    one = one._replace(score=math.nan, total=1.0, problem="")
                if one.problem not in ("", NO_SCORE, doubt):
                    unread.append(f"{one.where}: {one.problem}")
                yield one


# Fields whose value is of the choice of a model, of its files or its code, not of what was evaluated.
NOT_EVALUATED = re.compile(
    r"monitor|early|select|chos|best|tun|stop|ckpt|checkpoint|metric|branch|env|host|user|tag|note|comment|output|log|save", re.I
)


def _split_fields(table: Table, roles: dict[str, str]) -> list[str]:
    """Return the fields of ours that may say which part of the data was evaluated; one that tells test from others gets the role split."""
    if not isinstance(table.rows, list):
        return []
    found = []
    for name in table.columns:
        if name not in roles.values() and not split_of(name) and not NOT_EVALUATED.search(name):
            cells = {str(cell) for row in table.rows if (cell := row.cells.get(name)) not in (None, "")}
            if "split" not in roles and "test" in map(str.casefold, cells) and all(split_of(c) or c.casefold() == "test" for c in cells):
                roles["split"] = name
            elif "item" not in roles or len(cells) == 1:
                found.append(name)
    return [name for name in found if name != roles.get("split")]


def _split_doubt(name: str, value: Any, names: Names) -> str:
    """Return what is asked where the value of a field is a part of the data that is no test set; empty if it isn't."""
    part = split_of(value) if isinstance(value, str) and len(words(re.sub(r"[_/]", " ", value))) <= 4 else ""
    if not part or part in names.same or (part.startswith("train") and part != value.casefold()):
        return ""
    return f"its {name} says {part}: say --same {part} if that is printed, too"


CLOCK = frozenset(("step", "epoch", "global_step", "iteration"))


def _of_log(table: Table, columns: list[Column], unread: list[str]) -> list[Column]:
    """Return the columns with one value, and make one row of them, if the rows are steps of a training. ValueError: none has."""
    rows = table.rows = list(table.rows)
    values = {one.name: [cell for row in rows if (cell := row.cells.get(one.name)) not in (None, "")] for one in columns}
    if len(rows) < 2 or not columns:
        return columns
    course = [name for name, found in values.items() if len(found) > 1]
    said = f"{table.where}: {', '.join(course)[:100]}: values at several steps of a training"
    if len(course) == len(columns):
        raise ValueError(f"{said}; keep the line of one step alone")
    if course:
        unread.append(f"{said}, not read")
    cells = {name: cell for name, cell in rows[-1].cells.items() if name not in course}  # settings among them
    table.rows = [Row(rows[-1].where, cells | {name: found[0] for name, found in values.items() if len(found) == 1})]
    return [one for one in columns if one.name not in course]


OF_RUNS = (".hydra/overrides.yaml", "hparams.yaml", "config.yaml", "config.json", "args.json", "hparams.json")
SETTINGS_IN = (".hydra/*.yaml", "*.json", "*.yaml", "*.yml", "*.toml", "command.txt", "cmd.txt")  # files of them, if they hold no scores
WRAPPERS = ("value", "desc")  # of W&B, around each setting
MOST_SETTINGS = 1 << 20  # bytes of a file of them
MOST_BESIDE = 100  # files of a folder
PAIR = re.compile(r"""(?:^|[,{])[ \t"'+~-]*+([\w./@-]++)["']?[ \t]*+[:=][ \t]*+["']?([^"',{}\s]+)|(?<!\S)--([\w-]+)[ =](?!-)(\S+)""", re.M)


def _beside(folder: Path, root: Path, names: Names, done: dict[Path, str]) -> str:
    """Return the settings of runs in files of a folder that hold no scores, and in those above it."""
    if folder not in done:
        above = _beside(folder.parent, root, names, done) if folder != root and folder.is_relative_to(root) else ""
        paths = {path for pattern in SETTINGS_IN for path in folder.glob(pattern)}
        found: dict[str, None] = {}
        for path in sorted(paths)[:MOST_BESIDE]:
            if path.is_file() and path.resolve().is_relative_to(root.resolve()) and path.stat().st_size <= MOST_SETTINGS:
                found |= dict.fromkeys(_settings_in(path, path.relative_to(folder).as_posix(), names))
        done[folder] = "; ".join(filter(None, (*found, above)))
    return done[folder]


def _settings_in(path: Path, name: str, names: Names) -> Iterator[str]:
    """Yield the settings in a file; none if it holds scores, or is what W&B writes of the machine."""
    pairs = [(one or other, value or last) for one, value, other, last in PAIR.findall(path.read_bytes().decode("utf-8", "replace"))]
    of_runs = name in OF_RUNS
    for key, value in pairs if not of_runs else ():
        last = key.rpartition(".")[2]
        printed = folded_metric(last) in names.metrics or folded(last) in names.datasets
        if name.startswith("wandb-") or (is_value(value) and (printed or known(last).kind or role_of(last) in ROLES["number"])):
            return
    for key, value in pairs:
        last = key if name == OF_RUNS[0] else key.rpartition(".")[2]
        if last not in WRAPPERS and is_setting(f"params.{last}") and (of_runs or _setting(last, value, 4)):
            yield _text(f"{key} {value if is_value(value) else RUN.sub('#', value)}")


OUTCOMES = FAILED | PASSED | CODES | FAULTS  # columns that say how a run ended


def _outcome(column: str, cell: Any) -> str:
    """Return how a run failed by a column that says how it ended; empty if it did not fail."""
    said = str("" if cell is None else cell).strip().casefold().removesuffix(".0")
    if column in FAULTS:
        return "" if said in NOTHING or is_value(said) else column
    if column in CODES:
        return f"{column} {said}" if said not in ("", "0", "none", "nan") else ""
    no = said in ("false", "no", "0")
    return (column if said in ("true", "yes", "1") else "") if column in FAILED else f"{column}: {said}" if no else ""


SET_IN = re.compile(
    rf"(?<![a-z])({'|'.join(one.replace(' ', '[ _-]') for one in sorted(SETTINGS, key=len, reverse=True))})[=_ -]?(\d[\d.]*(?:e-?\d+)?)"
)  # a setting with its number, in the name of a run
NOTHING = frozenset(("", "none", "nan", "false", "no", "null", "-"))


def _setting(name: str, value: Any, places: int) -> str:
    """Return a field of a run by which runs of one number must not differ, with its name; empty if it is measured, or names the run.

    places: digits of a fraction that may be set, not measured; 0: only whole numbers may be, -1: no number, which may be of a data set.
    """
    if value is None or (isinstance(value, list) and any(isinstance(one, float | list | dict) for one in value)):
        return ""
    text, field = _text(value).strip(), role_of(name)
    if not is_setting(name):
        no_word = isinstance(value, list) or is_value(value) or text.casefold() in NO_WORD  # a word is set, not measured
        if no_word and is_measured(field):
            return ""
        if not is_setting(f"params.{field}") or NAMING.match(text):  # a name, in which settings may be
            return " ".join([name, *said]) if (said := ["".join(one) for one in SET_IN.findall(text.casefold())]) else ""
        number = re.fullmatch(r"-?\d*\.?\d+(e[+-]?\d+)?", text, re.I)
        if number and (places < 0 or ("." in text and len(re.sub(r"e.*|\D", "", text).lstrip("0")) > places)):
            return ""
    return f"{name} {text if is_value(text) else RUN.sub('#', text)}" if text.casefold() not in ("", "nan") else ""


def _no_run(row: Row, roles: Mapping[str, str], state: str) -> str:
    """Return why a row is no finished run: a mean over seeds, or a crashed run. Empty if it is one."""
    seed = row.get("seed", roles).casefold()
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
        "dataset": given["dataset"] or column.dataset or names.dataset,
        "seed": column.seed or given["seed"] or names.seed,
    }
    if "split" in roles:
        place["dataset"] = _of_split(place["dataset"], given["split"], several, names)
    setting = "" if column.seed or given["seed"] else names.setting
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
            row.number_of(column.name)
            if column.problem:
                raise ValueError(column.problem)
            percent = "%" in f"{column.name} {metric}" or str(part).rstrip().endswith("%")
            score = _read(part, comma)
            counted = column.long and given["item"] and given["total"]
            total = _read(given["total"], comma) if counted else 1.0
            if counted and score is not None and math.isfinite(score) and score % 1:
                raise ValueError(
                    f"score {score:g} of the column total is no count: take the column away, or give counts"
                )
            if given["total"] and not counted and _may_be_count(part, given["total"], metric):
                raise ValueError(
                    f"{part} may be a count of the column total, or a percentage: give a share, or take the column away"
                )
        except ValueError as error:
            yield Observation(*key, math.nan, where=where, problem=str(error), setting=setting)
            continue
        if score is None or total is None:  # without a seed, and in a table of several metrics, nothing was measured
            if column.long or column.seed or roles.get("seed") or names.setting:
                yield Observation(*key, math.nan, where=where, problem=NO_SCORE, setting=setting)
            continue
        yield Observation(*key, score, total, row.where, setting=setting, percent=percent)


def _may_be_count(cell: Any, total: str, metric: str) -> bool:
    """Return whether a number beside a total may be a count of it, and not the metric itself."""
    whole = all(re.fullmatch(r"\d{1,15}", str(text)) for text in (cell, total))
    return whole and 0 < int(cell) <= int(total) and known(metric).kind not in ("positive", "correlation")


def _of_split(dataset: str, split: str, several: bool, names: Names) -> str:
    """Return the name of a data set with its split; without it if that is the test set, and no printed one has such a name."""
    named = with_split(dataset, split, several)
    return dataset if split.casefold() == "test" and names.datasets and folded(named) not in names.datasets else named


def _read(cell: Any, comma: bool | None) -> float | None:
    """Return a number, which may be NaN or infinite; None if the cell is empty. ValueError: it is none."""
    if isinstance(cell, bool | int | float) or str(cell).casefold() in ("true", "false"):
        return _number(str(cell).casefold() == "true" if isinstance(cell, str) else cell, "score")
    if re.fullmatch(r"-?\d{1,15}(\.\d{1,40})?", str(cell)) and comma is False:
        return float(cell)  # which is most of them, in less time
    found = value_of(str(cell), comma)
    return found.number if found.text else None


def from_file(path: Path, names: Names, unread: list[str]) -> Iterator[Observation]:
    """Yield the scores of all tables of a text file or of an Excel file; see `from_table`."""
    found = tables(path, exact=True)
    if not found:
        unread.append(f"{path}: no table")
    several, unclear = 0, ""
    seen: set[Observation] = set()  # scores of earlier tables: groups of lm-evaluation-harness stand in two
    for table in found:
        seed, setting = _run_of([table.title])
        named = with_heading(names._replace(seed=seed, setting=setting) if seed else names, table)
        role = next((one for one in ("dataset", "system") if folded(table.title) in getattr(names, f"{one}s")), "")
        named = named._replace(**dict[str, Any]({role: table.title} if role and table.title else {}))
        own: set[Observation] = set()
        some, asked = False, asked_of(MARKED.sub("", table.beside), " ".join(table.columns))
        doubt = f"the text beside it says {asked!r}: say --same {asked!r} if that is printed, too" * bool(asked and asked not in names.same)
        for one in from_table(table, named, unread):
            some = True
            if len(found) == 1 or (key := one._replace(where="")) not in seen:
                yield one._replace(problem=one.problem or doubt) if doubt else one
            if len(found) > 1:
                own.add(key)
        seen |= own
        several += some
        if some and named == names and "dataset" not in roles_of(table.columns):
            unclear = unclear or (f"under {table.title[:40]!r}" if table.title else "without a heading")
    if several > 1 and unclear:
        raise ValueError(f"{path}: several tables, one {unclear}: add a column dataset, or write a file for each")


def from_lm_eval(path: Path) -> Iterator[Observation]:
    """Yield the scores of samples_TASK_DATE.jsonl, which lm-evaluation-harness writes with --log_samples (0.4.13).

    The row is the name of the model, in results_DATE.json beside it, or else the folder; a file is a seed. A metric that is no
    number for each sample, such as a perplexity, is left out.
    """
    found = re.fullmatch(r"samples_(.+)_(\d{4}-\d\d-\d\dT[\d.:-]+)\.jsonl", path.name)
    task, date = found.groups() if found else (path.stem.removeprefix("samples_"), path.stem)
    beside = path.with_name(f"results_{date}.json")
    results = _json(content(beside), str(beside)) if beside.is_file() else {}
    results = results if isinstance(results, dict) else {}
    model, setting = _text(results.get("model_name") or "") or path.resolve().parent.name, _setting_of(results, task)
    problem = PART if "; limit " in f"; {setting}" else ""
    for number, line in enumerate(content(path).splitlines(), 1):
        sample = _json(line, f"{path}, line {number}")
        if not isinstance(sample, dict) or "doc_id" not in sample:
            raise ValueError(f"{path}, line {number}: no sample of lm-evaluation-harness: it has no doc_id")
        kept = "" if (kind := sample.get("filter", "none")) == "none" else f",{kind}"
        for name in sorted(sample.keys() - NO_METRICS):
            if isinstance(value := sample[name], int | float):
                score = _number(value, where := f"{path}, line {number}")
                item = _text(sample["doc_id"])
                yield Observation(
                    model, task, _text(name + kept), date, item, score, where=where, problem=problem, setting=setting
                )


def _setting_of(results: Mapping[str, Any], task: str) -> str:
    """Return how lm-evaluation-harness evaluated a task; a number of a run in its arguments is left out."""
    about = results.get("config")
    about = about if isinstance(about, dict) else {}
    own = {name: about.get(name) for name in ("model_args", "limit", "gen_kwargs", "model_sha", "model_revision")}
    shots = results.get("n-shot")
    own["n-shot"] = shots.get(task) if isinstance(shots, dict) else about.get("num_fewshot")
    return _said(own)


PART = "with a limit, so of a part of the test items: evaluate all of them"


def _said(settings: Mapping[str, Any]) -> str:
    """Return settings as text, without those that are empty and without names of runs."""
    given = {name: value for name, value in settings.items() if value not in (None, "", {})}
    return "; ".join(RUN.sub("#", f"{name} {_text(value)}") for name, value in given.items())


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
    config = about.get("config") if isinstance(about.get("config"), dict) else {}
    parts = ("task_args", "solver", "solver_args", "model_args", "model_generate_config", "task_version")
    setting = _said({name: about.get(name) for name in parts} | {"limit": config.get("limit")})
    ids = {_text(sample.get("id")) for sample in log["samples"] if isinstance(sample, dict)}
    whole = about.get("dataset", {}).get("samples") if isinstance(about.get("dataset"), dict) else None
    part = config.get("limit") is not None or (isinstance(whole, int) and len(ids) < whole)
    for place, sample in enumerate(log["samples"]):
        where = f"{path}, sample {place + 1}"
        if not isinstance(sample, dict) or not isinstance(scores := sample.get("scores"), dict):
            raise ValueError(f"{where}: it has no scores")
        seed, item = f"{run} epoch {_text(sample.get('epoch', 1))}", _text(sample.get("id", place))
        for scorer, score in scores.items():
            for metric, value in _values(scorer, score.get("value") if isinstance(score, dict) else None, where):
                names = (_text(about.get("model")), _text(about.get("task")), _text(metric))
                yield Observation(*names, seed, item, value, where=where, problem=PART if part else "", setting=setting)


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
        if re.search(r"[:,\[]\s*-?\d", text_of(path)) and not re.search(r"config|args|settings|metadata", path.name):
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
        setting = _setting_of(found, task)
        if isinstance(measures, dict) and not path.with_name(f"samples_{task}_{date}.jsonl").is_file():
            for name, value in measures.items():
                metric, _, kept = name.partition(",")
                if isinstance(value, int | float) and not metric.endswith("_stderr"):
                    shown = metric if kept in ("", "none") else name
                    key = (_text(model), _text(task), _text(shown), date, "", _number(value, str(path)))
                    problem = PART if "; limit " in f"; {setting}" else ""
                    yield Observation(*key, where=str(path), problem=problem, setting=setting)


def _config(path: Path) -> dict[str, Any]:
    """Return the settings of a run of W&B, in config.yaml beside its summary."""
    text = text_of(path) if path.is_file() else ""
    found = re.findall(r"^(\w+):\n(?:  .*\n)*?  value: ?[\"']?([^\n\"']*)", text, re.M)
    return {f"config.{name}": value for name, value in found if value}


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
    itself: bytes = b"",
    taken: set[Path] | None = None,
) -> Iterator[Observation]:
    """Yield the scores of a file, or of all files of a folder; names in any case, and packed by gzip.

    Args:
        path: A file or folder.
        readers: Reader by the pattern of a file's name.
        names: What the files don't say.
        unread: Gets a line for each file or line that isn't read.
        itself: SHA-256 of the printed table, which is no result.
        taken: Files that were read before. Each is read once.

    Raises:
        ValueError: No file has scores, or there are too many.
    """
    unread = [] if unread is None else unread
    files = [path] if path.is_file() else _files(path)
    wanted = {file: reader for file in files if (reader := _reader(file, readers))}
    unread += [f"{file}: no file of scores by its name" for file in files if file not in wanted]
    some, beside, taken = False, dict[Path, str](), set() if taken is None else taken
    top, known_names = path if path.is_dir() else path.parent, names or Names()
    runs: dict[str, dict[str, dict[tuple[str, str, str], None]]] = {}  # by file name without the run: runs, and what they have scores of
    for file, reader in wanted.items():
        if (real := file.resolve()) in taken:
            unread.append(f"{file}: read once: it is there twice")
            some = True
            continue
        taken.add(real)
        named = _named_by(file, path, names or Names(), unread)
        if itself and not named.seed and hashlib.sha256(content(file)).digest() == itself:
            unread.append(f"{file}: not read: it is the printed table")
            continue
        settings = _beside(file.parent, top, known_names, beside)
        if test := _of_test_beside(file, path, wanted, named):
            unread.append(f"{file}: not read: {test.relative_to(path)} beside it is of the test set")
            continue
        given = path.parts if not path.is_absolute() else (path.name,) if path.is_dir() else ()
        parts = (file.name.partition(".")[0], *file.relative_to(path).parent.parts, *given)
        split = next((word for part in parts if (word := split_of(part)) not in {"", *named.same}), "")
        doubt = f"its name says {split}: say --same {split} if that is printed, too" * bool(split)
        pairs = (part.rpartition(" ")[::2] for part in settings.split("; "))
        told = ("" if split_of(key) or NOT_EVALUATED.search(key) else _split_doubt(key, value, named) for key, value in pairs)
        doubt = doubt or next(filter(None, told), "")
        shape, run = _shape(file, path)
        own = runs.setdefault(shape, {}).setdefault(run, {})
        for one in reader(file, named, unread):
            some = True
            if doubt and not split_of(f"{one.dataset} {one.metric} {one.row}"):
                one = one._replace(where=one.where or str(file), problem=one.problem or doubt)
            own[one.row, one.dataset, one.metric] = None
            yield one._replace(file=str(file), setting="; ".join(filter(None, (one.setting, settings))))
    for file in files:
        shape, run = _shape(file, path)
        if shape and run not in runs.get(shape, {run}):  # of a run as the others, but without scores
            for key in dict.fromkeys(chain.from_iterable(runs[shape].values())):
                yield Observation(*key, run, "", math.nan, where=str(file), problem=NO_SCORE.replace("line", "file"), file=str(file))
    if not some:
        why = f" ({unread[-1]})" if len(files) == 1 and unread else ""
        raise ValueError(f"{path}: no scores{why}; files that are read: {', '.join(readers)}")


def _of_test_beside(file: Path, root: Path, files: Iterable[Path], names: Names) -> Path | None:
    """Return the file of the test set beside one of another split, as test.json beside dev.json; None if there is none."""
    if not root.is_dir():
        return None
    inner = file.relative_to(root).as_posix()
    splits = [word for part in inner.split("/") if (word := split_of(part.partition(".")[0])) not in {"", *names.same}]
    splits += ["eval"] * (file.name == "eval_results.json")  # of Hugging Face
    named = (rf"(?i)(?<![^\W_]){re.escape(word)}(?![^\W_])" for word in splits)
    beside = {root / re.sub(word, test, inner) for word in named for test in ("test", "predict")}
    return next((one for one in files if one in beside and one != file), None)


def _shape(file: Path, root: Path) -> tuple[str, str]:
    """Return the innermost name of a file or folder that names a run, without the run, and the run; both empty if none does."""
    parts = (*reversed(_folders(file, root)), file.name.partition(".")[0])
    place = next((place for place in range(len(parts) - 1, -1, -1) if _run_of([parts[place]])[0]), -1)
    return ("/".join((*parts[:place], RUN.sub("#", parts[place]))), _run_of([parts[place]])[0]) if place >= 0 else ("", "")


def _folders(file: Path, root: Path) -> list[str]:
    """Return the names of the folders of a file inside a folder, the innermost first; version_0 of Lightning is run_0."""
    inside = [folder for folder in file.parents if root in folder.parents]
    return [re.sub(r"^version(?=_\d+$)", "run", one.name) if (one / "hparams.yaml").is_file() else one.name for one in inside]


def _reader(file: Path, readers: Mapping[str, Reader]) -> Reader | None:
    name = file.name.lower().removesuffix(".gz")
    return next((one for pattern, one in readers.items() if fnmatch(name, pattern)), None)


def _named_by(file: Path, root: Path, names: Names, unread: list[str]) -> Names:
    """Return what a file says by its name, and its folders by theirs: system, metric and run, where nothing else does."""
    parts = [file.name.removesuffix(".gz").rpartition(".")[0] or file.name]
    parts += _folders(file, root)
    taken = names.datasets | names.systems
    known_number = {part for part in parts if part.isdigit() and folded(part) in taken}  # such as a data set of OpenML
    seed, setting = _run_of([part for part in parts if part not in known_number])
    if not seed:  # its source may be the folder of a run
        seed, setting = _run_of([*parts, (root if root.is_dir() else root.parent).resolve().name])
        setting = f"folder of {setting}" if seed else ""
    metric = next((word for part in parts for word in re.split(r"[\s_-]+", part) if known(word).kind), "")
    rest = [
        " ".join(w for w in re.split(r"[\s_-]+", part if part in known_number else RUN.sub("", part))
                 if w not in ("", metric, *NO_NAMES))
        for part in parts
    ]
    rest = list(filter(None, rest))
    dataset = next((part for part in rest if folded(part) in names.datasets), "")
    rest = [part for part in rest if part != dataset]
    system = next((part for part in rest if folded(part) in names.systems), "")
    others = ", ".join(part for part in rest if part != system and len(part) > 1 and not split_of(part))
    if others and (names.dataset or names.system):
        unread.append(f"{file}: its name also says {others[:60]!r}, which counts as nothing beside --system and --dataset")
    return names._replace(
        dataset=dataset or names.dataset,
        system=system or names.system or next(iter(rest), ""),
        metric=names.metric or metric,
        seed=seed,
        setting=setting,
    )


def _run_of(parts: Sequence[str]) -> tuple[str, str]:
    """Return the run that names of a file and its folders say, and those names without it; both empty if they say none."""
    named = any(re.search(r"(?<![^\W_])(?:seed|run|trial|fold|rep|repetition|s)[ _.=-]*\d", part, re.I) for part in parts)
    runs = {part: RUN.findall(part) for part in parts if not (named and part.isdigit())}  # seed0/500 is a step of a run
    names = [found for part in reversed(runs) for found in runs[part]]
    word = r"^(?:seed|run|trial|fold|rep|repetition)[ _.=-]*"
    both = len(names) > 1 and all(re.match(word, name, re.I) for name in names)  # so it is clear which is which
    seed = "/".join(name if both else re.sub(rf"{word}|^s[ _.=-]*", "", name, flags=re.I) for name in names)
    rest = [
        " ".join(word for word in re.split(r"[\s_.-]+", RUN.sub("#", part) if part in runs else part) if word not in SAME_RUN)
        for part in parts
    ]
    return seed, "file " + "/".join(filter(None, reversed(rest))) if seed else ""


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such file or folder")
    found = []
    for place, path in enumerate(folder.rglob("*")):
        if place >= MOST_FILES:
            raise ValueError(f"{folder}: more than {MOST_FILES} files; name a folder with fewer")
        if path.exists() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            if path.is_symlink():
                check_inside(path, folder.resolve())
            if path.is_file():
                found.append(path)
    return sorted(found, key=lambda path: (path.parent, path.stem, path.suffix))  # seed0.csv before its copy, "seed0 (1).csv"


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
