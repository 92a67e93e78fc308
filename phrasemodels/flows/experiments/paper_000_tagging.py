"""Paper 000, Table 2: part-of-speech tagging with the systems of Table 1, and hypernodes from dependency trees."""

from collections.abc import Callable
from dataclasses import replace

from phrasemodels.data.samples.records import Treebank
from phrasemodels.flows.experiments.experiment import Answer, Experiment, TableName
from phrasemodels.flows.experiments.paper_000 import ADJACENT, PAPER, TRANSFORMER, phrase_transformer, printed
from phrasemodels.flows.experiments.table import Profile, Row, Size, experiments
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, subtrees
from phrasemodels.tasks.problems.entailment.data import VectorFile
from phrasemodels.tasks.problems.tagging.objective import TagColumn
from phrasemodels.tasks.problems.tagging.predict import ACCURACY
from phrasemodels.tasks.problems.tagging.recipe import TaggingRecipe
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import adam_with_decay, constant, linear_decay

PENN, PARSED = (
    Corpus("penn_treebank", "tagging"),
    Corpus("penn_treebank", "tagging_arcs"),
)  # PARSED: with trees by spaCy
GLOVE = VectorFile("glove/glove.840B.300d.txt", 300)
# The model is phrase_transformer's; its hypernodes are parts of dependency trees.
SEMANTIC = tuple(
    Row(
        f"semantic-k{k}",
        "Semantic PhraseTransformer",
        f"k={k}",
        phrase_transformer(k),
        {"phrases": Phrases(subtrees, k)},
    )
    for k in (2, 3)
)

PROFILES = {
    "sample": Profile(
        Size(d=64, heads=2, layers=2, d_ff=128, dropout=0.1, hidden=200),
        TrainConfig(steps=120, batch_tokens=1500, learning_rate=3e-3, warmup=30, schedule=linear_decay,
                    evaluate_every=40, checkpoint_every=40),
        TaggingRecipe(SampleCorpus(train=2000, dev=200, test=400, records=Treebank())),
    ),
    # Ten epochs or so of a treebank of 180,000 words.
    "laptop": Profile(
        Size(d=120, heads=6, layers=2, d_ff=240, dropout=0.3, hidden=200),
        TrainConfig(steps=600, batch_tokens=3000, learning_rate=3e-3, warmup=100, schedule=linear_decay,
                    evaluate_every=100, checkpoint_every=100, smoothing=0.0),
        TaggingRecipe(Corpus("gum")),
    ),
    # The paper's widths; for the rest "we follow the parameters in Guo et al. 2019": 25 epochs of 598 batches of 64 sentences,
    # and GloVe, which is not trained. Users supply it and the Penn Treebank.
    "paper": Profile(
        Size(d=300, heads=6, layers=2, d_ff=2048, dropout=0.3, hidden=200),
        TrainConfig(steps=14_950, batch_tokens=1_000_000, batch_rows=64, learning_rate=3e-4, warmup=1, clip=5.0,
                    betas=(0.9, 0.999), epsilon=1e-8, schedule=constant, optimiser=adam_with_decay, smoothing=0.0,
                    evaluate_every=1000, checkpoint_every=1000),
        TaggingRecipe(PENN, vectors=GLOVE),
    ),
}  # fmt: skip


def tagger(row: Row) -> Row:
    """The row with a classifier of tags on its encoder."""
    return replace(row, model=lambda size: TaggerConfig(row.model(size), 0, 0, size.hidden))


def table_2(corpus: Corpus | None, tags: str) -> Callable[[str], list[Experiment]]:
    """Table 2 on a treebank (None: the profile's own, which alone answers printed numbers): token accuracy of seven systems."""

    def make(profile: str) -> list[Experiment]:
        chosen, number = PROFILES[profile], "2" if corpus is None else f"2-{corpus.name}-{tags}"
        treebank = corpus if corpus and profile != "sample" else chosen.recipe.corpus
        recipe = replace(chosen.recipe, corpus=treebank, tags=TagColumn(tags))
        own = replace(chosen, recipe=recipe)
        parsed = {"corpus": PARSED} if treebank is PENN else {}
        semantic = (replace(row, recipe={**row.recipe, **parsed}) for row in SEMANTIC)
        rows = map(tagger, (TRANSFORMER, *semantic, *ADJACENT))
        return experiments(
            TableName(PAPER, number, f"table{number}"), profile, own, rows,
            lambda row: (Answer("accuracy", None if corpus else printed(row, "Table 2", "accuracy"), ACCURACY),),
        )  # fmt: skip

    return make


TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "2": table_2(None, "tags"),
    **{
        f"2-{name}-{tags}": table_2(Corpus(name), tags)
        for name, tags in (("gum", "universal"), ("ud_english_ewt", "tags"), ("ud_english_ewt", "universal"))
    },
}
