"""Lineage of artifacts and results.

An artifact has descendants and inputs down to digests of archives. A result has an origin and licences.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from phrasemodels.data.corpora.readers import Counts, blocks, counts
from phrasemodels.data.download.manifest import Manifest, closest
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.disk_cache import cached_on_disk
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.records import kept_files, read_kept
from phrasemodels.infra.tracking import flatten

FEWEST_DIGITS = 6
FETCHES = ("fetch_corpus", "fetch_added_corpus")  # steps whose files came from outside; older stores have the second


class UnknownNameError(ValueError):
    """Nothing in a store has this name."""


class Lineage:
    """The artifacts of a store by key, with their uses."""

    def __init__(self, store: Store) -> None:
        self.artifacts = {artifact.key: artifact for artifact in store.all_artifacts()}
        self.made_from: dict[str, list[Artifact]] = {}
        for artifact in self.artifacts.values():
            for key in artifact.manifest["parts"]["inputs"].values():
                self.made_from.setdefault(key, []).append(artifact)

    def find(self, what: str, run_ids: Mapping[str, str]) -> Artifact:
        """Return an artifact by first digits of its key, by label (the newest one) or by MLflow run.

        "EXPERIMENT seed N" means the score. UnknownNameError: there is none.
        """
        run = next((key for key, run_id in run_ids.items() if run_id == what), what)
        if len(run) >= FEWEST_DIGITS and (found := [a for key, a in self.artifacts.items() if key.startswith(run)]):
            return found[0]
        labelled = {a.manifest["label"]: a for a in self.artifacts.values()}
        scored = (a for a in self.artifacts.values() if "scores" in a.meta and a.about)
        named = {f"{a.about['experiment']} seed {a.about['seed']}": a for a in scored}
        if what in labelled or what in named:
            return labelled.get(what) or named[what]
        if not self.artifacts:
            raise UnknownNameError(f"{what!r} is not in the store, which is empty; `phrasemodels reproduce` fills it")
        raise UnknownNameError(f"{what!r} is neither a store key, an MLflow run nor a label: {closest(what, {*named, *labelled})}")

    def holding(self, digest: str) -> list[Artifact]:
        """Return the artifacts with a file whose sha256 begins with these digits."""
        if len(digest) < FEWEST_DIGITS:
            return []
        files = ((a, file) for a in self.artifacts.values() for file in a.manifest["files"].values())
        return list({a.key: a for a, file in files if file["sha256"].startswith(digest)}.values())

    def made_by(self, artifact: Artifact, step: str) -> Artifact | None:
        """Return the artifact of a step behind an artifact, if there is one."""
        found = (made for _, _, made, _ in self.back(artifact) if isinstance(made, Artifact))
        return next((made for made in found if made.manifest["step"] == step), None)

    def back(self, artifact: Artifact) -> Iterator[tuple[int, str, Artifact | str, bool]]:
        """Yield (depth, role, artifact, seen before) of all inputs of an artifact. A lost one is its key alone."""
        seen: set[str] = set()

        def walk(key: str, role: str, depth: int) -> Iterator[tuple[int, str, Artifact | str, bool]]:
            found = self.artifacts.get(key)
            yield depth, role, found or key, key in seen
            if found is not None and key not in seen:
                seen.add(key)
                for name, parent in found.manifest["parts"]["inputs"].items():
                    yield from walk(parent, name, depth + 1)

        yield from walk(artifact.key, "", 0)

    def forward(self, artifact: Artifact) -> list[Artifact]:
        """Return everything made from an artifact, oldest first."""
        dependents: dict[str, Artifact] = {}
        queue = [artifact.key]
        while queue:
            for result in self.made_from.get(queue.pop(), []):
                if result.key not in dependents:
                    dependents[result.key] = result
                    queue.append(result.key)
        return sorted(dependents.values(), key=lambda a: a.finished)


def setting(trained: Artifact) -> dict[str, Any]:
    """Return settings and data of a training, without the seed."""
    parts = trained.manifest["parts"]
    return {"inputs": parts["inputs"], "settings": {**parts["settings"], "seed": None}}


def described(artifact: Artifact | str) -> str:
    """Describe an artifact in one line.

    The line has label, key, scores and licences. Digests of fetched files follow.
    """
    if isinstance(artifact, str):
        return f"{artifact}  (no longer in the store)"
    scores = ", ".join(f"{name} {score['value']:.2f}" for name, score in artifact.meta.get("scores", {}).items())
    licences = "" if artifact.manifest["parts"]["inputs"] else ", ".join(artifact.meta.get("licences", []))
    files = artifact.manifest["files"] if artifact.manifest["step"] in FETCHES else {}
    digests = ", ".join(f"{name} sha256 {file['sha256']}" for name, file in files.items())
    details = "; ".join(part for part in (scores, licences, digests) if part)
    return f"{artifact.manifest['label']}  [{artifact.key}]" + (f"  {details}" if details else "")


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return (name, value of ours, value of theirs) of every difference between the keys and results of two artifacts.

    Args:
        ours: As `parts_of` or `kept_row` gives them.
        theirs: Likewise.
    """
    before, now, order = flatten(ours), flatten(theirs), ["settings", "inputs", "libraries", "source", "result"]
    names = sorted(before.keys() | now.keys(), key=lambda name: (order.index(name.split(".")[0]), name))
    return [(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]


def parts_of(artifact: Artifact) -> dict[str, Any]:
    """Return the parts of an artifact's key, and its results without lists of files and rows."""
    meta = {name: value for name, value in artifact.meta.items() if name not in ("shards", "rows", "test_set")}
    return {**artifact.manifest["parts"], "result": meta}


def kept_row(name: str) -> dict[str, Any]:
    """Return a kept row in the parts of an artifact. ValueError: no result or row has this name.

    Args:
        name: results/NAME/ROW. Of any other name the answer is empty.
    """
    kept, _, row_name = name.removeprefix("results/").partition("/")
    if kept == name.partition("/")[0]:
        return {}
    files = {file.parent.name: file for file in kept_files()}
    if kept not in files:
        raise ValueError(f"{kept!r} is no kept result: {closest(kept, files)}")
    result = read_kept(files[kept])
    rows = {row["experiment"].split("/", 3)[3]: row for row in result["rows"]}
    if row_name not in rows:
        raise ValueError(f"{name!r} is no row of a kept result: {closest(row_name, rows)}")
    row = rows[row_name]
    parts = {part: row.get(part, {}) for part in ("settings", "libraries")}
    inputs = {part: row.get(part) for part in ("test_set", "licences")}
    values = {part: row.get(part) for part in ("runs", "training", "values")}
    return {**parts, "inputs": inputs, "result": {"commit": result["commit"], **values}}


def as_json(artifact: Artifact | str) -> dict[str, Any]:
    """Return an artifact as JSON for scripts."""
    if isinstance(artifact, str):
        return {"key": artifact}
    manifest = artifact.manifest
    known = {name: manifest[name] for name in ("key", "step", "label", "files", "finished")}
    return json.loads(json.dumps({**known, "inputs": manifest["parts"]["inputs"]}))


Verified = tuple[list[str], bool]


def verified(manifest: Manifest, artifact: Artifact) -> Verified:
    """Return a line for each split of a corpus, and whether all splits match the manifest. A corpus is read once."""

    def make() -> Verified:
        return read_all(manifest, artifact.folder())

    lines, whole = cached_on_disk("verified", [artifact.key, manifest.model_dump(mode="json")], make, of_users=False)
    return lines, whole


def read_all(manifest: Manifest, folder: Path) -> Verified:
    """Read every split of a corpus. Count the test records in train, and the repeated records of a split."""
    found: dict[str, Counts] = {}
    lines, whole = [], True
    for name, split in manifest.splits.items():
        if not all((folder / file).exists() for file in split.files.values()):
            lines.append(f"{manifest.name}\t{name}\tnot put in by hand")
            continue
        try:
            found[name] = counts(blocks(manifest, name, folder))
        except ValueError as error:
            whole = False
            lines.append(f"{manifest.name}\t{name}\t{error}")
            continue
        lines.append(counts_line(manifest.name, name, found))
    return lines, whole


def counts_line(corpus: str, split: str, found: Mapping[str, Counts]) -> str:
    """Return the rows of a split as a line of text.

    It has unusable rows by reason and repeated rows. It also has the rows of dev and test that are in train. found: the
    counts of all splits by name.
    """
    own, train = found[split], found.get(f"{split.rpartition('.')[0]}.train".removeprefix("."))
    line = f"{corpus}\t{split}\t{own.rows} rows"
    line += "".join(f", {count}: {reason}" for reason, count in own.reasons.items())
    if split.rpartition(".")[2] in ("dev", "test") and train is not None and train.schema == own.schema:
        line += f", {own.shared_with(train)}"
    if count := own.repeated:
        line += f", {count} equal an earlier record of the split"
    return line
