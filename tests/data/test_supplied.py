"""Files that a user supplies reach experiments, plans and the command line; the files here are made up, in upstream layouts."""

import hashlib
import json
import pickle
import re
import shutil
import socket
from pathlib import Path

import pytest
from running import run_cli

from phrasemodels.config import from_template, to_json
from phrasemodels.data.download import manifest
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.flows.experiments.catalogue import Request, experiment, resolved, with_encoders
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.results.records import sources_of
from phrasemodels.flows.run.plan import planned
from phrasemodels.infra.settings import Settings
from phrasemodels.parsing.ids import Pieces
from phrasemodels.tasks.prepare.sharded import read_shards

TREE = "( (S (NP-SBJ (DT A) (NN dog)) (VP (VBZ sleeps)) (. .)) )\n"
ARCS = "".join(
    f"{place}\t{word}\t_\t{tag}\t{tag}\t_\t{head}\tdep\t_\t_\n"
    for place, (word, tag, head) in enumerate(
        (("A", "DT", 2), ("dog", "NN", 3), ("sleeps", "VBZ", 0), (".", ".", 3)), 1
    )
)
UNNAMED_ARCS = "A\tDT\t2\ndog\tNN\t3\nsleeps\tVBZ\t0\n.\t.\t3\n"
BLOCK = (
    "<question id=1>\twho is a ?\n<logical form id=1>\t( lambda ?x ( r ?x a ) )\n"
    "<parameters id=1>\ta (entity) [2,2]\n<question type id=1>\tsingle-relation\n"
)
PAIR = {
    "gold_label": "neutral", "sentence1": "A dog", "sentence2": "A cat", "captionID": "c", "pairID": "p",
    "sentence1_binary_parse": "( A dog )", "sentence2_binary_parse": "( A cat )",
    "sentence1_parse": "(ROOT (NP (DT A) (NN dog)))", "sentence2_parse": "(ROOT (NP (DT A) (NN cat)))",
}  # fmt: skip
LAYOUTS: dict[str, dict[str, str]] = {
    "penn_treebank": {f"LDC99T42/PARSED/MRG/WSJ/{s:02d}/WSJ_{s:02d}01.MRG": TREE for s in range(25)}
    | {f"{split}.conllu": f"{ARCS}\n" * count for split, count in (("train", 20), ("dev", 1), ("test", 1))}
    | {f"spacy.{split}.conllu": f"{ARCS}\n" * count for split, count in (("train", 19), ("dev", 3), ("test", 3))}
    | {f"{split}.tags": "DT NN VBZ .\n" * count for split, count in (("train", 20), ("dev", 1), ("test", 1))},
    "nltk_treebank": {f"treebank/combined/wsj_{n:04d}.mrg": f"{TREE}\n" * 5 for n in range(1, 200)}
    | {f"dependency_treebank/wsj_{n:04d}.dp": f"{UNNAMED_ARCS}\n" * 5 for n in range(1, 200)},
    "snli_official": {f"snli_1.0/snli_1.0_{s}.jsonl": json.dumps(PAIR) + "\n" for s in ("train", "dev", "test")},
    "mspars": {"data/MSParS.train": BLOCK},
    "aspec_segmented": {
        **{f"ASPEC-JE/train/train-{n}.txt": f"0.9 ||| d{n} ||| 1 ||| 犬 が 眠る ||| A dog sleeps .\n" for n in (1, 2, 3)},
        **{f"ASPEC-JE/{s}/{s}.txt": f"{s} ||| 1 ||| 犬 が 眠る ||| A dog sleeps .\n" for s in ("dev", "test")},
    },
}  # fmt: skip
CASES = {  # corpus, experiment, overrides, rows of train and dev
    "tagging with trees": ("penn_treebank", "000/table2/paper/semantic-k2", (), (19, 3)),
    "tagging": ("penn_treebank", "000/table2/paper/transformer", (), (19, 3)),
    "sample of NLTK": (
        "nltk_treebank",
        "000/table2/paper/transformer",
        ("recipe.corpus.name=nltk_treebank",),
        (213, 391),
    ),
    "joint sample of NLTK": (
        "nltk_treebank",
        "004/parser/paper/lal",
        ("recipe.corpus.name=nltk_treebank",),
        (213, 391),
    ),
    "inference": ("snli_official", "001/table4/paper/full", (), (1, 1)),
    "translation": ("aspec_segmented", "003/tablenmt/paper/word-simple", (), (3, 1)),
    "semantic parsing": ("mspars", "002/table2/paper/mspars-transformer", (), None),
    "parsing": ("penn_treebank", "004/table1/paper/2-ff-drop", (), (20, 1)),
}


@pytest.fixture
def supplied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write files of every layout to a folder, and manifests without numbers of rows; return the folder."""
    for corpus, files in LAYOUTS.items():
        for name, content in files.items():
            path = tmp_path / "supplied" / corpus / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    made = tmp_path / "manifests"
    shutil.copytree(manifest.MANIFESTS, made)
    for corpus in LAYOUTS:
        text = re.sub(r"(?m)^rows = .*\n", "", (made / f"{corpus}.toml").read_text(encoding="utf-8"))
        blob = hashlib.sha1(b"blob %d\0" % len(BLOCK.encode()) + BLOCK.encode()).hexdigest()
        (made / f"{corpus}.toml").write_text(re.sub('[0-9a-f]{40}"\ninstr', f'{blob}"\ninstr', text), encoding="utf-8")
    monkeypatch.setattr(manifest, "MANIFESTS", made)
    return tmp_path / "supplied"


def named(name: str, *assignments: str) -> Experiment:
    return experiment(name, assignments)


@pytest.mark.parametrize("name", CASES)
def test_experiments_read_user_files(supplied: Path, store: Store, name: str) -> None:
    corpus, row, overrides, rows = CASES[name]
    chosen = named(row, *overrides)
    with pytest.raises(
        ValueError, match=f"{corpus}: .* must be supplied by the user: .* that PHRASEMODELS_SUPPLIED names"
    ):
        resolved(chosen, Sources()).steps(0)
    sources = Sources((supplied,), offline=True)
    found = resolved(chosen, sources)
    key = found.steps(0).scored.key
    if rows:  # MSParS' dev and test sets would be downloaded
        made = [store.run(found.recipe.corpus.split(split), Executor(sources=sources)) for split in ("train", "dev")]
        assert tuple(artifact.meta["rows"] for artifact in made) == rows
        assert made[0].meta["redistributable"] == (corpus == "snli_official")
        if name in ("parsing", "tagging with trees"):
            assert {tuple(heads) for heads in read_shards(made[0])["heads"].to_pylist()} == {(2, 3, 0, 3)}
    changed = next(path for path in sorted((supplied / corpus).rglob("*")) if path.is_file())
    if corpus != "mspars":
        changed.write_text(changed.read_text(encoding="utf-8") * 2, encoding="utf-8")
        again = resolved(chosen, Sources((supplied,), offline=True, wait=2.0))
        assert again.steps(0).scored.key != key


def test_a_user_file_that_changes_between_key_and_copy_is_not_kept(supplied: Path, store: Store) -> None:
    sources = Sources((supplied,), offline=True)
    split = resolved(named("001/table4/paper/full"), sources).recipe.corpus.split("dev")
    with (supplied / "snli_official/snli_1.0/snli_1.0_test.jsonl").open("a") as file:
        file.write(json.dumps(PAIR) + "\n")
    with pytest.raises(ValueError, match=r"_test.jsonl of snli_official has changed since the run was planned"):
        store.run(split, Executor(sources=sources))
    assert not list(store.artifacts())


def test_without_user_files_word_vectors_are_learned_and_not_comparable(supplied: Path) -> None:
    chosen = named("001/table4/paper/full")
    without = resolved(chosen, Sources((supplied,)))
    assert without.recipe.vectors is None and not without.comparable
    assert "recipe.vectors.name is none, not" in without.differences
    (supplied / "glove").mkdir()
    (supplied / "glove" / "glove.42B.300d.txt").write_text("dog" + " 0.5" * 300 + "\n", encoding="utf-8")
    found = resolved(chosen, Sources((supplied,)))
    assert len(found.recipe.vectors.sha256) == 64 and found.comparable
    assert found.steps(0).scored.key != without.steps(0).scored.key


def test_without_glove_a_tagger_is_not_the_papers(supplied: Path) -> None:
    without = resolved(named("000/table2/paper/phrase-k2"), Sources((supplied,)))
    assert "recipe.vectors.name is none, not glove/glove.840B.300d.txt" in without.differences
    assert named("000/table2/paper/semantic-k3").comparable and not without.comparable


def test_pretrained_encoders_are_resolved_to_their_folders(supplied: Path) -> None:
    chosen, sources = named("004/table3/paper/hpsg-bert"), Sources((supplied,))
    assert chosen.model.inputs[0] == resolved(chosen, sources).model.inputs[0]
    folder = supplied / "bert-large-uncased"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    found = resolved(chosen, sources)
    encoder = found.model.inputs[0]
    assert encoder.folder == pickle.loads(pickle.dumps(encoder)).folder == str(folder)  # as Ray's workers get it
    assert found.recipe.divide == Pieces(encoder.name) == with_encoders(chosen, sources).recipe.divide
    loaded = from_template(found.model, json.loads(json.dumps(to_json(found.model))), "x").inputs[0]
    assert loaded == encoder and loaded.folder == encoder.folder and "folder" not in to_json(encoder)


def test_offline_a_missing_encoder_is_named(supplied: Path, tmp_path: Path, monkeypatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: asked.append(host) or [])
    settings = Settings(store=str(tmp_path / "store"), supplied=supplied, offline=True)
    with pytest.raises(OSError, match=r"bert-large-uncased  \(a folder of the transformers library\)$"):
        planned(Request("004", "3", "paper", 1, [], ["hpsg-bert"]), settings)
    chosen = resolved(named("004/table3/paper/hpsg-bert"), sources_of(settings))
    with pytest.raises(ValueError, match=r"bert-large-uncased: .*; put its folder, .* PHRASEMODELS_SUPPLIED names$"):
        chosen.recipe.divide(["a"])
    with pytest.raises(ValueError, match="bert-large-uncased: "):
        chosen.model.inputs[0].build(4)
    assert not asked


def test_keys_depend_on_the_files_of_an_encoder_and_not_on_their_folder(supplied: Path) -> None:
    def key(folder: Path) -> str:
        return resolved(named("004/table3/paper/hpsg-bert"), Sources((folder, supplied))).steps(0).trained.key

    folder = supplied.with_name("elsewhere") / "bert-large-uncased"
    before = key(folder.parent)
    folder.mkdir(parents=True)
    keys = {before}
    for name in ("config.json", "tokenizer.json", "model.safetensors", "spiece.model"):
        (folder / name).write_text("{}")
        keys.add(key(folder.parent))
    (folder / "model.safetensors").write_text("[]")
    keys.add(key(folder.parent))
    assert len(keys) == 6
    shutil.copytree(folder, supplied / folder.name)
    shutil.rmtree(folder)
    assert key(folder.parent) in keys - {before}


def test_plan_and_corpora_find_files_in_the_folder_of_the_setting(supplied: Path, tmp_path: Path) -> None:
    environment = {"PHRASEMODELS_SUPPLIED": str(supplied), "PHRASEMODELS_STORE": str(tmp_path / "s")}
    environment["PHRASEMODELS_OFFLINE"] = "true"
    asked = ["plan", "--paper", "000", "--table", "2", "--profile", "paper", "--seeds", "1", "--json"]
    steps = json.loads(run_cli(*asked, env=environment).stdout)
    assert "fetch penn_treebank" in [step["label"] for step in steps]
    nowhere = run_cli(*asked, env=environment | {"PHRASEMODELS_SUPPLIED": str(tmp_path)})
    assert "Copy parsed/mrg/wsj" in str(nowhere.exception)
    shown = run_cli("corpora", "show", "penn_treebank", "--head", "1", "--json", env=environment)
    assert json.loads(shown.stdout)["head"][0]["tokens"] == ["A", "dog", "sleeps", "."]
    assert run_cli("corpora", "verify", "penn_treebank", env=environment).exit_code == 0
