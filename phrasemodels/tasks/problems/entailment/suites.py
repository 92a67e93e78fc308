"""The transfer tasks: those of SentEval that paper 001 reports, and generated ones."""

from collections.abc import Sequence
from dataclasses import replace

from phrasemodels.data.samples.records import Entailment, Polarity
from phrasemodels.tasks.parsers.stanza_models import ByStanza, by_stanza
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.tokenise import moses, moses_lower, spaces
from phrasemodels.tasks.problems.entailment.data import Marked, SentenceText
from phrasemodels.tasks.problems.entailment.recipe import TransferTask
from phrasemodels.tasks.problems.entailment.transfer import FOLDS, NESTED, OFFICIAL, RELATEDNESS, SIMILARITY

ONE = SentenceText(("text",))  # MR, CR, SUBJ, MPQA, SST and TREC are tokenised already
TWO = SentenceText(tokeniser=moses_lower)
SENTEVAL = Corpus("senteval")
SST2, SST5, TREC, SICK, MRPC = (Corpus("senteval", part) for part in ("SST2", "SST5", "TREC", "SICK", "MRPC"))
DIVIDED = ("train", "dev", "test")
SPACED, MOSES = by_stanza, ByStanza(moses_lower)  # SentEval has no trees
SUITE = (
    *(TransferTask(name, NESTED, SENTEVAL, (name,), ONE, SPACED) for name in ("MR", "CR", "SUBJ", "MPQA")),
    TransferTask("SST2", OFFICIAL, SST2, DIVIDED, ONE, SPACED),
    TransferTask("SST5", OFFICIAL, SST5, DIVIDED, ONE, SPACED, averaged=False),  # in no printed average, nor a column
    TransferTask("TREC", FOLDS, TREC, ("train", "test"), ONE, SPACED),
    TransferTask("MRPC", FOLDS, MRPC, ("train", "test"), TWO, MOSES),
    TransferTask("SICK-E", OFFICIAL, SICK, DIVIDED, TWO, MOSES),
    TransferTask("SICK-R", RELATEDNESS, SICK, DIVIDED, TWO, MOSES),
    TransferTask("STS14", SIMILARITY, SENTEVAL, ("STS14",), TWO, MOSES),
)
CLASSES = SampleCorpus(600, 100, 200, records=Polarity())
PAIRS = SampleCorpus(4000, 400, 600, records=Entailment())
SAMPLE_SUITE = (
    TransferTask("polarity", NESTED, CLASSES, ("train",), ONE),
    TransferTask("entailment", OFFICIAL, PAIRS, DIVIDED, SentenceText()),
)

CASED = SentenceText(tokeniser=Marked(spaces))  # as InferSent reads SNLI, which is tokenised already


def in_marks(suite: Sequence[TransferTask]) -> tuple[TransferTask, ...]:
    """Return the tasks as InferSent reads them: capitals are kept, and sentences stand between <s> and </s>."""
    cased = {ONE: Marked(spaces), TWO: Marked(moses)}
    return tuple(
        replace(task, text=replace(task.text, tokeniser=cased.get(task.text, task.text.tokeniser))) for task in suite
    )
