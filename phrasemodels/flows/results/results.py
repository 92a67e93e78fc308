"""Results: rows of compared tables from the store and from the kept results of long runs.

A kept result is a folder results/NAME. It has result.json and tests.json. It also has the statistics of each
sentence without its text. The significance tests take seconds to compute and are the same bits for the same data
and code.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.config import to_json
from phrasemodels.data.corpora.readers import Leak
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact, has_own_digest, with_digest, write_durably
from phrasemodels.data.store.disk_cache import cached_on_disk, contents
from phrasemodels.data.store.fingerprint import closure
from phrasemodels.data.store.store import Step, Store, digest_of, with_dependencies
from phrasemodels.flows.experiments.catalogue import PAPERS, PROFILES, Table, experiments, resolved
from phrasemodels.flows.experiments.experiment import Answer, Experiment, Pipeline
from phrasemodels.flows.experiments.overrides import MACHINE, overridden, with_precision_of
from phrasemodels.flows.experiments.published import divided
from phrasemodels.flows.results.records import (
    RESULT,
    SENTENCES,
    TESTS,
    kept_files,
    place_of,
    read_kept,
    seal,
    sources_of,
)
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.metrics.compare import TestedRow, differences, finite, reason_not, verdict_on
from phrasemodels.tasks.problems.recipe import Outcome
from phrasemodels.verdicts.judgement import qualified
from phrasemodels.verdicts.significance import seed_group

Tests = list[dict[str, Any] | None]


def tests_of(folder: Path, rows: Sequence[TestedRow], read: Callable[[], list[TestedRow]]) -> Tests:
    """Return the differences of a kept result's rows: as kept in the folder, or computed if data or code have changed since.

    rows: without their statistics. read: return the rows with the statistics of the folder's files.
    """
    key = key_of(folder, rows)
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads((folder / TESTS).read_bytes())
        if kept["key"] == key and has_own_digest(kept) and len(kept["against"]) == len(rows):
            return list(kept["against"])
    return list(cached_on_disk("tests", key, lambda: differences(read()), of_users=False))


def key_of(folder: Path, rows: Sequence[TestedRow]) -> str:
    """Return the digest of a folder's statistics, the rows and the test's code."""
    source, _ = closure(differences, *(row.statistic for row in rows if row.statistic))
    return digest_of([contents(folder, (".arrow",)), rows, source])


TRAININGS = ("train", "train_restarts")  # steps that make weights


@dataclass(frozen=True)
class Result:
    """A row of a compared table with its experiment and answer.

    source: a store key or the folder of a kept result. row: as `compare` makes it. runs: {seed, score, train, run} of
    each seed. These are the store keys of its score and training and its MLflow run. A kept result also has the
    commit.
    """

    source: str
    title: str
    experiment: Experiment
    answer: Answer
    row: dict[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)
    made: float = 0.0

    @property
    def kept(self) -> bool:
        """Whether it is a kept result."""
        return self.source.startswith("results/")

    @property
    def folder(self) -> Path:
        """Folder of a kept result."""
        return place_of(self.source.removeprefix("results/"))

    @cached_property
    def outdated(self) -> str:
        """How its settings or statements differ from its experiment today. Empty if they don't."""
        settings = changed_since(self.row.get("settings", {}), self.experiment.train)
        if not settings and self.experiment.table.paper not in PAPERS and self.experiment.recipe.trains:
            same = same_settings(_without_seed(self.row.get("settings", {})), _settings_of(self.experiment))
            settings = "" if same else "its model"
        found = (
            self.row.get("outdated", ""),
            older_code(self.experiment, self.row.get("code", "")),
            f"run with earlier settings: {settings}" if settings else "",
        )
        return "; ".join(filter(None, found))

    @property
    def worth(self) -> tuple[bool, bool, int, bool, int, float]:
        """The order of results of one number.

        Unchanged, comparable and larger ones are first. Then today's settings, more seeds and a newer time count in
        this order.
        """
        e, today = self.experiment, not self.outdated
        size = PROFILES.index(e.profile)
        return (not e.changed, e.comparable and today, size, today, len(self.row["seeds"]), self.made)


@cache
def _by_name() -> dict[str, Experiment]:
    return {experiment.name: experiment for experiment in experiments()}


def _answer(row: Mapping[str, Any]) -> tuple[Experiment, Answer] | None:
    """Return the experiment with its overrides and the answer of a row if they still exist."""
    known = _by_name().get(divided(row["experiment"])[0]) or renamed(row["experiment"], row.get("settings", {}))
    if known is None:
        return None
    try:
        experiment = with_precision_of(overridden(known, *row.get("changed", ())), row.get("settings", {}))
    except ValueError:  # an overridden field no longer exists
        return None
    answers = [a for a in experiment.answers if row.get("metric", a.metric) == a.metric]
    return (experiment, answers[0]) if answers else None


def renamed(name: str, settings: Mapping[str, Any]) -> Experiment | None:
    """Return the renamed row of a user's table: the only one with the settings of the training. None: none or several."""
    paper, _, profile, _ = divided(name)[0].split("/", 3)
    if not settings or paper in PAPERS:
        return None
    then = _without_seed(settings)
    found = [e for e in users_rows() if e.profile == profile and same_settings(then, _settings_of(e))]
    return found[0] if len(found) == 1 else None


def _without_seed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {part: value for part, value in settings.items() if part != "seed"}


OLDER = "made with older code or data of the study: run it again"


def code_of(parts: Iterable[Mapping[str, Any]]) -> str:
    """Return the digest of users' code and of files of corpora in the keys of a row's steps.

    It is empty without users' code.
    """
    code, files = dict[str, str](), dict[str, Any]()
    for one in parts:
        code |= {name: digest for name, digest in one["source"].items() if not re.match(r"phrasemodels\b", name)}
        if isinstance(one["settings"], Mapping) and one["settings"].get("digests"):
            files[str(one["settings"].get("corpus"))] = one["settings"]["digests"]
    return digest_of([code, files]) if code or files else ""


def code_today(experiment: Experiment) -> str:
    """Return the digest of a user's row's code and data. Empty for other rows, or if it cannot be planned."""
    if experiment.table.paper in PAPERS:
        return ""
    with contextlib.suppress(ValueError, OSError):
        found = resolved(experiment, sources_of(Settings())).steps(0)
        return code_of(step.parts for step in with_dependencies([found.scored]))
    return ""


def older_code(experiment: Experiment, code: str) -> str:
    """Say that a result has other code or data of users than its row today. Empty if it hasn't. code: of the result."""
    return OLDER if code and (today := code_today(experiment)) and code != today else ""


def _code_in(artifacts: Mapping[str, Artifact], key: str) -> str:
    """Return the digest of users' code and data behind an artifact. Empty if a part is no longer in the store."""
    found, queue = dict[str, Artifact](), [key]
    while queue:
        if (key := queue.pop()) in found:
            continue
        if key not in artifacts:
            return ""
        found[key] = artifacts[key]
        queue += artifacts[key].manifest["parts"]["inputs"].values()
    return code_of(found[key].manifest["parts"] for key in sorted(found))


@cache
def users_rows() -> list[Experiment]:
    """Return the trained rows of users' tables."""
    return [e for e in experiments() if e.table.paper not in PAPERS and e.recipe.trains]


def _settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the training of a row, or none if it cannot be planned."""
    try:
        return _without_seed(to_json(resolved(experiment, sources_of(Settings())).steps(0).trained.settings))
    except (ValueError, OSError):
        return {}


def all_results(store: Store, tracker: Tracker) -> list[Result]:
    """Return the results in the store and the kept ones."""
    return [*stored_results(store, tracker.keys()), *kept_results()]


def stored_results(store: Store, run_ids: Mapping[str, str]) -> Iterator[Result]:
    """Yield the rows of every comparison in the store. run_ids: MLflow's, by the store key of the training."""
    artifacts = {artifact.key: artifact for artifact in store.indexed()}
    for key, artifact in artifacts.items():
        if artifact.manifest["step"] != "compare":
            continue
        for row in artifact.meta["rows"]:
            runs = [{"seed": seed, **_run(artifacts, artifact, row, seed, run_ids)} for seed in row["seeds"]]
            none = {"train": "", "score": ""}
            known = max(runs, key=lambda run: (run["train"] != "", run["score"] != ""), default=none)  # not diverged
            trained = artifacts.get(known["train"])
            settings = trained.manifest["parts"]["settings"] if trained else {}
            if (answer := _answer({**row, "settings": settings})) is not None:
                code = _code_in(artifacts, known["score"]) if answer[0].table.paper not in PAPERS else ""
                made = {**row, "experiment": answer[0].name, "settings": settings, "code": code}
                if score := next((one for run in runs if (one := artifacts.get(run["score"]))), None):
                    made["test_set"] = score.meta["test_set"]
                yield Result(key, artifact.meta["title"], *answer, made, runs, artifact.finished)


def _run(
    artifacts: Mapping[str, Artifact], compared: Artifact, row: dict[str, Any], seed: int, run_ids: Mapping[str, str]
) -> dict[str, str]:
    """Return the score of a seed, and its training."""
    score = compared.manifest["parts"]["inputs"][f"{row['experiment']} seed {seed}"]
    if (found := artifacts.get(score)) and "scores" not in found.meta:  # the data of a training that diverged
        return {"score": "", "train": "", "run": ""}
    queue = [score]
    while queue:
        artifact = artifacts.get(key := queue.pop(0))
        if artifact is not None and artifact.manifest["step"] in TRAININGS:
            return {"score": score, "train": key, "run": run_ids.get(key, "")}
        queue += artifact.manifest["parts"]["inputs"].values() if artifact else []
    return {"score": score, "train": "", "run": ""}


def kept_results() -> Iterator[Result]:
    """Yield the rows of kept results: NAME/result.json, with the per-sentence statistics beside it."""
    for path in kept_files():
        yield from _kept_results(path, path.stat().st_mtime_ns)


@cache
def _kept_results(path: Path, changed: int) -> list[Result]:
    """Return the rows of a kept result. changed: the time of its last change."""
    result = read_kept(path)
    rows, known = _answered(result)
    against = tests_of(path.parent, *_tested(path.parent, rows, known))
    results = []
    for row, answer, tests in zip(rows, known, against, strict=True):
        runs = [{"score": "", **run} for run in runs_of(row, result["commit"])]
        made = {**row, "against": tests, "commit": result["commit"]}
        results.append(Result(f"results/{path.parent.name}", result["title"], *answer, made, runs))
    return results


def runs_of(row: Mapping[str, Any], commit: str) -> list[dict[str, Any]]:
    """Return {seed, commit, train, run} of each seed of a kept row.

    Args:
        commit: Of the whole result, for a row without its own. Of several, one made the seed.
    """
    known = [{"seed": seed, "commit": commit, "train": "", "run": ""} for seed in row["seeds"]]
    return list(row.get("runs") or known)


def keep_tests(path: Path) -> None:
    """Write the tests of a kept result beside its result.json, and their digest into it."""
    folder = path.parent
    rows, read = tested(path)
    made = {"key": key_of(folder, rows), "against": tests_of(folder, rows, read)}
    write_durably(folder / TESTS, json.dumps(with_digest(made), indent=1) + "\n")
    seal(folder)


def contradiction(path: Path) -> str:
    """Return the first value of a kept result other than its sentences' statistics give. Empty if there is none."""
    rows, known = _answered(read_kept(path))
    _, read = _tested(path.parent, rows, known)
    try:
        for row, one in zip(rows, read(), strict=True):
            if (statistic := one.statistic) is None:
                continue
            for seed, value, sums in zip(row["seeds"], row["values"][one.metric], one.statistics(""), strict=True):
                given = float(statistic.value(sums.sum(0)))
                if not math.isclose(given, value, rel_tol=1e-6, abs_tol=1e-6):
                    return f"{row['experiment']} seed {seed}: {one.metric} is {value}, but its sentences give {given}"
    except (LookupError, TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
        return f"{path.parent / SENTENCES} has no statistics of these rows ({type(error).__name__}: {error})"
    return ""


def tested(path: Path) -> tuple[list[TestedRow], Callable[[], list[TestedRow]]]:
    """Return the rows of a kept result for tests and a function for reading their statistics."""
    return _tested(path.parent, *_answered(json.loads(path.read_text(encoding="utf-8"))))


def _answered(result: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[Experiment, Answer]]]:
    """Return the rows with existing experiments and with intervals, and the experiments and answers."""
    rows, known = [], []
    for row in result["rows"]:
        if (answer := _answer(row)) is not None:
            intervals = {name: finite(asdict(seed_group(values))) for name, values in row["values"].items()}
            own = {"experiment": answer[0].name, "metric": answer[1].metric, "intervals": intervals}
            rows.append({**row, **own, **_judged(row, *answer)})
            known.append(answer)
    return rows, known


def _judged(row: Mapping[str, Any], experiment: Experiment, answer: Answer) -> dict[str, str]:
    """Return the verdict and reason of a row by the rule of today."""
    printed, how = (answer.cell.printed, answer.cell.how) if answer.cell else ("", None)
    caveat = answer.note if answer.exact else experiment.caveat
    why_not = reason_not(row["stand_in"], experiment.reason_not(answer) or row["reason_not"])
    lost, own = row.get("diverged", ()), zip(row["seeds"], row["values"][answer.metric], strict=True)
    values = [math.nan if seed in lost else value for seed, value in own]
    found = qualified(verdict_on(printed, values, why_not, answer.exact, how), caveat)
    return {"verdict": found.verdict, "reason": found.reason}


def _tested(
    folder: Path, rows: Sequence[Mapping[str, Any]], known: Sequence[tuple[Experiment, Answer]]
) -> tuple[list[TestedRow], Callable[[], list[TestedRow]]]:
    """Return the rows for tests without statistics and a function for reading all statistics."""
    names = {e.row: e.name for e, _ in reversed(known)}
    rows_tested = [
        TestedRow(
            *(e.name, a.metric, str(row["test_set"]), a.statistic if row["sentences"] else None, []),
            names.get(e.baseline, ""),
        )
        for row, (e, a) in zip(rows, known, strict=True)
    ]

    def read() -> list[TestedRow]:
        statistics = statistics_of(folder, [row for row, one in zip(rows, rows_tested, strict=True) if one.statistic])
        found = iter(statistics)
        return [replace(one, seeds=next(found) if one.statistic else []) for one in rows_tested]

    return rows_tested, read


def statistics_of(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Iterator[list[pa.Table]]:
    """Yield the statistics of the test sentences of each row of a kept result, a table for each seed.

    A row names itself in the one file of all, {row}.
    """
    if not rows:
        return
    if not (folder / SENTENCES).exists():
        raise ValueError(f"{folder / SENTENCES}: there is no such file, but the rows of {RESULT} need it")
    together = read_shard(folder / SENTENCES)
    if (names := together.column_names)[:4] != ["row", "seed", "id", "group"] or len(set(names)) < len(names):
        raise ValueError(f"{folder / SENTENCES}: there are no columns row, seed, id and group: keep the result again")
    for row in rows:
        own = together.filter(pc.equal(together["row"], row["sentences"]["row"]))
        columns = [name for name in own.column_names[2:] if own[name].null_count == 0]
        yield [own.filter(pc.equal(own["seed"], seed)).select(columns) for seed in row["seeds"]]


PLACEMENT = {path.rpartition(".")[2] for path in MACHINE}  # settings of a training that change no score


def matches(trained: Artifact, experiment: Experiment, artifacts: Mapping[str, Artifact], sources: Sources) -> bool:
    """Return whether a training and all of its inputs have the settings of an experiment.

    Keys are not compared because they change with any line of code. Settings missing in one of the two are not
    compared. Neither is anything that is no longer in the store. If the user no longer supplies its corpus, a
    training is taken by its name.
    """
    try:
        experiment = with_precision_of(experiment, trained.manifest["parts"]["settings"])
        pipeline = resolved(experiment, sources).steps(int(trained.about["seed"]))
    except (ValueError, OSError):
        return True
    return _same(trained, pipeline.trained, artifacts)


def _same(artifact: Artifact, step: Step, artifacts: Mapping[str, Artifact]) -> bool:
    parts = artifact.manifest["parts"]
    if not same_settings(parts["settings"], to_json(step.settings)):
        return False
    inputs = ((artifacts.get(parts["inputs"].get(role, "")), wanted) for role, wanted in step.inputs.items())
    return all(_same(found, wanted, artifacts) for found, wanted in inputs if found and isinstance(wanted, Step))


def same_settings(saved: Any, now: Any) -> bool:
    """Return whether settings are equal in all common parts. Parts are compared by bare names, since modules may move."""
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        return all(same_settings(saved[name], now[name]) for name in (saved.keys() & now.keys()) - PLACEMENT)
    if isinstance(saved, list) and isinstance(now, list):
        return len(saved) == len(now) and all(map(same_settings, saved, now))
    if isinstance(saved, str) and isinstance(now, str):
        return saved.rpartition(":")[2] == now.rpartition(":")[2]
    return bool(saved == now)


def changed_since(settings: Mapping[str, Any], now: Any) -> str:
    """Name the fields of a TrainConfig that changed since a kept training. Empty if none did.

    settings: of the training. Fields missing there did not exist then.
    """
    then, fields = settings.get("config", {}), to_json(now)
    common = [name for name in fields if name in then and name not in PLACEMENT]
    changed = [name for name in common if not same_settings(then[name], fields[name])]
    return ", ".join(f"train.{name} was {then[name]} and is now {fields[name]}" for name in changed)


NOT_COUNTED = "records of the test set in train were not counted: the step failed; run the table again"


@dataclass(frozen=True)
class FinishedTable:
    """A table with all steps in the store.

    comparison: the table compared with the paper. run_ids: of MLflow, by the keys of trainings.
    """

    table: Table
    pipelines: Sequence[Pipeline]
    store: Store
    comparison: Artifact
    run_ids: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """The experiments of the table, in order."""
        return [p.experiment for p in self.pipelines if p.seed == self.pipelines[0].seed]

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each finished training. All rows of the first seed come before the next seed."""
        return [
            Outcome(
                p.experiment.name,
                p.experiment.row,
                p.experiment.system,
                p.experiment.variant,
                p.seed,
                p.experiment.recipe,
                p.experiment.model,
                p.experiment.train,
                *(self.artifact(step) for step in (p.trained, p.predicted, p.scored)),
            )
            for p in self.pipelines
            if p.trains and self.store.find(p.scored, verify=False)
        ]

    @property
    def first_seeds(self) -> list[Outcome]:
        """The outcomes of the first seed, one for each row."""
        return [outcome for outcome in self.outcomes if outcome.seed == self.outcomes[0].seed]

    @cached_property
    def leaks(self) -> dict[str, str]:
        """For each training experiment, the part of its test set in its training set."""
        found = {e.name: self.store.find(leak, verify=False) for e in self.experiments if (leak := e.leak)}
        return {name: str(Leak(**leak.meta["leak"])) if leak else NOT_COUNTED for name, leak in found.items()}

    def artifact(self, step: Step) -> Artifact:
        """Return the artifact of a step of the table."""
        artifact = self.store.find(step, verify=False)
        assert artifact is not None, "all steps of a finished table are in the store"
        return artifact
