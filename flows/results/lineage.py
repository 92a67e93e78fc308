"""Where a number is from, down to the bytes of an archive; and everything that was made from a file."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from phrasemodels.data.download.manifest import closest
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.infra.tracking import flatten

FEWEST_DIGITS = 6


class Lineage:
    """The artifacts of a store by key, and what was made from each."""

    def __init__(self, store: Store) -> None:
        self.artifacts = {artifact.key: artifact for artifact in store.artifacts()}
        self.made_from: dict[str, list[Artifact]] = {}
        for artifact in self.artifacts.values():
            for key in artifact.manifest["parts"]["inputs"].values():
                self.made_from.setdefault(key, []).append(artifact)

    def find(self, what: str, run_ids: Mapping[str, str]) -> Artifact:
        """An artifact by the beginning of its key, its label (the newest of it), or its MLflow run.

        "000/table1/sample/phrase-k2 seed 0" means the score. A ValueError says what is not there.
        """
        run = next((key for key, run_id in run_ids.items() if run_id == what), what)
        if len(run) >= FEWEST_DIGITS and (found := [a for key, a in self.artifacts.items() if key.startswith(run)]):
            return found[0]
        labelled = {a.manifest["label"]: a for a in self.artifacts.values()}
        scored = (a for a in self.artifacts.values() if "scores" in a.meta and a.about)
        named = {f"{a.about['experiment']} seed {a.about['seed']}": a for a in scored}
        if what in labelled or what in named:
            return labelled.get(what) or named[what]
        raise ValueError(f"{what!r} is neither a store key, an MLflow run nor a label: {closest(what, {*named})}")

    def holding(self, digest: str) -> list[Artifact]:
        """The artifacts with a file of this sha256, or of one that begins so."""
        if len(digest) < FEWEST_DIGITS:
            return []
        files = ((a, file) for a in self.artifacts.values() for file in a.manifest["files"].values())
        return list({a.key: a for a, file in files if file["sha256"].startswith(digest)}.values())

    def back(self, artifact: Artifact) -> Iterator[tuple[int, str, Artifact | str, bool]]:
        """(depth, role, artifact, whether it was told before) of all that it rests on; a lost one is its key alone."""
        told: set[str] = set()

        def walk(key: str, role: str, depth: int) -> Iterator[tuple[int, str, Artifact | str, bool]]:
            found = self.artifacts.get(key)
            yield depth, role, found or key, key in told
            if found is not None and key not in told:
                told.add(key)
                for name, parent in found.manifest["parts"]["inputs"].items():
                    yield from walk(parent, name, depth + 1)

        yield from walk(artifact.key, "", 0)

    def forward(self, artifact: Artifact) -> list[Artifact]:
        """Everything that rests on it, oldest first."""
        found: dict[str, Artifact] = {}
        queue = [artifact.key]
        while queue:
            for made in self.made_from.get(queue.pop(), []):
                if made.key not in found:
                    found[made.key] = made
                    queue.append(made.key)
        return sorted(found.values(), key=lambda a: str(a.manifest["finished"]))


def setting(trained: Artifact) -> dict[str, Any]:
    """How a model was trained and on what, whatever the seed."""
    parts = trained.manifest["parts"]
    return {"inputs": parts["inputs"], "settings": {**parts["settings"], "seed": None}}


def described(artifact: Artifact | str) -> str:
    """One line: label, key, and what matters of it: scores, licences, digests of what was fetched."""
    if isinstance(artifact, str):
        return f"{artifact}  (no longer in the store)"
    scores = ", ".join(f"{name} {score['value']:.2f}" for name, score in artifact.meta.get("scores", {}).items())
    licences = "" if artifact.manifest["parts"]["inputs"] else ", ".join(artifact.meta.get("licences", []))
    files = artifact.manifest["files"] if artifact.manifest["step"] == "fetch_corpus" else {}
    digests = ", ".join(f"{name} sha256 {file['sha256']}" for name, file in files.items())
    told = "; ".join(part for part in (scores, licences, digests) if part)
    return f"{artifact.manifest['label']}  [{artifact.key}]" + (f"  {told}" if told else "")


def difference(ours: Artifact, theirs: Artifact) -> list[tuple[str, Any, Any]]:
    """(name, in one, in the other) of all in which keys and results of two artifacts differ."""
    before, now = (flatten({**a.manifest["parts"], "result": _plain(a.meta)}) for a in (ours, theirs))
    names = sorted(before.keys() | now.keys(), key=lambda name: (_order(name), name))
    return [(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]


def _plain(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name not in ("shards", "rows", "test_set")}


def _order(name: str) -> int:
    return ["settings", "inputs", "libraries", "source", "result"].index(name.split(".")[0])


def as_json(artifact: Artifact | str) -> dict[str, Any]:
    """What a script wants to know of an artifact."""
    if isinstance(artifact, str):
        return {"key": artifact}
    manifest = artifact.manifest
    known = {name: manifest[name] for name in ("key", "step", "label", "files", "finished")}
    return json.loads(json.dumps({**known, "inputs": manifest["parts"]["inputs"]}))
