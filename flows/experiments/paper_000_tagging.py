"""Paper 000, Table 2: part-of-speech tagging with the systems of Table 1, and hypernodes from dependency trees."""

from collections.abc import Callable
from dataclasses import dataclass

from phrasemodels.data.samples.records import Treebank
from phrasemodels.flows.experiments.experiment import Answer, Experiment
from phrasemodels.flows.experiments.paper_000 import (
    ADJACENT,
    PAPER,
    TRANSFORMER,
    Row,
    Size,
    phrase_transformer,
    printed,
)
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, subtrees
from phrasemodels.tasks.problems.tagging.objective import TagColumn
from phrasemodels.tasks.problems.tagging.predict import ACCURACY
from phrasemodels.tasks.problems.tagging.recipe import TaggingRecipe
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import adam_with_decay, constant, linear_decay

PENN = Corpus("penn_treebank", "tagging")
# The model is phrase_transformer's; its hypernodes are parts of dependency trees.
SEMANTIC = tuple(
    Row(f"semantic-k{k}", "Semantic PhraseTransformer", f"k={k}", phrase_transformer(k), Phrases(subtrees, k))
    for k in (2, 3)
)


@dataclass(frozen=True)
class TaggingProfile:
    """Table 2 at one size. Its own corpus has to be supplied: other treebanks are stand-ins."""

    size: Size
    train: TrainConfig
    hidden: int = 200


TAGGING = {
    "sample": TaggingProfile(
        Size(d=64, heads=2, layers=2, d_ff=128, dropout=0.1),
        TrainConfig(steps=120, batch_tokens=1500, learning_rate=3e-3, warmup=30, schedule=linear_decay,
                    evaluate_every=40, checkpoint_every=40),
    ),
    # Ten epochs or so of a treebank of 180,000 words.
    "laptop": TaggingProfile(
        Size(d=120, heads=6, layers=2, d_ff=240, dropout=0.3),
        TrainConfig(steps=600, batch_tokens=3000, learning_rate=3e-3, warmup=100, schedule=linear_decay,
                    evaluate_every=100, checkpoint_every=100, smoothing=0.0),
    ),
    # The paper's widths; for the rest "we follow Guo et al. 2019". 38,219 sentences, 64 a batch, 25 epochs. Word vectors
    # are learned, not GloVe's.
    "paper": TaggingProfile(
        Size(d=300, heads=6, layers=2, d_ff=2048, dropout=0.3),
        TrainConfig(steps=15_000, batch_tokens=1_000_000, batch_rows=64, learning_rate=3e-4, warmup=1, clip=5.0,
                    betas=(0.9, 0.999), epsilon=1e-8, schedule=constant, optimiser=adam_with_decay, smoothing=0.0,
                    evaluate_every=600, checkpoint_every=600),
    ),
}  # fmt: skip


def table_2(corpus: Corpus | None, tags: str) -> Callable[[str], list[Experiment]]:
    """Table 2 on a treebank (None: the profile's own): token accuracy of seven systems."""

    def experiments(profile: str) -> list[Experiment]:
        chosen = TAGGING[profile]
        sample = SampleCorpus(train=2000, dev=200, test=400, records=Treebank())
        own = PENN if profile == "paper" else Corpus("gum")
        treebank = sample if profile == "sample" else corpus or own
        table = "table2" if corpus is None else f"table2-{corpus.name}-{tags}"
        return [
            Experiment(
                name=f"{PAPER}/{table}/{profile}/{row.slug}",
                paper=PAPER,
                system=row.system,
                variant=row.variant,
                answers=(Answer("accuracy", printed(row, "Table 2", "accuracy"), ACCURACY),),
                profile=profile,
                comparable=treebank == PENN,
                recipe=TaggingRecipe(treebank, TagColumn(tags), row.phrases),
                model=TaggerConfig(row.encoder(chosen.size), 0, 0, chosen.hidden),
                train=chosen.train,
                ray_train=() if profile == "sample" else None,
            )
            for row in (TRANSFORMER, *SEMANTIC, *ADJACENT)
        ]

    return experiments


TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "2": table_2(None, "tags"),
    **{
        f"2-{name}-{tags}": table_2(Corpus(name), tags)
        for name, tags in (("gum", "universal"), ("ud_english_ewt", "tags"), ("ud_english_ewt", "universal"))
    },
}
