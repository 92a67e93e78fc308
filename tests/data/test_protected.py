"""Manifests and kept results have a digest of themselves: a change is noticed."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phrasemodels.data.store.artifacts import (
    MANIFEST,
    Artifact,
    has_own_digest,
    parse_manifest,
    with_digest,
    write_durably,
)
from phrasemodels.data.store.gc import damage
from phrasemodels.data.store.store import Job, Step, Store
from phrasemodels.flows.results import keep, records
from phrasemodels.flows.results.records import read_kept

ROWS = [{"system": "a", "ours": 17.14, "printed": 47.1, "verdict": "lower"}]


def compared(job: Job, settings: None) -> dict[str, Any]:
    (job.out / "verdicts.json").write_text(json.dumps({"rows": ROWS}))
    return {"rows": ROWS}


@pytest.fixture
def artifact(store: Store) -> Artifact:
    return store.run(Step(compared, "a table", None))


def flips(text: bytes) -> Iterator[bytes]:
    for place in range(len(text)):
        for bit in range(8):
            yield text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :]


def test_every_flipped_bit_of_a_manifest_is_noticed_or_changes_nothing(artifact: Artifact) -> None:
    text = (artifact.path / MANIFEST).read_bytes()
    right = parse_manifest(text)
    assert right == artifact.manifest and has_own_digest(right)
    read = [found for found in map(parse_manifest, flips(text)) if found is not None]
    assert all(found == right for found in read) and len(read) < len(text)  # of white space


@pytest.mark.parametrize(
    "meta",
    [
        {"a": {2: 0, 10: 1}},
        {"a": (1, (2,))},
        {"a": float("nan"), "b": 1e300, "c": 0.1 + 0.2},
        {"ä": "ö"},
        {"a": {None: 1, True: 2}},
    ],
)
def test_the_digest_is_of_what_is_read_again(meta: dict[str, Any]) -> None:
    assert has_own_digest(json.loads(json.dumps(with_digest({"meta": meta}))))


@pytest.mark.parametrize("drop", [False, True])
def test_a_changed_score_is_damage(store: Store, artifact: Artifact, drop: bool) -> None:
    manifest = {**artifact.manifest, "meta": {"rows": [{**ROWS[0], "verdict": "reproduced"}]}}
    if drop:
        del manifest["digest"]
    (artifact.path / MANIFEST).write_text(json.dumps(manifest))
    assert store.load(artifact.path) is None
    ((found, problem, _),) = damage(store)
    assert found.key == artifact.key and "no manifest of its own" in problem
    assert store.run(Step(compared, "a table", None)).meta["rows"] == ROWS  # it is made again


def test_a_kept_result_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results" / "mine" / "result.json"
    file.parent.mkdir(parents=True)
    result = {"title": "Table 1", "commit": "c", "note": "", "rows": ROWS}
    monkeypatch.setattr(keep, "kept_files", lambda: [file])
    file.write_text(json.dumps(with_digest(result)))
    assert read_kept(file) == with_digest(result)
    changed = file.read_text().replace("17.14", "47.14")
    for text in (changed, file.read_text()[:-3], json.dumps(result), "[]", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"result\.json is damaged, or was changed since it was kept"):
            read_kept(file)
        assert [name for name, _ in keep.damaged_results()] == ["mine"]


def test_the_kept_results_of_the_project_are_as_they_were_kept() -> None:
    assert [read_kept(file)["title"] for file in records.KEPT.glob("*/result.json")]


def test_threads_that_write_the_same_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def write(text: str) -> None:
        try:
            for _ in range(100):
                write_durably(tmp_path / "it", text)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(letter * 5000,)) for letter in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and [path.name for path in tmp_path.iterdir()] == ["it"]
    assert len(set((tmp_path / "it").read_text())) == 1
