"""SparseMAP is the best mixture of all structures, and its gradients are finite differences."""

import pytest
import torch
from register import STRUCTURES
from test_enumeration import F64

from phrasemodels.structs import chain, eisner, nonprojective, spans, sparsemap
from phrasemodels.structs.kernels import reference_only


@pytest.fixture(params=STRUCTURES)
def kind(request):
    found = STRUCTURES[request.param]
    return found.distribution(*found.scores(seed=5), found.lengths)


@pytest.mark.parametrize("path", ["kernels", "reference"])
@pytest.mark.parametrize("std", [0, 0.3, 1, 10, 1e4])
def test_no_structure_of_the_support_improves_the_mixture(kind, std, path):
    """A mixture is best if no structure has a higher score by scores − u than the mixture, as the program is concave."""
    f, lengths, seen = kind.functions, kind.lengths, kind.functions.event_scores
    scores = [std * s for s in kind.scores]
    scores[0][..., 0] = torch.where(torch.rand(scores[0][..., 0].shape) < 0.2, -torch.inf, scores[0][..., 0])
    p, support = kind._like(tuple(scores)), kind.enumerate_support()
    with reference_only() if path == "reference" else torch.no_grad():
        parts = sparsemap.expected_parts(f, *scores, lengths=lengths)
        weight, rows = sparsemap.structures(f, *scores, lengths=lengths)
    u = [*parts[:seen], *(torch.zeros_like(s) for s in scores[seen:])]
    lowered = [p.score(x) - f.score(*u, rows=x, lengths=lengths) for x in (support, rows)]
    there = (support >= 0).flatten(2).any(2)
    gap = lowered[0].masked_fill(~there, -torch.inf).amax(0) - torch.where(weight > 0, weight * lowered[1], 0).sum(0)
    assert (gap.masked_fill(gap.isnan(), 0) <= 1e-8 * max(1, std)).all()
    torch.testing.assert_close(weight.sum(0), (p.log_partition > -torch.inf).to(F64))
    assert (weight >= 0).all()


def test_derivatives_equal_finite_differences(kind):
    f, lengths = kind.functions, kind.lengths
    leaves = [s.clone().requires_grad_() for s in kind.scores]
    torch.autograd.gradcheck(lambda *s: sparsemap.expected_parts(f, *s, lengths=lengths), leaves)
    weight, rows = sparsemap.structures(f, *leaves, lengths=lengths)
    parts = sparsemap.expected_parts(f, *leaves, lengths=lengths)
    given = [s.cos() for s in kind.scores]
    means = [(x * s).flatten(1).sum(1) for x, s in zip(parts, given, strict=True)]
    mixed = (weight * kind._like(tuple(given)).score(rows).masked_fill(weight == 0, 0)).sum(0)
    torch.testing.assert_close(sum(means), mixed)
    for one, other in zip(
        *(torch.autograd.grad(x.sum(), leaves, retain_graph=True) for x in (sum(means), mixed)), strict=True
    ):
        torch.testing.assert_close(one, other)
    jacobian = torch.func.jacrev(lambda *s: sparsemap.expected_parts(f, *s, lengths=lengths)[0].sin().sum())
    torch.testing.assert_close(jacobian(*kind.scores), torch.autograd.grad(parts[0].sin().sum(), leaves)[0])


def test_one_position_is_sparsemax():
    scores = torch.tensor([[[1.0, 0.7, -0.5]], [[3.0, 0.0, 1.0]]])
    found, _ = sparsemap.expected_parts(chain.linear_chain, scores, torch.zeros(3, 3))
    torch.testing.assert_close(found[:, 0], torch.tensor([[0.65, 0.35, 0], [1, 0, 0]]))


def test_inputs_that_are_easily_forgotten():
    arcs = torch.randn(2, 3, 5, 5, dtype=torch.bfloat16)
    p, heads = sparsemap.structures(nonprojective.single_root, arcs, lengths=[[4, 0, 2], [1, 3, 4]])
    assert p.shape[1:] == (2, 3) and heads.shape[1:] == (2, 3, 5) and p.dtype == torch.bfloat16
    assert p[:, 0, 1].tolist()[0] == 1 and (heads[:, 0, 1] == -1).all(), "an empty sentence has one structure"
    (parts,) = sparsemap.expected_parts(eisner.multi_root, arcs.float(), lengths=[[4, 0, 2], [1, 3, 4]])
    torch.testing.assert_close(parts.sum((2, 3)), torch.tensor([[4.0, 0, 2], [1, 3, 4]]))
    labels = torch.randn(3, 4, 4, 2)
    labels[0, 1, 2, 0], labels[1] = torch.nan, -torch.inf
    (parts,) = sparsemap.expected_parts(spans.labelled_spans, labels)
    assert parts[0].isnan().any() and (parts[1] == 0).all() and parts[2].sum().item() == pytest.approx(7)
    assert sparsemap.expected_parts(spans.labelled_spans, labels[:0])[0].shape == (0, 4, 4, 2)
    with torch.inference_mode():
        assert (
            sparsemap.structures(chain.linear_chain, torch.randn(1, 9, 4), torch.randn(4, 4), lengths=[5])[0].sum()
            > 0.99
        )
    first, last = (sparsemap.structures(spans.labelled_spans, labels[2:], steps=k)[0] for k in (1, 1000))
    assert len(first) <= 2 and len(last) > 2, "steps bound the number of structures"
