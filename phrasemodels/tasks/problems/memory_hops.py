# mypy: disallow-untyped-defs=False
"""Compiled updates of an end-to-end memory network (phrasemodels.models.memory.Hops), one question each, gradients by hand.

K hops; the other shapes are as in phrasemodels.tasks.problems.memory_stories. Phase 0 of the model is its linear start.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from phrasemodels.tasks.problems.memory_stories import (
    UNORDERED,
    Floats,
    add_facts_gradient,
    add_outer,
    add_sentence_gradient,
    add_sum,
    answer_loss,
    descend,
    embed_facts,
    embed_question,
    products,
    softmax,
)


class HopsWeights(NamedTuple):
    """words (K+1, V, d) and ago (K+1, S, d): embeddings of each table."""

    words: Floats
    ago: Floats


@njit(**UNORDERED)
def _forward(weights, scales, stories, row, linear):
    """Return memories (K+1, n, d), queries (K+1, d) and weights of facts (K, n)."""
    K, (n, d) = len(weights.words) - 1, weights.ago[0, stories.first[row] :].shape
    memories, queries, p = np.empty((K + 1, n, d)), np.empty((K + 1, d)), np.empty((K, n))
    for k in range(K + 1):
        memories[k] = embed_facts(weights.words[k], weights.ago[k], stories, row, scales)
    queries[0] = embed_question(weights.words[0], stories, row, scales)
    for k in range(K):
        scores = products(memories[k], queries[k])
        p[k] = scores if linear else softmax(scores)[0]
        queries[k + 1] = queries[k]
        add_sum(queries[k + 1], p[k], memories[k + 1])
    return memories, queries, p


@njit(**UNORDERED)
def gradient_of(weights, gradients, scales, stories, row, linear):
    """Add the gradient of a question's loss to the gradients; return the loss (nats)."""
    memories, queries, p = _forward(weights, scales, stories, row, linear)
    K = len(p)
    loss, by_score, _ = answer_loss(weights.words[K], queries[K], stories.answers[row])
    add_outer(gradients.words[K], by_score, queries[K])
    by_query, by_memory = np.zeros(queries.shape[1]), np.zeros(memories.shape)
    add_sum(by_query, by_score, weights.words[K])
    for k in range(K - 1, -1, -1):
        by_p = products(memories[k + 1], by_query)
        add_outer(by_memory[k + 1], p[k], by_query)
        if not linear:
            by_p = p[k] * (by_p - (p[k] * by_p).sum())
        add_outer(by_memory[k], by_p, queries[k])
        add_sum(by_query, by_p, memories[k])
    add_sentence_gradient(gradients.words[0], stories.questions[row, : stories.question_words[row]], scales, by_query)
    for k in range(K + 1):
        add_facts_gradient(gradients.words[k], gradients.ago[k], stories, row, scales, by_memory[k])
    return loss


@njit(**UNORDERED)
def updates(parameters, scales, stories, schedule):
    """Do the updates of a schedule; return the sum of the losses (nats) before each."""
    total = 0.0
    for t in range(len(schedule.rows)):
        total += gradient_of(
            parameters.weights, parameters.gradients, scales, stories, schedule.rows[t], schedule.phases[t] == 0
        )
        descend(parameters.vector, parameters.gradient, schedule.rates[t], schedule.clip)
    return total


@njit(**UNORDERED)
def answers(weights, scales, stories, phase):
    """Return the id of the best answer to each question (N)."""
    found = np.empty(len(stories.answers), np.int64)
    for row in range(len(found)):
        queries = _forward(weights, scales, stories, row, phase == 0)[1]
        found[row] = products(weights.words[-1], queries[-1]).argmax()
    return found
