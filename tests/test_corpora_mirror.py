"""Every corpus of the mirror, whole: rows of each split, what cannot be used, what leaks. Skipped without a mirror."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from phrasemodels.data.corpora.leakage import leakage
from phrasemodels.data.corpora.readers import read, reasons
from phrasemodels.data.corpora.treebank import OTHER_WORDS
from phrasemodels.data.download.manifest import load, names
from phrasemodels.data.download.mirrors import Sources
from phrasemodels.data.download.user_files import obtain
from phrasemodels.data.formats.trees import parse

MIRROR = Path(os.environ.get("PHRASEMODELS_MIRROR", Path(__file__).parents[2] / "shared" / "corpora"))
pytestmark = pytest.mark.skipif(not MIRROR.is_dir(), reason="no mirror: set PHRASEMODELS_MIRROR")

Read = Callable[[str, str], pa.Table]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Read:
    folder = tmp_path_factory.mktemp("corpora")
    read_already: dict[tuple[str, str], pa.Table] = {}

    def get(name: str, split: str) -> pa.Table:
        manifest = load(name)
        if not (MIRROR / name).is_dir():
            pytest.skip(f"the mirror has no {name}")
        if not (folder / name).exists():
            obtain(manifest, folder / name, Sources((MIRROR,), offline=True))
        if (name, split) not in read_already:
            read_already[name, split] = read(manifest, split, folder / name)
        return read_already[name, split]

    return get


SPLITS = [
    (name, split)
    for name in names()
    for split, division in load(name).splits.items()
    if set(division.files.values()) <= {file.name for file in load(name).files} and not split.startswith("tagging")
]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_rows_are_those_of_the_manifest(table: Read, name: str, split: str) -> None:
    assert table(name, split).num_rows == load(name).split(split).rows


@pytest.mark.parametrize(("name", "shared", "rows"), [("geoquery", 115, 280), ("atis", 94, 448), ("multi30k", 0, 1000)])
def test_leakage_is_the_known_one(table: Read, name: str, shared: int, rows: int) -> None:
    assert leakage(table(name, "train"), table(name, "test")) == (shared, rows)


def test_no_premise_is_in_two_parts(table: Read) -> None:
    assert leakage(table("snli", "train"), table("snli", "dev"), ("premise",)).shared == 0


@pytest.mark.parametrize(("name", "splits", "rows"), [("gum", 4, 49), ("craft", 3, 12)])
def test_trees_with_other_words_are_counted(table: Read, name: str, splits: int, rows: int) -> None:
    parts = [table(name, split) for split in ("train", "dev", "test", "test2")[:splits]]
    assert sum(reasons(part).get(OTHER_WORDS, 0) for part in parts) == rows


def test_leaves_of_trees_are_the_tokens(table: Read) -> None:
    for row in table("gum", "test").to_pylist():
        assert not row["tree"] or list(parse(row["tree"]).tokens) == row["tokens"]
        assert len(row["heads"]) == len(row["tags"]) == len(row["universal"]) == len(row["tokens"])
