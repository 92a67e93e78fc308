"""Transcription of paper 001 (PSAN) and its baselines: one sentence at a time, loops over words, float64.

A matrix W has the shape (out, in), as in torch.nn.Linear, and is used as W @ x. A sentence is a list of vectors, a level a
list of phrases, a phrase a list of word positions. Parameters are dicts of tensors.
"""

import itertools
import math

import torch


def elu(x):
    return torch.where(x > 0, x, torch.exp(x.clamp(max=0)) - 1)


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def softmax(values):
    """Return the softmax over a list of vectors, feature by feature."""
    stacked = torch.stack(values)
    e = torch.exp(stacked - stacked.max(0).values)
    return e / e.sum(0)


def affine(name, x, weights):
    y = weights[f"{name}.weight"] @ x
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def phrase_attention(words, phrase, weights, alone):
    """Return c_i for the words i of one phrase (Eq 1-3)."""
    out = {}
    for i in phrase:
        p = words[i]
        others = [j for j in phrase if j != i]
        if others:
            logits = [elu(affine("own", p, weights) + affine("other", words[j], weights)) for j in others]
            attended = sum(a * words[j] for a, j in zip(softmax(logits), others, strict=True))
        else:
            attended = torch.zeros_like(p) if alone == "zero" else p
        out[i] = elu(affine("compare", torch.cat([(p - attended).abs(), p * attended]), weights))
    return out


def summary(words, weights):
    """Return the sentence vector (Eq 5)."""
    energies = [affine("outer", elu(affine("inner", m, weights)), weights) for m in words]
    return sum(a * m for a, m in zip(softmax(energies), words, strict=True))


def psan(words, levels, weights, alone="zero", memory="literal"):
    """Return the sentence vector of PSAN; levels in the order of attention; weights {"attentions", "memory", "summary"}."""
    composed_of = []
    state = list(words)
    for level, psa in zip(levels, weights["attentions"], strict=True):
        source = words if memory == "concatenated" else state
        composed = {}
        for phrase in level:
            composed |= phrase_attention(source, phrase, psa, alone)
        composed_of.append(composed)
        if memory in ("literal", "highway"):
            new = []
            for i, m in enumerate(state):
                both = torch.cat([m, composed[i]])
                gate = sigmoid(affine("gate", both, weights["memory"]))
                value = gate * elu(affine("write", both, weights["memory"]))
                new.append(value + (1 - gate) * m if memory == "highway" else value)
            state = new
        elif memory == "stacked":
            state = [composed[i] for i in range(len(words))]
    if memory == "concatenated":
        state = [
            elu(affine("merge", torch.cat([composed[i] for composed in composed_of]), weights["memory"]))
            for i in range(len(words))
        ]
    return summary(state, weights["summary"])


def disan(words, weights):
    """Return the sentence vector of DiSAN; weights {"past", "future", "summary"}."""
    both = []
    for name in ("past", "future"):
        w = weights[name]
        h = [elu(affine("hidden", x, w)) for x in words]
        states = []
        for i in range(len(words)):
            seen = range(i) if name == "past" else range(i + 1, len(words))
            s = torch.zeros_like(h[i])
            if len(seen):
                logits = [5 * torch.tanh((affine("other", h[j], w) + affine("own", h[i], w)) / 5) for j in seen]
                s = sum(a * h[j] for a, j in zip(softmax(logits), seen, strict=True))
            fusion = sigmoid(affine("keep", h[i], w) + affine("take", s, w))
            states.append(fusion * h[i] + (1 - fusion) * s)
        both.append(states)
    return summary([torch.cat(pair) for pair in zip(*both, strict=True)], weights["summary"])


def tbcnn(words, heads, relations, parent, dependents):
    """Return the sentence vector of TBCNN; heads count from 1, 0 is the root."""
    states = []
    for i, word in enumerate(words):
        y = affine("w", word, parent)
        for j, head in enumerate(heads):
            if head == i + 1:
                y = y + affine("w", words[j], dependents[relations[j]])
        states.append(y.clamp(min=0))
    return torch.stack(states).max(0).values


def adasent(words, weights):
    nodes = [affine("project", x, weights) for x in words]
    heights = []
    while True:
        heights.append(torch.stack(nodes).max(0).values)
        if len(nodes) == 1:
            break
        above = []
        for left, right in itertools.pairwise(nodes):
            candidate = torch.tanh(affine("left", left, weights) + affine("right", right, weights))
            g = affine("gate_left", left, weights) + affine("gate_right", right, weights)
            g = torch.exp(g) / torch.exp(g).sum()
            above.append(g[0] * left + g[1] * right + g[2] * candidate)
        nodes = above
    beliefs = [math.exp(affine("belief", h, weights).item()) for h in heights]
    return sum(b / sum(beliefs) * h for b, h in zip(beliefs, heights, strict=True))


def phrase_levels(tree, depths):
    """Return the levels of a tree by the rules of section 1, footnote 1, as lists of words.

    tree: nested lists, a word is a string. depths: the levels that are returned, from 1.
    """

    def words(node):
        return [node] if isinstance(node, str) else [w for child in node for w in words(child)]

    def skip_unary(node):
        while not isinstance(node, str) and len(node) == 1:
            node = node[0]
        return node

    root = skip_unary(tree)
    level = [root] if isinstance(root, str) else list(root)
    levels = {}
    for depth in range(1, max(depths) + 1):
        if depth > 1:
            divided = []
            for node in level:
                node = skip_unary(node)
                divided += [node] if isinstance(node, str) or len(words(node)) < 4 else list(node)
            level = divided
        levels[depth] = [words(node) for node in level]
    return [levels[depth] for depth in depths]


def with_words(spans, n):
    """Return the spans (start, end) of a tree of n words, words among them, without repetitions."""
    return {*spans, *((i, i + 1) for i in range(n))}


def children(spans, span):
    """Return the widest of the spans within a span, left to right."""
    inside = {s for s in spans if s != span and span[0] <= s[0] and s[1] <= span[1]}
    return sorted(s for s in inside if not any(o[0] <= s[0] and s[1] <= o[1] for o in inside - {s}))


def halves(spans, n):
    """Return `with_words` with nodes of more than two children binarised to the right."""
    spans = with_words(spans, n)
    return spans | {(c[0], s[1]) for s in spans for c in children(spans, s)[1:-1]}


def span_levels(spans, n, deepest):
    """Return where the phrases of each level begin, by expanding phrase after phrase."""
    level, found = [(0, n)], []
    for depth in range(deepest):
        level = [
            part
            for span in level
            for part in ((children(spans, span) or [span]) if depth == 0 or span[1] - span[0] > 3 else [span])
        ]
        found.append([start for start, _ in level])
    return found
