"""Transcription of "Attention over Phrases" (paper 000): one sentence at a time, without batches, padding and dropout.

Everything is computed in float64; autograd works. A matrix W has the shape (out, in), as in torch.nn.Linear, and is used as
x @ W.T.

attention weights (dict)
    "q", "k", "v", "o"           (d, d); rows c*d_k .. (c+1)*d_k - 1 of q, k, v belong to head c, d_k = d / heads;
                                 columns c*d_k .. (c+1)*d_k - 1 of o read head c
    "q_b", "k_b", "v_b", "o_b"   (d,), optional (absent or None = no bias)
layer parameters (dict)
    "phase1", "phase2"           attention weights as above (W and W'; separate W^O, put the same tensor in both to tie)
  and, for style "block" only,
    "norm1", "norm2", "norm3"    {"weight": (d,), "bias": (d,)}: after phase 1, after phase 2, after the FFN
    "ffn"                        {"w1": (d_ff, d), "b1": (d_ff,), "w2": (d, d_ff), "b2": (d,)}
encoder: `layers` is a list of layer parameters, `length_table` is (at least k - 1, d), row r for phrases of r + 2 words.

A phrase is a tuple of word positions; node r < n is word r, node n + r is phrases[r].
"""

import math

import torch


def f64(t):
    return t.to(torch.float64)


def phrases(n, k):
    """Return the spans of 2..k of n tokens, by length, then by start (Eq 1 without spans of one token)."""
    return [tuple(range(start, start + size)) for size in range(2, k + 1) for start in range(n - size + 1)]


def members(lengths: tuple[int, ...], k: int) -> torch.Tensor:
    """Return the phrases of 2 to k adjacent words of each sentence, (B, m, k), padded with -1."""
    lists = [[list(p) + [-1] * (k - len(p)) for p in phrases(n, k)] for n in lengths]
    most = max(map(len, lists))
    return torch.tensor([rows + [[-1] * k] * (most - len(rows)) for rows in lists], dtype=torch.long).view(
        len(lengths), most, k
    )


def adjacency(n, phrases):
    """Return the relation of Eq 4 and 6 over positions, (N, N) booleans, words first."""
    nodes = [{i} for i in range(n)] + [set(p) for p in phrases]
    rows = [[a <= b or b <= a for b in nodes] for a in nodes]
    return torch.tensor(rows, dtype=torch.bool)


def linear(x, weights, name):
    y = f64(x) @ f64(weights[name]).T
    bias = weights.get(name + "_b")
    return y if bias is None else y + f64(bias)


def softmax(logits):
    """Return the softmax of a vector; an entry of -inf has the weight 0."""
    e = torch.exp(logits - logits.max().detach())
    return e / e.sum()


def attention(q_in, kv_in, weights, heads, mode, adjacency=None, sigma=None, sigma_at="heads"):
    """q_in (Nq, d), kv_in (Nk, d) -> output (Nq, d), attention weights (heads, Nq, Nk).

    mode "full":     softmax(Q K^T / sqrt(d_k)), Eq 2; `adjacency` is not used
    mode "neg_inf":  logits of pairs outside `adjacency` are -inf
    mode "hadamard": logits are multiplied by `adjacency` as 0/1, then softmax, Eq 5 as printed
    sigma (None = linear) acts on each head's output ("heads") or after W^O and its bias ("projection").
    """
    if mode not in ("full", "neg_inf", "hadamard") or sigma_at not in ("heads", "projection"):
        raise ValueError((mode, sigma_at))
    queries, keys, values = linear(q_in, weights, "q"), linear(kv_in, weights, "k"), linear(kv_in, weights, "v")
    d = queries.shape[1]
    if d % heads:
        raise ValueError("d is not a multiple of heads")
    d_k = d // heads
    outputs, all_weights = [], []
    for c in range(heads):
        part = slice(c * d_k, (c + 1) * d_k)
        q, k, v = queries[:, part], keys[:, part], values[:, part]
        head_rows, weight_rows = [], []
        for i in range(q.shape[0]):
            logits = []
            for j in range(k.shape[0]):
                logit = (q[i] * k[j]).sum() / math.sqrt(d_k)
                if mode == "neg_inf" and not adjacency[i, j]:
                    logit = torch.full_like(logit, -math.inf)
                if mode == "hadamard":
                    logit = logit * (1.0 if adjacency[i, j] else 0.0)
                logits.append(logit)
            w = softmax(torch.stack(logits))
            weight_rows.append(w)
            head_rows.append(sum(w[j] * v[j] for j in range(k.shape[0])))
        head = torch.stack(head_rows)
        if sigma is not None and sigma_at == "heads":
            head = sigma(head)
        outputs.append(head)
        all_weights.append(torch.stack(weight_rows))
    output = linear(torch.cat(outputs, dim=1), weights, "o")
    if sigma is not None and sigma_at == "projection":
        output = sigma(output)
    return output, torch.stack(all_weights)


def layer_norm(x, norm, eps=1e-5):
    rows = []
    for row in x:
        mean = row.mean()
        variance = ((row - mean) ** 2).mean()
        rows.append((row - mean) / torch.sqrt(variance + eps) * f64(norm["weight"]) + f64(norm["bias"]))
    return torch.stack(rows)


def ffn(x, p):
    hidden = torch.clamp(f64(x) @ f64(p["w1"]).T + f64(p["b1"]), min=0.0)
    return hidden @ f64(p["w2"]).T + f64(p["b2"])


def layer(H, parameters, heads, style="block", mode="neg_inf", adjacency=None, sigma=torch.sigmoid, sigma_at="heads"):
    """One encoder layer (N, d) -> H' (N, d), {"phase1": weights, "phase2": weights}. mode, sigma: of phase 2 only."""
    H = f64(H)
    first, second = parameters["phase1"], parameters["phase2"]
    out1, weights1 = attention(H, H, first, heads, "full")
    if style == "literal":
        U = out1
    elif style == "block":
        U = layer_norm(H + out1, parameters["norm1"])
    else:
        raise ValueError(style)
    out2, weights2 = attention(U, U, second, heads, mode, adjacency, sigma, sigma_at)
    if style == "literal":
        result = out2
    else:
        V = layer_norm(U + out2, parameters["norm2"])
        result = layer_norm(V + ffn(V, parameters["ffn"]), parameters["norm3"])
    return result, {"phase1": weights1, "phase2": weights2}


def initial(words, members, init="zeros", length_table=None):
    """Return H0 (n + m, d): the rows of words, then one row per phrase."""
    rows = list(f64(words))
    for p in members:
        if init == "zeros":
            rows.append(torch.zeros_like(rows[0]))
        elif init == "mean":
            rows.append(sum(rows[i] for i in p) / len(p))
        elif init == "length_embedding":
            if len(p) < 2:
                raise ValueError("a phrase has at least two words")
            rows.append(f64(length_table[len(p) - 2]))
        else:
            raise ValueError(init)
    return torch.stack(rows)


def encode(
    words,
    layers,
    heads,
    k_or_phrases,
    init="zeros",
    length_table=None,
    style="block",
    mode="neg_inf",
    sigma=torch.sigmoid,
    sigma_at="heads",
    return_weights=False,
):
    """Algorithm 1. words (n, d) with positions already added; k_or_phrases an int k or a list of position tuples.

    Returns (n, d); with return_weights also a list, one {"phase1", "phase2"} of (heads, N, N) per layer.
    """
    n = words.shape[0]
    members = phrases(n, k_or_phrases) if isinstance(k_or_phrases, int) else list(k_or_phrases)
    A = adjacency(n, members)
    H = initial(words, members, init, length_table)
    all_weights = []
    for parameters in layers:
        H, weights = layer(H, parameters, heads, style, mode, A, sigma, sigma_at)
        all_weights.append(weights)
    return (H[:n], all_weights) if return_weights else H[:n]


def random_layer(d, d_ff, seed, biases=True):
    """Return random parameters of a layer, under the names above."""
    g = torch.Generator().manual_seed(seed)

    def r(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64) / math.sqrt(shape[-1])

    p = {name: {x: r(d, d) for x in "qkvo"} for name in ("phase1", "phase2")}
    if biases:
        for name in ("phase1", "phase2"):
            p[name].update({x + "_b": r(d) for x in "qkvo"})
    for name in ("norm1", "norm2", "norm3"):
        p[name] = {"weight": 1.0 + r(d), "bias": r(d)}
    p["ffn"] = {"w1": r(d_ff, d), "b1": r(d_ff), "w2": r(d, d_ff), "b2": r(d)}
    return p


if __name__ == "__main__":
    for n in range(1, 12):
        assert len(phrases(n, 2)) == n - 1 and len(phrases(n, 3)) == max(0, 2 * n - 3)
    assert len(phrases(9, 2)) == 8 and phrases(3, 3) == [(0, 1), (1, 2), (0, 1, 2)]
    A = adjacency(3, phrases(3, 3)).int().tolist()
    assert A == [
        [1, 0, 0, 1, 0, 1],
        [0, 1, 0, 1, 1, 1],
        [0, 0, 1, 0, 1, 1],
        [1, 1, 0, 1, 0, 1],
        [0, 1, 1, 0, 1, 1],
        [1] * 6,
    ]

    d, heads, n = 12, 3, 5
    words = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    table = torch.randn(2, d, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    members = phrases(n, 3)
    A = adjacency(n, members)
    N = n + len(members)
    results = {}
    for style in ("block", "literal"):
        for mode in ("neg_inf", "hadamard"):
            for init in ("zeros", "mean", "length_embedding"):
                for sigma in (None, torch.sigmoid):
                    for at in ("heads", "projection"):
                        out, ws = encode(
                            words,
                            [random_layer(d, 20, s) for s in (3, 4)],
                            heads,
                            3,
                            init,
                            table,
                            style,
                            mode,
                            sigma,
                            at,
                            True,
                        )
                        results[style, mode, init, sigma is None, at] = out
                        assert out.shape == (n, d) and out.isfinite().all()
                        for w in ws:
                            for x in w.values():
                                assert x.shape == (heads, N, N) and torch.allclose(
                                    x.sum(-1), torch.ones(heads, N, dtype=x.dtype)
                                )
                            outside = w["phase2"][:, ~A]
                            assert (outside == 0).all() if mode == "neg_inf" else (outside > 0).all()
    for style, mode, init, is_linear, at in results:
        this = results[style, mode, init, is_linear, at]
        assert not torch.allclose(
            this, results[style, "hadamard" if mode == "neg_inf" else "neg_inf", init, is_linear, at]
        )
        assert torch.equal(this, results[style, mode, init, is_linear, "heads"]) == (is_linear or at == "heads")

    for biases in (True, False):  # hypernodes that start as zeros are equal after phase 1 of layer 1, not after phase 2
        p = random_layer(d, 20, 5, biases)
        H = initial(words, members, "zeros")
        out1, w1 = attention(H, H, p["phase1"], heads, "full")
        assert (out1[n:] - out1[n]).abs().max() < 1e-12 and not torch.allclose(out1[0], out1[1])
        if not biases:
            assert torch.allclose(w1[:, n:], torch.full_like(w1[:, n:], 1.0 / N))
        out2, _ = attention(out1, out1, p["phase2"], heads, "neg_inf", A)
        assert (out2[n] - out2[n + 1]).abs().max() > 1e-6

    p = random_layer(d, 20, 6)["phase1"]  # compare with torch
    x, y = words, torch.cat([words, table])
    stacked = torch.cat([p["q"], p["k"], p["v"]]), torch.cat([p["q_b"], p["k_b"], p["v_b"]])
    for mode, mask in (("full", None), ("neg_inf", ~torch.eye(n, n + 2, dtype=torch.bool))):
        want, want_w = torch.nn.functional.multi_head_attention_forward(
            x[:, None],
            y[:, None],
            y[:, None],
            d,
            heads,
            *stacked,
            None,
            None,
            False,
            0.0,
            p["o"],
            p["o_b"],
            attn_mask=None if mask is None else ~mask,
            average_attn_weights=False,
        )
        got, got_w = attention(x, y, p, heads, mode, mask)
        assert torch.allclose(got, want[:, 0], atol=1e-12) and torch.allclose(got_w, want_w[0], atol=1e-12)
    norm = random_layer(d, 20, 7)["norm1"]
    assert torch.allclose(
        layer_norm(x, norm), torch.nn.functional.layer_norm(x, (d,), norm["weight"], norm["bias"]), atol=1e-12
    )
    w = words.clone().requires_grad_(True)
    encode(w, [random_layer(d, 20, 3)], heads, 3).square().sum().backward()
    assert w.grad.isfinite().all()
    print("plain_000: all self-checks passed")
