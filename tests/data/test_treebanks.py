"""Treebanks of Universal Dependencies of any language, by their folder alone."""

import os
import re
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


def test_a_treebank_is_taken_as_it_is(german, tmp_path):
    """A test set alone; sentences with two roots or a cycle, which keep their words, and one that is very long."""
    for split in ("train", "dev"):
        next(german.glob(f"*{split}*")).unlink()
    two_roots = SENTENCE.replace("2\tdet", "0\troot")
    cyclic = SENTENCE.replace("3\tnsubj", "1\tnsubj")
    row = "{0}\ta\t_\tX\tX\t_\t{1}\tdep\t_\t_\n"
    long = "".join(row.format(k, k - 1) for k in range(1, 1202)) + "\n"
    (german / "de_made-ud-test.conllu").write_text(SENTENCE + two_roots + cyclic + cyclic + long, encoding="utf-8")
    written = add_treebank(german, tmp_path / "corpora")
    manifest = read_manifest(written.path)
    assert manifest.note == (
        "no train and no dev set; test: 2 sentences without heads, cyclic dependencies; test: 1 sentences without heads, "
        "2 roots; test: 1 sentences of more than 1000 words; test: 1 words with the relation root and another head, or with "
        "head 0 and another relation"
    )
    rows = read(manifest, "test", written.path.with_suffix(""))
    assert [len(heads) for heads in rows["heads"].to_pylist()] == [4, 0, 0, 0, 1201] and manifest.max_words == 1201
    with pytest.raises(ValueError, match="1201 words, at most 900"):
        add_treebank(german, tmp_path / "corpora", overwrite=True, max_words=900)
    next(german.glob("*test*")).unlink()
    with pytest.raises(OSError, match=r"no file \*-ud-SPLIT.conllu"):
        add_treebank(german, tmp_path / "corpora", "other")


@pytest.mark.parametrize("ranges", [("2-1",), ("1-1",), ("1-9",), ("1-2", "2-3")])
def test_multiword_tokens_that_are_none_are_refused_with_their_line(german, tmp_path, ranges):
    lines = SENTENCE.split("\n")
    for own in ranges:
        lines.insert(
            lines.index(next(line for line in lines if line.startswith(f"{own[0]}\t"))), f"{own}\tx" + "\t_" * 8
        )
    next(german.glob("*dev*")).write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"line \d: {ranges[-1]} is no multiword token here"):
        add_treebank(german, tmp_path / "corpora")


def test_sentences_without_heads_are_counted_and_a_split_without_any_is_refused(german, tmp_path):
    headless = re.sub(r"\t\d\t(\w+)\t_", "\t_\t_\t_", SENTENCE)
    dev = next(german.glob("*dev*"))
    dev.write_text(SENTENCE + headless, encoding="utf-8")
    path = add_treebank(german, tmp_path / "corpora").path
    assert read_manifest(path).note == "dev: 1 sentences without heads, which are all _"
    dev.write_text(headless, encoding="utf-8")
    with pytest.raises(ValueError, match="no sentence has heads that are a tree"):
        add_treebank(german, tmp_path / "corpora", overwrite=True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("NOUN", "FOO", "dev: 2 words with the universal tag FOO"),
        (
            "det\t_",
            "root\t_",
            "dev: 2 words with the relation root and another head, or with head 0 and another relation",
        ),
        (
            "0\troot",
            "0\tdet",
            "dev: 2 words with the relation root and another head, or with head 0 and another relation",
        ),
        ("Ein Haus", "Kein Haus", "dev: 2 sentences whose # text has other words: how they are written is not learned"),
        ("Ein Haus", "Ein  Haus", ""),
        ("det\t_", "\t_", "line 3: token 1 has an empty relation"),
        ("Haus\tHaus", "Ha\0us\tHaus", "a word has a NUL byte"),
    ],
)
def test_what_a_treebank_should_not_have_is_said(german, tmp_path, old, new, said):
    dev = next(german.glob("*dev*"))
    dev.write_text(dev.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    if "line" in said or "NUL" in said:
        with pytest.raises(ValueError, match=said):
            add_treebank(german, tmp_path / "corpora")
    else:
        assert read_manifest(add_treebank(german, tmp_path / "corpora").path).note == said


def test_pipes_and_endless_files_of_a_treebank_are_none_of_its_files(german, tmp_path):
    next(german.glob("*dev*")).unlink()
    os.mkfifo(german / "de_made-ud-dev.conllu")
    os.mkfifo(german / "README.txt")
    next(german.glob("*test*")).unlink()
    (german / "de_made-ud-test.conllu").symlink_to("/dev/zero")
    assert list(add_treebank(german, tmp_path / "corpora").splits) == ["train"]
