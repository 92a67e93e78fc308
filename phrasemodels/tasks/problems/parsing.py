"""Constituency and dependency parsing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import pyarrow as pa
import torch

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job, Step
from phrasemodels.inference.inputs import Tokeniser, penn_treebank
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import DECODERS, OWN, Parsing
from phrasemodels.models.parser import Jointly, ParserConfig
from phrasemodels.parsing.ids import Divide, no_pieces
from phrasemodels.parsing.parser import Limits, Names, Parse, Parser, bounded
from phrasemodels.parsing.saved import SIDES
from phrasemodels.parsing.words import Sentences, sentences
from phrasemodels.tasks.metrics.parseval import (
    WRONG_WORDS,
    Arcs,
    Punctuation,
    attachments,
    match_brackets,
    penn,
    rates,
    unicode,
)
from phrasemodels.tasks.metrics.scores import Score, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards, required, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.parse_data import (
    Heads,
    Keep,
    ParsingObjective,
    TreebankVocabulary,
    TreeNumbers,
    annotated_heads,
    complete,
    every_row,
    tree_numbers,
    treebank_vocabulary,
    with_either,
)
from phrasemodels.tasks.problems.recipe import Recipe, Stage, text_name, training_stage
from phrasemodels.tasks.problems.sentence_data import attention_row
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained
from phrasemodels.tasks.train.config import TrainConfig

_WORDS = pa.list_(pa.string())
PARSES = required(
    id=pa.int64(), group=pa.string(), tokens=_WORDS, tags=_WORDS, tree=pa.string(), heads=pa.list_(pa.int32()),
    relations=_WORDS,
)  # fmt: skip


def trained_parser(
    objective: ParsingObjective,
    model: ParserConfig,
    artifacts: Mapping[str, Artifact],
    divide: Divide,
    split: Sentences = sentences,
) -> Parser:
    """Return a trained parser. artifacts: its training (`model`) and its `vocabulary`.

    It knows no recipe, so that the trees of a parser are not made anew for a change of reports.
    """
    module, vocabulary = load_trained(objective, model, artifacts, best_device()), artifacts["vocabulary"]
    entries = {side: read_words(vocabulary, side) for side in SIDES}
    config = objective.configure(model, vocabulary)
    return Parser(module, entries, objective.decode, divide, split=split, config=config)


def parse_sentences(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Parse the numbered sentences job.inputs["numbers"] with the tokens ["rows"].

    It also reads ["model"] and ["vocabulary"]. It writes predictions.arrow. batch_tokens bounds memory and does not
    change the result.
    """
    device, limits = best_device(), Limits(max_batch_words=settings.batch_tokens)
    model = load_trained(settings.objective, settings.model, job.inputs, device)
    names = Names(*(read_words(job.inputs["vocabulary"], side) for side in ("labels", "relations", "tags")))
    table = read_shards(job.inputs["rows"])
    tokens = table["tokens"].to_pylist()
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["numbers"])])
    found: dict[int, Parse] = {}
    for rows in in_order(data, settings.batch_tokens) if len(data) else []:
        batch = data.batch(rows).to(device).sentences
        trees = model.parse(batch, bounded(settings.objective.decode, int(batch.lengths.max()), limits)).cpu()
        found |= {row: names.parse(tokens[row], place, trees) for place, row in enumerate(rows.tolist())}
    parses = [found[row] for row in range(len(tokens))]
    columns = {
        "id": table["id"],
        "group": table["group"],
        "tokens": table["tokens"],
        "tags": [parse.tags for parse in parses],
        "tree": [parse.brackets for parse in parses],
        "heads": [parse.heads for parse in parses],
        "relations": [parse.relations for parse in parses],
    }
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=PARSES))}


COUNTS = ("brackets", "failed", "exact", "heads", "arcs", "heads_unicode", "arcs_unicode", "tags")


@dataclass(frozen=True)
class ParseScoring:
    """Scoring of parses.

    Args:
        punctuation: The rule for punctuation. UAS and LAS leave it out.
    """

    punctuation: Punctuation = penn


def score_parses(job: Job, settings: ParseScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"] against the TREES ["rows"].

    EVALB leaves words out by their tags. So both trees get the gold tags. Predicted tags have a score of their own.
    """
    gold = read_shards(job.inputs["rows"]).to_pylist()
    predicted = read_shard(job.inputs["predictions"].file("predictions.arrow")).to_pylist()
    counts = [_counts(*pair, settings.punctuation) for pair in zip(gold, predicted, strict=True)]
    columns = {name: [row[place] for row in counts] for place, name in enumerate(COUNTS)}
    ids = {name: [row[name] for row in gold] for name in ("id", "group")}
    return write_scores(job, _scores(columns, settings), pa.table(ids | columns), job.inputs["rows"].meta["shards"])


def _counts(gold: dict[str, Any], predicted: dict[str, Any], punctuation: Punctuation) -> tuple[list[int], ...]:
    """Return the COUNTS of one sentence: (matched, predicted, gold) brackets; (failed, all) trees; then, for exact trees,
    heads, arcs and tags, (right, all)."""
    tags = gold["tags"] or gold["universal"] or [""] * len(gold["tokens"])
    words = list(zip(gold["tokens"], tags, strict=True))
    skipped = [punctuation(*word) for word in words]
    arcs, guessed = _arcs(gold), _arcs(predicted)
    if not gold["relations"]:  # a treebank of unlabelled arcs: LAS is UAS
        guessed = Arcs(guessed.heads, [""] * len(guessed.heads))
    phrases, exact, attached = [0, 0, 0], [0, 0], [[0, 0]] * 4
    failed = [int(not predicted["tree"]), 1] if gold["tree"] else [0, 0]
    if gold["tree"] and predicted["tree"]:
        trees = [parse(row["tree"])._replace(tags=tuple(tags)) for row in (gold, predicted)]
        result = match_brackets(*trees)
        assert result.status != WRONG_WORDS, f"row {gold['id']}: the parse has other words"
        phrases, exact = [result.matched, result.predicted, result.gold], [int(result.exact), 1]
    if arcs.heads and guessed.heads:
        attached = []
        for skip in (skipped, [unicode(*word) for word in words]):
            total, heads, labelled = attachments(arcs, guessed, skip)
            attached += [[heads, total], [labelled, total]]
    right = sum(tag == other for tag, other in zip(gold["tags"], predicted["tags"], strict=bool(gold["tags"])))
    return phrases, failed, exact, *attached, [right, len(gold["tags"])]


def _arcs(row: dict[str, Any]) -> Arcs:
    return Arcs(row["heads"], row["relations"] or [""] * len(row["heads"]))


def _scores(columns: dict[str, list[list[int]]], settings: ParseScoring) -> dict[str, Score]:
    sums = {name: [sum(column) for column in zip(*rows, strict=True)] for name, rows in columns.items()}
    matched, guessed, gold = sums["brackets"]
    sentences = sums["exact"][1]
    evalb = "EVALB COLLINS+S1?!, gold tags"
    scores = {name: Score(v, evalb, sentences) for name, v in rates(matched, guessed, gold)._asdict().items()}
    rule = getattr(settings.punctuation, "__name__", "")
    shares = {
        "failed": ("failed", "trees that were not found, which EVALB leaves out"),
        "exact": ("exact", evalb),
        "uas": ("heads", f"without punctuation: {rule}"),
        "las": ("arcs", f"without punctuation: {rule}"),
        "uas_unicode": ("heads_unicode", "without punctuation: unicode"),
        "las_unicode": ("arcs_unicode", "without punctuation: unicode"),
        "tags": ("tags", "all words"),
    }
    for name, (column, signature) in shares.items():
        right, total = sums[column]
        scores[name] = Score(100 * right / total if total else 0.0, signature, len(columns["tags"]))
    return scores


DEV: dict[Keep, Keep] = {with_either: complete}  # of a corpus that has both, weights are chosen by both


@dataclass(frozen=True)
class ParsingRecipe(Recipe):
    """A treebank with phrase structure, dependencies or both.

    Args:
        max_words: Drop longer sentences from train. 0: drop none.
        divide: Division of words into pieces of a pretrained encoder. no_pieces: words stay whole.
        learned: Choice of the sentences to learn from.
        heads: Source of the heads of words.
        tokeniser: Division of a user's sentence into words.
        split: Division of a user's text into sentences and words.
    """

    corpus: Corpus | SampleCorpus
    problem: ParsingObjective = field(default_factory=ParsingObjective)
    vocabulary: TreebankVocabulary = field(default_factory=TreebankVocabulary)
    scoring: ParseScoring = field(default_factory=ParseScoring)
    max_words: int = 0
    divide: Divide = no_pieces
    learned: Keep = complete
    heads: Heads = annotated_heads
    tokeniser: Tokeniser = penn_treebank
    split: Sentences = sentences

    slug: ClassVar = "parsing"
    takes_text: ClassVar = True

    def __post_init__(self) -> None:
        at_least(self, 0, "max_words")

    def data(self) -> dict[str, Step]:
        name = self.corpus.name
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        words = Step(treebank_vocabulary, f"vocabulary {name}", self.vocabulary, {"rows": raw["train"]})
        settings = {
            "train": TreeNumbers(self.learned, self.max_words, self.divide, self.vocabulary.tags, self.heads),
            "dev": TreeNumbers(DEV.get(self.learned, self.learned), 0, self.divide, self.vocabulary.tags, self.heads),
            "test": TreeNumbers(every_row, 0, self.divide, self.vocabulary.tags),
        }
        numbers = {
            split: Step(
                tree_numbers, f"numbers {name} {split}", settings[split], {"rows": raw[split], "vocabulary": words}
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words, "raw": raw["test"]}

    def stages(self, model: ParserConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        known = {"model": "model", "numbers": "test", "rows": "raw", "vocabulary": "vocabulary"}
        return {
            "model": training_stage(self.problem, model, config, seed),
            "predictions": Stage(parse_sentences, PredictSettings(self.problem, model, 2000), known),
            "scores": Stage(score_parses, self.scoring, {"predictions": "predictions", "rows": "raw"}),
        }

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        """Return the attention of each label, by its name, to START, the words and STOP."""
        tokens = self.tokeniser(text, "en")
        labels, weights = cast(Parsing, model.predictor).parser(model).attention(tokens)
        row = attention_row("label attention", ["<s>", *tokens, "</s>"], torch.from_numpy(weights)[None], [])
        return [row | {"written": labels}]

    def predictor(self, vocabulary: Artifact) -> Parsing:
        decode, name = self.problem.decode, getattr(self.problem.decode, "__name__", type(self.problem.decode).__name__)
        weight = decode.weight if isinstance(decode, Jointly) else 0.0
        known = isinstance(decode, Jointly) or DECODERS.get(name) is decode
        tokeniser, subwords = text_name(self.tokeniser), self.divide is not no_pieces
        return Parsing(tokeniser, name if known else OWN, weight, self.vocabulary.tags, subwords)

    def own_parts(self) -> Mapping[str, Any]:
        return {text_name(self.tokeniser): self.tokeniser, OWN: self.problem.decode, "divide": self.divide}

    def parser(self, model: ParserConfig, weights: Artifact, vocabulary: Artifact) -> Parser:
        """Return a trained parser."""
        return trained_parser(
            self.problem, model, {"model": weights, "vocabulary": vocabulary}, self.divide, self.split
        )
