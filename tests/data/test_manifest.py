"""Manifests: unknown keys, pinned addresses, and agreement with the readers and the mirror."""

import inspect
import json
from pathlib import Path

import pytest
from conftest import CORPORA

from phrasemodels.data.corpora.readers import READERS, reader
from phrasemodels.data.download.manifest import Concatenation, Manifest, load, names, read

EXPECTED = "atis babi craft geoquery gum mspars multi30k senteval small_parallel_enja snli ud_english_ewt".split()
DIGEST = "0" * 64
SMALL = f"""
name = "small"
title = "Small"
schema = "trees"
reader = "treebank"
licence = "CC0-1.0"
licence_text = "None."
redistributable = true
citation = "Nobody"
homepage = "https://example.org"

[lists]
train = ["a", "b"]

[[files]]
name = "train.ptb"
sha256 = "{DIGEST}"
bytes = 3
mirror = "small/train.ptb.xz"
build = {{ transform = "concatenate", url = "https://example.org/{{}}.ptb", parts = "train" }}

[[sources]]
name = "hand"
pattern = "*.mrg"
instructions = "Ask."

[splits.train]
rows = 2
files = {{ brackets = "train.ptb" }}

[splits."hand.train"]
files = {{ brackets = "hand" }}
part = {{ by = "group", stop = 3 }}
licence = "LicenseRef-Other"
redistributable = false
"""


def manifest(folder: Path, old: str = "", new: str = "") -> Manifest:
    path = folder / "small.toml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new, 1))
    return read(path)


def test_a_manifest_has_files_splits_and_terms(tmp_path: Path) -> None:
    small = manifest(tmp_path)
    assert isinstance(small.files[0].build, Concatenation)
    assert small.files[0].build.parts == ("a", "b")
    assert small.terms("train") == ("CC0-1.0", True, False)
    assert small.terms("hand.train") == ("LicenseRef-Other", False, False)
    with pytest.raises(ValueError, match="small has no split 'trian': did you mean 'train'"):
        small.split("trian")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rows = 2", "rowz = 2", "splits.train.rowz: .*did you mean 'rows'"),
        ("licence_text", "license_text", "license_text: .*did you mean 'licence_text'"),
        ("mirror =", "miror =", r"files\.0\.miror: .*did you mean 'mirror'"),
        ("parts =", "part =", r"files\.0\.build\.concatenate\.part: .*did you mean 'parts'"),
        ("pattern =", "patern =", r"sources\.0\.patern: .*did you mean 'pattern'"),
        ("stop = 3", "start = 3, stop = 3", "stop = 3 is not after start = 3"),
        ("stop = 3", "stopp = 3", r"part\.stopp: .*did you mean 'stop'"),
        ('"train.ptb" }', '"trian.ptb" }', "splits.train: no file 'trian.ptb': did you mean 'train.ptb'"),
        ('parts = "train"', 'parts = "trian"', "no list 'trian': did you mean 'train'"),
        ('"concatenate"', '"concat"', r"files\.0\.build: "),
        ('"small/train', '"../train', r"files\.0\.mirror: "),
        ('["a", "b"]', '["a/../../b"]', r"must not contain '\.\.'"),
        ('schema = "trees"', 'schema = "tree"', "schema: "),
        ("https://example.org/", "file:///etc/", "is not an http"),
        ("rows = 2", "rows = ", "line"),
        ("rows = 2", r'"a\n\u001b[2J" = 2', r"splits\.train\.a\\n\\x1b\[2J: "),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"small\.toml: .*" + words) as error:
        manifest(tmp_path, old, new)
    assert str(error.value).isprintable()


def test_every_corpus_has_a_manifest() -> None:
    assert set(EXPECTED) < set(names())
    with pytest.raises(ValueError, match="no corpus 'multi30': did you mean 'multi30k'"):
        load("multi30")


@pytest.mark.parametrize("name", names())
def test_options_of_manifests_are_options_of_their_readers(name: str) -> None:
    corpus = load(name)
    assert corpus.name == name
    mirrors = [file.mirror for file in corpus.files]
    assert len(set(mirrors)) == len(mirrors)
    for split in corpus.splits:
        options = inspect.signature(reader(corpus, corpus.split(split))).parameters
        assert set(corpus.split(split).options) <= set(options)
    assert not (corpus.redistributable and "not passed on" in corpus.licence_text)
    assert {split.reader for split in corpus.splits.values()} - {None} <= set(READERS)


@pytest.mark.needs_mirror
def test_addresses_are_pinned_to_the_sources_of_the_mirror() -> None:
    mirrored = [name for name in EXPECTED if (CORPORA / name / "SOURCE.json").is_file()]
    assert mirrored
    for name in mirrored:
        stated = {entry["file"]: entry for entry in json.loads((CORPORA / name / "SOURCE.json").read_text())["files"]}
        for file in load(name).files:
            entry = stated[file.mirror.removeprefix(f"{name}/")]
            if "uncompressed_sha256" in entry or file.mirror.endswith(file.name):
                assert file.sha256 == entry.get("uncompressed_sha256", entry["sha256"]), file.mirror
            places = [*file.urls, *([file.build.url] if file.build else [])]
            assert places, file.mirror
            assert all(entry["source"]["commit"] in place for place in places), file.mirror
