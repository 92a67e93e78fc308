"""A training step of the plain Transformer of `phrasemodels`, of torch's `nn.Transformer` and, if it is installed, of JoeyNMT
(Kreutzer et al. 2019): `python benchmarks/training.py`. Ratios of CPU time; above 1 means that ours is faster.

All have the same sizes, one embedding for both sides that is also the output projection, dropout 0.1, label smoothing 0.1, Adam
and clipped gradients, and the same batches: sentences of 5 to 30 words, put together by length. One thread, float32.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from structs import Run, compare
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.blocks import BEGIN, END, PAD, TokenEmbedding
from phrasemodels.models.translation import TranslationConfig, token_loss

TOKENS, WORDS = 1024, 4000
SIZES = {"sample": (32, 4, 1, 64), "laptop": (128, 4, 2, 256)}  # width, heads, layers, feed-forward
Batch = tuple[Tensor, Tensor, Tensor]  # source (B, n), its lengths (B), target (B, t), both padded


def batches() -> list[Batch]:
    """Return eight batches of about TOKENS words a side; lengths are within three of each other, as in sorted batches."""
    made = []
    for shortest in range(5, 29, 3):
        rows = TOKENS // (shortest + 2)
        lengths = torch.randint(shortest, shortest + 3, (2, rows))
        sides = []
        for length in lengths:
            ids = torch.randint(4, WORDS, (rows, int(length.max())))
            inside = torch.arange(ids.shape[1] + 1) < length[:, None]
            ids = F.pad(ids, (0, 1)).where(inside, PAD)
            ids[torch.arange(rows), length] = END
            sides.append(F.pad(ids, (1, 0), value=BEGIN))
        made.append((sides[0], lengths[0] + 2, sides[1]))
    return made


class OfTorch(nn.Module):
    """`nn.Transformer` with embeddings and a projection, as a user would write it."""

    def __init__(self, d: int, heads: int, layers: int, d_ff: int) -> None:
        super().__init__()
        self.embed = TokenEmbedding(WORDS, d, 0.1)
        self.embed.dropout = nn.Dropout(0.1)
        self.inner = nn.Transformer(d, heads, layers, layers, d_ff, 0.1, batch_first=True)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the summed loss."""
        given, gold = target[:, :-1], target[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(given.shape[1]).isinf()
        blank = source == PAD
        states = self.inner(
            self.embed(source), self.embed(given), tgt_mask=mask, tgt_is_causal=True,
            src_key_padding_mask=blank, memory_key_padding_mask=blank,
        )  # fmt: skip
        scores = F.linear(states, self.embed.table.weight)
        return F.cross_entropy(
            scores.flatten(0, 1), gold.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=0.1
        )


def of_joeynmt(d: int, heads: int, layers: int, d_ff: int) -> tuple[nn.Module, Callable[..., Tensor]]:
    """Return JoeyNMT's model and its loss of a batch. ImportError: it is not installed."""
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    part = {
        "type": "transformer", "num_layers": layers, "num_heads": heads, "hidden_size": d, "ff_size": d_ff, "dropout": 0.1,
        "embeddings": {"embedding_dim": d, "scale": True, "dropout": 0.1},
    }  # fmt: skip
    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None,
    )  # fmt: skip
    vocabulary = Vocabulary([f"w{i}" for i in range(WORDS - 4)], special)
    model = build_model(
        {"encoder": part, "decoder": part, "tied_embeddings": True, "tied_softmax": True}, vocabulary, vocabulary
    )
    model.loss_function = ("crossentropy", 0.1)

    def loss(source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        source, target = (side.where(side != PAD, vocabulary.pad_index) for side in (source, target))
        mask = (target[:, 1:] != vocabulary.pad_index).unsqueeze(1)
        given = {"src_mask": (source != vocabulary.pad_index).unsqueeze(1), "src_length": lengths}
        return model("loss", src=source, trg_input=target[:, :-1], trg=target[:, 1:], trg_mask=mask, **given)[0]

    return model, loss


def ours(d: int, heads: int, layers: int, d_ff: int) -> tuple[nn.Module, Callable[..., Tensor]]:
    encoder = TransformerEncoderConfig(d=d, heads=heads, layers=layers, d_ff=d_ff, dropout=0.1, inner_dropout=0.1)
    model = TranslationConfig(encoder, WORDS, WORDS, layers, d_ff, shared=True, inner_dropout=0.1).build()
    no_phrases = partial(torch.empty, dtype=torch.long)
    return model, lambda source, lengths, target: token_loss(
        model, source, lengths, no_phrases(len(source), 0, 2), target, 0.1
    )


def updates(made: tuple[nn.Module, Callable[..., Tensor]], data: list[Batch], **optimiser: Any) -> Run:
    """Return an update on each of the batches in turn."""
    model, loss = made
    adam = torch.optim.Adam(model.parameters(), 1e-4, **optimiser)

    def run() -> None:
        for source, lengths, target in data:
            (loss(source, lengths, target) / TOKENS).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            adam.zero_grad(set_to_none=True)

    return run


def main() -> None:
    torch.manual_seed(0)
    data = batches()
    for name, size in SIZES.items():
        plain = OfTorch(*size)
        runs = {"ours": updates(ours(*size), data, fused=True), "nn.Transformer": updates((plain, plain), data)}
        try:
            runs["JoeyNMT"] = updates(of_joeynmt(*size), data)
        except ImportError as error:
            print(f"without JoeyNMT: {error}")
        compare(f"{name}, eight updates", runs, 1, 6.0)


if __name__ == "__main__":
    main()
