"""The cheapest kept training of each paper, trained anew, has the kept values to the last digit."""

import pytest
from conftest import CORPORA, PARSERS

from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results.results import kept_results

CHEAPEST = {
    "000": "000/table2-ud_english_ewt-tags/laptop/transformer",
    "001": "001/table2/laptop/hconvnet",
    "002": "002/figure4/laptop/transformer",
    "003": "003/tablebabi-readings/paper/memn2n-published-qa17",
    "004": "004/table3/laptop/hpsg-2",
}


@pytest.mark.slow
@pytest.mark.needs_mirror("corpora", "parsers")
@pytest.mark.parametrize("paper", CHEAPEST)
def test_a_kept_seed_repeats(paper: str, store: Store) -> None:
    name = CHEAPEST[paper]
    kept = [one.row["values"] for one in kept_results() if one.experiment.name == name]
    scored = store.run(experiment(name).steps(0).scored, Executor(sources=Sources((CORPORA, PARSERS), True, False)))
    ours = {metric: score["value"] for metric, score in scored.meta["scores"].items()}
    assert kept and ours in [{metric: values[0] for metric, values in one.items() if metric in ours} for one in kept]
