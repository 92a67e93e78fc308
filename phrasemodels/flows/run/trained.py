"""Results of `train --local --data` as kept results. They come from a machine without the pipeline."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phrasemodels.config import to_json
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import MANIFEST, Artifact, files_of
from phrasemodels.data.store.fingerprint import closure
from phrasemodels.data.store.store import Executor, Job, Store, inherited, is_manifest_of
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
from phrasemodels.flows.results.results import TRAININGS, code_today
from phrasemodels.flows.run.local import OVERRIDES
from phrasemodels.flows.run.plan import Plan
from phrasemodels.folders import check_folder
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.metrics.compare import row_of_scores

AGAIN = "copy the folder again"
CHANGED = f"its settings are not those that it names, so it was changed; {AGAIN}"
OTHER_CODE = "other code of a step trained or scored it; keep it with that version, then take --join"
NOT_OURS = "no result of `phrasemodels train --local --data`: train it again, or move the folder away"
MOST = 1e15  # more parameters, updates, seconds or MiB than any training has


@dataclass(frozen=True)
class Trained:
    """A training with its experiment and seed, its model and its scores made again here."""

    experiment: Experiment
    seed: int
    model: Artifact
    scores: Artifact


def keep_trained(out: Path, folder: Path, note: str) -> Path:
    """Score the predictions of all trainings in the store `out` and keep the scores.

    They are written or joined as a kept result. Its file is returned. ValueError: there is none or they are of several
    tables. One is there twice or is damaged. Or one is of settings, data or code other than here.
    """
    settings = Settings()
    store, executor = open_store(settings), Executor(sources=sources_of(settings))
    with tempfile.TemporaryDirectory(prefix="phrasemodels-") as temporary:
        check_folder(out)
        known, trainings = _artifacts(out), dict[str, list[Trained]]()
        made = sorted((one for one in known.values() if "scores" in one.meta), key=lambda one: one.finished)
        # of two trainings with one name and seed the newest counts: the older one may be of other code
        newest = {(str(one.about.get("experiment")), str(one.about.get("seed"))): one for one in made}
        for number, scored in enumerate(newest.values()):
            try:
                one = _scored(scored, known, store, executor, Path(temporary) / str(number))
            except ValueError as error:
                raise ValueError(f"{scored.path}: {error}") from error
            trainings.setdefault(one.experiment.name, []).append(one)
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


def _artifacts(out: Path) -> dict[str, Artifact]:
    """Return all artifacts of a store by their keys. Weights may be missing. ValueError: one is damaged, or in a wrong place."""
    found = {}
    for path in sorted(one.parent for one in out.glob(f"objects/*/*/{MANIFEST}")):
        step, key = path.parts[-2:]
        artifact = Store(out).load(path, partial=step in TRAININGS)
        known = artifact is not None and is_manifest_of(artifact.manifest, step, key)
        if artifact is None or not known or not artifact.manifest["files"].keys() >= {*files_of(path)}:
            raise ValueError(f"{path}: a file is missing or damaged; {AGAIN}")
        found[key] = artifact
    return found


def _number(value: Any) -> float:
    """Return a number of a manifest. ValueError: it is none, or larger than any of a training."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(NOT_OURS) from error
    if not 0 <= abs(number) < MOST:
        raise ValueError(f"it was changed; {AGAIN}")
    return number


def _scored(
    scored: Artifact, artifacts: Mapping[str, Artifact], store: Store, executor: Executor, scratch: Path
) -> Trained:
    """Return the training of a score, scored again in the folder `scratch`. ValueError: as of `keep_trained`."""
    try:
        name, seed = str(scored.about["experiment"]), int(scored.about["seed"])
        bare = find(name, [str(text) for text in scored.about[OVERRIDES]])
    except (LookupError, TypeError, OverflowError) as error:
        raise ValueError(NOT_OURS) from error
    if bare.name != name:
        raise ValueError(CHANGED)
    own = resolved(bare, executor.sources)
    steps = own.recipe.data()
    known = _stages(scored, bare.lean, seed, artifacts, {part: step.key for part, step in steps.items()})
    if not all(_number(known["model"].meta.get(part)) >= 0 for part in ("parameters", "steps", *MEANS)):
        raise ValueError(f"it was changed; {AGAIN}")
    stages = own.recipe.measured_stages(own.model, own.train, seed)
    again = stages["scores"]
    if not {*again.inputs.values()} <= known.keys() | steps.keys():  # stages that were left out there
        again = bare.lean.recipe.measured_stages(bare.model, bare.train, seed)["scores"]
    inputs = {ours: known.get(theirs) or store.run(steps[theirs], executor) for ours, theirs in again.inputs.items()}
    scratch.mkdir()
    try:
        meta = again.make(Job(scratch, scratch, inputs, store, executor, scored.key), again.settings)
        _check_scores(own, scored.meta["scores"], meta["scores"])
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its predictions cannot be scored ({type(error).__name__}: {error}); {AGAIN}") from error
    terms = inherited({part: store.run(steps[part], executor) for part in bare.lean.data_names(seed)})
    return Trained(own, seed, known["model"], Artifact(scratch, {"meta": {**terms, **meta}}))


def _stages(
    scored: Artifact, experiment: Experiment, seed: int, artifacts: Mapping[str, Artifact], data: Mapping[str, str]
) -> dict[str, Artifact]:
    """Return the artifacts that led to a score, by stage.

    data: the keys of the data that are made here. ValueError: code, settings or data of a stage are others than here.
    """
    stages, known = experiment.recipe.measured_stages(experiment.model, experiment.train, seed), {"scores": scored}
    differing = set()
    # stages are in order: when one is looked at, all that read it have been
    for part, stage in reversed(stages.items()):
        if part not in known:
            continue
        parts = known[part].manifest["parts"]
        if parts["settings"] != to_json(stage.settings) or parts["inputs"].keys() != stage.inputs.keys():
            raise ValueError(CHANGED)
        if parts["source"] != closure(stage.make, stage.settings)[0]:
            raise ValueError(OTHER_CODE)
        for ours, theirs in stage.inputs.items():
            key = parts["inputs"][ours]
            if theirs in stages and key in artifacts:
                known[theirs] = artifacts[key]
            elif theirs in stages:
                raise ValueError(f"what it was made from, {stages[theirs].make.__name__}/{key}, is missing; {AGAIN}")
            elif key != data.get(theirs):
                differing.add(theirs)
    if differing:
        raise ValueError(
            f"trained on other data than are made here now ({', '.join(sorted(differing))}); prepare again"
        )
    return known


def _check_scores(experiment: Experiment, recorded: Mapping[str, Any], computed: Mapping[str, Any]) -> None:
    """ValueError: a recorded score differs from the computed one, or none answers the experiment's table."""
    for metric, value in ((name, _number(score["value"])) for name, score in recorded.items()):
        here = float(computed.get(metric, {"value": math.nan})["value"])
        if not math.isclose(value, here, rel_tol=1e-6, abs_tol=1e-9):
            raise ValueError(f"{metric} is {value}, and {here:.6g} by its predictions: it was changed; {AGAIN}")
    if not _answers(experiment, computed):
        wanted = ", ".join(dict.fromkeys(answer.metric for answer in experiment.answers))
        raise ValueError(f"its table has {wanted}, which `train --local --data` leaves out; train it in the store")


def _answers(experiment: Experiment, scores: Mapping[str, Any]) -> list[Answer]:
    """Return the answers of an experiment among the scores. Answers by other libraries are made in the store alone."""
    return [answer for answer in experiment.answers if answer.metric in scores]


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
        "libraries": all_versions([one.model.manifest["parts"]["libraries"] for one in seeds]),
        "test_set": seeds[0].scores.meta["test_set"],
        "licences": seeds[0].scores.meta["licences"],
        "sentences": {"row": row_of(experiment.name)} if columns else [],
    }
    numbers = tuple(one.seed for one in seeds)
    metrics = {answer.metric for answer in answers}
    rows = [row_of_scores(row, [one.scores for one in seeds], numbers) for row in settings if row.metric in metrics]
    return [{name: value for name, value in row.items() if name not in DERIVED} | shared for row in rows]
