"""Every reader of external input, by name, with well-formed input and a function that calls the reader.

A reader may refuse input with a ValueError or an OSError of one line that names the file; it then leaves no files.
"""

import gzip
import hashlib
import io
import json
import lzma
import random
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch
from conftest import PROJECT

import phrasemodels
from phrasemodels import project
from phrasemodels.config import to_json
from phrasemodels.data.corpora.readers import READERS as CORPORA
from phrasemodels.data.download.archives import unpack
from phrasemodels.data.download.fetch import fetch
from phrasemodels.data.download.manifest import File, Sources
from phrasemodels.data.download.manifest import read as read_manifest
from phrasemodels.data.download.manifest import read_parser as read_parser
from phrasemodels.data.formats.lines import lines_with_replacements
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import MANIFEST, describe, with_digest
from phrasemodels.data.store.gc import damage, lease, leased_keys, waste
from phrasemodels.data.store.shared import ObjectStorage
from phrasemodels.data.store.store import Step, Store, digest_of
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results.exchange import read_scores
from phrasemodels.flows.results.models import CARD, load
from phrasemodels.flows.results.records import read_kept, records
from phrasemodels.inference.inputs import Pieces
from phrasemodels.inference.problems import Translation
from phrasemodels.infra.tracking import KEY, Tracker
from phrasemodels.layers.blocks import SPECIAL
from phrasemodels.parsing.parser import ENGLISH
from phrasemodels.parsing.saved import ABOUT, SPLITTER, WEIGHTS
from phrasemodels.parsing.saved import load as load_parser
from phrasemodels.saved import LIBRARY, copied
from phrasemodels.saved import describe as describe_model
from phrasemodels.tasks.problems.sentence_data import VectorFile
from phrasemodels.tasks.train.checkpoints import Progress, resume, save
from phrasemodels.verdicts.printed import read_printed

Read = Callable[[Path], Any]  # read the file GIVEN in a folder

GIVEN = "given"
TREE = b"(ROOT (S (NP-SBJ (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)))\n"
CONLLU = (
    b"# newdoc id = a\n# text = They sleep.\n1\tThey\tthey\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n"
    b"2-3\tsleep.\t_\t_\t_\t_\t_\t_\t_\t_\n2\tsleep\tsleep\tVERB\tVBP\t_\t0\troot\t_\t_\n"
    b"3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_\n\n"
)
STORY = b"1 Ann is in the hall.\n2 Bob left.\n3 Where is Ann?\thall\t1\n1 Bob sat.\n2 Who sat? \tBob\t1\n"
PAIR = {
    "gold_label": "neutral",
    **{f"sentence{n}": "A cat sleeps." for n in (1, 2)},
    **{f"sentence{n}_binary_parse": "( ( A cat ) ( sleeps . ) )" for n in (1, 2)},
    **{f"sentence{n}_parse": "(ROOT (S (NP (DT A) (NN cat)) (VP (VBZ sleeps)) (. .)))" for n in (1, 2)},
}
SICK = b"pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n1\tA cat\tA dog\t3.5\tNEUTRAL\n"
MRPC = b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t11\t12\tA cat sleeps\tA cat is asleep\n"
BLOCK = (
    b"<question id=1>\twho wrote it\n<logical form id=1>\t( lambda ?x ( mso:book.author it ?x ) )\n"
    b"<parameters id=1>\tit (entity) [2,2]\n<question type id=1>\tsingle-relation\n=====\n"
)
CORPUS = b"""name = "x"
title = "X"
schema = "bitext"
licence = "MIT"
licence_text = "as it is"
redistributable = true
citation = "nobody"
homepage = "https://example.org"
[[files]]
name = "t.en"
sha256 = "%s"
bytes = 12
urls = ["https://example.org/t.gz"]
mirror = "x/t.gz"
build = {transform = "concatenate", url = "https://example.org/{}", parts = ["a", "b"]}
[splits.train]
rows = 3
files = {en = "t.en", de = "t.en"}
options = {source = "en"}
part = {by = "id", start = 0, stop = 2}
""" % (b"0" * 64)
PARSER = b"""name = "x"
title = "X"
language = "en"
licence = "MIT"
licence_text = "as it is"
redistributable = true
stand_in = true
[[files]]
name = "tokenize/x.pt"
sha256 = "%s"
bytes = 12
urls = ["https://example.org/x.pt"]
mirror = "x/x.pt"
""" % (b"0" * 64)


class Reader(NamedTuple):
    """Well-formed inputs of a reader, and a function that calls the reader on a folder with the input."""

    seeds: Sequence[bytes]
    read: Read


def corpus(name: str, *roles: str, **options: Any) -> Read:
    """Return the call of a reader of corpora; one file has all roles."""
    return lambda folder: CORPORA[name](dict.fromkeys(roles, folder / GIVEN), 1000, **options)


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", "text" * 20)
        archive.writestr("c.txt", "more")
    return out.getvalue()


def tarred(mode: str, form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as archive:
        for name in ("a/b.txt", "./c.txt", "d" * 120 + "/é"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"text"))
    return out.getvalue()


def unpacked(folder: Path) -> None:
    """Unpack an archive into a folder beside it; a refused archive leaves no folder."""
    try:
        unpack(folder / GIVEN, folder / "out", 10_000)
    except BaseException:
        assert not (folder / "out").exists(), "a refused archive left files"
        raise


def downloaded(suffix: str) -> Read:
    """Return the fetching of a compressed file from a mirror."""
    file = File(name="t", sha256=hashlib.sha256(b"text\n" * 9).hexdigest(), bytes=45, mirror=f"t{suffix}")

    def read(folder: Path) -> None:
        (folder / GIVEN).rename(folder / f"t{suffix}")
        fetch(file, folder / "out", Sources((folder,), offline=True))

    return read


def write(job: Any, settings: None) -> dict[str, Any]:
    (job.out / "text").write_text("text")
    return {"licences": ["MIT"], "redistributable": True, "stand_in": False}


STEP = Step(write, "write")


def manifest() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return (Store(Path(folder)).open().run(STEP).path / MANIFEST).read_bytes()


def stored(folder: Path) -> None:
    """Read a manifest in the store: a broken one is not used, and no command fails."""
    store = Store(folder / "store")
    place = store.where(STEP.name, STEP.key)
    place.mkdir(parents=True)
    (place / "text").write_text("text")
    (folder / GIVEN).rename(place / MANIFEST)
    store.open().find(STEP)
    for look in (waste, damage, lambda store: list(store.artifacts())):
        look(store)
    assert store.run(STEP).file("text").read_text() == "text"


def shared(folder: Path) -> None:
    """Read a manifest in object storage: it names no file outside of its folder, and a broken artifact is made again."""
    storage = ObjectStorage((folder / "s3").as_uri())
    (folder / "s3" / "manifests" / STEP.name).mkdir(parents=True)
    digest = hashlib.sha256(b"text").hexdigest()
    (folder / "s3" / "blobs" / digest[:2]).mkdir(parents=True)
    (folder / "s3" / "blobs" / digest[:2] / digest).write_bytes(b"text")
    (folder / GIVEN).rename(folder / "s3" / "manifests" / STEP.name / f"{STEP.key}.json")
    store = Store(folder / "store", storage).open()
    assert store.run(STEP).file("text").read_text() == "text"
    assert not list(store.root.glob("work/*")), "an unfinished folder is left"
    storage.damage()
    storage.collect(dry=True)
    assert {path.name for path in folder.iterdir()} <= {"s3", "store"}, "a file was written outside of the store"


def lease_of_other_node(folder: Path) -> None:
    """Read the lease of a run on another node."""
    (folder / "s3" / "leases").mkdir(parents=True)
    (folder / GIVEN).rename(folder / "s3" / "leases" / "given.json")
    ObjectStorage((folder / "s3").as_uri()).leased_keys()


def shard() -> bytes:
    import tempfile

    rows = {"id": [1, 2], "source": [["a", "b"], []], "score": [0.5, 1.0], "text": ["x", "é"]}
    with tempfile.TemporaryDirectory() as folder:
        write_shard(Path(folder, "s"), pa.table(rows))
        return Path(folder, "s").read_bytes()


def recorded(folder: Path) -> None:
    """Read the record of a run."""
    store = Store(folder / "store").open()
    (folder / "store" / "runs").mkdir()
    (folder / GIVEN).rename(folder / "store" / "runs" / "given.json")
    records(store)


def lease_of_this_node(folder: Path) -> None:
    """Read the lease of a run under way."""
    store = Store(folder / "store").open()
    with lease(store, [], "given"):
        (folder / GIVEN).rename(folder / "store" / "leases" / "given.json")
        leased_keys(store)


def vectors(folder: Path) -> None:
    """A file of word vectors."""
    dict(VectorFile(GIVEN, 2).read({"the", "a"}, [folder]))


TRANSLATOR = "000/table1/sample/transformer"
CARD_OF_EXPORT = b'{"corpus": "sample"}'
WORDS = [*SPECIAL, "the", "red", "house", "sleeps", "."]


@cache
def small() -> tuple[Any, bytes]:
    """The configuration of a small translator, and its weights."""
    known: Any = experiment(TRANSLATOR).model
    encoder = replace(known.encoder, d=8, d_ff=16, layers=1)
    config = replace(known, encoder=encoder, decoder_layers=1, decoder_d_ff=16)
    torch.manual_seed(0)
    model = replace(config, source_vocabulary=len(WORDS), target_vocabulary=len(WORDS)).build()
    return config, safetensors.torch.save(copied(model))


def manifest_of(files: Mapping[str, bytes]) -> dict[str, Any]:
    described = {n: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in files.items()}
    made = json.loads(manifest()) | {"label": f"train {TRANSLATOR} seed 0", "files": described}
    made["about"] = {"experiment": TRANSLATOR, "seed": 0}
    return {name: value for name, value in made.items() if name != "digest"}  # so that changes reach what reads it


@cache
def trained() -> bytes:
    """The manifest of a model that was exported."""
    config, weights = small()
    made = manifest_of({"model.safetensors": weights})
    made["meta"] |= {"parameters": 1, "dev_loss": 0.5, "steps": 1, "train_seconds": 1.0}
    return json.dumps(made | {"parts": made["parts"] | {"settings": {"model": to_json(config)}}}).encode()


@cache
def vocabulary() -> bytes:
    """The manifest of the vocabulary of a model that was exported."""
    made = manifest_of(dict.fromkeys(("source.txt", "target.txt"), words_of_export()))
    made["meta"] |= {"source": len(WORDS), "target": len(WORDS)}
    return json.dumps(made).encode()


def words_of_export() -> bytes:
    return "".join(f"{word}\n" for word in WORDS).encode()


def library() -> bytes:
    """The whole configuration of a model that was exported."""
    config = replace(small()[0], source_vocabulary=len(WORDS), target_vocabulary=len(WORDS))
    return json.dumps(describe_model(config, {})).encode()


def answer(folder: Path) -> list[str]:
    """Ask an exported model with the pipeline."""
    return load(folder).predict(["the red house"])


def score(folder: Path) -> list[Any]:
    """Ask an exported model with torch alone."""
    model = phrasemodels.load(folder)
    ids = torch.tensor([model.ids(["the", "red", "house"])])
    scores: list[Any] = model.module(ids, torch.tensor([3]), torch.full((1, 1, 2), -1), ids).tolist()
    return scores


def how() -> bytes:
    """How an exported model answers."""
    return json.dumps(Translation("spaces", search={"beam": 2, "growth": 0.0, "extra": 3}).described()).encode()


def predicted(folder: Path) -> list[str]:
    """Ask an exported model that answers as the given file says, with torch alone."""
    exporting("answers", lambda folder: None)(folder)
    loaded = phrasemodels.load(folder)
    try:
        return loaded.predict(["the red house"])
    except ValueError as error:  # of an input, beside which there is no folder
        raise ValueError(f"{folder}: {error}") from error


def sealed(manifest: bytes) -> bytes:
    """Return a manifest with the digest of itself, so that changes reach what reads it."""
    try:
        known = json.loads(manifest)
    except (ValueError, RecursionError):
        return manifest
    return json.dumps(with_digest(known)).encode() if isinstance(known, dict) else manifest


def exporting(part: str, use: Read = answer) -> Read:
    """Return the loading of an exported model, in which this part is the given one, and its use.

    The digests in the manifests are right, so the content is read.
    """

    def read(folder: Path) -> Any:
        given = (folder / GIVEN).read_bytes()
        parts = {"model": trained(), "vocabulary": vocabulary(), "card": CARD_OF_EXPORT, "words": words_of_export()}
        parts |= {"weights": small()[1], "library": library()} | {part: given}
        if part == "answers":
            parts["library"] = parts["library"][:-1] + b', "predictor": ' + given + b"}"
        for name, files in (("model", {"model.safetensors": parts["weights"]}),
                            ("vocabulary", dict.fromkeys(("source.txt", "target.txt"), parts["words"]))):  # fmt: skip
            (folder / name).mkdir()
            for file, content in files.items():
                (folder / name / file).write_bytes(content)
            known = parts[name]
            if part in ("weights", "words"):
                known = json.dumps(json.loads(known) | {"files": manifest_of(files)["files"]}).encode()
            (folder / name / MANIFEST).write_bytes(sealed(known))
        (folder / CARD).write_bytes(parts["card"])
        (folder / LIBRARY).write_bytes(parts["library"])
        return use(folder)

    return read


def network() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    return model, optimiser


def checkpoint(name: str) -> bytes:
    import tempfile

    model, optimiser = network()
    with tempfile.TemporaryDirectory() as folder:
        weights = {key: value.detach() for key, value in model.named_parameters()}
        return (save(Path(folder), model, weights, optimiser, Progress(1), "k") / name).read_bytes()


def resumed(name: str, signed: bool) -> Read:
    """Return the reading of a checkpoint with this file replaced; signed: with the right digest, so the content is read."""

    def read(folder: Path) -> None:
        model, optimiser = network()
        weights = {key: value.detach() for key, value in model.named_parameters()}
        path = save(folder / "checkpoints", model, weights, optimiser, Progress(1), "k")
        (folder / GIVEN).rename(path / name)
        if signed:
            state = json.loads((path / "state.json").read_text())
            del state["digest"]
            state["files"][name] = describe(path / name)
            (path / "state.json").write_text(json.dumps(state | {"digest": digest_of(state)}))
        resume(folder / "checkpoints", model, optimiser, "k")

    return read


PRINTED = b"paper,table,row,dataset,metric,value,n,arithmetic\np,1,a,d,m,87.1%,500,\np,1,b,d,m,0.5,,mean of a\n"
SAMPLE = b'{"doc_id": 3, "filter": "strict", "metrics": ["acc"], "acc": 1.0, "f1": [1, 0]}\n'
INSPECT = b"""{"eval": {"model": "m", "task": "t"}, "status": "success", "samples": [
{"id": 1, "epoch": 1, "scores": {"match": {"value": "C"}, "rubric": {"value": {"a": 0.5, "b": true}}}}]}"""


def foreign(name: str) -> Read:
    """Return the reading of scores from a file of this name."""

    def read(folder: Path) -> None:
        (folder / GIVEN).rename(folder / name)
        read_scores([str(folder / name)])

    return read


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"seed": [0, 1], "item": ["a", "a"], "score": [1.0, 0.5]}), out)
    return out.getvalue()


def packed(folder: Path) -> Mapping[str, Sequence[str]]:
    """Load a packed parser, whose description is given: refused in one line of its folder."""
    (folder / GIVEN).rename(folder / ABOUT)
    shutil.copyfile(ENGLISH / WEIGHTS, folder / WEIGHTS)
    if (ENGLISH / SPLITTER).exists():
        shutil.copyfile(ENGLISH / SPLITTER, folder / SPLITTER)
    return load_parser(folder).entries


def project_file(folder: Path) -> dict[str, dict[str, str]]:
    """Read the file of a project folder; none of its parts is imported."""
    (folder / GIVEN).rename(folder / project.FILE)
    with mock.patch.object(project, "folder", return_value=folder):
        return project._own_parts.__wrapped__()


@cache
def runs_of_mlflow() -> bytes:
    """A database with the tables of MLflow that are read without it, and a run."""
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder, "db"))) as made:
        made.executescript(
            "create table experiments (experiment_id integer, lifecycle_stage text);"
            "create table runs (run_uuid text, experiment_id integer, lifecycle_stage text, start_time integer);"
            "create table tags (key text, value text, run_uuid text);"
            "insert into experiments values (1, 'active'); insert into runs values ('r', 1, 'active', 5);"
            f"insert into tags values ('{KEY}', 'k', 'r');"
        )
        made.commit()
        return Path(folder, "db").read_bytes()


def keys_of_mlflow(folder: Path) -> dict[str, str]:
    """Return the runs in a database of MLflow by key; of a damaged one none, which is said."""
    return Tracker(f"sqlite:///{folder / GIVEN}").keys()


def merges(folder: Path) -> list[str]:
    """Divide words by the merges of an exported model."""
    return Pieces(folder / GIVEN)(["the", "x"])


def kept_result() -> bytes:
    """A kept result of the project that has no other files."""
    result = json.loads((PROJECT / "results" / "001-table5-memory" / "result.json").read_text())
    return json.dumps(with_digest({**result, "files": {}}), indent=1).encode()


MERGES = json.dumps({"vocab": ["t", "h", "th", "e</w>", "the</w>"], "merges": [["t", "h"], ["th", "e</w>"]]}).encode()
PROJECT_FILE = b"""[papers]
study = "study"
[encoders]
mine = "study:Mine"
"""
RECORD = json.dumps({"id": "a", "title": "t", "started": "2026", "state": "running"}).encode()
OUTSIDE = {
    "brackets": Reader([TREE * 2, b"( (S (NP (-NONE- *)) (VP (VB go))))"], corpus("treebank", "brackets")),
    "conllu": Reader([CONLLU * 2], corpus("treebank", "conllu")),
    "arcs": Reader([b"They\tPRP\t2\nsleep\tVBP\t0\n\nGo\tVB\t0\n"], corpus("treebank", "arcs")),
    "babi": Reader([STORY], corpus("babi", "stories")),
    "bitext": Reader([b"a cat\na dog\n", "é\r\nü\r\n".encode()], corpus("bitext", "en", "de")),
    "columns": Reader([b"a cat\ta dog\tkind\n", b"x\ty\n"], corpus("columns", "pairs")),
    "labelled": Reader([b"a cat\tgood\tkind\n", b"x\ty\n"], corpus("labelled", "pairs")),
    "snli.official": Reader([json.dumps(PAIR).encode() + b"\n"], corpus("snli.official", "jsonl")),
    "snli.tokenised": Reader([b"neutral\nentailment\n"], corpus("snli.tokenised", "premise", "hypothesis", "label")),
    "trees of sentiment": Reader([b"(3 (2 a) (4 cat))\n"], corpus("senteval.sentiment", "trees", binary=True)),
    "trec": Reader([b"HUM:ind Who sat ?\nNUM:count How many ?\n"], corpus("senteval.trec", "questions")),
    "classes": Reader([b"a cat\n\na dog\n"], corpus("senteval.classes", "positive", "negative")),
    "polarity": Reader([b"a cat\t1\na dog \t0\n"], corpus("senteval.polarity", "sentences")),
    "sick": Reader([SICK], corpus("senteval.sick", "pairs")),
    "similarity": Reader([b"3.2\ta cat\ta dog\n"], corpus("senteval.similarity", "news")),
    "paraphrases": Reader([MRPC], corpus("senteval.paraphrases", "train")),
    "mspars": Reader([BLOCK * 2], corpus("mspars", "blocks")),
    "aspec": Reader(["0.9 ||| A-1 ||| 1 ||| ねこ ||| a cat\n".encode()], corpus("aspec", "train", characters=2)),
    "zip": Reader([zipped()], unpacked),
    "tar": Reader(
        [tarred("w"), tarred("w:gz"), tarred("w:bz2"), tarred("w:xz"), tarred("w", tarfile.GNU_FORMAT)], unpacked
    ),
    "gz": Reader([gzip.compress(b"text\n" * 9)], downloaded(".gz")),
    "xz": Reader([lzma.compress(b"text\n" * 9)], downloaded(".xz")),
    "manifest of a corpus": Reader([CORPUS], lambda folder: read_manifest(folder / GIVEN)),
    "manifest of a parser": Reader([PARSER], lambda folder: read_parser(folder / GIVEN)),
    "word vectors": Reader([b"the 1 -2.5\na 3 4e-1\n"], vectors),
    "exported model": Reader([trained()], exporting("model")),
    "vocabulary of an exported model": Reader([vocabulary()], exporting("vocabulary")),
    "words of an exported model": Reader([words_of_export()], exporting("words")),
    "card of an exported model": Reader([CARD_OF_EXPORT], exporting("card")),
    "configuration of an exported model": Reader([library()], exporting("library", score)),
    "answers of an exported model": Reader([how()], predicted),
    "weights of an exported model": Reader([small()[1]], exporting("weights")),
    "manifest in the store": Reader([manifest()], stored),
    "manifest in object storage": Reader([manifest()], shared),
    "shard": Reader([shard()], lambda folder: read_shard(folder / GIVEN).to_pylist()),
    "record of a run": Reader([RECORD], recorded),
    "printed numbers": Reader([PRINTED], lambda folder: read_printed(folder / GIVEN)),
    "scores": Reader([b"seed,item,score,total\n0,a,1,2\n1,a,0,\n"], foreign("scores.csv")),
    "samples of lm-evaluation-harness": Reader([SAMPLE], foreign("samples_x_2026-11-23T02-33-21.5.jsonl")),
    "log of inspect_ai": Reader([INSPECT], foreign("x.json")),
    "Parquet of scores": Reader([parquet()], foreign("x.parquet")),
    "lease": Reader([b'["a", "b"]'], lease_of_this_node),
    "lease in object storage": Reader([b'{"keys": ["a", "b"], "until": 9999999999.5}'], lease_of_other_node),
    "packed parser": Reader([(ENGLISH / ABOUT).read_bytes()], packed),
    "text": Reader([b"It rains.\n\nGo.\r\n"], lambda folder: list(lines_with_replacements(folder / GIVEN, print))),
    "file of a project": Reader([PROJECT_FILE], project_file),
    "database of MLflow": Reader([runs_of_mlflow()], keys_of_mlflow),
    "merges of an exported model": Reader([MERGES], merges),
    "kept result": Reader([kept_result()], lambda folder: read_kept(folder / GIVEN)),
    "state of a checkpoint": Reader([checkpoint("state.json")], resumed("state.json", False)),
    "weights": Reader([checkpoint("model.safetensors")], resumed("model.safetensors", True)),
    "optimiser": Reader([checkpoint("optimiser.safetensors")], resumed("optimiser.safetensors", True)),
}


def attempt(name: str, content: bytes, folder: Path) -> None:
    """Call a reader on these bytes in a new folder; raise its error unless the reader refuses the bytes properly."""
    folder.mkdir()
    (folder / GIVEN).write_bytes(content)
    try:
        OUTSIDE[name].read(folder)
    except (ValueError, OSError) as error:
        message, proper = str(error), type(error) is ValueError or isinstance(error, OSError)
        if not proper or "\n" in message or str(folder) not in message:
            raise


INTERESTING = [b"", b"\0", b"\n", b"\r", b"\t", b" ", b"\xff", b"\xef\xbb\xbf", "\u2028".encode(), b"-1", b"1e999", b"NaN",
               b"99999999999999999999", b"null", b"[]", b"{}", b"../", b"/", b'"', b"\\", b"(", b")", b"[", b"{", b"#"]  # fmt: skip


def broken(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Return the content with one to six random changes; sometimes a part is repeated many times."""
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        start = chance.randrange(len(content) + 1)
        stop = min(len(content), start + chance.choice((1, 1, 2, 4, 16, 64)))
        words = re.findall(rb"\w+|\W", chance.choice(others)) or [b""]
        content = chance.choice(
            (
                lambda c, i, j: c[:i] + bytes([chance.randrange(256)]) + c[i + 1 :],
                lambda c, i, j: c[:i] + c[j:],
                lambda c, i, j: c[:i],
                lambda c, i, j: c[:j] + c[i:],
                lambda c, i, j: c[:i] + chance.choice(INTERESTING) + c[j:],
                lambda c, i, j: c[:i] + chance.choice(INTERESTING) + c[i:],
                lambda c, i, j: c[:i] + chance.choice(words) + c[j:],  # noqa: B023
                lambda c, i, j: c[:i] + chance.choice(others)[i:],
                lambda c, i, j: c[:i] + c[i:j] * chance.choice((2, 3, 100, 20_000)) + c[j:],
            )
        )(content, start, stop)
    return content[: 1 << 18]
