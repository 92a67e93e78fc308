"""Explain a cache miss: which part of a step's key changed."""

from typing import Any

from phrasemodels.data.store.step import Step
from phrasemodels.data.store.store import Store
from phrasemodels.infra.tracking import flatten


def explain(store: Store, step: Step) -> tuple[bool, str]:
    """Return whether a step is in the store and, if not, why: which parts of its key differ from the newest artifact with
    its label."""
    if store.find(step) is not None:
        return True, ""
    path = store.where(step.name, step.key)
    if store.load(path, verify=False) is not None:
        return False, "a file of the result is missing or damaged"
    before = [a for a in store.artifacts() if a.manifest["step"] == step.name and a.manifest["label"] == step.label]
    return False, _difference(before[-1].manifest["parts"], step.parts) if before else "never made"


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Name the first entries in which two keys differ."""
    before, now = flatten(old), flatten(new)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return "changed: " + ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
