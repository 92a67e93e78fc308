"""Our parser against Stanza's: `python benchmarks/parsers.py 004/parser/laptop/lal [trained-]gum [SENTENCES]`.

Tokens of GUM's test set to phrase structure, in one process and on one thread, in batches of 100 as the parse step does
it, rounds interleaved, medians of processor time; loading is not timed. Ours finds tags, heads and relations in the same
pass, Stanza's tagger comes before its constituency parser, with which its dependency parser is not run. Scores are those
of what was timed.
"""

import statistics
import sys
import time

import pyarrow as pa

from data.sources import Sources
from data.store import Places, Store
from flows.parsers import step_of
from flows.recipes.parsing import ParsingRecipe
from flows.use import find_model
from infra.settings import Settings
from tasks.corpora import Corpus
from tasks.stages import stage_table
from tasks.stanza_parser import Stanza
from tasks.trained_parser import Trained
from tasks.treebank_scores import treebank_scores

ROUNDS = 5


def main(experiment: str, parser: str = "gum", count: str = "400") -> None:
    """Sentences a second and scores of both."""
    settings = Settings()
    store, places = Store(settings.root).open(), Places(sources=Sources(settings.mirrors, settings.offline))
    gold = stage_table(store.run(Corpus("gum").split("test"), places)).slice(0, int(count)).combine_chunks()
    models = {"models": store.run(step_of(parser), places).path}
    found = find_model(experiment)
    recipe = found.experiment.recipe
    if not isinstance(recipe, ParsingRecipe):
        sys.exit(f"{experiment} is no parser: name an experiment of paper 004")
    ours = Trained(recipe.problem, found.experiment.model, recipe.divide)
    trained = {"weights": found.weights.path, "vocabulary": found.vocabulary.path}
    parsers = {
        "Stanza": lambda rows: Stanza(processors=("pos", "constituency")).analyse(rows, "tokens", models),
        "ours": lambda rows: ours.analyse(rows, "tokens", trained),
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
        print(f"{name:8} {gold.num_rows / median:6.1f} sentences/s  {scores}")
    print(f"ours is {medians['Stanza'] / medians['ours']:.2f} times as fast")


if __name__ == "__main__":
    main(*sys.argv[1:])
