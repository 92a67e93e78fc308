"""Translation: from parallel sentences to BLEU."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import HasKey, Job, Step
from phrasemodels.inference.inputs import UNSPACED, Detokeniser, Tokeniser, detokenise_moses, moses_lower
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import Sentences, Translation
from phrasemodels.layers.attention import attention_probe
from phrasemodels.layers.blocks import BEGIN, END, UNKNOWN
from phrasemodels.models.recurrent import RecurrentConfig, RecurrentTranslator
from phrasemodels.models.translation import (
    BeamSearch,
    TranslationConfig,
    Translator,
    beam_search,
    target_scores,
    token_loss,
    with_source_words,
)
from phrasemodels.tasks.metrics.scores import (
    CORPUS_BLEU,
    Score,
    bleu_counts,
    bleu_of,
    bleu_of_counts,
    by_group,
    corpus_counts,
    length_to_failure,
    ngram_counts,
    tokenised_bleu,
    write_scores,
)
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, phrases
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.tokenise import TOKENISERS, Tokenise, check_language, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, read_words, vocabulary
from phrasemodels.tasks.problems.recipe import Recipe, Stage, text_name, training_stage
from phrasemodels.tasks.problems.sentence_data import (
    PhraseBatch,
    PhraseExamples,
    attention_rows,
    write_predictions,
)
from phrasemodels.tasks.train.batches import Rows, in_order
from phrasemodels.tasks.train.checkpoints import best_device, load_trained
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import Objective

TranslatorConfig = TranslationConfig | RecurrentConfig
AnyTranslator = Translator | RecurrentTranslator


@dataclass(frozen=True)
class TranslationObjective(Objective):
    """Mean loss a target token. greedy_bleu: BLEU of greedy translations of dev is measured at each evaluation."""

    greedy_bleu: bool = False

    curve: ClassVar = "dev loss (nats a token)"

    def configure(self, model: TranslatorConfig, vocabulary: Artifact) -> TranslatorConfig:
        return replace(model, source_vocabulary=vocabulary.meta["source"], target_vocabulary=vocabulary.meta["target"])

    def examples(self, paths: Sequence[Path]) -> PhraseExamples:
        return PhraseExamples(paths)

    def loss(self, model: AnyTranslator, batch: PhraseBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the target tokens after BEGIN."""
        return token_loss(model, batch.source, batch.lengths, batch.members, batch.target, smoothing)

    def measure(
        self, model: AnyTranslator, data: PhraseExamples, max_tokens: int, device: torch.device
    ) -> dict[str, float]:
        """Return `dev_bleu` of ids of tokens. Unknown words of the references match nothing."""
        if not self.greedy_bleu:
            return {}
        sums = np.zeros(10)
        for rows in in_order(data, max_tokens):
            batch = data.batch(rows).to(device)
            found = beam_search(model, batch.source, batch.lengths, batch.members, BeamSearch(beam=1))
            for (ids, _), target in zip(found, batch.target.tolist(), strict=True):
                sums += ngram_counts(ids, target[1 : target.index(END)])
        return {"dev_bleu": float(bleu_of(sums))}

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Return the number of target tokens, with END and without BEGIN."""
        return int((data.lengths[rows, 1] - 1).sum())


@dataclass(frozen=True)
class SentenceTranslationObjective(TranslationObjective):
    """Mean loss a sentence. Learning rates of 1 presuppose it (paper 003)."""

    curve: ClassVar = "dev loss (nats a sentence)"

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Return the number of sentences."""
        # a sentence each: the gradient is larger than that of a mean over tokens, by the length of a sentence
        return len(rows)


@dataclass(frozen=True)
class TokenAccuracyObjective(TranslationObjective):
    """Mean loss a target token. The best weights have the most right tokens of dev, each after the gold ones before it."""

    curve: ClassVar = "dev error (share of tokens)"

    def criterion(self, model: AnyTranslator, batch: PhraseBatch) -> Tensor:
        """Return the number of wrong target tokens after BEGIN and of all of them, (1, 2)."""
        scores, gold = target_scores(model, batch.source, batch.lengths, batch.members, batch.target)
        return torch.stack([(scores.argmax(-1) != gold).sum(), gold.new_tensor(len(gold))])[None]


@dataclass(frozen=True)
class TranslateSettings:
    """A model's configuration, and a search. batch_tokens bounds memory and does not change the result.

    copy_unknown: an unknown word of an answer becomes the source word with most of its attention.
    """

    objective: TranslationObjective
    model: TranslatorConfig
    search: BeamSearch
    batch_tokens: int = 4096
    copy_unknown: bool = True


def translate(job: Job, settings: TranslateSettings) -> dict[str, Any]:
    """Translate the numbered sentences job.inputs["phrases"] with the tokens ["rows"].

    It also reads ["model"] and ["vocabulary"]. It writes predictions.arrow.
    """
    device = best_device()
    model = load_trained(settings.objective, settings.model, job.inputs, device)
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["phrases"])])
    words = np.array(read_words(job.inputs["vocabulary"], "target"), dtype=object)
    sources = read_shards(job.inputs["rows"])["source"]
    search = settings.search.within(job.inputs["vocabulary"].meta.get("longest", 0))
    found: dict[int, tuple[list[str], float]] = {}
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        answers = beam_search(model, batch.source, batch.lengths, batch.members, search)
        for row, (ids, score) in zip(rows.tolist(), answers, strict=True):
            found[row] = (list(words[ids]), score)
            if settings.copy_unknown and UNKNOWN in ids and isinstance(model, Translator):
                one = data.batch(np.array([row])).to(device)
                found[row] = (with_source_words(model, one, ids, found[row][0], sources[row].as_py()), score)
    return write_predictions(job, job.inputs["rows"], found)


def translator_attention(loaded: LoadedModel, text: str) -> list[dict[str, Any]]:
    """Return rows of ATTENTION to a text, and to it from the model's own translation. Tokens include <s> and </s>, if the
    model reads them."""
    how, model = cast(Translation, loaded.predictor), cast(AnyTranslator, loaded.module)
    tokens, words = how.words_of(loaded, text), loaded.words["target"]
    batch = how.batch([how.numbered(loaded, tokens)], [()]).on(loaded.device)
    weights, written = _attention(model, batch, BeamSearch(**how.search))
    return _rows(model, weights, batch, tokens, [words[i] for i in written])


@torch.inference_mode()
def _attention(model: AnyTranslator, batch: Sentences, search: BeamSearch) -> tuple[dict[str, Tensor], list[int]]:
    """Return the weights of each module while the model reads its own translation, and the translation's ids."""
    ((written, _),) = beam_search(model, *batch, search)
    target = torch.tensor([[BEGIN, *written]], device=batch.source.device)
    with attention_probe(model) as found:
        model(*batch, target)
    if isinstance(model, RecurrentTranslator):
        found["decoder.weights"] = model.attention(*batch, target)[:, None]
    return {name: weights for name, weights in found.items() if not name.endswith(".itself")}, written


def _rows(
    model: AnyTranslator, weights: Mapping[str, Tensor], batch: Sentences, source: list[str], written: list[str]
) -> list[dict[str, Any]]:
    """Return rows of ATTENTION: of the encoder over words and phrases, of the decoder over words."""
    marked = int(batch.lengths[0]) == len(source) + 2
    tokens = ["<s>", *source, "</s>"] if marked else source or ["</s>"]
    phrases = [[int(i) for i in members if i >= 0] for members in batch.members[0].tolist()]
    decoding = {"phrases": phrases, "written": [*written, "</s>"]}
    rows = attention_rows(model, weights, tokens, phrases)
    return [one | decoding if one["module"].startswith("decoder.") else one for one in rows]


SCORED_TOGETHER = 2_000  # sentences that are Python objects at a time


@dataclass(frozen=True)
class TranslationScoring:
    """How tokens become running text (None: its metrics are left out) and the language of the target.

    count_end: </s> counts as a token of hypotheses but not of references.
    """

    detokenise: Detokeniser | None
    language: str
    count_end: bool = False


def score_translations(job: Job, settings: TranslationScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"] against the raw references of ["rows"].

    `bleu` is tokenised and lower-cased, also by group of sentences (`bleu/idiom`). `sacrebleu` (cased) and
    `sacrebleu_lc` (lower-cased) are of running text with 13a tokens. Languages written without spaces have characters
    instead.
    """
    from sacrebleu.metrics.bleu import BLEU

    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    raw = read_shards(job.inputs["rows"])["target"]
    kind = "char" if settings.language in UNSPACED else "13a"
    # force: no warning that a text looks tokenised
    running = {
        "sacrebleu": BLEU(force=True, tokenize=kind),
        "sacrebleu_lc": BLEU(lowercase=True, force=True, tokenize=kind),
    }
    sums, tokenised = {name: np.zeros(10, np.int64) for name in running}, tokenised_bleu()
    each = [np.empty((0, 10), np.int64)]
    for start in range(0, table.num_rows, SCORED_TOGETHER):
        found = table["hypothesis"].slice(start, SCORED_TOGETHER).to_pylist()
        hypotheses = [" ".join(tokens + ["</s>"] * settings.count_end) for tokens in found]
        references = [" ".join(tokens) for tokens in table["reference"].slice(start, SCORED_TOGETHER).to_pylist()]
        each.append(bleu_counts(hypotheses, references, tokenised))
        if settings.detokenise:
            text = [settings.detokenise(tokens, settings.language) for tokens in found]
            for name, metric in running.items():
                sums[name] += corpus_counts(metric, text, raw.slice(start, SCORED_TOGETHER).to_pylist())
    counts = np.concatenate(each)
    scores = {"bleu": bleu_of_counts(tokenised, counts.sum(0), len(counts))}
    if settings.detokenise:
        scores |= {name: bleu_of_counts(metric, sums[name], len(counts)) for name, metric in running.items()}
    for suffix, rows in by_group(table["group"].to_pylist()).items():
        scores[f"bleu{suffix}"] = bleu_of_counts(tokenised, counts[rows].sum(0), int(rows.sum()))
    ends = pa.array(range(0, counts.size + 1, 10), pa.int32())
    column = pa.ListArray.from_arrays(ends, pa.array(counts.ravel()))
    sentences = pa.table({"id": table["id"], "group": table["group"], CORPUS_BLEU.column: column})
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])


@dataclass(frozen=True)
class TranslationText:
    """From text to tokens, ids and back. A corpus may name a tokeniser of its own instead.

    Args:
        tokeniser: The tokeniser of both sides.
        detokenise: From tokens to running text. None: leave out the metrics of running text.
        min_count: Words with fewer occurrences in train are unknown.
        max_tokens: Drop longer sentences from train. 0: drop none.
    """

    tokeniser: Tokeniser = moses_lower
    detokenise: Detokeniser | None = detokenise_moses
    min_count: int = 1
    max_tokens: int = 0

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")
        at_least(self, 0, "max_tokens")


@dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """A parallel corpus.

    Args:
        problem: The objective, with the unit of the mean loss.
        copy_unknown: Replace an unknown word of an answer by the source word with most of its attention.
        count_end: Count </s> as a token of hypotheses in BLEU, though not of references.
    """

    corpus: BitextCorpus | Corpus | SampleCorpus
    phrases: Phrases
    text: TranslationText = field(default_factory=TranslationText)
    search: BeamSearch = field(default_factory=BeamSearch)
    problem: TranslationObjective = field(default_factory=TranslationObjective)
    copy_unknown: bool = True
    count_end: bool = False

    slug: ClassVar = "translation"
    answer_columns: ClassVar = ("reference", "hypothesis")
    takes_text: ClassVar = True

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of source and target. ValueError: the corpus does not name them."""
        known = self.corpus.languages
        return known.source, known.target

    @property
    def tokeniser(self) -> Tokeniser:
        """The tokeniser of the corpus if it names one, or else the tokeniser of the text."""
        named = self.corpus.languages.tokeniser
        return TOKENISERS[named][0] if named else self.text.tokeniser

    @property
    def detokenise(self) -> Detokeniser | None:
        """The function from tokens to running text. None if no metric and no answer needs it."""
        named = self.corpus.languages.tokeniser
        return TOKENISERS[named][1] if named and self.text.detokenise else self.text.detokenise

    def without_optional_libraries(self) -> Self:
        return dataclasses.replace(self, text=dataclasses.replace(self.text, detokenise=None))

    def data(self) -> dict[str, Step]:
        name, text = self.corpus.name, self.text
        for language in self.languages:
            check_language(self.tokeniser, language, name)
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        tokens = {split: self._tokens(raw[split], f"{name} {split}") for split in raw}
        words = Step(vocabulary, f"vocabulary {name}", VocabularySettings(text.min_count), {"rows": tokens["train"]})
        limits = {"train": text.max_tokens, "dev": 0, "test": 0}
        numbers = {
            split: Step(
                phrases,
                f"phrases {name} {split} ({self.phrases.enumerate.__name__} {self.phrases.longest})",
                dataclasses.replace(self.phrases, max_tokens=limits[split]),
                {"rows": tokens[split], "vocabulary": words},
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words, "tokens": tokens["test"], "raw": raw["test"]}

    def _tokens(self, rows: HasKey, label: str) -> Step:
        settings = Tokenise(self.tokeniser, *self.languages)
        return Step(tokenise, f"tokenise {label}", settings, {"rows": rows})

    def stages(self, model: TranslatorConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        return {
            "model": training_stage(self.problem, model, config, seed),
            "predictions": Stage(
                translate,
                TranslateSettings(self.problem, model, self.search, copy_unknown=self.copy_unknown),
                {"model": "model", "phrases": "test", "rows": "tokens", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(
                score_translations,
                TranslationScoring(self.detokenise, self.languages[1], self.count_end),
                {"predictions": "predictions", "rows": "raw"},
            ),
        }

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        return translator_attention(model, text)

    def own_parts(self) -> Mapping[str, Any]:
        return {text_name(part): part for part in (self.tokeniser, self.detokenise) if part}

    def predictor(self, vocabulary: Artifact) -> Translation:
        search = self.search.within(vocabulary.meta.get("longest", 0))
        return Translation(
            text_name(self.tokeniser),
            self.languages[0],
            self.phrases.enumerate.__name__,
            self.phrases.longest,
            self.phrases.marks,
            self.languages[1],
            text_name(self.detokenise) if self.detokenise else "",
            search=dataclasses.asdict(search),
        )


def score_prefixes(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: means of `failure` and `exact` over all rows and by group (`failure/depth2`).
    ["rows"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    pairs = list(zip(table["hypothesis"].to_pylist(), table["reference"].to_pylist(), strict=True))
    values = {
        "failure": np.array([length_to_failure(*pair) for pair in pairs]),
        "exact": np.array([100.0 * (hypothesis == reference) for hypothesis, reference in pairs]),
    }
    groups = by_group(table["group"].to_pylist())
    scores = {
        f"{name}{suffix}": Score(float(of[rows].mean()), "mean of rows, in %", int(rows.sum()))
        for name, of in values.items()
        for suffix, rows in groups.items()
    }
    statistics = {name: pa.array([[float(value) / 100, 1.0] for value in of]) for name, of in values.items()}
    sentences = pa.table({"id": table["id"], "group": table["group"], **statistics})
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])


@dataclass(frozen=True)
class TransductionRecipe(TranslationRecipe):
    """Formulas. The root of a source's tree is BEGIN."""

    slug: ClassVar = "transduction"
    languages: ClassVar = ("prefix", "infix")

    def stages(self, model: TranslatorConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        scores = Stage(score_prefixes, None, {"predictions": "predictions", "rows": "raw"})
        return {**super().stages(model, config, seed), "scores": scores}
