# mypy: disallow-untyped-defs=False
"""Compiled updates of memory networks (phrasemodels.models.memory) with gradients by hand.

An update has one question. First come the common parts: embedded sentences, the loss of an answer, an SGD update. Then
an end-to-end memory network of K hops, whose phase 0 is its linear start. Then a chain of K facts. The gradient of its
marginals is the one of the expectation Σ_k a(z_k) over chains: p(z_k = i) (E[Σ a | z_k = i] − E[Σ a]), from sums along
the chain.

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
TINY = np.finfo(np.float64).tiny
NO_PAIRS, PRODUCTS, ROWS, SLOTS = range(4)  # what the pairwise potentials are; see ChainReading


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


class HopsWeights(NamedTuple):
    """words (K+1, V, d) and ago (K+1, S, d): embeddings of each table."""

    words: Floats
    ago: Floats


@njit(**UNORDERED)
def _hops_forward(weights, scales, stories, row, linear):
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
def hops_gradient(weights, gradients, scales, stories, row, linear):
    """Add the gradient of a question's loss to the gradients; return the loss (nats)."""
    memories, queries, p = _hops_forward(weights, scales, stories, row, linear)
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
def hops_updates(parameters, scales, stories, schedule):
    """Do the updates of a schedule; return the sum of the losses (nats) before each."""
    total = 0.0
    for t in range(len(schedule.rows)):
        total += hops_gradient(
            parameters.weights, parameters.gradients, scales, stories, schedule.rows[t], schedule.phases[t] == 0
        )
        descend(parameters.vector, parameters.gradient, schedule.rates[t], schedule.clip)
    return total


@njit(**UNORDERED)
def hops_answers(weights, scales, stories, phase):
    """Return the id of the best answer to each question (N)."""
    found = np.empty(len(stories.answers), np.int64)
    for row in range(len(found)):
        queries = _hops_forward(weights, scales, stories, row, phase == 0)[1]
        found[row] = products(weights.words[-1], queries[-1]).argmax()
    return found


class ChainWeights(NamedTuple):
    """The weights of a chain; those that a model lacks are empty.

    Embeddings of keys and values, words (K, V, d) and ago (K, S, d); maps (K-1, d, d) and offsets (K-1, d) of queries;
    transitions (S, S) of slots; answer (V, d).
    """

    key_words: Floats
    key_ago: Floats
    value_words: Floats
    value_ago: Floats
    maps: Floats
    offsets: Floats
    transitions: Floats
    answer: Floats


class Pass(NamedTuple):
    """The forward pass of a question: keys and values (K, n, d), queries (K, d), matches x_i^k · q^k (K, n), exponentials of
    normalised pairs (K-1, n, n), marginals p (K, n), `both` of pairs (K-1, n, n), and the state (d) that answers."""

    keys: Floats
    values: Floats
    queries: Floats
    matches: Floats
    exponentials: Floats
    p: Floats
    both: Floats
    state: Floats


class ChainReading(NamedTuple):
    """The settings of the potentials. scales (w+1, w, d): l of words. pairs, counts (2): of each phase of the model.

    pairs: NO_PAIRS is 0; PRODUCTS x_i^k · x_j^{k+1}; ROWS the log-softmax over j ≠ i of x_i^k · x_j^{k+1} + x_j^{k+1} · q^{k+1};
    SLOTS the learned transitions, with which queries are sums of facts. counts: how often unary potentials enter.
    """

    scales: Floats
    pairs: Integers
    counts: Floats


@njit(**UNORDERED)
def _queries(weights, keys, question, by_slots):
    """Return q^1 .. q^K (K, d) and x_i^k · q^k (K, n) from keys (K, n, d) and q^1 (d)."""
    K, n, d = keys.shape
    queries, matches = np.zeros((K, d)), np.zeros((K, n))
    queries[0] = question
    for k in range(K):
        if k > 0 and by_slots:
            add_sum(queries[k], matches[k - 1], keys[k])
        elif k > 0:
            queries[k] = weights.offsets[k - 1] + products(weights.maps[k - 1], queries[k - 1])
        matches[k] = products(keys[k], queries[k])
    return queries, matches


@njit(**UNORDERED)
def _pairwise(transitions, keys, matches, pairs):
    """Return the pairwise potentials (K-1, n, n), and for ROWS their exponentials; −inf where a fact follows itself."""
    K, n, d = keys.shape
    scores, exponentials, zeros = np.zeros((K - 1, n, n)), np.zeros((K - 1, n, n)), np.zeros(n)
    for k in range(K - 1):
        for i in range(n):
            for j in range(n):
                if pairs == SLOTS:
                    scores[k, i, j] = transitions[len(transitions) - n + i, len(transitions) - n + j]
                elif pairs != NO_PAIRS:
                    score = matches[k + 1, j] if pairs == ROWS else 0.0
                    for e in range(d):
                        score += keys[k, i, e] * keys[k + 1, j, e]
                    scores[k, i, j] = score
            scores[k, i, i] = -np.inf
            if pairs == ROWS:
                scores[k, i] -= softmax_into(exponentials[k, i], scores[k, i], zeros)
    return scores, exponentials


@njit(**UNORDERED)
def _unary(transitions, matches, count, pairs):
    """Return the unary potentials (K, n); with SLOTS, the mean transitions to the first and from the last fact are in them."""
    n, S = matches.shape[1], len(transitions)
    unary = count * matches
    if pairs == SLOTS:
        for i in range(n):
            unary[0, i] += transitions[:, S - n + i].mean()
            unary[-1, i] += transitions[S - n + i].mean()
    return unary


@njit(**UNORDERED)
def _marginals(unary, pairwise):
    """Return p(z_k = i) (K, n) and p(z_k = i, z_{k+1} = j) (K-1, n, n).

    Backwards the conditional p(z_{k+1} = j | z_k = i), a softmax of finite scores, forwards its products with p(z_k = i).
    """
    K, n = unary.shape
    p, both, after = np.zeros((K, n)), np.empty((K - 1, n, n)), np.zeros(n)
    for k in range(K - 2, -1, -1):
        after += unary[k + 1]
        log_sums = np.empty(n)
        for i in range(n):
            log_sums[i] = softmax_into(both[k, i], pairwise[k, i], after)
        after = log_sums
    softmax_into(p[0], unary[0], after)
    for k in range(K - 1):
        for i in range(n):
            for j in range(n):
                both[k, i, j] *= p[k, i]
                p[k + 1, j] += both[k, i, j]
    return p, both


@njit(**UNORDERED)
def _expectation_gradient(p, both, values):
    """Return the gradient of Σ_k Σ_i p(z_k = i) values_ki (K, n) by unary (K, n) and pairwise (K-1, n, n) potentials."""
    K, n = p.shape
    before, after = np.zeros((K, n)), np.zeros((K, n))  # E of the values up to place k and from it on, times p(z_k)
    for k in range(K):
        for j in range(n):
            before[k, j] += p[k, j] * values[k, j]
        for i in range(n if k + 1 < K else 0):
            mean = before[k, i] / max(p[k, i], TINY)
            for j in range(n):
                before[k + 1, j] += both[k, i, j] * mean
    for k in range(K - 1, -1, -1):
        since = after[min(k + 1, K - 1)] / np.maximum(p[min(k + 1, K - 1)], TINY)
        for i in range(n):
            for j in range(n if k + 1 < K else 0):
                after[k, i] += both[k, i, j] * since[j]
            after[k, i] += p[k, i] * values[k, i]
    total, by_pair = before[K - 1].sum(), np.empty((K - 1, n, n))
    for k in range(K - 1):
        until, since = before[k] / np.maximum(p[k], TINY), after[k + 1] / np.maximum(p[k + 1], TINY)
        for i in range(n):
            for j in range(n):
                by_pair[k, i, j] = both[k, i, j] * (until[i] + since[j] - total)
    return before + after - p * (values + total), by_pair


@njit(**UNORDERED)
def _pairwise_backward(by_key, by_match, transitions, keys, exponentials, by_pair, pairs):
    """Add the gradients of keys (K, n, d), matches (K, n) and transitions (S, S) from the gradient of pairwise potentials."""
    n, S = keys.shape[1], len(transitions)
    for k in range(len(by_pair)):
        for i in range(n):
            if pairs == SLOTS:
                transitions[S - n + i, S - n :] += by_pair[k, i]
            if pairs == ROWS:
                by_pair[k, i] -= exponentials[k, i] * by_pair[k, i].sum()
                by_match[k + 1] += by_pair[k, i]
            if pairs in (PRODUCTS, ROWS):
                add_sum(by_key[k, i], by_pair[k, i], keys[k + 1])
                add_outer(by_key[k + 1], by_pair[k, i], keys[k, i])


@njit(**UNORDERED)
def _unary_backward(by_match, transitions, by_unary, count, pairs):
    """Add the gradients of matches (K, n) and transitions (S, S) from the gradient of unary potentials (K, n)."""
    n, S = by_unary.shape[1], len(transitions)
    by_match += count * by_unary
    if pairs == SLOTS:
        for i in range(n):
            transitions[:, S - n + i] += by_unary[0, i] / S
            transitions[S - n + i] += by_unary[-1, i] / S


@njit(**UNORDERED)
def _queries_backward(weights, gradients, made, by_key, by_match, by_query, by_slots):
    """Add the gradients of keys (K, n, d), maps and offsets; leave in by_query[0] (d) the gradient of the embedded question."""
    for k in range(len(by_query) - 1, -1, -1):
        add_outer(by_key[k], by_match[k], made.queries[k])
        add_sum(by_query[k], by_match[k], made.keys[k])
        if k > 0 and by_slots:
            by_match[k - 1] += products(made.keys[k], by_query[k])
            add_outer(by_key[k], made.matches[k - 1], by_query[k])
        elif k > 0:
            gradients.offsets[k - 1] += by_query[k]
            add_outer(gradients.maps[k - 1], by_query[k], made.queries[k - 1])
            add_sum(by_query[k - 1], by_query[k], weights.maps[k - 1])


@njit(**UNORDERED)
def _embedded(words, ago, stories, row, scales):
    """Return the facts of a story as each of K tables embeds them (K, n, d)."""
    out = np.empty((len(words), len(stories.facts[row]) - stories.first[row], words.shape[2]))
    for k in range(len(out)):
        out[k] = embed_facts(words[k], ago[k], stories, row, scales)
    return out


@njit(**UNORDERED)
def _answer_state(values, p, query):
    """Return Σ_k Σ_i p_ki o_i^k + q^K (d)."""
    state = query.copy()
    for k in range(len(values)):
        add_sum(state, p[k], values[k])
    return state


@njit(**UNORDERED)
def _chain_forward(weights, reading, stories, row, phase):
    """Return a Pass: all that the way back of a question needs."""
    pairs, scales = reading.pairs[phase], reading.scales
    keys = _embedded(weights.key_words, weights.key_ago, stories, row, scales)
    values = _embedded(weights.value_words, weights.value_ago, stories, row, scales)
    question = embed_question(weights.key_words[0], stories, row, scales)
    queries, matches = _queries(weights, keys, question, pairs == SLOTS)
    pairwise, exponentials = _pairwise(weights.transitions, keys, matches, pairs)
    p, both = _marginals(_unary(weights.transitions, matches, reading.counts[phase], pairs), pairwise)
    state = _answer_state(values, p, queries[-1])
    return Pass(keys, values, queries, matches, exponentials, p, both, state)


@njit(**UNORDERED)
def chain_gradient(weights, gradients, reading, stories, row, phase):
    """Add the gradient of a question's loss to the gradients; return the loss (nats)."""
    pairs, scales = reading.pairs[phase], reading.scales
    made = _chain_forward(weights, reading, stories, row, phase)
    loss, by_score, _ = answer_loss(weights.answer, made.state, stories.answers[row])
    add_outer(gradients.answer, by_score, made.state)
    by_query, by_key, by_match = np.zeros(made.queries.shape), np.zeros(made.keys.shape), np.zeros(made.p.shape)
    add_sum(by_query[-1], by_score, weights.answer)
    by_p, by_value = np.empty(made.p.shape), np.zeros(made.values.shape)
    for k in range(len(by_p)):
        by_p[k] = products(made.values[k], by_query[-1])
        add_outer(by_value[k], made.p[k], by_query[-1])
    by_unary, by_pair = _expectation_gradient(made.p, made.both, by_p)
    _unary_backward(by_match, gradients.transitions, by_unary, reading.counts[phase], pairs)
    _pairwise_backward(by_key, by_match, gradients.transitions, made.keys, made.exponentials, by_pair, pairs)
    _queries_backward(weights, gradients, made, by_key, by_match, by_query, pairs == SLOTS)
    words = stories.questions[row, : stories.question_words[row]]
    add_sentence_gradient(gradients.key_words[0], words, scales, by_query[0])
    for k in range(len(by_p)):
        add_facts_gradient(gradients.key_words[k], gradients.key_ago[k], stories, row, scales, by_key[k])
        add_facts_gradient(gradients.value_words[k], gradients.value_ago[k], stories, row, scales, by_value[k])
    return loss


@njit(**UNORDERED)
def chain_updates(parameters, reading, stories, schedule):
    """Do the updates of a schedule; return the sum of the losses (nats) before each."""
    total = 0.0
    for t in range(len(schedule.rows)):
        row, phase = schedule.rows[t], schedule.phases[t]
        total += chain_gradient(parameters.weights, parameters.gradients, reading, stories, row, phase)
        descend(parameters.vector, parameters.gradient, schedule.rates[t], schedule.clip)
    return total


@njit(**UNORDERED)
def chain_answers(weights, reading, stories, phase):
    """Return the id of the best answer to each question (N)."""
    found = np.empty(len(stories.answers), np.int64)
    for row in range(len(found)):
        found[row] = products(weights.answer, _chain_forward(weights, reading, stories, row, phase).state).argmax()
    return found
