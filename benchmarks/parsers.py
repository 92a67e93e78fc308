"""Our parser beside Stanza: `python benchmarks/parsers.py 004/parser/laptop/lal gum [SENTENCES]`.

Both parse the tokens of GUM's test set on one thread, in batches of 100 as the parse step does; medians of CPU time over
interleaved rounds, without loading. Phrases: Stanza's tagger and constituency parser, ours without arcs. All: Stanza's
tagger, lemmatiser, dependency and constituency parsers, ours as trained, which predicts tags, phrases, heads and relations
jointly, and no lemmas. The scores are those of the timed parses.
"""

import statistics
import sys
import time
from dataclasses import replace

import pyarrow as pa

from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.flows.cli.models import find_model
from phrasemodels.flows.cli.parsers import step_of
from phrasemodels.infra.settings import Settings
from phrasemodels.models.parser import phrases_alone
from phrasemodels.tasks.metrics.parseval import treebank_scores
from phrasemodels.tasks.parsers.stanza import Stanza
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.our_parser import OurParser
from phrasemodels.tasks.problems.parsing import ParsingRecipe

ROUNDS = 5


def main(experiment: str, parser: str = "gum", count: str = "400") -> None:
    """Print sentences per second and scores of both parsers."""
    settings = Settings()
    store, executor = Store(settings.root).open(), Executor(sources=Sources(settings.mirrors, settings.offline))
    gold = read_shards(store.run(Corpus("gum").split("test"), executor)).slice(0, int(count)).combine_chunks()
    models = {"models": store.run(step_of(parser), executor).path}
    model = find_model(experiment)
    recipe = model.experiment.recipe
    if not isinstance(recipe, ParsingRecipe):
        sys.exit(f"{experiment} is no parser: name an experiment of paper 004")
    joint = OurParser(recipe.problem, model.experiment.model, recipe.divide)
    alone = replace(joint, objective=replace(recipe.problem, decode=phrases_alone))
    trained = {"weights": model.weights.path, "vocabulary": model.vocabulary.path}
    parsers = {
        "Stanza, phrases": lambda rows: Stanza(processors=("pos", "constituency")).analyse(rows, "tokens", models),
        "ours, phrases": lambda rows: alone.analyse(rows, "tokens", trained),
        "Stanza, all": lambda rows: Stanza().analyse(rows, "tokens", models),
        "ours, all": lambda rows: joint.analyse(rows, "tokens", trained),
    }
    for analyse in parsers.values():
        analyse(gold.slice(0, 20))
    seconds: dict[str, list[float]] = {name: [] for name in parsers}
    parses: dict[str, pa.Table] = {}
    for _ in range(ROUNDS):
        for name, analyse in parsers.items():
            start = time.process_time()
            parses[name] = analyse(gold)
            seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, median in medians.items():
        scores = "  ".join(f"{metric} {value:.2f}" for metric, value in treebank_scores(gold, parses[name]).items())
        print(f"{name:15} {gold.num_rows / median:6.1f} sentences/s  {scores}")
    for task in ("phrases", "all"):
        print(f"{task}: ours is {medians[f'Stanza, {task}'] / medians[f'ours, {task}']:.2f} times as fast")


if __name__ == "__main__":
    main(*sys.argv[1:])
