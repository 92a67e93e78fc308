"""Triton's programs, run by its interpreter on the CPU, equal the reference. Triton is made for Linux alone."""

import os
import sys

import pytest

if sys.platform != "linux" or os.environ.get("TRITON_INTERPRET") != "1":  # which Triton reads when it is imported
    pytest.skip("run by itself, with TRITON_INTERPRET=1, as `make test` does", allow_module_level=True)

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from phrasemodels.structs import alignment, chain, eisner, joint, kernels, pcfg, semimarkov, spans
from phrasemodels.structs.kernels import gpu

F64 = torch.float64

LENGTHS = torch.tensor([5, 1, 3, 0])
CASES = {
    "chain": (chain.linear_chain, [(4, 5, 3), (3, 3)]),
    "chain, each": (chain.linear_chain, [(4, 5, 4), (4, 4, 4, 4)]),
    "multi-root": (eisner.multi_root, [(4, 6, 6)]),
    "single-root": (eisner.single_root, [(4, 6, 6)]),
    "spans": (spans.labelled_spans, [(4, 5, 5, 3)]),
    "second order": (chain.HigherOrder(2), [(4, 5, 2), (2, 2, 2)]),
    "semi-Markov": (semimarkov.segmentations, [(4, 5, 3, 2), (2, 2)]),
    "joint trees": (joint.joint_trees, [(4, 5, 5, 2), (4, 6, 6)]),
    "warping": (alignment.warping, [(4, 5, 5)]),
    "ctc": (alignment.ctc, [(4, 5, 5), (4, 5, 5, 3)]),
    "grammar": (pcfg.trees, [(4, 5, 2), (2, 4, 4), (2,)]),
}
KINDS = "plain", "forbidden parts", "nothing allowed", "unknown"
TOLERANCE = {F64: {"rtol": 1e-9, "atol": 1e-9}, torch.float32: {"rtol": 1e-6, "atol": 1e-5}}
pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice", "ignore:invalid value")  # of the interpreter


def scores_of(name, kind, std, dtype):
    """Draw scores. Forbidden: a third of the parts of the first sentence; unknown: a part that all its structures weigh."""
    gen = torch.Generator().manual_seed(0)
    scores = [(torch.randn(*s, generator=gen, dtype=F64) * std).to(dtype) for s in CASES[name][1]]
    if kind == "forbidden parts":
        scores[0][0][torch.rand(scores[0][0].shape, generator=gen) < 0.3] = -torch.inf
    if kind == "nothing allowed":
        scores[0][0, :, 1] = -torch.inf
        scores[0][0, 1] = -torch.inf
    if kind == "unknown":
        scores[0][0, 1, -1] = torch.nan
    return [s.requires_grad_() for s in scores]


def outcome(structure, scores):
    """Return log Z, best scores, entropies and gradients by name, and the best structures."""
    options = {"lengths": LENGTHS if structure.length_axes == 1 else torch.stack([LENGTHS, LENGTHS], 1)}
    log_z, parts = structure.log_partition(*scores, **options), structure.expected_parts(*scores, **options)
    parts = [
        p.sum(1) if p.dim() == s.dim() + 2 else p for p, s in zip(parts, scores, strict=True)
    ]  # shared: by position
    entropy, (best, rows) = structure.entropy(*scores, **options), structure.argmax(*scores, **options)
    found = {"log Z": log_z, "entropy": entropy, "best": best} | {f"marginals {i}": p for i, p in enumerate(parts)}
    weighed = sum((p * torch.arange(p.numel()).view(p.shape).to(p).cos()).sum() for p in parts)
    weight = torch.arange(1.0, 5.0).to(log_z)
    for name, value in {
        "log Z": log_z.sum(),
        "weighed log Z": log_z @ weight,
        "marginals": weighed,
        "entropy": entropy.sum(),
    }.items():
        found |= {f"of {name} by {i}": x for i, x in enumerate(torch.autograd.grad(value, scores, retain_graph=True))}
    return found, rows


def compare(name, kind, std, dtype, monkeypatch):
    structure, scores = CASES[name][0], scores_of(name, kind, std, dtype)
    with kernels.reference_only():
        expected, rows = outcome(structure, [s.detach().double().requires_grad_() for s in scores])
    with kernels.only("triton"), monkeypatch.context() as patch:
        patch.setattr(kernels, "reference_vjp", None)  # no derivative is that of the reference
        patch.setattr(structure, "inside", None, raising=False)
        found, found_rows = outcome(structure, scores)
    known = slice(1 if kind == "unknown" else 0, None)
    for what, x in expected.items():
        y = found[what].to(F64)
        by_sentence = len(x) == len(LENGTHS)
        if kind != "unknown" or by_sentence:  # the sum over a batch is unknown, too
            x, y = (x[known], y[known]) if by_sentence else (x, y)
            torch.testing.assert_close(y, x, **(TOLERANCE[dtype] | {"msg": lambda m, w=what: f"{w}: {m}"}))
    assert torch.equal(found_rows[known], rows[known])
    if kind == "unknown":
        assert found["log Z"][0].isnan() and found["marginals 0"][0].isnan().any() and found["best"][0].isnan()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_programs_equal_the_reference(name, kind, monkeypatch):
    compare(name, kind, 2.0, F64, monkeypatch)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"chain", "chain, each"}))
def test_gradients_of_entropy_under_large_finite_masks(name):
    structure, scores = CASES[name][0], scores_of(name, "plain", 2.0, F64)
    with torch.no_grad():
        scores[0][:, -1] = -1e9
        scores[0][:, :, -1] -= 1e9 * (name in ("spans", "joint trees"))
    found = []
    for kernel in (kernels.reference_only(), kernels.only("triton")):
        with kernel:
            found += torch.autograd.grad(structure.entropy(*scores).sum(), scores[:1])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)


def test_a_shared_score_that_no_sentence_reads_may_be_unknown():
    scores = [torch.zeros(2, 5, 3, 2), torch.full((2, 2), torch.nan)]
    with kernels.only("triton"):
        parts = semimarkov.segmentations.expected_parts(*scores, lengths=[1, 1])
    assert torch.equal(parts[0][:, 0, 0], torch.full((2, 2), 0.5)) and not parts[1].any()


@pytest.mark.parametrize("name", ["chain", "ctc"])
def test_scores_in_float32_are_summed_in_float64(name, monkeypatch):
    compare(name, "plain", 30.0, torch.float32, monkeypatch)


@pytest.mark.parametrize("structure", [eisner.multi_root, eisner.single_root])
def test_trees_of_more_words_than_a_tile(structure):
    arcs = torch.randn(1, 13, 13, generator=torch.Generator().manual_seed(2), dtype=F64) * 3
    with kernels.reference_only():
        expected = structure.log_partition(arcs), structure.marginals(arcs), structure.argmax(arcs)[1]
    with kernels.only("triton"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "tile", lambda block: 4)
        found = structure.log_partition(arcs), structure.marginals(arcs), structure.argmax(arcs)[1]
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.filterwarnings("ignore:All-NaN slice", "ignore:invalid value")  # of the interpreter
@pytest.mark.parametrize("lengths", [[4, 4], [0, 3], [1, 2], [4, 1]])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3, 3)], ids=["shared", "by position"])
@pytest.mark.parametrize("case", ["plain", "forbidden tags", "forbidden transition", "nothing allowed", "unknown"])
def test_derivatives_of_marginals_and_best_tags_of_chains(case, shape, lengths, monkeypatch):
    gen = torch.Generator().manual_seed(1)
    scores = [torch.randn(s, generator=gen, dtype=F64) * 3 for s in ((2, 4, 3), shape)]
    lengths = torch.tensor(lengths)
    if case == "forbidden tags":
        scores[0][:, 1, :2] = -torch.inf
    if case == "forbidden transition":
        scores[1][..., 0, 1] = -torch.inf
    if case == "nothing allowed":
        scores[0][0, 0] = -torch.inf
    if case == "unknown":
        scores[0][1, 0, 0] = torch.nan
    scores = [s.requires_grad_() for s in scores]
    weight = torch.randn(2, 4, 3, generator=gen, dtype=F64)

    def outcome():
        p, pairs = chain.linear_chain.expected_parts(*scores, lengths=lengths)
        pairs = pairs.sum(1) if shape == (3, 3) and pairs.dim() == 4 else pairs  # the reference has them by position
        grads = torch.autograd.grad((p * weight).sum() + pairs.sin().sum(), scores)
        best, tags = chain.argmax(*scores, lengths=lengths)
        return [p, pairs, *grads, best], tags

    with kernels.reference_only():
        expected, tags = outcome()
    with kernels.only("triton"), monkeypatch.context() as patch:
        patch.setattr(kernels, "reference_vjp", None)  # no derivative is that of the reference
        found, found_tags = outcome()
    known = [0] if case == "unknown" else [0, 1]
    for x, y in zip(found, expected, strict=True):
        if x.dim() and len(x) == 2:
            torch.testing.assert_close(x[known], y[known])
        elif case != "unknown":
            torch.testing.assert_close(x, y)
    assert torch.equal(found_tags[known], tags[known])
    assert case != "unknown" or lengths[1] == 0 or (found[-1][1].isnan() and found[0][1].isnan().any())


def test_marginals_of_a_long_chain_sum_to_1():
    gen = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(1, 150, 4, generator=gen) * 5, torch.randn(4, 4, generator=gen) * 5
    with kernels.only("triton"):
        p = chain.marginals(unary, pairwise)
    torch.testing.assert_close(p.sum(2), torch.ones(1, 150), rtol=0, atol=1e-6)
    with kernels.reference_only():
        torch.testing.assert_close(p, chain.marginals(unary.double(), pairwise.double()).float(), rtol=0, atol=1e-5)


class Kernels(TorchDispatchMode):
    """Counts operations that launch a kernel on a GPU; those of torch that begin with these names do not."""

    FREE = (
        "view",
        "unbind",
        "expand",
        "t.",
        "transpose",
        "detach",
        "slice",
        "select",
        "unsqueeze",
        "empty",
        "new_empty",
        "alias",
        "as_strided",
    )
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += not function.__name__.startswith(self.FREE)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"grammar"}))
def test_kernels_of_an_operation_are_few_at_any_length(name, monkeypatch):
    structure, counts = CASES[name][0], []
    for words in (6, 12):
        shapes = [
            [words - (5 - size) if size in (4, 5, 6) and axis else size for axis, size in enumerate(s)]
            for s in CASES[name][1]
        ]
        scores = [torch.randn(s).requires_grad_() for s in shapes]
        with kernels.only("triton"), monkeypatch.context() as patch, Kernels() as kernel:
            patch.setattr(gpu, "_launch", lambda *_, **__: setattr(kernel, "count", kernel.count + 1))
            structure.argmax(*scores)
            parts = structure.expected_parts(*scores)
            torch.autograd.grad(sum(p.sum() for p in parts), scores)
        counts.append(kernel.count)
    # four of them from float32 to float64 and back
    assert counts[0] == counts[1] <= (220 if structure.has_levels else 2 * 46)


def test_no_transition_of_a_position_is_kept_where_they_are_shared():
    unary, pairwise = torch.randn(2, 9, 4), torch.randn(4, 4)
    lengths = torch.tensor([9, 5])
    assert gpu.chain_passes(unary, pairwise, lengths, True)[2].shape == (2, 4, 4)
    assert gpu.chain_passes(unary, pairwise, lengths, True, False)[2] is None
