"""The English parser that the package holds: paper 004's parser, trained on treebanks whose texts may be passed on."""

from dataclasses import replace
from typing import Any

from phrasemodels.data.samples.records import Treebank
from phrasemodels.flows.experiments import paper_004
from phrasemodels.flows.experiments.experiment import Experiment, TableName
from phrasemodels.flows.experiments.table import Row
from phrasemodels.layers.labels import LabelAttentionConfig
from phrasemodels.models.parser import arcs_alone, phrases_alone
from phrasemodels.parsing.words import universal_sentences
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.treebanks import JoinedTreebanks, Take
from phrasemodels.tasks.problems.parsing.data import heads_by_rules, with_either, with_heads, with_tree
from phrasemodels.tasks.problems.parsing.objective import ParsingObjective
from phrasemodels.tasks.train.optimisers import averaged_adam

PAPER = "004"
# Genres of GUM whose texts may be passed on, changed and sold: LICENSE.txt of the corpus, and for conversation, speech,
# textbook and vlog the page of the corpus on licences. Left out as non-commercial: essay, fiction, letter, podcast, whow.
FREE_GENRES = (
    "academic", "bio", "conversation", "court", "interview", "news", "speech", "textbook", "vlog", "voyage",
)  # fmt: skip
FREE_GUM = Take(
    tuple(f"GUM_{genre}_" for genre in FREE_GENRES),
    ("CC-BY-2.5", "CC-BY-3.0", "CC-BY-4.0", "CC-BY-SA-3.0", "public domain"),
    times=2,
)
ENGLISH = JoinedTreebanks(
    "english", (Corpus("gum"), Corpus("ud_english_ewt")), Corpus("gum"), {"gum": FREE_GUM, "ud_english_ewt": Take()}
)
# Some 50 minutes of one core. Averages of the weights are evaluated, so that an early end costs little.
TRAIN = replace(paper_004.LONG, steps=20_000, evaluate_every=2500, checkpoint_every=250, optimiser=averaged_adam)
HALF = replace(TRAIN, steps=9_000, evaluate_every=1500)
GENERATED = SampleCorpus(train=1500, dev=150, test=300, records=Treebank())
PARTS = paper_004.Parts(LabelAttentionConfig(d_kv=32, d_out=32, d_ff=128), 0.1, 0.2, 0.05)


def english(profile: str) -> list[Experiment]:
    """The parser of the package. Only the profile `sample`, on generated sentences, is smaller."""
    chosen, parts = paper_004.PROFILES["laptop"], PARTS
    corpus: JoinedTreebanks | SampleCorpus = ENGLISH
    chosen = replace(chosen, train=TRAIN, size=replace(chosen.size, dropout=0.05))
    if profile == "sample":
        chosen, parts = paper_004.PROFILES["sample"], paper_004.PARTS["sample"]
        corpus = GENERATED
        chosen = replace(chosen, train=replace(chosen.train, optimiser=averaged_adam))
    words = replace(chosen.recipe.vocabulary, min_count=3)  # GUM is in it twice
    changed: dict[str, Any] = {
        "corpus": corpus,
        "learned": with_either,
        "vocabulary": words,
        "split": universal_sentences,
    }
    chosen = replace(chosen, recipe=replace(chosen.recipe, **changed))
    row = Row("lal", paper_004.LAL, "", paper_004.Parser(3))
    table = TableName(PAPER, "english", "english")
    return paper_004._rows(table, "", profile, [row], paper_004.SUMMARY, chosen, parts)


# Rows for treebanks that have phrases or dependencies alone. Label attention without labels of phrases has as many as there are
# relations in English.
ALONE: dict[str, tuple[Corpus, dict[str, Any], int]] = {
    "phrases": (Corpus("craft"), {"learned": with_tree, "problem": ParsingObjective(phrases_alone, tagged=False)}, 0),
    "arcs": (
        Corpus("ud_english_ewt"),
        {"learned": with_heads, "problem": ParsingObjective(arcs_alone, tagged=False)},
        40,
    ),
    "head-rules": (Corpus("nltk_treebank"), {"learned": with_tree, "heads": heads_by_rules}, 0),
}


def alone(profile: str) -> list[Experiment]:
    """Parsers of phrases alone, of dependencies alone, and of phrases with heads by head rules; any treebank by
    --set recipe.corpus.name=NAME."""
    chosen, parts = paper_004.PROFILES[profile], paper_004.PARTS[profile]
    if profile != "sample":
        chosen, parts = replace(paper_004.PROFILES["laptop"], train=HALF), PARTS
    table = TableName(PAPER, "alone", "alone")
    made: list[Experiment] = []
    for slug, (corpus, fields, labels) in ALONE.items():
        own = GENERATED if profile == "sample" else corpus
        one = replace(chosen, recipe=replace(chosen.recipe, corpus=own))
        row = Row(slug, paper_004.LAL, "", paper_004.Parser(2))
        (experiment,) = paper_004._rows(
            table, "", profile, [row], paper_004.SUMMARY, one, replace(parts, label=replace(parts.label, labels=labels))
        )
        made.append(replace(experiment, recipe=replace(experiment.recipe, **fields)))
    return made


TABLES = {"english": english, "alone": alone}
