"""BLEU of one trained translator under readings of decoding and scoring: `python benchmarks/rescore.py EXPERIMENT`.

Nothing is trained. The model is the best of the experiment's trainings in the store (PHRASEMODELS_STORE), which has translated its
test set. Rows are searches, columns how their answers are scored: tokens in lower case (the reported BLEU), against references
with their case, and with </s> as a token of the answers alone. A perfect lower-cased answer has the score of the last row.
"""

import sys
from dataclasses import replace

import torch

from phrasemodels.flows.results.models import find
from phrasemodels.flows.results.records import open_store
from phrasemodels.infra.settings import Settings
from phrasemodels.models.translation import BeamSearch, beam_search
from phrasemodels.tasks.metrics.scores import bleu, tokenised_bleu
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.tokenise import moses
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import best_device, load_trained

BATCH = 4096  # tokens of a batch


def main(experiment: str) -> None:
    """Print the table."""
    store = open_store(Settings())
    model = find(store, experiment, {})
    recipe, inputs, device = model.experiment.recipe, model.test_inputs(), best_device()
    translator = load_trained(recipe.problem, model.config, inputs, device)
    data = recipe.problem.examples([shard.path for shard in shards(inputs["phrases"])])
    words = read_words(inputs["vocabulary"], "target")
    by_key = {artifact.key: artifact for artifact in store.artifacts()}
    raw = by_key[inputs["rows"].manifest["parts"]["inputs"]["rows"]]
    lower = [" ".join(tokens) for tokens in read_shards(inputs["rows"])["target"].to_pylist()]
    cased = [" ".join(moses(text, recipe.languages[1])) for text in read_shards(raw)["target"].to_pylist()]

    def answers(search: BeamSearch) -> list[str]:
        found: dict[int, str] = {}
        for rows in in_order(data, BATCH):
            batch = data.batch(rows).to(device)
            best = beam_search(translator, batch.source, batch.lengths, batch.members, search)
            found |= {row: " ".join(words[i] for i in ids) for row, (ids, _) in zip(rows.tolist(), best, strict=True)}
        return [found[row] for row in range(len(data))]

    def scored(hypotheses: list[str]) -> list[float]:
        with_case = tokenised_bleu()
        with_case.lowercase = False
        ended = [f"{hypothesis} </s>" for hypothesis in hypotheses]
        metrics = (
            (tokenised_bleu(), hypotheses, lower),
            (with_case, hypotheses, cased),
            (tokenised_bleu(), ended, lower),
        )
        return [bleu(*metric).value for metric in metrics]

    chosen = replace(recipe.search, unknown=False)
    searches = {
        f"beam {chosen.beam}, as the experiment": chosen,
        "beam 1": replace(chosen, beam=1),
        f"beam {chosen.beam}, no length normalisation": replace(chosen, length_penalty=0.0),
    }
    print(f"{model.name}\n{'':<50}{'lower':>8}{'cased':>8}{'</s>':>8}")
    for name, search in searches.items():
        for unknown in (False, True):
            found = scored(answers(replace(search, unknown=unknown)))
            title = f"{name}, <unk> left in" if unknown else name
            print(f"{title:<50}" + "".join(f"{value:8.2f}" for value in found), flush=True)
    print(f"{'the references in lower case':<50}" + "".join(f"{value:8.2f}" for value in scored(lower)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
