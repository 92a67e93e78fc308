"""Transcription of the Label Attention Layer parser (paper 004): one sentence at a time, loops, float64.

There are no batches, padding and dropout. `w` maps the parser's names of parameters to tensors; the matrix of a linear map
has the shape (out, in). A sentence of n words has positions 0 (START) to n + 1 (STOP), and fenceposts 0 to n.
"""

import math

import torch


def f64(w):
    return {name: value.detach().double() for name, value in w.items()}


def below(w, prefix):
    return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}


def norm(x, w):
    """Normalise the rows of x by their mean and unbiased standard deviation."""
    rows = []
    for row in x:
        mean = sum(row) / len(row)
        deviation = (sum((v - mean) ** 2 for v in row) / (len(row) - 1)) ** 0.5
        rows.append(w["weight"] * (row - mean) / (deviation + 1e-3) + w["bias"])
    return torch.stack(rows)


def softmax(scores):
    e = torch.exp(scores - scores.max())
    return e / e.sum()


def feed_forward(x, w, split):
    """Return two feed-forward networks of x: of the first `split` features, and of the others."""
    out = []
    for name, part in (("content", x[:, :split]), ("position", x[:, split:])):
        hidden = torch.relu(part @ w[f"0.{name}.weight"].T + w[f"0.{name}.bias"])
        out.append(hidden @ w[f"3.{name}.weight"].T + w[f"3.{name}.bias"])
    return torch.cat(out, 1)


def self_attention(x, w, heads, scale):
    d = x.shape[1]
    halves = {"content": x[:, : d // 2], "position": x[:, d // 2 :]}
    out = {}
    q, k, v = (
        {half: halves[half] @ w[f"{name}.{half}.weight"].T for half in halves} for name in ("query", "key", "value")
    )
    width = q["content"].shape[1] // heads
    per_head = {half: [] for half in halves}
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        rows = {half: [] for half in halves}
        for i in range(len(x)):
            logits = []
            for j in range(len(x)):
                logits.append(scale * sum(q[half][i, part] @ k[half][j, part] for half in halves))
            a = softmax(torch.stack(logits))
            for half in halves:
                rows[half].append(sum(a[j] * v[half][j, part] for j in range(len(x))))
        for half in halves:
            per_head[half].append(torch.stack(rows[half]))
    for half in halves:
        out[half] = torch.cat(per_head[half], 1) @ w[f"output.{half}.weight"].T
    return torch.cat([out["content"], out["position"]], 1)


def encoder(x, w, heads, scale):
    layer = 0
    d = x.shape[1]
    while below(w, f"encoder.layers.{layer}."):
        own = below(w, f"encoder.layers.{layer}.")
        x = norm(x + self_attention(x, below(own, "attention."), heads, scale), below(own, "residuals.0.norm."))
        x = norm(x + feed_forward(x, below(own, "feed_forward."), d // 2), below(own, "residuals.1.norm."))
        layer += 1
    return x


def label_weights(x, w, scale, label, query):
    """Return a_l (1, N)."""
    half = x.shape[1] // 2
    k = torch.cat([x[:, :half] @ w["attend.key.content"][label], x[:, half:] @ w["attend.key.position"][label]], 1)
    q = w["attend.query"][query]
    return softmax(torch.stack([q @ key for key in k]) * scale)[None]


def label_attention(x, w, scale, queries):
    """x (N, d) -> (N, width). queries[l]: the label whose query label l has."""
    n, d = x.shape
    half = d // 2
    contexts = []
    for label, query in enumerate(queries):
        a = label_weights(x, w, scale, label, query)
        v = torch.cat(
            [x[:, :half] @ w["attend.value.content"][label], x[:, half:] @ w["attend.value.position"][label]], 1
        )
        contexts.append((a @ v).expand(n, -1))
    dk = contexts[0].shape[1] // 2
    rows = []
    for i in range(n):
        row = []
        for c in contexts:
            o = torch.cat(
                [
                    w["combine.project.content.weight"] @ c[i, :dk],
                    w["combine.project.position.weight"] @ c[i, dk:],
                ]
            )
            r = w["combine.reduce.weight"] @ (o + x[i])
            row.append(norm(r[None], below(w, "combine.norm."))[0])
        rows.append(torch.cat(row))
    y = torch.stack(rows)
    ff = below(w, "feed_forward.")
    if ff:
        y = norm(y + feed_forward(y, ff, y.shape[1] - half), below(w, "residual.norm."))
    return y


def fenceposts(y, groups):
    """y (n + 2, D) -> (n + 1, D)."""
    width = y.shape[1] // groups
    posts = []
    for t in range(len(y) - 1):
        forward = [y[t, g * width : g * width + width // 2] for g in range(groups)]
        backward = [y[t + 1, g * width + width // 2 : (g + 1) * width] for g in range(groups)]
        posts.append(torch.cat(forward + backward))
    return torch.stack(posts)


def span_score(posts, w, i, j):
    """Return the scores of all labels for words i..j, counted from 0, both included."""
    s = posts[j + 1] - posts[i]
    hidden = norm((w["project.weight"] @ s + w["bias"])[None], below(w, "norm."))[0]
    return torch.cat([torch.zeros(1, dtype=s.dtype), w["output.weight"] @ torch.relu(hidden) + w["output.bias"]])


def pair(posts, w, name, t):
    return torch.relu(w[f"pairs.{name}.weight"] @ posts[t] + w[f"pairs.{name}.bias"])


def arc_score(posts, w, head, dependent):
    one = torch.ones(1, dtype=posts.dtype)
    return pair(posts, w, "head", head) @ w["weight"] @ torch.cat([pair(posts, w, "dependent", dependent), one])


def relation_scores(posts, w, head, dependent):
    one = torch.ones(1, dtype=posts.dtype)
    h = torch.cat([pair(posts, w, "head", head), one])
    m = torch.cat([pair(posts, w, "dependent", dependent), one])
    return torch.stack([h @ matrix @ m for matrix in w["weight"]])


def nats(scores, gold):
    return -torch.log(softmax(scores)[gold])


def best_tree(score, n):
    """Return the score and spans of the best binary tree; score(i, j) returns the list of label scores."""
    best = {}
    for width in range(n):
        for i in range(n - width):
            j = i + width
            own = score(i, j)
            label = max(range(len(own)), key=own.__getitem__)
            value, spans = own[label], [(i, j, label)]
            if width:
                k = max(range(i, j), key=lambda k, i=i, j=j: best[i, k][0] + best[k + 1, j][0])
                value = value + best[i, k][0] + best[k + 1, j][0]
                spans = spans + best[i, k][1] + best[k + 1, j][1]
            best[i, j] = value, spans
    return best[0, n - 1]


def forbidden(i, j, label, n):
    """Return whether a label is forbidden: `<H>` (1) for words and the sentence, the empty label (0) for the sentence."""
    return (label == 1 and (i == j or (i, j) == (0, n - 1))) or (label == 0 and (i, j) == (0, n - 1))


def margin(posts, w, gold):
    """Return the margin loss of one sentence; gold: {(i, j): label}, without empty labels."""
    n = len(posts) - 1

    def augmented(i, j):
        scores = span_score(posts, w, i, j)
        return [
            -math.inf if forbidden(i, j, label, n) else float(s) + (label != gold.get((i, j), 0))
            for label, s in enumerate(scores)
        ]

    _, spans = best_tree(augmented, n)
    value = sum(span_score(posts, w, i, j)[label] + (label != gold.get((i, j), 0)) for i, j, label in spans)
    truth = sum(span_score(posts, w, i, j)[label] for (i, j), label in gold.items())
    return torch.relu(value - truth)


def joint(labels, arcs, weight):
    """Return the best score of joint trees by O(n⁵) dynamic programming; labels (n, n, L), arcs (n + 1, n + 1).

    Of two spans that are merged, that of the head may have the empty label; the other may only if it is one word.
    """
    n = len(labels)
    best = {}  # (i, j, h): without the label of i..j

    def label(i, j, real):
        return max(
            weight * float(s)
            for k, s in enumerate(labels[i, j])
            if not forbidden(i, j, k, n) and (k > 0 or not real or i == j)
        )

    for width in range(n):
        for i in range(n - width):
            j = i + width
            if width == 0:
                best[i, j, i] = 0.0
                continue
            for h in range(i, j + 1):
                options = []
                for k in range(i, j):
                    winner, loser = ((i, k), (k + 1, j)) if h <= k else ((k + 1, j), (i, k))
                    base = best[*winner, h] + label(*winner, False) + label(*loser, True)
                    for m in range(loser[0], loser[1] + 1):
                        options.append(base + best[*loser, m] + (1 - weight) * float(arcs[h + 1, m + 1]))
                best[i, j, h] = max(options)
    return max(best[0, n - 1, h] + label(0, n - 1, True) + (1 - weight) * float(arcs[0, h + 1]) for h in range(n))
