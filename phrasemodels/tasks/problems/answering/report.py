"""The figure of a model that answers: the weights of a story's facts at each step (paper 003)."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from phrasemodels.layers.ids import PAD
from phrasemodels.models.memory import Chain, Hops
from phrasemodels.tasks.prepare.vocabulary import ids_of, read_words
from phrasemodels.tasks.problems.answering.data import words
from phrasemodels.tasks.problems.answering.objective import AnsweringObjective
from phrasemodels.tasks.problems.report import Heatmap, Heatmaps, TrainedModel, check_size
from phrasemodels.tasks.train.checkpoints import load_trained


def story_figure(trained: TrainedModel, text: str) -> Heatmaps:
    """Return the weights of the facts of a story. text: facts and then a question, each with a mark at its end.

    ValueError: it is no story, or has too many words.
    """
    parts = [part.strip() for part in re.split(r"[.?!]", text) if part.strip()]
    if len(parts) < 2:
        raise ValueError(f"{text[:60]!r} is no story: give facts and then a question, each with a mark at its end")
    *facts, question = parts
    vocabulary = read_words(trained.artifacts["vocabulary"], "words")
    rows = [words(fact) for fact in facts]
    longest = max(map(len, rows))
    ids = torch.tensor([ids_of(row, vocabulary) + [PAD] * (longest - len(row)) for row in rows])
    asked = torch.tensor(ids_of(words(question), vocabulary))
    model = load_trained(AnsweringObjective(), trained.config, trained.artifacts)
    return fact_weights(model, facts, f"{question}?", (ids, asked))


@torch.inference_mode()
def fact_weights(model: Hops | Chain, facts: Sequence[str], question: str, ids: tuple[Tensor, Tensor]) -> Heatmaps:
    """Return the weights of the facts (rows) at each step (columns), with the best sequence of facts in frames.

    ids: of the facts (n, w) and of the question (v).
    """
    check_size(len(facts), len(ids[0]))
    weights = model.eval().weights(ids[0][None], ids[1][None])[0].T
    best = model.evidence(ids[0][None], ids[1][None])[0].tolist()
    steps = [f"{k + 1}" for k in range(len(best))]
    boxes = [(fact, step) for step, fact in enumerate(best)]
    panel = Heatmap(weights.numpy(), list(facts), steps, question, boxes, margin=(4.5, 1.0))
    return Heatmaps([panel], f"Facts for {question}: " + ", ".join(facts[fact] for fact in best))
