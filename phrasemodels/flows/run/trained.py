"""Results of `train --local --data` as kept results. They come from a machine without the pipeline."""

import contextlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from phrasemodels.config import to_json
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import (
    Artifact,
    files_of,
    has_own_digest,
    sha256_of,
    write_durably,
)
from phrasemodels.data.store.store import Executor, Job, Store, inherited
from phrasemodels.flows.experiments.catalogue import Request, Table, resolved
from phrasemodels.flows.experiments.catalogue import experiment as find
from phrasemodels.flows.experiments.experiment import Answer, Experiment
from phrasemodels.flows.results.keep import (
    DERIVED,
    MEANS,
    Statistics,
    all_versions,
    join,
    row_of,
    run_of,
    training_of,
    write,
)
from phrasemodels.flows.results.records import RESULT, SENTENCES, commit, open_store, sources_of
from phrasemodels.flows.results.results import code_today
from phrasemodels.flows.run.local import code_digest, key_of_prepared
from phrasemodels.flows.run.plan import Plan
from phrasemodels.folders import check_folder, read_regular
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.metrics.compare import row_of_scores
from phrasemodels.tasks.train.trainer import HISTORY

AGAIN = "copy the folder again"
OTHER_CODE = "another version of this package trained it; keep it with that one, then take --join"
NOT_OURS = "no result of `phrasemodels train --local --data` of this version: train it again, or move the file away"
MOST = 1e15  # more parameters, updates, seconds or MiB than any training has
ENDS = {"model", "scores"}  # stages whose outcome is not needed here: the weights, and the scores, which are made again


@dataclass(frozen=True)
class Trained:
    """A training: its experiment and seed, the statements of its model, its scores, and the versions of libraries."""

    experiment: Experiment
    seed: int
    model: Artifact
    scores: Artifact
    libraries: Mapping[str, str]


def keep_trained(out: Path, folder: Path, note: str) -> Path:
    """Score the predictions of all trainings in `out`, and write or join the scores as a kept result; return its file.

    ValueError: there is none, they are of several tables, one is there twice, or one is damaged or of settings, data or code
    other than here.
    """
    settings = Settings()
    store, executor = open_store(settings), Executor(sources=sources_of(settings))
    with tempfile.TemporaryDirectory(prefix="phrasemodels-") as temporary:
        check_folder(out)
        trainings: dict[str, list[Trained]] = {}
        named: dict[Path, tuple[TrainingResult, Experiment]] = {}
        for file in sorted(out.glob("*-s*.json")):
            with _errors_name(file):
                training = _parsed(file)
                try:
                    named[file] = training, find(training.name, training.overrides)
                except ValueError:
                    if training.code != code_digest():
                        raise ValueError(OTHER_CODE) from None
                    raise
        code = code_digest()  # also of what these imports read, but not of what scoring imports
        for number, (file, (training, bare)) in enumerate(named.items()):
            with _errors_name(file):
                if training.code != code:
                    raise ValueError(OTHER_CODE)
                one = _scored(file, training, bare, store, executor, Path(temporary) / str(number))
            seeds = trainings.setdefault(one.experiment.name, [])
            if any(other.seed == one.seed for other in seeds):
                raise ValueError(f"{file}: another file has the same seed of {one.experiment.name}; move one away")
            seeds.append(one)
        if not trainings:
            raise ValueError(f"{out}: no result of `phrasemodels train --local --data` is there")
        places = {
            (e.table.paper, e.table.number, e.profile) for e in (seeds[0].experiment for seeds in trainings.values())
        }
        if len(places) > 1:
            raise ValueError(
                f"{out}: trainings of {len(places)} tables; a kept result is of one, so move the others away"
            )
        paper, number_of_table, profile = places.pop()
        rows = [e.row for e in Request(paper, number_of_table, profile, 1).resolve().experiments]
        groups = sorted(trainings.values(), key=lambda seeds: rows.index(seeds[0].experiment.row))
        title = Table(paper, number_of_table, profile, tuple(seeds[0].experiment for seeds in groups), ()).title
        statistics: Statistics = {}
        kept_rows = [row for seeds in groups for row in _rows(seeds, statistics)]
        result = {"title": title, "commit": commit(), "note": note, "rows": kept_rows}
        if not (folder / RESULT).is_file():
            return write(folder, result, statistics, over=None)
        write(other := Path(temporary) / "kept", result, statistics, over=None)
        try:
            return join(folder, other)
        except ValueError as error:
            raise ValueError(str(error).replace(str(other), str(out))) from error


class TrainingResult(NamedTuple):
    """The JSON of a training. outcomes: of each stage but ENDS, with its files and their digests."""

    name: str
    seed: int
    overrides: list[str]
    data: dict[str, str]  # keys
    libraries: dict[str, str]
    code: str
    key: str
    outcomes: dict[str, tuple[dict[str, Any], dict[str, Any]]]
    scores: dict[str, float]
    model: dict[str, Any]
    history: str


def _parsed(file: Path) -> TrainingResult:
    """Return the content of a file. ValueError: it is no result of a training, or was changed."""
    try:
        written = json.loads(read_regular(file))
        whole, provenance = has_own_digest(written), written["provenance"]
        model: dict[str, Any] = {part: int(written[part]) for part in ("parameters", "steps")}
        model |= {part: float(written[part]) for part in MEANS} | {"devices": list(map(str, written["devices"]))}
        result = TrainingResult(
            str(written["experiment"]),
            int(written["seed"]),
            list(map(str, provenance["overrides"])),
            {str(k): str(v) for k, v in provenance["data"].items()},
            {str(k): str(v) for k, v in provenance["libraries"].items()},
            str(provenance["code"]),
            str(provenance["key"]),
            {str(k): (dict(v["meta"]), dict(v["files"])) for k, v in provenance["stages"].items()},
            {str(k): float(v["value"]) for k, v in written["scores"].items()},
            model,
            json.dumps(provenance["history"]),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(NOT_OURS) from error
    if not whole or not all(0 <= model[part] < MOST for part in ("parameters", "steps", *MEANS)):
        raise ValueError(f"it was changed; {AGAIN}")
    return result


@contextlib.contextmanager
def _errors_name(file: Path) -> Iterator[None]:
    """Name the file in a ValueError of the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _scored(
    file: Path, result: TrainingResult, bare: Experiment, store: Store, executor: Executor, scratch: Path
) -> Trained:
    """Return the training of a result file, scored in the folder `scratch`. ValueError: as of `keep_trained`."""
    stages = bare.recipe.without_optional_libraries().measured_stages(bare.model, bare.train, result.seed)
    key = key_of_prepared(stages, result.seed, result.data, result.code)
    if bare.name != result.name or key != result.key or result.outcomes.keys() != stages.keys() - ENDS:
        raise ValueError(f"its settings are not those that it names, so it was changed; {AGAIN}")
    own = resolved(bare, executor.sources)
    steps = own.recipe.data()
    if differing := sorted(part for part, one in result.data.items() if part not in steps or steps[part].key != one):
        raise ValueError(f"trained on other data than are made here now ({', '.join(differing)}); prepare again")
    known = {}
    for part, (meta, files) in result.outcomes.items():
        known[part] = Artifact(file.parent / part / key, {"key": key, "meta": meta})
        _check_files(known[part].path, files)
    known["model"] = Artifact(scratch / "model", {"key": key, "meta": result.model})
    known["model"].path.mkdir(parents=True)
    write_durably(known["model"].file(HISTORY), result.history)
    scored = own.recipe.measured_stages(own.model, own.train, result.seed)["scores"]
    if not {*scored.inputs.values()} <= known.keys() | steps.keys():  # stages that were left out there
        scored = stages["scores"]
    inputs = {ours: known.get(theirs) or store.run(steps[theirs], executor) for ours, theirs in scored.inputs.items()}
    try:
        meta = scored.make(Job(scratch, scratch, inputs, store, executor, key), scored.settings)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its predictions cannot be scored ({type(error).__name__}: {error}); {AGAIN}") from error
    _check_scores(own, result.scores, meta["scores"])
    terms = inherited({part: store.run(steps[part], executor) for part in result.data})
    scores = Artifact(scratch, {"meta": {**terms, **meta}})
    return Trained(own, result.seed, known["model"], scores, result.libraries)


def _check_scores(experiment: Experiment, recorded: Mapping[str, float], computed: Mapping[str, Any]) -> None:
    """ValueError: a recorded score differs from the computed one, or none answers the experiment's table."""
    for metric, value in recorded.items():
        here = float(computed.get(metric, {"value": math.nan})["value"])
        if not math.isclose(value, here, rel_tol=1e-6, abs_tol=1e-9):
            raise ValueError(f"{metric} is {value}, and {here:.6g} by its predictions: it was changed; {AGAIN}")
    if not _answers(experiment, computed):
        wanted = ", ".join(dict.fromkeys(answer.metric for answer in experiment.answers))
        raise ValueError(f"its table has {wanted}, which `train --local --data` leaves out; train it in the store")


def _answers(experiment: Experiment, scores: Mapping[str, Any]) -> list[Answer]:
    """Return the answers of an experiment among the scores. Answers by other libraries are made in the store alone."""
    return [answer for answer in experiment.answers if answer.metric in scores]


def _check_files(folder: Path, expected: Mapping[str, Any]) -> None:
    """ValueError: a folder's files are not those written there."""
    present = {}
    for name in files_of(folder):
        path = folder / name
        present[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    if present != expected:
        raise ValueError(f"a file of {folder} is missing or damaged; {AGAIN}")


def _rows(seeds: Sequence[Trained], statistics: Statistics) -> list[dict[str, Any]]:
    """Return the rows of an experiment for a kept result, and add the statistics of its seeds to the others'."""
    experiment, seeds = seeds[0].experiment, sorted(seeds, key=lambda one: one.seed)
    answers = _answers(experiment, seeds[0].scores.meta["scores"])
    whole = Request(experiment.table.paper, experiment.table.number, experiment.profile, 1).resolve()
    settings = Plan(replace(whole, experiments=(experiment, *whole.experiments))).rows_of(experiment)
    columns = {answer.statistic.column for answer in answers if answer.statistic}
    for one in seeds if columns else []:
        table = read_shard(one.scores.file(SENTENCES)).select(["id", "group", *sorted(columns)])
        statistics[row_of(experiment.name), one.seed] = table
    shared = {
        **({"code": code} if (code := code_today(experiment)) else {}),
        "runs": [run_of(one.seed, one.model.manifest["key"]) for one in seeds],
        "training": training_of([one.model for one in seeds]),
        "settings": {k: v for k, v in to_json(experiment.steps(0).trained.settings).items() if k != "seed"},
        "libraries": all_versions([one.libraries for one in seeds]),
        "test_set": seeds[0].scores.meta["test_set"],
        "licences": seeds[0].scores.meta["licences"],
        "sentences": {"row": row_of(experiment.name)} if columns else [],
    }
    numbers = tuple(one.seed for one in seeds)
    metrics = {answer.metric for answer in answers}
    rows = [row_of_scores(row, [one.scores for one in seeds], numbers) for row in settings if row.metric in metrics]
    return [{name: value for name, value in row.items() if name not in DERIVED} | shared for row in rows]
