"""Treebanks of Universal Dependencies of any language, by their folder alone."""

from pathlib import Path

import pytest

from phrasemodels.data.corpora.added import add_treebank
from phrasemodels.data.corpora.readers import read
from phrasemodels.data.download.manifest import read as read_manifest

SENTENCE = """# sent_id = {number}
# text = Ein Haus schläft.
1\tEin\tein\tDET\tART\t_\t2\tdet\t_\t_
2\tHaus\tHaus\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tschläft\tschlafen\tVERB\tVVFIN\t_\t0\troot\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t$.\t_\t3\tpunct\t_\t_

"""
ROWS = {"train": 4, "dev": 2, "test": 3}


@pytest.fixture
def german(tmp_path: Path) -> Path:
    folder = tmp_path / "UD_German-Made"
    folder.mkdir()
    for split, rows in ROWS.items():
        text = "".join(SENTENCE.format(number=number) for number in range(rows))
        (folder / f"de_made-ud-{split}.conllu").write_text(text, encoding="utf-8")
    (folder / "README.md").write_text("# Summary\nLicense: CC BY-SA 4.0\n", encoding="utf-8")
    return folder


def test_a_treebank_is_added_by_its_folder(german, tmp_path):
    path = add_treebank(german, tmp_path / "corpora").path
    manifest = read_manifest(path)
    assert path.name == "ud_german_made.toml" and manifest.licence == "CC-BY-SA-4.0"
    assert {name: split.rows for name, split in manifest.splits.items()} == ROWS
    rows = read(manifest, "train", path.with_suffix(""))
    assert rows.num_rows == 4 and rows["tokens"][0].as_py() == ["Ein", "Haus", "schläft", "."]
    with pytest.raises(ValueError, match="exists"):
        add_treebank(german, tmp_path / "corpora")
    assert add_treebank(german, tmp_path / "corpora", "mine").path.name == "mine.toml"
    with pytest.raises(ValueError, match="there is a corpus 'gum' already: give another --name"):
        add_treebank(german, tmp_path / "corpora", "gum")


def test_a_folder_without_its_three_files_is_refused(german, tmp_path):
    next(german.glob("*dev*")).unlink()
    with pytest.raises(OSError, match=r"0 files \*-ud-dev.conllu; a treebank has one each"):
        add_treebank(german, tmp_path / "corpora")
    assert not (tmp_path / "corpora").exists()
