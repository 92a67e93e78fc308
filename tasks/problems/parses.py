"""Parses: finding them with a trained parser, and scoring them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import load_file

from data.hpsg import restore
from data.shards import read_shard, write_shard
from data.store import Artifact, Job, write_durably
from data.trees import Span, Tree, brackets, parse
from phrasemodels.models.parser import ParserConfig, Parses
from tasks import tree_scores
from tasks.batches import in_order
from tasks.checkpoints import load_tensors
from tasks.joint_trees import read_side
from tasks.metrics import Score
from tasks.problems.parsing import Parsing
from tasks.stages import shards, stage_table
from tasks.tree_scores import Arcs, Breakdown

PARSES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.string()), nullable=False),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
        pa.field("tree", pa.string(), nullable=False),
        pa.field("heads", pa.list_(pa.int32()), nullable=False),
        pa.field("relations", pa.list_(pa.string()), nullable=False),
    ]
)


@dataclass(frozen=True)
class Parse:
    """A sentence as it is written out; what was not asked for is empty."""

    tokens: list[str]
    tags: list[str]
    tree: Tree | None
    heads: list[int]
    relations: list[str]


@dataclass(frozen=True)
class Names:
    """What ids of a parser stand for."""

    labels: Sequence[str]
    relations: Sequence[str]
    tags: Sequence[str]

    @classmethod
    def read(cls, vocabulary: Artifact) -> "Names":
        return cls(*(read_side(vocabulary, side) for side in ("labels", "relations", "tags")))

    def parse(self, tokens: list[str], row: int, found: Parses) -> Parse:
        """One row of what a parser found."""
        n = len(tokens)
        tags = [self.tags[tag] for tag in found.tags[row, 1 : n + 1].tolist()]
        spans = [Span(self.labels[k], i, j + 1) for i, j, k in found.cells[row].tolist() if k > 0]
        heads, relations = (x[row, 1 : n + 1].tolist() for x in (found.heads, found.relations))
        tree = restore(tokens, tags, spans) if int(found.cells[row, 0, 0]) >= 0 else None
        if heads[0] < 0:
            return Parse(tokens, tags, tree, [], [])
        return Parse(tokens, tags, tree, heads, [self.relations[k] for k in relations])


@dataclass(frozen=True)
class ParseSettings:
    """A model's configuration; batch_tokens bounds memory and does not change the result."""

    problem: Parsing
    model: ParserConfig
    batch_tokens: int = 2000


def parse_sentences(job: Job, settings: ParseSettings) -> dict[str, Any]:
    """predictions.arrow: the parse of every row of job.inputs["numbers"], beside the tokens of ["rows"]."""
    model = settings.problem.configure(settings.model, job.inputs["vocabulary"]).build()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.eval().to(device)
    table, names = stage_table(job.inputs["rows"]), Names.read(job.inputs["vocabulary"])
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["numbers"])])
    tokens = table["tokens"].to_pylist()
    found: dict[int, Parse] = {}
    for rows in in_order(data, settings.batch_tokens):
        parses = model.parse(data.batch(rows).to(device).sentences, settings.problem.decode)
        for place, row in enumerate(rows.tolist()):
            found[row] = names.parse(tokens[row], place, parses)
    return {"predictions": write_shard(job.out / "predictions.arrow", _predictions(table, found))}


def _predictions(table: pa.Table, found: dict[int, Parse]) -> pa.Table:
    parses = [found[row] for row in range(table.num_rows)]
    columns = {
        "id": table["id"],
        "group": table["group"],
        "tokens": table["tokens"],
        "tags": [parse.tags for parse in parses],
        "tree": [brackets(parse.tree) if parse.tree else "" for parse in parses],
        "heads": [parse.heads for parse in parses],
        "relations": [parse.relations for parse in parses],
    }
    return pa.table(columns, schema=PARSES)


@dataclass(frozen=True)
class ParseScoring:
    """Which words UAS and LAS leave out."""

    punctuation: tree_scores.Punctuation = tree_scores.penn


def score_parses(job: Job, settings: ParseScoring) -> dict[str, Any]:
    """scores.json, breakdown.json and sentences.arrow of job.inputs["predictions"] against TREES of ["rows"].

    EVALB leaves words out by their tags, so both trees get the gold ones; tags are scored by themselves.
    """
    gold = stage_table(job.inputs["rows"]).to_pylist()
    found = read_shard(job.inputs["predictions"].file("predictions.arrow")).to_pylist()
    breakdown, counts = Breakdown(), []
    for own, guess in zip(gold, found, strict=True):
        counts.append(_sentence(own, guess, settings.punctuation, breakdown))
    names = ("brackets", "exact", "heads", "arcs", "heads_unicode", "arcs_unicode", "tags")
    columns = {name: [row[place] for row in counts] for place, name in enumerate(names)}
    ids = {name: [row[name] for row in gold] for name in ("id", "group")}
    write_shard(job.out / "sentences.arrow", pa.table(ids | columns))
    scores = {name: asdict(score) for name, score in _scores(columns, settings).items()}
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    write_durably(job.out / "breakdown.json", json.dumps(breakdown.rates(), indent=1))
    return {"scores": scores, "test_set": job.inputs["rows"].meta["shards"]}


def _sentence(
    own: dict[str, Any], guess: dict[str, Any], rule: tree_scores.Punctuation, breakdown: Breakdown
) -> tuple[list[int], ...]:
    """What adds up over sentences: (matched, found, gold) brackets, and (right, all) of the rest."""
    words = list(zip(own["tokens"], own["tags"], strict=True))
    skipped = [rule(*word) for word in words]
    arcs, guessed = Arcs(own["heads"], own["relations"]), Arcs(guess["heads"], guess["relations"])
    phrases, exact, attached = [0, 0, 0], [0, 0], [[0, 0]] * 4
    if own["tree"] and guess["tree"]:
        trees = [parse(tree)._replace(tags=tuple(own["tags"])) for tree in (own["tree"], guess["tree"])]
        result = tree_scores.compare(*trees)
        assert result.status != tree_scores.WRONG_WORDS, f"row {own['id']}: the parse has other words"
        phrases, exact = [result.matched, result.found, result.gold], [int(result.exact), 1]
        breakdown.add_tree(*trees)
    if arcs.heads and guessed.heads:
        attached = []
        for skip in (skipped, [tree_scores.unicode(*word) for word in words]):
            total, heads, labelled = tree_scores.attachments(arcs, guessed, skip)
            attached += [[heads, total], [labelled, total]]
        breakdown.add_arcs(arcs, guessed, skipped)
    right = sum(tag == other for tag, other in zip(own["tags"], guess["tags"], strict=True))
    return phrases, exact, *attached, [right, len(words)]


def _scores(columns: dict[str, list[list[int]]], settings: ParseScoring) -> dict[str, Score]:
    sums = {name: tree_scores.total(map(tuple, rows)) for name, rows in columns.items()}
    matched, guessed, gold = sums["brackets"]
    sentences = sums["exact"][1]
    rates = tree_scores.rates(matched, gold, guessed)
    evalb = "EVALB COLLINS+S1?!, gold tags"
    found = {name: Score(value, evalb, sentences) for name, value in rates._asdict().items()}
    rule = getattr(settings.punctuation, "__name__", "")
    shares = {
        "exact": ("exact", evalb),
        "uas": ("heads", f"without punctuation: {rule}"),
        "las": ("arcs", f"without punctuation: {rule}"),
        "uas_unicode": ("heads_unicode", "without punctuation: unicode"),
        "las_unicode": ("arcs_unicode", "without punctuation: unicode"),
        "tags": ("tags", "all words"),
    }
    for name, (column, signature) in shares.items():
        right, total = sums[column]
        found[name] = Score(100 * right / total if total else 0.0, signature, len(columns["tags"]))
    return found
