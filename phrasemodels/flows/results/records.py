"""Records of runs, the store of the settings, and the steps of a plan in it.

ROOT/runs/ID.json    request, times, report, reason and state: running, completed, stopped, cancelled, failed, dead
"""

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import math
import re
import resource
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from phrasemodels import project
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.download.manifest import load_parser as load_parser
from phrasemodels.data.store.artifacts import (
    MANIFEST,
    Artifact,
    has_own_digest,
    remove,
    sha256_of,
    with_digest,
    write_durably,
)
from phrasemodels.data.store.gc import DAY, Waste, collect, is_alive, lease, leased_keys, trim, trimmed, waste
from phrasemodels.data.store.store import Step, Store, with_dependencies
from phrasemodels.flows.experiments.published import CHANGE
from phrasemodels.folders import NotAFileError, check_folder, read_regular
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import COMPLETED, DEAD, KEY, Tracker, flatten, readable

CHECKOUT = Path(__file__).resolve().parents[3]
DIRTY = "-dirty"


@cache
def commit() -> str:
    """Return the commit of the code, marked DIRTY if files were changed since, or the version of an installed package.

    In a project folder the project's comes first.
    """
    own, ours = project.folder(), commit_of(CHECKOUT) or f"version {importlib.metadata.version('phrasemodels')}"
    mine = commit_of(own) if own else ""
    return f"{mine} with {ours}" if mine else ours


def commit_of(folder: Path) -> str:
    """Return the commit of a folder, or an empty text if it is no checkout. Kept results are no code, so they may change."""

    def git(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(folder), *command], capture_output=True, text=True, check=False)

    if not (folder / ".git").exists():
        return ""
    try:
        found = git("rev-parse", "HEAD").stdout.strip()
        changed = git("diff", "--quiet", "HEAD", "--", ".", ":(exclude)results").returncode == 1
    except OSError:  # there is no git
        return "unknown"
    return f"{found}{DIRTY * changed}" or "unknown"


RUNNING, DAMAGED = "running", "damaged"


def place_of_run(store: Store, run: str) -> Path:
    """Return the path of the record of a run."""
    return store.root / "runs" / f"{run}.json"


def write(store: Store, record: dict[str, Any]) -> None:
    """Write a record."""
    path = place_of_run(store, record["id"])
    path.parent.mkdir(exist_ok=True)
    write_durably(path, json.dumps(record, indent=1))


def records(store: Store) -> list[dict[str, Any]]:
    """Return the records of all runs, oldest first. A running record without a lease is dead."""
    read = [_read(path) for path in (store.root / "runs").glob("*.json")]
    read = [r | {"state": DEAD} if r["state"] == RUNNING and not is_alive(store, r["id"]) else r for r in read]
    return sorted(read, key=lambda record: str(record["started"]))


def _read(path: Path) -> dict[str, Any]:
    """Return a record, or only its name if it is damaged."""
    damaged = {"id": path.stem, "title": "", "started": "", "state": DAMAGED}
    try:
        record = json.loads(read_regular(path))
        UUID(record["id"])
        own = record["id"] == path.stem  # another id would lead to the files of another run
        return record if own and all(isinstance(record[name], str) for name in damaged) else damaged
    except (ValueError, NotAFileError, KeyError, TypeError, AttributeError, RecursionError):
        return damaged


def remove_old(store: Store, days: float, verdicts: Collection[str], dry: bool = False) -> list[Waste]:
    """Remove the records of runs that ended so many days ago, except the newest run of each of these verdicts.

    dry: only return them.
    """
    known = records(store)
    newest = {str(record.get("verdicts")): record["id"] for record in known if record["state"] == COMPLETED}
    stay = {run for verdict, run in newest.items() if verdict in verdicts}
    before, removed = time.time() - days * DAY, []
    for record in known:
        if record["id"] not in stay and ended(record) < before:
            path = place_of_run(store, record["id"])
            removed.append(Waste(path, path.stat().st_size, f"run of {record['title']}"))
            if not dry:
                path.unlink(missing_ok=True)
    return removed


def ended(record: dict[str, Any]) -> float:
    """Return the time (seconds since 1970) of a run's end or death, or infinity if the record lacks it."""
    try:
        return datetime.datetime.fromisoformat(record.get("marked") or record["ended"]).timestamp()
    except (KeyError, ValueError, TypeError, ArithmeticError):
        return math.inf


def store_of(settings: Settings) -> Store:
    """Return this node's folder, with the shared storage behind it if the store is a URL. It need not exist to be read."""
    if (url := settings.remote) is None:
        return Store(settings.root)
    from phrasemodels.data.store.shared import ObjectStorage

    return Store(settings.root, ObjectStorage(url))


def open_to_read() -> tuple[Store, Tracker]:
    """Return the store and the tracker of the settings for reading alone. Neither is made.

    Of a store only the index of its manifests is written. OSError: the store's place is no folder.
    """
    settings = Settings()
    if settings.root.exists() and not settings.root.is_dir():
        raise OSError(f"{settings.root} is no folder: name the store's folder with PHRASEMODELS_STORE")
    return store_of(settings), Tracker(readable(settings.tracking_uri))


def open_store(settings: Settings) -> Store:
    """Open the store to write to it. OSError: it cannot be used."""
    return store_of(settings).open()


@contextlib.contextmanager
def leased_steps(store: Store, steps: list[Step], settings: Settings, name: str = "") -> Iterator[None]:
    """While a run is under way: garbage collection removes none of its steps, on any node. Then trim this node's cache."""
    keys = {step.key for step in steps}
    with contextlib.ExitStack() as stack:
        stack.enter_context(trimmed(store, settings.cache_bytes))
        if store.shared is not None:
            stack.enter_context(store.shared.lease(keys))
        stack.enter_context(lease(store, keys, name))
        yield


def collect_garbage(store: Store, settings: Settings, days: float, newest: int, dry: bool = False) -> list[Waste]:
    """Remove and return everything that neither a verdict nor a run needs: here, in the shared storage, and among records.

    days: keep things made or used within so many days. newest: keep so many verdicts of each table (0: all). dry: remove
    nothing. This node's cache shrinks to its limit.
    """
    removed = waste(store, days, newest) if dry else collect(store, days, newest)
    if store.shared is not None:
        removed += [Waste(Path(path), 0, "shared") for path in store.shared.collect(days, newest, dry)]
    present = store.artifacts() if store.shared is None else store.shared.artifacts()
    left = {artifact.key for artifact in present} - {item.path.stem for item in removed}
    removed += remove_old(store, days, left, dry)
    if store.shared is not None and not dry:
        removed += [Waste(a.path, 0, a.manifest["label"]) for a in trim(store, settings.cache_bytes)]
    return removed


def remove_row(store: Store, tracker: Tracker, name: str, sources: Sources, dry: bool = False) -> list[str]:
    """Remove everything made for a row alone: artifacts, comparisons and runs in MLflow.

    Names in the store are labels: a row is found by the keys of its steps today, and by its label for what was made of it before.
    What a row of today has made under another name, or shares, stays.

    Args:
        sources: Files of the rows.
        dry: Remove nothing.

    Returns:
        What goes, in words.

    Raises:
        ValueError: Nothing is the row's own, a run uses it, or the store is on object storage.
    """
    if store.shared is not None:
        raise ValueError(
            "other nodes may read a store on object storage now: `phrasemodels store gc` removes what no verdict needs"
        )
    known = {artifact.key: artifact for artifact in store.artifacts()}
    inputs = {key: set(artifact.manifest["parts"]["inputs"].values()) for key, artifact in known.items()}
    tables = {key for key, artifact in known.items() if artifact.manifest["step"] == "compare"}
    today, live = _keys_today(name, {a.about["seed"] for a in known.values() if "seed" in a.about}, sources)
    labelled = {key for key, artifact in known.items() if artifact.about.get("experiment") == name}
    own = (today & known.keys() | labelled) - live - tables
    without = {
        key
        for key in tables
        if inputs[key] & own
        or (not inputs[key] & live and name in {row["experiment"] for row in known[key].meta["rows"]})
    }
    queue, needed = [*(tables - without)], set[str]()
    while queue:
        if (key := queue.pop()) not in needed:
            needed.add(key)
            queue += inputs.get(key, ())
    own = own - needed | without
    runs = [
        run.run_id
        for run in tracker.listed()
        if (of := run.tags.get(KEY, "")) in own or (run.tags.get("experiment") == name and of not in live)
    ]
    if not own and not runs:
        shared = "; other rows of today share what was made under it" if labelled or today & known.keys() else ""
        raise ValueError(f"{name}: neither the store nor MLflow has anything of this row alone{shared}")
    if own & leased_keys(store):
        raise ValueError(f"{name}: a run under way uses it; stop that run first")
    if not dry:
        for key in own:
            remove(known[key].path)
        for run in runs:
            tracker.client().delete_run(run)
    return [known[key].manifest["label"] for key in sorted(own)] + [f"MLflow run {run}" for run in runs]


def _keys_today(name: str, seeds: Collection[int], sources: Sources) -> tuple[set[str], set[str]]:
    """Return the keys of all steps of a row, by its name today, and of all other rows of its paper and of the project."""
    from phrasemodels.flows.experiments.catalogue import experiments, resolved
    from phrasemodels.flows.experiments.overrides import overridden
    from phrasemodels.flows.experiments.published import divided

    row, overrides = divided(name)
    own = project.parts("papers")
    rows = {one.name: one for paper in {row.partition("/")[0], *own} for one in experiments(paper)}
    if overrides:  # rows that live by --set alone: this one, and those of a study, which may have had its name
        for known in [one for one in rows.values() if one.name == row or one.name.partition("/")[0] in own]:
            with contextlib.suppress(ValueError):  # it lacks such a field
                rows[overridden(known, *overrides).name] = overridden(known, *overrides)
    keys: dict[str, set[str]] = {}
    for each, one in rows.items():
        try:
            steps = [resolved(one, sources).steps(seed).stages.values() for seed in seeds]
        except ValueError:  # a corpus is missing
            if each == name or one.name.partition("/")[0] in own:
                raise
            continue
        keys[each] = {step.key for some in steps for step in with_dependencies(list(some))}
    return keys.pop(name, set()), set().union(*keys.values())


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
    """Yield for each step whether it is in the store and, if not, why.

    The reason names the parts of its key that differ from the newest artifact with its label, or else with its label but for
    overrides.
    """

    @cache
    def newest(name: str) -> dict[str, Artifact]:
        """The newest artifact of each label, of a step that is read once."""
        found = [store.load(path.parent, verify=False) for path in store.root.glob(f"objects/{name}/*/{MANIFEST}")]
        ordered = sorted((a for a in found if a is not None), key=lambda artifact: artifact.finished)
        exact = {artifact.manifest["label"]: artifact for artifact in ordered}
        return {without_overrides(label): artifact for label, artifact in exact.items()} | exact

    for step in steps:
        if step.find(store) is not None:
            yield True, ""
        elif store.load(store.where(step.name, step.key), verify=False) is not None:
            yield False, "a file of the result is missing or damaged"
        elif before := newest(step.name).get(step.label) or newest(step.name).get(without_overrides(step.label)):
            yield False, _difference(before.manifest["parts"], step.parts)
        else:
            yield False, "never made"


def without_overrides(label: str) -> str:
    """Return the label of a step without the overrides that it names."""
    return _OVERRIDES.sub("", label)


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the first entries in which two keys differ."""
    before, now = flatten(old), flatten(new)
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return "changed: " + ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")


KEPT = Path(__file__).parents[2] / "kept"  # in the checkout a link to results/
IN_CHECKOUT = KEPT.is_symlink()


def own() -> Path:
    """Return the folder where `keep` writes: results/ of the project folder, or of the checkout, or else beside the store."""
    if (place := project.folder()) is not None:
        return place / "results"
    return KEPT if IN_CHECKOUT else Settings().root.parent / "results"


def folders() -> list[Path]:
    """Return the folders with kept results."""
    return [KEPT] if (mine := own()) == KEPT or not mine.is_dir() else [KEPT, mine]


def kept_files() -> list[Path]:
    """Return result.json of each kept result. Folders with a dot are left by a killed `keep`."""
    return [path for folder in folders() for path in sorted(folder.glob("[!.]*/result.json"))]


RESULT, SENTENCES, TRIALS, TESTS = "result.json", "sentences.arrow", "trials.json", "tests.json"
COMPANIONS = (SENTENCES, TRIALS, TESTS)  # files of a kept result beside result.json, which has their digests
Finite = Annotated[float, Field(allow_inf_nan=False)]


class KeptRun(BaseModel):
    """Where a seed is from: the commit of the code, the store key of the training, and MLflow's run."""

    model_config = ConfigDict(strict=True, extra="forbid")

    seed: int
    commit: Annotated[str, Field(min_length=1)]
    train: str
    run: str


class KeptRow(BaseModel):
    """A row of a kept result, with its values by metric and seed."""

    model_config = ConfigDict(strict=True, extra="allow")

    experiment: Annotated[str, Field(pattern=r"^[^/\s]+/[^/\s]+/[^/\s]+/[^\x00-\x1f]+$")]
    metric: str
    reason_not: str
    stand_in: bool
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    values: dict[str, list[Finite]]
    signatures: dict[str, str]
    training: dict[str, Finite | str]
    settings: dict[str, Any]
    libraries: dict[str, str]
    test_set: list[dict[str, Any]]
    licences: list[str]
    sentences: dict[Literal["row"], str] | Annotated[list[str], Field(max_length=0)]
    runs: list[KeptRun] = []
    diverged: list[int] = []

    @model_validator(mode="after")
    def _fits(self) -> "KeptRow":
        if len(set(self.seeds)) < len(self.seeds) or {len(own) for own in self.values.values()} != {len(self.seeds)}:
            raise ValueError("each seed has one value of each metric")
        if self.runs and [run.seed for run in self.runs] != self.seeds:
            raise ValueError("each seed has one run")
        if not {*self.diverged} <= {*self.seeds}:
            raise ValueError("a seed that diverged is one of the row's")
        if self.metric not in self.values or (self.training and not self.settings):
            raise ValueError("a row has values of its metric, and a training has settings")
        steps, config = self.training.get("steps", 1), self.settings.get("config")
        most = config.get("steps") if isinstance(config, dict) else None
        most = most if isinstance(most, int | float) else math.inf
        if not isinstance(steps, int | float) or not 0 < steps <= most:
            raise ValueError("a training has no more steps than its settings")
        return self


class KeptResult(BaseModel):
    """The content of result.json of a kept result."""

    model_config = ConfigDict(strict=True, extra="forbid")

    title: str
    commit: str
    note: str
    rows: Annotated[list[KeptRow], Field(min_length=1)]
    files: dict[
        Literal["sentences.arrow", "trials.json", "tests.json"], Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    ]
    digest: str


MEMORY = 6 * 2**30  # bytes that what others made may take beside what is in use


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process take MEMORY further bytes in the block (on Linux). ValueError: the block needs more."""
    status = Path("/proc/self/status")
    used = re.search(r"VmData:\s+(\d+) kB", status.read_text(encoding="ascii")) if status.exists() else None
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if used:
        limit = int(used[1]) * 1024 + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (min([limit, *(n for n in before if n >= 0)]), before[1]))
    try:
        yield
    except MemoryError:
        raise ValueError(f"this needs more than {MEMORY / 2**30:g} GiB of memory") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def seal(folder: Path) -> None:
    """Write the digests of all files of a kept result into its result.json, and a digest of the rest of it."""
    result = json.loads(read_regular(folder / RESULT))
    files = {name: sha256_of(folder / name) for name in COMPANIONS if (folder / name).exists()}
    write_durably(folder / RESULT, json.dumps(with_digest({**result, "files": files}), indent=1) + "\n")


def read_kept(file: Path) -> dict[str, Any]:
    """Return the content of result.json of a kept result.

    Raises:
        ValueError: `keep` didn't write it, or one of its files is damaged, missing, or was changed.
    """
    check_folder(file.parent)
    try:
        result = json.loads(read_regular(file))
        whole = has_own_digest(result)
    except (ValueError, AttributeError, RecursionError, OSError):
        whole = False
    damaged = _check_kept(file, result) if whole else file
    if damaged:
        raise ValueError(
            f"{damaged} is damaged, or was changed since it was kept: take its last version, or keep it again"
        )
    return dict(result)


def _check_kept(file: Path, result: Any) -> Path | None:
    """Return the first file of a kept result with a wrong digest. ValueError: `keep` didn't write the content."""
    try:
        known = KeptResult.model_validate(result).files
    except ValidationError as error:
        found = error.errors()[0]
        where, why = ".".join(map(str, found["loc"])), found["msg"].removeprefix("Value error, ")
        raise ValueError(f"{file}: {where}: {why}: keep it again") from None
    for name in COMPANIONS:
        path = file.parent / name
        if path.exists() != (name in known):
            return path
        try:
            if name in known and hashlib.sha256(read_regular(path)).hexdigest() != known[name]:
                return path
        except OSError:
            return path
    return None


def place_of(name: str) -> Path:
    """Return the folder of a kept result by name."""
    return next(path.parent for path in reversed(kept_files()) if path.parent.name == name)


def sources_of(settings: Settings) -> Sources:
    """Return where files may come from, by the settings."""
    return Sources(settings.mirrors, settings.offline, settings.private)
