"""Steps of a plan in the store: which are hits, and which part of a key changed where they are not."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.names import CHANGE
from phrasemodels.infra.tracking import flatten

_OVERRIDES = re.compile(rf"{re.escape(CHANGE)}(?:recipe|model|train)\.\S*")


@dataclass(frozen=True)
class OutlinedStep:
    """A step by the name of its function, its label, its key, and the parts of the key."""

    name: str
    label: str
    key: str
    parts: Mapping[str, Any]

    def find(self, store: Store) -> Artifact | None:
        """Return the artifact of the step, or None if it is not in the store, whole."""
        return store.get(store.where(self.name, self.key))


def explain(store: Store, steps: Sequence[OutlinedStep]) -> Iterator[tuple[bool, str]]:
    """Yield for each step whether it is in the store and, if not, why: which parts of its key differ from the newest artifact
    with its label, or else with its label but for overrides."""

    @cache
    def newest(name: str) -> dict[str, Artifact]:
        """The newest artifact of each label, of a step that is read once."""
        found = [store.load(path.parent, verify=False) for path in store.root.glob(f"objects/{name}/*/{MANIFEST}")]
        ordered = sorted((a for a in found if a is not None), key=lambda artifact: artifact.manifest["finished"])
        exact = {artifact.manifest["label"]: artifact for artifact in ordered}
        return {as_defined(label): artifact for label, artifact in exact.items()} | exact

    for step in steps:
        if step.find(store) is not None:
            yield True, ""
        elif store.load(store.where(step.name, step.key), verify=False) is not None:
            yield False, "a file of the result is missing or damaged"
        elif before := newest(step.name).get(step.label) or newest(step.name).get(as_defined(step.label)):
            yield False, _difference(before.manifest["parts"], step.parts)
        else:
            yield False, "never made"


def as_defined(label: str) -> str:
    """Return the label of a step without the overrides that it names."""
    return _OVERRIDES.sub("", label)


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the first entries in which two keys differ."""
    before, now = flatten(old), flatten(new)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return "changed: " + ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
