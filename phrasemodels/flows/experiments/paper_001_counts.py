"""Paper 001: Table 1 and the sizes of SNLI, which are counted, and the sizes and memory of models (Tables 2 and 5), which are
only built."""

from phrasemodels.flows.experiments.counting import CORPUS, counted, exact
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, TableName
from phrasemodels.flows.experiments.paper_001 import PAPER, PUBLISHED_SIZE
from phrasemodels.flows.experiments.paper_001_systems import DIVISION, MULTI_HEAD, NARROW_DISAN, PSAN, SYSTEMS
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.levels import Levels, none
from phrasemodels.tasks.problems.counting.corpora import CorpusSizeRecipe
from phrasemodels.tasks.problems.counting.divisions import DivisionRecipe
from phrasemodels.tasks.problems.counting.memory import ActivationsRecipe
from phrasemodels.tasks.problems.counting.parameters import ModelSizeRecipe
from phrasemodels.tasks.problems.entailment.recipe import TransferTask
from phrasemodels.tasks.problems.entailment.suites import SUITE

OTHER_PARSER = "trees by Stanza's models `gum`; the paper's are by the Stanford parser 3.5.2 (PCFG)"
PHRASES_OF_SST = (
    "70,042 are the 67,349 phrases of training trees that SentEval's classifiers learn from, and the 872 and 1,821 sentences "
    "of dev and test; ours are whole sentences"
)
SST_TREES = (
    "trees by Stanza's models `gum` over whole sentences; the paper's are by the Stanford parser, and of phrases, too"
)
RANGE = {"lowest": "output_range_min", "highest": "output_range_max"}
REGRESSION = ("SICK-R", "STS14")
WORDS = "embed"  # word vectors, which are given and not counted


def _cell(dataset: str, metric: str, variant: str = "") -> Cell:
    return Cell(PAPER, "Table 1", CORPUS, variant, metric, dataset)


def _sizes(task: TransferTask) -> tuple[Answer, ...]:
    """Records of a task, and its classes or the range of its scores."""
    kinds = RANGE if task.name in REGRESSION else {"classes": "n_classes"}
    size = exact("rows", _cell(task.name, "size"), PHRASES_OF_SST if task.name == "SST2" else "")
    return (size, *(exact(ours, _cell(task.name, theirs)) for ours, theirs in kinds.items()))


def sizes(profile: str) -> list[Experiment]:
    """Table 1: sizes and outputs of the transfer tasks; and the pairs of SNLI (section 3.2) that all have at hand."""
    table = TableName(PAPER, "1-sizes", "table1-sizes")
    rows = [
        counted(
            table,
            task.name.lower(),
            (CORPUS, task.name),
            CorpusSizeRecipe(task.corpus, {split: split for split in task.splits}),
            _sizes(task),
        )
        for task in SUITE
    ]
    pairs = tuple(
        exact(f"rows {split}", Cell(PAPER, "text 3.2", "dataset", "", "n_pairs", "SNLI", split))
        for split in ("dev", "test")
    )
    snli = CorpusSizeRecipe(Corpus("snli", "official"), {"dev": "dev", "test": "test"})
    return [*rows, counted(table, "snli", ("dataset", "SNLI"), snli, pairs)]


def phrases(profile: str) -> list[Experiment]:
    """Table 1: phrases and words on each level, of trees by another parser than the paper's."""
    rows = []
    for task in SUITE:
        why_not = SST_TREES if task.name == "SST2" else OTHER_PARSER
        answers = tuple(
            exact(f"{ours} {level}", _cell(task.name, theirs, f"layer {level} of phrase division"), why_not)
            for ours, theirs in (("phrases", "phrases_per_sentence"), ("words", "words_per_phrase"))
            for level in DIVISION.levels
        )
        assert isinstance(task.corpus, Corpus)
        table, recipe = TableName(PAPER, "1-phrases", "table1-phrases"), DivisionRecipe(task.corpus, task, DIVISION)
        rows.append(counted(table, task.name.lower(), (CORPUS, f"{task.name}, phrases"), recipe, answers))
    return rows


GIVEN = {  # what the widths of sentence vectors follow from
    "bilstm-max": "our LSTMs were given the 2,048 units of InferSent's released trainer",
    "disan": "our model was given the 300 units of DiSAN's released program",
    "psan": "our model was given the d of section 3.1",
}
CHOSEN = "its width was chosen because Table 2 prints it"
NOT_COUNTED = "the paper does not say what is counted"
COUNTED_AS = {  # what sizes follow from that neither reproduce the printed ones nor were fitted to them
    "bilstm-max": f"ours has the LSTMs and the classifier of InferSent's released trainer; {NOT_COUNTED}",
    "adasent": f"ours has the classifier of PSAN, with 300 hidden units; {NOT_COUNTED}",
    "disan": f"the released program of DiSAN has 1,200 more, in biases; {NOT_COUNTED}",
}
READ = "the paper does not say how wide the classifier's hidden layer is: 300, the width of all else, gives this size"
SHARE = "ours is of the 47.2M of our BiLSTM-Max; of the printed 40M it is 4.96"
FITTED = "its 34 relations were chosen because they give the printed size; the paper names no number"


def parameters(profile: str) -> list[Experiment]:
    """Table 2: width of the sentence vector and |θ|; and PSAN's share of the parameters of BiLSTM-Max (section 4.1)."""
    rows = []
    models = {row.slug: row.model(PUBLISHED_SIZE) for row in SYSTEMS}
    for row in SYSTEMS:
        cell = Cell(PAPER, "Table 2", row.system, row.variant, "sentence_vector_dim", "SNLI")
        answers: tuple[Answer, ...] = (
            exact("width", cell, "" if row.slug in GIVEN else CHOSEN, GIVEN.get(row.slug, "")),
            exact(
                "parameters",
                Cell(PAPER, "Table 2", row.system, row.variant, "parameters", "SNLI"),
                FITTED if row.slug == "tbcnn" else "",
                READ if row.slug == "psan" else COUNTED_AS.get(row.slug, ""),
            ),
        )
        if row.system == "HConvNet":  # whose scores the paper prints as AdaSent's, which has rows of its own
            answers = (Answer("width", exact=True), Answer("parameters", exact=True))
        other = models["bilstm-max"] if row.slug == "psan" else None
        if other is not None:
            claimed = Cell(PAPER, "text 4.1", row.system, "vs BiLSTM-Max", "parameter_ratio")
            answers += (exact("share", claimed, note=SHARE),)
        recipe = ModelSizeRecipe(other=other, without=WORDS)
        table = TableName(PAPER, "2-parameters", "table2-parameters")
        rows.append(counted(table, row.slug, (row.system, row.variant), recipe, answers, models[row.slug]))
    return rows


NOT_SAID = "activations that a step saves for its backward pass; the paper does not say what it counts as memory"


def memory(profile: str) -> list[Experiment]:
    """Table 5: memory on TREC; here of the activations of a training step in batches of 16 sentences, by the encoders alone.

    The last row is PSAN's encoder over whole sentences, as in Table 4 (4)."""
    (trec,) = (task for task in SUITE if task.name == "TREC")
    encoders = {row.slug: row.model(PUBLISHED_SIZE).encoder for row in (MULTI_HEAD, NARROW_DISAN, PSAN)}
    rows = []
    for slug, levels in (*((slug, DIVISION) for slug in encoders), ("whole", Levels(trees=none))):
        system = {row.slug: row.system for row in (MULTI_HEAD, NARROW_DISAN)}.get(slug, PSAN.system)
        answers: tuple[Answer, ...] = (Answer("memory", exact=True),)
        if slug in encoders:
            answers = (exact("memory", Cell(PAPER, "Table 5", system, "", "memory"), NOT_SAID),)
        others = {name: one for name, one in encoders.items() if name != slug} if slug == PSAN.slug else {}
        if others:
            claimed = Cell(PAPER, "text 4.4", system, "", "memory_reduction_at_least")
            answers += (exact("reduction", claimed, NOT_SAID),)
        recipe = ActivationsRecipe(trec.corpus, trec, levels, others)
        named = (system, "the sentence as one phrase" if slug == "whole" else "")
        model = encoders.get(slug, encoders[PSAN.slug])
        rows.append(counted(TableName(PAPER, "5-memory", "table5-memory"), slug, named, recipe, answers, model))
    return rows


TABLES = {"1-sizes": sizes, "1-phrases": phrases, "2-parameters": parameters, "5-memory": memory}
