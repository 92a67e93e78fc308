"""The padding of a batch, whatever it holds, changes nothing in the states of words; batches may be empty; phrases are checked."""

import pytest
import torch
from every_encoder import ENCODERS, HEADS, LENGTHS, MEMBERS, SIZE, D, built

from phrasemodels.encoders import hypernode
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.layers import attention_weights
from phrasemodels.layers.blocks import SourceToToken, fixed_shapes, max_over_tokens, max_with_padding
from phrasemodels.layers.labels import LabelAttentionConfig
from phrasemodels.structs import eisner, nonprojective
from phrasemodels.structs.crf import CRF, TreeCRF

REAL = torch.arange(5) < LENGTHS[:, None]
KEYS, PAIRS, WORDS = REAL[:, None].expand(3, 5, 5), REAL[:, None] & REAL[..., None], REAL[..., None].expand(3, 5, D)
WEIGHTS = {name: part() for name, part in vars(attention_weights).items() if name.endswith("Weights")}
LABELS = LabelAttentionConfig(3, 4, 4, 4).build(D).eval()
POOLS = {"source to token": SourceToToken(D), "max over tokens": max_over_tokens, "max with padding": max_with_padding}
PARTS = {  # a function of scores or words, and which of these it reads
    **{name: (lambda x, part=part: part(x, LENGTHS)[PAIRS], PAIRS if "Tree" in name else KEYS) for name, part in WEIGHTS.items()},
    "labels": (lambda x: LABELS(x, REAL[:, None, None])[REAL], WORDS),
    "weights of labels": (lambda x: LABELS.weights(x, REAL[:, None, None]), WORDS),
    **{name: (lambda x, pool=pool: pool(x, REAL), WORDS) for name, pool in POOLS.items()},
    **{f"CRF, tag {tag}": (lambda x, tag=tag: CRF(D, True)(x, torch.full((3, 5), tag), REAL), WORDS) for tag in (0, -1)},
    **{f"{trees}, head {head}": (
        lambda x, trees=trees, head=head: TreeCRF(trees)(x, torch.tensor([0, 0, 1, head, head]).expand(3, 5), REAL[:, 1:]), PAIRS
    ) for of in (eisner, nonprojective) for trees in (of.multi_root, of.single_root) for head in (2, -1)},
}  # fmt: skip


@pytest.mark.parametrize("filled", [torch.nan, torch.inf, -torch.inf, 1e38])
@pytest.mark.parametrize("name", PARTS)
def test_padding_of_any_value_changes_no_layer(name: str, filled: float) -> None:
    function, read = PARTS[name]
    results = []
    for x in (torch.randn(read.shape), torch.full(read.shape, filled)):
        torch.manual_seed(0)  # of the data, and of a CRF
        x = torch.where(read, torch.randn(read.shape), x).requires_grad_()
        found = function(x)
        results.append((found, torch.autograd.grad(found.square().sum(), x) if found.requires_grad else ()))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("filled", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize("name", ENCODERS)
def test_padding_of_any_value_changes_no_word(name: str, filled: float) -> None:
    encoder, structure = built(name)
    x = torch.randn(3, 5, D)
    padding = torch.arange(5) >= LENGTHS[:, None]
    broken = x.masked_fill(padding[..., None], filled).requires_grad_()
    clean, found = encoder(x, LENGTHS, *structure), encoder(broken, LENGTHS, *structure)
    if found.dim() == 3:
        clean, found = clean[~padding], found[~padding]
    torch.testing.assert_close(found, clean)
    (grad,) = torch.autograd.grad(found.sum(), broken)
    assert grad.isfinite().all()
    assert not grad[padding].any()


@pytest.mark.parametrize("name", ENCODERS)
def test_a_batch_may_be_empty(name: str) -> None:
    encoder, structure = built(name)
    x = torch.randn(3, 5, D)
    full = encoder(x, LENGTHS, *structure)
    assert encoder(x[:0], LENGTHS[:0], *(s[:0] for s in structure)).shape == (0, *full.shape[1:])


def without_the_second(structure: list[torch.Tensor]) -> list[torch.Tensor]:
    return [s.index_fill(0, torch.tensor(1), -1 if s is MEMBERS or s is HEADS else 0) for s in structure]


@pytest.mark.parametrize("name", ENCODERS)
def test_an_empty_sentence_is_finite_and_changes_no_other(name: str) -> None:
    encoder, structure = built(name)
    x, lengths = torch.randn(3, 5, D).requires_grad_(), torch.tensor([5, 0, 1])
    structure = without_the_second(structure)
    full, found = encoder(x, LENGTHS, *built(name)[1]), encoder(x, lengths, *structure)
    assert found.isfinite().all() and torch.autograd.grad(found.sum(), x)[0].isfinite().all()
    for b in (0, 2):
        size = lengths[b] if found.dim() == 3 else None
        torch.testing.assert_close(found[b, :size], full[b, :size])


WAYS = {"called": lambda encoder: encoder, "plain": lambda encoder: encoder.plain, "fixed": lambda encoder: fixed_shapes()(encoder)}
OPTIONS = {
    f"{attend.__name__}, dropout {p}, {way}": (HypernodeEncoderConfig(**SIZE, attend=attend, attention_dropout=p), MEMBERS, way)
    for attend in hypernode.LISTS for p in (0.0, 0.1) for way in WAYS
} | {f"{name}, {way}": (*ENCODERS[name], way) for name in ENCODERS for way in ("called", "fixed")}  # fmt: skip


@pytest.mark.parametrize(("config", "structure", "way"), OPTIONS.values(), ids=OPTIONS)
def test_updates_with_an_empty_sentence_leave_all_weights_finite(config, structure, way) -> None:
    encoder, x, lengths = config.build(), torch.randn(3, 5, D).requires_grad_(), torch.tensor([5, 0, 1])
    given, trained = without_the_second([] if structure is None else [structure]), [x, *encoder.parameters()]
    optimizer = torch.optim.Adam(trained)
    for _ in range(2):
        optimizer.zero_grad()
        found = WAYS[way](encoder)(x, lengths, *given)
        found.square().sum().backward()
        assert all(part.isfinite().all() for part in [found, *(p.grad for p in trained if p.grad is not None)])
        optimizer.step()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (torch.tensor([[[0, 4]], [[0, 1]]]), r"0\.\.3 of a sentence of 4 words"),
        (torch.tensor([[[0, 1]], [[1, 2]]]), r"0\.\.1 of a sentence of 2 words"),
        (torch.tensor([[[0, -2]], [[0, 1]]]), "-1"),
        (torch.tensor([[[0.0, 1.5]], [[0.0, 1.0]]]), "integers"),
        (torch.tensor([[0, 1], [0, 1]]), r"\(B, m, k\)"),
    ],
)
def test_phrases_are_words_of_their_sentence(members: torch.Tensor, message: str) -> None:
    encoder = HypernodeEncoderConfig(**SIZE).build()
    with pytest.raises(ValueError, match=f"^members.*{message}"):
        encoder(torch.randn(2, 4, D), torch.tensor([4, 2]), members)


@pytest.mark.parametrize("lengths", [[6, 3, 1], [5, -1, 1]])
@pytest.mark.parametrize("name", ENCODERS)
def test_lengths_out_of_range_are_refused(name: str, lengths: list[int]) -> None:
    encoder, structure = built(name)
    with pytest.raises(ValueError, match="lengths"):
        encoder(torch.randn(3, 5, D), torch.tensor(lengths), *structure)


def test_members_may_be_bytes_or_have_no_words() -> None:
    encoder, _ = built("hypernode states")
    x, members = torch.randn(1, 5, D), torch.tensor([[[0, 1]]])
    torch.testing.assert_close(encoder(x, None, members.byte()), encoder(x, None, members))
    torch.testing.assert_close(encoder(x, None, members[:, :, :0]), encoder(x, None, members[:, :0]))
