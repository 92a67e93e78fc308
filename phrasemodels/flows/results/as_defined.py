"""Whether a trained model is that of an experiment as it is defined, compared setting by setting back to the corpus."""

from collections.abc import Mapping, Sequence
from math import isclose
from statistics import fmean
from typing import Any

from phrasemodels.data.download.mirrors import Sources
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Step, jsonable
from phrasemodels.flows.experiments.catalogue import experiment as find_experiment
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.experiments.overrides import MACHINE
from phrasemodels.flows.experiments.user_files import resolved
from phrasemodels.flows.results.earlier_names import PRESENT_NAME
from phrasemodels.tasks.problems.entailment.recipe import EntailmentRecipe

AVERAGES = ("micro", "macro")  # of accuracies on dev, over the tasks of a suite
PLACEMENT = {path.rpartition(".")[2] for path in MACHINE}  # settings of a training that change no score


def as_defined(trained: Artifact, artifacts: Mapping[str, Artifact], sources: Sources) -> bool:
    """Return whether a training, and all that it was made from, has the settings of the experiment that it is named after.

    Keys are not compared: they change with any line of code. Settings that one of the two lacks are not compared, nor what
    is no longer in the store. A training whose corpus the user no longer supplies is taken by its name.
    """
    try:
        pipeline = resolved(find_experiment(str(trained.about["experiment"])), sources).steps(
            int(trained.about["seed"])
        )
    except (ValueError, OSError):
        return True
    return _same(trained, pipeline.trained, artifacts)


def _same(artifact: Artifact, step: Step, artifacts: Mapping[str, Artifact]) -> bool:
    parts = artifact.manifest["parts"]
    if not _equal(parts["settings"], jsonable(step.settings)):
        return False
    inputs = ((artifacts.get(parts["inputs"].get(role, "")), wanted) for role, wanted in step.inputs.items())
    return all(_same(found, wanted, artifacts) for found, wanted in inputs if found and isinstance(wanted, Step))


def _equal(saved: Any, now: Any) -> bool:
    """Return whether settings are equal in all that both have; names of parts may be earlier ones."""
    if isinstance(saved, Mapping) and isinstance(now, Mapping):
        return all(_equal(saved[name], now[name]) for name in (saved.keys() & now.keys()) - PLACEMENT)
    if isinstance(saved, list) and isinstance(now, list):
        return len(saved) == len(now) and all(map(_equal, saved, now))
    return bool((PRESENT_NAME.get(saved, saved) if isinstance(saved, str) else saved) == now)


def changed_since(settings: Mapping[str, Any], now: Any) -> str:
    """Say in which fields a TrainConfig has been changed since a kept training was made; empty if in none.

    settings: those of the training. Fields that it lacks did not exist then.
    """
    then, fields = (_bare(config) for config in (settings.get("config", {}), jsonable(now)))
    differing = [name for name in fields if name in then and name not in PLACEMENT and then[name] != fields[name]]
    return ", ".join(f"train.{name} was {then[name]} and is now {fields[name]}" for name in differing)


def averaged_since(values: Mapping[str, Sequence[float]], metric: str, experiment: Experiment) -> str:
    """Say which tasks a kept average has in it beside those of its experiment (paper 001, Table 2); empty if none.

    values: those of the row, by metric and seed. Some results were kept before SST-5 left the averages.
    """
    suite = experiment.recipe.suite if isinstance(experiment.recipe, EntailmentRecipe) else ()
    dev = {task.name: values[f"dev/{task.name}"] for task in suite if f"dev/{task.name}" in values}
    apart = [task.name for task in suite if not task.averaged and task.name in dev]
    if metric not in AVERAGES or not apart:
        return ""
    of_all = (fmean(one) for one in zip(*dev.values(), strict=True))
    same = all(isclose(one, macro, rel_tol=1e-6) for one, macro in zip(of_all, values["macro"], strict=True))
    return f"ours is an average with {' and '.join(apart)} in it, the printed one without" if same else ""


def _bare(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with functions and classes by their bare names, which did not change when their modules did."""
    return {name: value.rpartition(":")[2] if isinstance(value, str) else value for name, value in config.items()}
