# mypy: disallow-untyped-defs=False
"""Compiled parts of memory networks: embedded sentences, the loss of an answer, and an SGD update.

Shapes: N questions, S slots of facts, n ≤ S facts of one story, w words of a fact, v of a question, d width, V vocabulary.
All numbers are float64. A weight and its gradient are views of one vector each, so that an update is a loop over it.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from phrasemodels.structs.dispatch import COMPILE

UNORDERED = COMPILE | {"fastmath": {"contract", "reassoc", "nsz"}}  # sums in any order, so that they are vectorised
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Stories(NamedTuple):
    """Questions about stories. Facts (N, S, w) stand in the last slots; `first` (N) is the slot of a story's first fact.

    fact_words (N, S) and question_words (N): numbers of words of the facts, and of the questions (N, v). answers (N).
    """

    facts: Integers
    fact_words: Integers
    first: Integers
    questions: Integers
    question_words: Integers
    answers: Integers


class Schedule(NamedTuple):
    """The next U updates: rows (U) of the stories, learning rates (U), phases (U) of the model (0 or 1), and the largest
    norm of a gradient."""

    rows: Integers
    rates: Floats
    phases: Integers
    clip: float


@njit(**UNORDERED)
def add_sentence(out, words, ids, scales):
    """Add Σ_j l_j ∘ x_j to out (d): embeddings words (V, d), ids of a sentence's words, l = scales (w+1, w, d)[length]."""
    for j in range(len(ids)):
        for e in range(len(out)):
            out[e] += scales[len(ids), j, e] * words[ids[j], e]


@njit(**UNORDERED)
def add_sentence_gradient(words, ids, scales, gradient):
    """Add to words (V, d) the gradient of its embeddings, from the gradient (d) of an embedded sentence."""
    for j in range(len(ids)):
        for e in range(len(gradient)):
            words[ids[j], e] += scales[len(ids), j, e] * gradient[e]


@njit(**UNORDERED)
def embed_facts(words, ago, stories, row, scales):
    """Return the embedded facts of a story (n, d): the sum of the words of each, and the vector of its age, ago (S, d)."""
    first = stories.first[row]
    out = ago[first:].copy()
    for i in range(len(out)):
        slot = first + i
        add_sentence(out[i], words, stories.facts[row, slot, : stories.fact_words[row, slot]], scales)
    return out


@njit(**UNORDERED)
def add_facts_gradient(words, ago, stories, row, scales, gradient):
    """Add to words (V, d) and ago (S, d) their gradients, from the gradient (n, d) of the embedded facts."""
    first = stories.first[row]
    for i in range(len(gradient)):
        slot = first + i
        for e in range(gradient.shape[1]):
            ago[slot, e] += gradient[i, e]
        ids = stories.facts[row, slot, : stories.fact_words[row, slot]]
        add_sentence_gradient(words, ids, scales, gradient[i])


@njit(**UNORDERED)
def embed_question(words, stories, row, scales):
    """Return the embedded question (d)."""
    out = np.zeros(words.shape[1])
    add_sentence(out, words, stories.questions[row, : stories.question_words[row]], scales)
    return out


@njit(**UNORDERED)
def products(rows, vector):
    """Return the products (n) of rows (n, d) and a vector (d)."""
    out = np.zeros(len(rows))
    for i in range(len(rows)):
        for e in range(len(vector)):
            out[i] += rows[i, e] * vector[e]
    return out


@njit(**UNORDERED)
def add_sum(out, weights, rows):
    """Add Σ_i weights_i rows_i to out (d)."""
    for i in range(len(rows)):
        for e in range(len(out)):
            out[e] += weights[i] * rows[i, e]


@njit(**UNORDERED)
def add_outer(out, weights, vector):
    """Add weights_i · vector (d) to each row i of out (n, d)."""
    for i in range(len(out)):
        for e in range(len(vector)):
            out[i, e] += weights[i] * vector[e]


@njit(**UNORDERED)
def softmax_into(out, one, other):
    """Write the softmax of one + other (n) to out (n); return the log of their sum of exponentials. One is finite at least."""
    highest, total = -np.inf, 0.0
    for i in range(len(one)):
        out[i] = one[i] + other[i]
        highest = max(highest, out[i])
    for i in range(len(one)):
        out[i] = np.exp(out[i] - highest)
        total += out[i]
    for i in range(len(one)):
        out[i] /= total
    return np.log(total) + highest


@njit(**UNORDERED)
def softmax(scores):
    """Return the softmax of scores (n), and their log of a sum of exponentials."""
    out = np.empty(len(scores))
    log_sum = softmax_into(out, scores, np.zeros(len(scores)))
    return out, log_sum


@njit(**UNORDERED)
def answer_loss(table, state, answer):
    """Return the cross entropy (nats) of the answer with scores table (V, d) · state (d), its gradient by the scores (V), and
    the id of the best answer."""
    scores = products(table, state)
    gradient, log_sum = softmax(scores)
    gradient[answer] -= 1
    return log_sum - scores[answer], gradient, scores.argmax()


@njit(**UNORDERED)
def descend(weights, gradient, rate, clip):
    """Do one update of SGD on weights (P), whose gradient (P) is clipped at the norm `clip`; set the gradient to 0."""
    squares = 0.0
    for i in range(len(gradient)):
        squares += gradient[i] * gradient[i]
    rate *= min(1.0, clip / (np.sqrt(squares) + 1e-6))  # torch's clip_grad_norm_ adds 1e-6
    for i in range(len(gradient)):
        weights[i] -= rate * gradient[i]
        gradient[i] = 0.0
