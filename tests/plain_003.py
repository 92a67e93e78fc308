"""Transcription of paper 003: one example at a time, sums over all structures, loops over positions, float64.

`w` is the state_dict of a model; only its names of parameters are shared with the library.
"""

import itertools
import math

import torch

Vector = torch.Tensor


def softmax(scores):
    top = max(float(s) for s in scores)
    e = [torch.exp(s - top) for s in scores]
    return [x / sum(e) for x in e]


def segments(scores, b, by_edge=False, normalise=True):
    """Return p(z_i = 1) for every i, or the normalised weights, by a sum over all 2^n sequences."""
    n, total, on = len(scores), 0.0, [0.0] * len(scores)
    for z in itertools.product((0, 1), repeat=n):
        score = (b[0][z[0]] + b[1][z[0]]) / 2 + (b[z[-1]][0] + b[z[-1]][1]) / 2  # the virtual start and end
        for i in range(n):
            times = 2 if by_edge and 0 < i < n - 1 else 1
            score = score + times * z[i] * scores[i]
            if i + 1 < n:
                score = score + b[z[i]][z[i + 1]]
        weight = torch.exp(score)
        total = total + weight
        on = [p + weight * here for p, here in zip(on, z, strict=True)]
    p = [x / total for x in on]
    return [2 * x / sum(p) for x in p] if normalise else p


def projective_trees(n, single_root=False):
    """Yield the heads of words 1..n for every projective tree below the root 0."""
    for heads in itertools.product(range(n + 1), repeat=n):
        arcs = [(h, m) for m, h in enumerate(heads, 1)]
        if any(h == m for h, m in arcs) or (single_root and sum(h == 0 for h, _ in arcs) != 1):
            continue
        if not all(reaches_root(heads, m) for m in range(1, n + 1)):
            continue
        crossing = any(
            min(a) < min(c) < max(a) < max(c) or min(c) < min(a) < max(c) < max(a)
            for a, c in itertools.combinations(arcs, 2)
        )
        if not crossing:
            yield heads


def reaches_root(heads, m):
    for _ in heads:
        m = heads[m - 1]
        if m == 0:
            return True
    return False


def tree_weights(theta, single_root=False):
    """Return p[j][i] = p(i is the head of j) for scores theta[j][i], with the root at 0."""
    n = len(theta) - 1
    total, p = 0.0, [[torch.zeros((), dtype=torch.float64) for _ in range(n + 1)] for _ in range(n + 1)]
    for heads in projective_trees(n, single_root):
        weight = torch.exp(sum(theta[m][h] for m, h in enumerate(heads, 1)))
        total = total + weight
        for m, h in enumerate(heads, 1):
            p[m][h] = p[m][h] + weight
    return [[x / total for x in row] for row in p]


def lstm(xs, w, prefix, reverse=False):
    """Return the states of one layer and direction, which starts with zeros."""
    name, suffix = prefix, "_reverse" if reverse else ""
    w_x, w_h = w[f"{name}.weight_ih_l{{}}{suffix}"], w[f"{name}.weight_hh_l{{}}{suffix}"]
    bias = w[f"{name}.bias_ih_l{{}}{suffix}"] + w[f"{name}.bias_hh_l{{}}{suffix}"]
    d = w_h.shape[1]
    h = c = torch.zeros(d, dtype=torch.float64)
    out = []
    for x in reversed(xs) if reverse else xs:
        gates = w_x @ x + w_h @ h + bias
        i, f, g, o = gates[:d], gates[d : 2 * d], gates[2 * d : 3 * d], gates[3 * d :]
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return out[::-1] if reverse else out


def layer(w, prefix, index):
    """Return the parameters of one layer, under names in which {} replaces its index."""
    return {
        name.replace(f"_l{index}", "_l{}"): value
        for name, value in w.items()
        if name.startswith(prefix) and f"_l{index}" in name
    }


def stacked_lstm(xs, w, prefix, layers):
    for index in range(layers):
        xs = lstm(xs, layer(w, prefix, index), prefix)
    return xs


def arc_scores(words, w, prefix):
    """Return theta[j][i] = tanh(s · tanh(W1 h_i + W2 h_j + b)) over the states h of a BiLSTM."""
    one = layer(w, f"{prefix}.states.lstm", 0)
    forth, back = (lstm(words, one, f"{prefix}.states.lstm", reverse) for reverse in (False, True))
    h = [torch.cat(pair) for pair in zip(forth, back, strict=True)]
    w1, bias = w[f"{prefix}.arcs.head.weight"], w[f"{prefix}.arcs.head.bias"]
    w2, s = w[f"{prefix}.arcs.dependent.weight"], w[f"{prefix}.arcs.score.weight"][0]
    return [[torch.tanh(s @ torch.tanh(w1 @ h_i + w2 @ h_j + bias)) for h_i in h] for h_j in h]


def with_parents(x, embedded, w, prefix, kind, heads=None):
    """Return [x_j; c_j] by no, hard, simple (softmax) or structured (tree) attention."""
    if kind == "none":
        return x
    if kind == "hard":
        return [torch.cat([x_j, x[h] if h >= 0 else 0 * x_j]) for x_j, h in zip(x, heads, strict=True)]
    theta = arc_scores(embedded, w, prefix)
    p = tree_weights(theta) if kind == "tree" else [softmax(row) for row in theta]
    return [
        torch.cat([x_j, sum(a * x_i for a, x_i in zip(row, x, strict=True))]) for x_j, row in zip(x, p, strict=True)
    ]


def decode(memory, target, w, layers, weights):
    """Return the scores of the token after each token of `target`, given the memory of one source."""
    hidden = stacked_lstm([w["embed_target.weight"][y] for y in target], w, "decoder", layers)
    out = []
    for h in hidden:
        scores = [x @ w["score.weight"] @ h for x in memory]
        context = sum(a * x for a, x in zip(weights(scores), memory, strict=True))
        out.append(w["project.weight"] @ torch.tanh(w["combine.weight"] @ torch.cat([context, h])) + w["project.bias"])
    return torch.stack(out)


def embed_sentence(ids, table, by_position=True):
    """Return Σ_j l_j ∘ x_j with l_kj = (1 − j/J) − (k/d)(1 − 2j/J); j and k count from 1."""
    ids = [i for i in ids if i]
    d, J = table.shape[1], len(ids)
    total = torch.zeros(d, dtype=torch.float64)
    for j, word in enumerate(ids, 1):
        for k in range(1, d + 1):
            share = (1 - j / J) - (k / d) * (1 - 2 * j / J) if by_position else 1.0
            total[k - 1] = total[k - 1] + share * table[word, k - 1]
    return total


def embed_facts(facts, w, table):
    """Return the vectors of facts; the last fact gets the last vector of `ago`."""
    words, ago = w[f"{table}.words.weight"], w[f"{table}.ago"]
    return [embed_sentence(f, words) + ago[i - len(facts)] for i, f in enumerate(facts)]


def hops(facts, question, w, K, linear=False):
    """Return the scores of answers of an end-to-end memory network, and the best fact of each hop."""
    q, best = embed_sentence(question, w["tables.0.words.weight"]), []
    for k in range(K):
        x, o = embed_facts(facts, w, f"tables.{k}"), embed_facts(facts, w, f"tables.{k + 1}")
        scores = [x_i @ q for x_i in x]
        p = scores if linear else softmax(scores)
        q = q + sum(a * o_i for a, o_i in zip(p, o, strict=True))
        best.append(max(range(len(facts)), key=lambda i, scores=scores: float(scores[i])))
    return w[f"tables.{K}.words.weight"] @ q, best


def fact_chain(facts, question, w, K, kind):
    """Return the scores of answers by a sum over all n^K sequences of facts, and the best sequence.

    kind: binary (each unary potential counts twice), once, rows (once; pairs as log p(j | i)), alone (once; no pairs), or
    unary (learned transitions).
    """
    n = len(facts)
    keys = [embed_facts(facts, w, f"keys.{k}") for k in range(K)]
    queries = [embed_sentence(question, w["keys.0.words.weight"])]
    for k in range(K - 1):
        if kind == "unary":
            queries.append(sum((x @ queries[k]) * other for x, other in zip(keys[k], keys[k + 1], strict=True)))
        else:
            queries.append(w[f"potentials.maps.{k}.weight"] @ queries[k] + w[f"potentials.maps.{k}.bias"])
    b = w.get("potentials.transitions")
    here = None if b is None else b[-n:, -n:]
    values = [embed_facts(facts, w, f"values.{k}") for k in range(K)]
    total, context, best = 0.0, 0.0, (-math.inf, None)
    for z in itertools.product(range(n), repeat=K):
        if any(z[k] == z[k + 1] for k in range(K - 1)):
            continue
        score = sum(keys[k][z[k]] @ queries[k] for k in range(K)) * (2 if kind == "binary" else 1)
        for k in range(K - 1):
            i, j = z[k], z[k + 1]
            if kind == "unary":
                score = score + here[i, j]
            elif kind == "rows":
                follow = {o: keys[k][i] @ keys[k + 1][o] + keys[k + 1][o] @ queries[k + 1] for o in range(n) if o != i}
                score = score + follow[j] - torch.stack(list(follow.values())).logsumexp(0)
            elif kind != "alone":
                score = score + keys[k][i] @ keys[k + 1][j]
        if kind == "unary":
            score = score + b.mean(0)[z[0] - n] + b.mean(1)[z[-1] - n]
        weight = torch.exp(score)
        total = total + weight
        context = context + weight * sum(values[k][z[k]] for k in range(K))
        best = max(best, (float(score), list(z)))
    return w["answer.weight"] @ (context / total + queries[-1]), best[1]


def mlp(x, w, prefix, first=1, second=4):
    """Return two linear layers with ReLU of x; indices 0 and 3 of the module are dropouts."""
    x = torch.relu(w[f"{prefix}.{first}.weight"] @ x + w[f"{prefix}.{first}.bias"])
    return torch.relu(w[f"{prefix}.{second}.weight"] @ x + w[f"{prefix}.{second}.bias"])


def decomposable(premise, hypothesis, w, kind, heads_p=None, heads_h=None):
    """Return the scores of the labels of one pair."""
    sides = []
    for ids, heads in ((premise, heads_p), (hypothesis, heads_h)):
        embedded = [w["embed.weight"][i] for i in ids]
        x = [w["project.weight"] @ e for e in embedded]
        sides.append(with_parents(x, embedded, w, "parents", kind, heads))
    p, h = sides
    e = [[mlp(a, w, "attend") @ mlp(b, w, "attend") for b in h] for a in p]
    v_p = v_h = 0.0
    for i, a in enumerate(p):
        aligned = sum(s * b for s, b in zip(softmax(e[i]), h, strict=True))
        v_p = v_p + mlp(torch.cat([a, aligned]), w, "compare")
    for j, b in enumerate(h):
        aligned = sum(s * a for s, a in zip(softmax([row[j] for row in e]), p, strict=True))
        v_h = v_h + mlp(torch.cat([b, aligned]), w, "compare")
    return w["aggregate.6.weight"] @ mlp(torch.cat([v_p, v_h]), w, "aggregate") + w["aggregate.6.bias"]
