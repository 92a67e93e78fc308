"""Transcription of the n-gram encoder of paper 002: one sentence and one window at a time, in the order of the text.

There are no batches, padding and dropout. A matrix W has the shape (out, in). Layer parameters (dict):
    "q", "k", "v", "o" (d, d) and "q_b", ... (d,); head c reads rows c*w .. (c+1)*w - 1 of q, k, v
    "grams"  {size: parameters of its encoder}, the same for q, k, v and all heads of the size; absent in a plain layer
    "norm1", "norm2" {"weight", "bias", "eps"}; "ffn" {"w1", "b1", "w2", "b2"}
Parameters of an LSTM or RNN direction: {"w_ih", "w_hh", "b_ih", "b_hh"}; gates i, f, g, o of w rows each.
"""

import math

import torch


def window(states, k, size):
    """Return the `size` states that end at word k, zeros before the sentence (Eq 10)."""
    zero = torch.zeros_like(states[0])
    return [states[j] if j >= 0 else zero for j in range(k - size + 1, k + 1)]


def lstm(sequence, p):
    w = p["w_hh"].shape[1]
    h = c = torch.zeros(w, dtype=sequence[0].dtype)
    for x in sequence:
        z = p["w_ih"] @ x + p["b_ih"] + p["w_hh"] @ h + p["b_hh"]
        i, f, g, o = (z[r * w : (r + 1) * w] for r in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h, c


def rnn(sequence, p):
    h = torch.zeros(p["w_hh"].shape[1], dtype=sequence[0].dtype)
    for x in sequence:
        h = torch.tanh(p["w_ih"] @ x + p["b_ih"] + p["w_hh"] @ h + p["b_hh"])
    return h, torch.zeros_like(h)


def gram(words, encoder, p, readout):
    """Return the vector of one window: Eq 9 for recurrent encoders, Eq 15 for the sum."""
    if encoder == "sum":
        return sum(words)
    if encoder == "mean":
        return sum(words) / len(words)
    run = {"lstm": lstm, "rnn": rnn}[encoder]
    (hf, cf), (hb, cb) = run(words, p["forward"]), run(words[::-1], p["backward"])
    return hf + hb if readout == "hidden" else hf + hb + cf + cb


def phrase(states, size, encoder, p, readout, gate):
    """Return the states of one head (Eq 7, where size 0 is the identity, not as printed), gated by Eq 13 if `gate`."""
    if size == 0:
        return list(states)
    out = []
    for k in range(len(states)):
        g = gram(window(states, k, size), encoder, p, readout)
        s = torch.sigmoid(states[k])
        out.append(s * g + (1 - s) * states[k] if gate else g)
    return out


def attention(x, p, sizes, encoder="lstm", readout="hidden", gate=False):
    """Return multi-head attention (Eq 1, 11, 12) of x (n, d)."""
    n, d = x.shape
    w = d // len(sizes)
    heads = []
    for c, size in enumerate(sizes):
        part = slice(c * w, (c + 1) * w)
        size = size if "grams" in p else 0
        q, k, v = (
            phrase(
                [p[m][part] @ row + p[m + "_b"][part] for row in x],
                size,
                encoder,
                p["grams"][size] if size else None,
                readout,
                gate,
            )
            for m in "qkv"
        )
        rows = []
        for a in range(n):
            e = [torch.exp((q[a] * k[b]).sum() / math.sqrt(w)) for b in range(n)]
            rows.append(sum(e[b] * v[b] for b in range(n)) / sum(e))
        heads.append(torch.stack(rows))
    return torch.stack([p["o"] @ row + p["o_b"] for row in torch.cat(heads, 1)])


def norm(row, p):
    centred = row - row.mean()
    return centred / torch.sqrt((centred**2).mean() + p["eps"]) * p["weight"] + p["bias"]


def ffn(row, p):
    return p["w2"] @ torch.clamp(p["w1"] @ row + p["b1"], min=0) + p["b2"]


def rowwise(f, x, p):
    return torch.stack([f(row, p) for row in x])


def encode(x, layers, sizes, style="post", last=None, **switches):
    """Return the states of x (n, d), which has positions added: Eq 3-5 ("post"), or the released order ("pre") with the norm
    `last` at the end."""
    for p in layers:
        if style == "post":
            x = rowwise(norm, attention(x, p, sizes, **switches) + x, p["norm1"])
            x = rowwise(norm, rowwise(ffn, x, p["ffn"]) + x, p["norm2"])
        else:
            x = x + attention(rowwise(norm, x, p["norm1"]), p, sizes, **switches)
            x = x + rowwise(ffn, rowwise(norm, x, p["norm2"]), p["ffn"])
    return rowwise(norm, x, last) if last else x


if __name__ == "__main__":
    states = [torch.full((2,), float(k + 1)) for k in range(3)]
    assert [w[0].item() for w in window(states, 1, 4)] == [0, 0, 1, 2] and [
        w[0].item() for w in window(states, 2, 2)
    ] == [2, 3]
    assert [g[0].item() for g in phrase(states, 3, "sum", None, "", False)] == [1, 3, 6]
    assert [g[0].item() for g in phrase(states, 2, "mean", None, "", False)] == [0.5, 1.5, 2.5]
    torch.manual_seed(0)
    for name, plain, kind in (("lstm", lstm, torch.nn.LSTM), ("rnn", rnn, torch.nn.RNN)):  # compare with torch
        module = kind(3, 3).double()
        p = {
            n: getattr(module, f"weight_{n[2:]}_l0" if n[0] == "w" else f"bias_{n[2:]}_l0")
            for n in ("w_ih", "w_hh", "b_ih", "b_hh")
        }
        x = torch.randn(4, 3, dtype=torch.float64)
        assert torch.allclose(plain(list(x), p)[0], module(x)[0][-1]), name
    print("plain_002: all self-checks passed")
