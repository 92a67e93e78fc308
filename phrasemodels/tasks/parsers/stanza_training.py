"""Training of small Stanza models on a treebank, by Stanza's own programs, for machines that cannot download its models.

Stanza's programs have no time limit: each is stopped after some minutes of processor time, and the best model so far is
taken. No pretrained language model is used, and words are their own lemmas. The sizes suit ten minutes of one core a model;
the constituency parser, which learns transition by transition, gets two and a half times as long.
"""

import ctypes
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from phrasemodels.config import at_least, positive
from phrasemodels.data.formats.trees import brackets, parse
from phrasemodels.data.samples.records import Treebank
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.store import Job, Step
from phrasemodels.tasks.metrics.parseval import treebank_scores
from phrasemodels.tasks.parsers.stanza import Stanza, bracketed, conllu, running_text, write_vectors
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards

LANGUAGE, PACKAGE, VECTORS = "en", "own", "own"
DEPENDS = {"dependencies": [{"model": "pretrain", "package": VECTORS}]}
COMMON = ("--lang", LANGUAGE, "--shorthand", f"{LANGUAGE}_{PACKAGE}", "--cpu")
LIMITED = 'ulimit -c 0 && ulimit -S -t "$0" && exec "$@"'  # $0: seconds of processor time
# On Linux the program is killed with its parent: otherwise it would write the same files as its successor.
ENDS_WITH_US = partial(ctypes.CDLL(None).prctl, 1, signal.SIGKILL) if sys.platform == "linux" else None
DROPOUT = (
    "--dropout",
    "0.25",
    "--word_dropout",
    "0.15",
)  # less than Stanza's defaults, which are for many epochs; these are two or three
Arguments = Callable[[Path, str, int], list[str]]  # (folder of files, word vectors, updates between scores) -> options


@dataclass(frozen=True)
class TrainParser:
    """minutes: of processor time a model at most. every: updates between scores on dev. scored: sentences of dev that are
    scored; the model with the best score is kept."""

    minutes: float = 10.0
    every: int = 50
    scored: int = 500

    def __post_init__(self) -> None:
        positive(self, "minutes")
        at_least(self, 1, "every", "scored")


def train_parser(job: Job, settings: TrainParser) -> dict[str, Any]:
    """Write a folder of Stanza models trained on TREES job.inputs["train"] and ["dev"]; report their scores on ["test"].

    Dependency and constituency parsers are trained on tags by the new tagger, because they will see no other tags. Finished
    models are kept in job.checkpoints.
    """
    files = job.checkpoints
    files.mkdir(parents=True, exist_ok=True)
    train, dev, test = (read_shards(job.inputs[name]) for name in ("train", "dev", "test"))
    tables = {"train": train, "dev": dev.take(list(range(0, dev.num_rows, -(-dev.num_rows // settings.scored))))}
    vectors = job.out / LANGUAGE / "pretrain" / f"{VECTORS}.pt"
    vectors.parent.mkdir(parents=True)
    write_vectors(train, files / "vectors.txt")
    _program("stanza.models.common.convert_pretrain", [str(vectors), str(files / "vectors.txt"), "-1"], 600, files)
    for name, table in tables.items():
        write_files(table, files / name)
    for processor, program in PROGRAMS.items():
        if processor == AFTER_TAGS:
            for name, table in tables.items():
                write_files(tagged_by(table, job.out), files / name)
        folder = job.out / LANGUAGE / processor
        folder.mkdir()
        shutil.copyfile(_model(processor, program, str(vectors), settings, files), folder / f"{PACKAGE}.pt")
        write_durably(job.out / "resources.json", json.dumps(resources(job.out), indent=1))
    scores = treebank_scores(test, Stanza().analyse(test, "tokens", {"models": job.out}))
    return {"agreement": {name: round(value, 2) for name, value in scores.items()}, "stand_in": True}


def _model(processor: str, program: "Program", vectors: str, settings: TrainParser, files: Path) -> Path:
    """Train the model of a processor, unless it is done; return its file. ValueError: no model was kept in time."""
    folder = files / processor
    model, done = folder / f"{PACKAGE}.pt", folder / "done"
    if not done.exists():
        folder.mkdir(exist_ok=True)
        place = ["--save_dir", str(folder), "--save_name", model.name]
        options = program.options(files, vectors, settings.every)
        _program(program.module, [*options, *place], 60 * settings.minutes * program.share, files, whole=False)
        if not _is_whole(model):  # none, or it was being written when the time was up
            raise ValueError(
                f"no {processor} model was kept in {settings.minutes} minutes: give it more (messages: {files})"
            )
        if processor == "constituency":
            _expect_own_tags(model)
        done.touch()
    return model


def _is_whole(model: Path) -> bool:
    import torch

    try:
        torch.load(model, map_location="cpu", weights_only=True)
    except Exception:  # what torch raises depends on where the file ends
        return False
    return True


def tagged_by(table: pa.Table, models: Path) -> pa.Table:
    """Return TREES with the tags of a trained tagger."""
    found = Stanza(processors=("pos",)).analyse(table, "tokens", {"models": models})
    trees = [  # a sentence that is too long for the tagger keeps its tags
        brackets(parse(tree)._replace(tags=tuple(tags))) if tree and tags else tree
        for tree, tags in zip(table["tree"].to_pylist(), found["tags"].to_pylist(), strict=True)
    ]
    for name, column in (("tree", pa.array(trees)), ("tags", found["tags"]), ("universal", found["universal"])):
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def trained(treebank: str, settings: TrainParser) -> Step:
    """Return the step that trains models on a treebank by name; `sample` is the generated one. Its label is `train parser`
    with the treebank, and after @ the minutes if they are not the usual ones."""
    corpus = SampleCorpus(records=Treebank()) if treebank == "sample" else Corpus(treebank)
    splits = {split: corpus.split(split) for split in ("train", "dev", "test")}
    minutes = "" if settings.minutes == TrainParser().minutes else f"@{settings.minutes:g}"
    return Step(train_parser, f"train parser {treebank}{minutes}", settings, splits)


def write_files(table: pa.Table, path: Path) -> None:
    """Write PATH.conllu, PATH.ptb, PATH.txt, and the tokeniser's PATH.labels and PATH.mwt."""
    for suffix, text in ((".conllu", conllu(table)), (".ptb", bracketed(table)), (".txt", running_text(table))):
        path.with_suffix(suffix).write_text(text, encoding="utf-8")
    wanted = [str(path.with_suffix(suffix)) for suffix in (".txt", ".conllu")]
    made = ["-o", str(path.with_suffix(".labels")), "-m", str(path.with_suffix(".mwt"))]
    _program("stanza.utils.datasets.prepare_tokenizer_data", [*wanted, *made], 600, path.parent)


def _tokeniser(files: Path, vectors: str, every: int) -> list[str]:
    given = {"--txt_file": "train.txt", "--label_file": "train.labels", "--mwt_json_file": "train.mwt"}
    given |= {"--dev_txt_file": "dev.txt", "--dev_label_file": "dev.labels", "--dev_conll_gold": "dev.conllu"}
    sizes = ["--max_seqlen", "300", "--steps", "50000", "--eval_steps", str(4 * every), "--no_use_mwt"]
    paths = [part for option, name in given.items() for part in (option, str(files / name))]
    return [*COMMON, *paths, "--conll_file", str(files / "answer.conllu"), *sizes]


def _trained_on(files: Path, suffix: str, vectors: str) -> list[str]:
    train, dev = (str(files / f"{name}.{suffix}") for name in ("train", "dev"))
    return [*COMMON, "--train_file", train, "--eval_file", dev, "--wordvec_pretrain_file", vectors, "--no_bert_model"]


def _tagger(files: Path, vectors: str, every: int) -> list[str]:
    sizes = f"--batch_size 32 --eval_interval {every} --fix_eval_interval --hidden_dim 200 --deep_biaff_hidden_dim 200"
    more = "--composite_deep_biaff_hidden_dim 100 --char_hidden_dim 200 --max_steps 50000"
    return [*_trained_on(files, "conllu", vectors), "--charlm_shorthand", "", *DROPOUT, *sizes.split(), *more.split()]


def _dependencies(files: Path, vectors: str, every: int) -> list[str]:
    sizes = f"--batch_size 1500 --eval_interval {every} --hidden_dim 200 --deep_biaff_hidden_dim 200 --num_layers 2"
    more = "--deep_biaff_output_dim 100 --char_hidden_dim 100 --no_checkpoint --max_steps 50000"
    return [*_trained_on(files, "conllu", vectors), "--charlm_shorthand", "", *DROPOUT, *sizes.split(), *more.split()]


def _constituency(files: Path, vectors: str, every: int) -> list[str]:
    sizes = (
        f"--train_batch_size 12 --epoch_size {12 * every} --epochs 400 --hidden_size 128 --transition_hidden_size 20"
    )
    # In five minutes of CRAFT: F1 of 55 on dev, against 38 to 41 with Stanza's own stages, rate and batches of 30.
    optimiser = "--no_multistage --optim AdamW --learning_rate 0.002"
    more = "--no_use_lattn --pattn_num_layers 0 --lattn_d_proj 0 --reduce_position 0 --no_checkpoint"
    none = ["--charlm_forward_file", "", "--charlm_backward_file", "", "--no_retag", "--retag_method", "xpos"]
    return [*_trained_on(files, "ptb", vectors), *none, *sizes.split(), *optimiser.split(), *more.split()]


class Program(NamedTuple):
    """A training program of Stanza, its options, and its share of the minutes of a model."""

    module: str
    options: Arguments
    share: float = 1.0


AFTER_TAGS = "depparse"
PROGRAMS: Mapping[str, Program] = {
    "tokenize": Program("stanza.models.tokenizer", _tokeniser, 0.4),
    "pos": Program("stanza.models.tagger", _tagger),
    "depparse": Program("stanza.models.parser", _dependencies),
    "constituency": Program("phrasemodels.tasks.parsers.stanza_constituency", _constituency, 2.5),
}


def _program(module: str, arguments: Sequence[str], seconds: float, files: Path, whole: bool = True) -> None:
    """Run a program until it ends, or for some seconds of processor time (not of the clock, so a busy machine does not
    shorten it). whole: what it has made by then is of no use. ValueError: it failed; the end of its messages is quoted."""
    log = files / f"{module}.log"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["sh", "-c", LIMITED, str(math.ceil(seconds)), sys.executable, "-m", module, *arguments]
    with log.open("wb") as messages:
        process = subprocess.Popen(
            command, stdout=messages, stderr=messages, env=environment, cwd=files, preexec_fn=ENDS_WITH_US
        )
        try:
            code = process.wait()
        finally:
            process.kill()
            process.wait()
    if code and (whole or code != -signal.SIGXCPU):
        raise ValueError(f"{module} failed ({code}): ...{log.read_text(errors='replace').strip()[-600:]}")


def _expect_own_tags(path: Path) -> None:
    """Make Stanza give a constituency model the tags of our tagger; by default it would give universal tags."""
    import torch

    model = torch.load(path, map_location="cpu", weights_only=True)
    model["params"]["config"]["retag_package"] = PACKAGE
    torch.save(model, path)


def resources(folder: Path) -> dict[str, Any]:
    """Return resources.json of a folder of models, which Stanza's pipeline reads."""
    digests = {path: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in folder.rglob("*.pt")}
    found: dict[str, Any] = {"lang_name": "English", "packages": {"default": {"lemma": "identity"}}}
    for path, digest in sorted(digests.items()):
        kind = path.parent.name
        needs = DEPENDS if kind not in ("tokenize", "pretrain") else {}
        found[kind] = {path.stem: {"md5": digest, **needs}}
        if kind != "pretrain":
            found["packages"]["default"][kind] = path.stem
    return {LANGUAGE: found}
