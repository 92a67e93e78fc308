"""Every corpus from its files to tables: a small mirror made in the test, and the real one where there is one."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import CORPORA

from phrasemodels.data.corpora.readers import leakage, read, reasons
from phrasemodels.data.corpora.treebank import OTHER_WORDS
from phrasemodels.data.download.fetch import obtain
from phrasemodels.data.download.manifest import Sources, load, names
from phrasemodels.data.formats.shards import SCHEMAS
from phrasemodels.data.formats.trees import parse

Read = Callable[[str, str], pa.Table]


@pytest.mark.parametrize("name", [name for name in names() if load(name).files])
def test_every_split_has_the_rows_of_its_manifest(mirror: Path, tmp_path: Path, name: str) -> None:
    if not (mirror / name).is_dir():
        pytest.skip(f"the mirror has no {name}")
    manifest = load(name)
    obtain(manifest, tmp_path / "fetched", Sources((mirror,), offline=True))
    fetched = {file.name for file in manifest.files}
    for split, division in manifest.splits.items():
        if fetched.issuperset(division.files.values()):
            table = read(manifest, split, tmp_path / "fetched")
            assert table.schema == SCHEMAS[division.schema_ or manifest.schema_], split
            assert table.num_rows == division.rows if mirror == CORPORA else table.num_rows > 0, split


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Read a split of the real mirror, each once."""
    folder = tmp_path_factory.mktemp("corpora")
    tables: dict[tuple[str, str], pa.Table] = {}

    def get(name: str, split: str) -> pa.Table:
        manifest = load(name)
        if not (CORPORA / name).is_dir():
            pytest.skip(f"the mirror has no {name}")
        if not (folder / name).exists():
            obtain(manifest, folder / name, Sources((CORPORA,), offline=True))
        if (name, split) not in tables:
            tables[name, split] = read(manifest, split, folder / name)
        return tables[name, split]

    return get


@pytest.mark.needs_mirror
@pytest.mark.parametrize(("name", "shared", "rows"), [("geoquery", 115, 280), ("atis", 94, 448), ("multi30k", 0, 1000)])
def test_known_numbers_of_test_records_stand_in_train(table: Read, name: str, shared: int, rows: int) -> None:
    assert leakage([table(name, "train")], [table(name, "test")]) == (shared, rows)


@pytest.mark.needs_mirror
def test_no_premise_is_in_train_and_dev(table: Read) -> None:
    train, dev = (set(table("snli", split)["premise"].to_pylist()) for split in ("train", "dev"))
    assert train and dev and not train & dev


@pytest.mark.needs_mirror
@pytest.mark.parametrize(("name", "splits", "rows"), [("gum", 4, 0), ("craft", 3, 12)])
def test_known_numbers_of_trees_have_other_words(table: Read, name: str, splits: int, rows: int) -> None:
    parts = [table(name, split) for split in ("train", "dev", "test", "test2")[:splits]]
    assert sum(reasons(part).get(OTHER_WORDS, 0) for part in parts) == rows


@pytest.mark.needs_mirror
def test_leaves_of_trees_are_the_tokens(table: Read) -> None:
    for row in table("gum", "test").to_pylist():
        assert not row["tree"] or list(parse(row["tree"]).tokens) == row["tokens"]
        assert len(row["heads"]) == len(row["tags"]) == len(row["universal"]) == len(row["tokens"])
