"""Semi-Markov chains, alignments and grammars equal sums over the list of all structures; the k best of spans and joint trees."""

import tracemalloc
from itertools import pairwise, product

import pytest
import torch
from scipy.stats import chisquare
from test_enumeration import F64, bracketings, member_scores
from test_enumeration import problem as enumerated
from torch.autograd import gradcheck, gradgradcheck

from phrasemodels.structs import alignment, pcfg
from phrasemodels.structs.kernels import reference_only
from phrasemodels.structs.semimarkov import segmentations
from phrasemodels.structs.structure import ENGINE


def compositions(T, K):
    if T == 0:
        return [()]
    return [(*rest, k) for k in range(1, min(K, T) + 1) for rest in compositions(T - k, K)]


def all_segmentations(T, scores):
    K, C = scores[0].shape[2:]
    for sizes in compositions(T, K):
        begins = [sum(sizes[:x]) for x in range(len(sizes))]
        for labels in product(range(C), repeat=len(sizes)):
            cells = list(zip(begins, sizes, labels, strict=True))
            used = [("0", (t, k - 1, c)) for t, k, c in cells]
            used += [("1", (a, b)) for a, b in pairwise(labels)]
            yield [(t, t + k - 1, c) for t, k, c in cells], used


def all_paths(kind):
    def paths(n, scores):
        m = scores[0].shape[2]

        def extend(path, used):
            if path[-1][0] == n - 1 and path[-1][1] >= m - kind.ends:
                yield path, used
            for number, (down, right) in enumerate(kind.moves):
                i, j = path[-1][0] + down, path[-1][1] + right
                if i < n and j < m:
                    yield from extend([*path, (i, j)], [*used, ("0", (i, j)), ("1", (j, number))])

        for start in range(min(kind.ends, m)):
            yield from extend([(0, start)], [("0", (0, start))])

    return paths


def all_parses(n, scores):
    (N, S, _), P = scores[1].shape[-3:], scores[0].shape[2]
    assert N + P == S
    for tree in bracketings(0, n - 1):
        for symbols in product(*(range(N) if k is not None else range(N, S) for _, k, _ in tree)):
            at = {(i, j): s for (i, _, j), s in zip(tree, symbols, strict=True)}
            if n == 1:
                return
            used = [("2", (at[0, n - 1],))]
            used += [("0", (i, at[i, j] - N)) for i, k, j in tree if k is None]
            used += [("1", (at[i, j], at[i, k], at[k + 1, j])) for i, k, j in tree if k is not None]
            yield [(i, j, at[i, j]) for i, _, j in tree], used


KINDS = {
    "semi-Markov": (segmentations, [(2, 4, 3, 2), (2, 2)], [4, 2], all_segmentations),
    "warping": (alignment.warping, [(2, 3, 4), (2, 4, 3)], [(3, 4), (2, 4)], all_paths(alignment.warping)),
    "frames": (alignment.frames, [(2, 4, 3), (2, 3, 2)], [(4, 3), (3, 3)], all_paths(alignment.frames)),
    "ctc": (alignment.ctc, [(2, 4, 5), (2, 5, 3)], [(4, 5), (3, 5)], all_paths(alignment.ctc)),
    "grammar": (pcfg.trees, [(2, 4, 2), (2, 4, 4), (2,)], [4, 3], all_parses),
}


# with two rows or columns a move, and more of both than a vector holds
OTHERS = alignment.Alignment(((0, 2), (1, 0), (4, 1))), alignment.Alignment(((1, 0), (2, 1), (1, 9)), ends=3)


@pytest.fixture(params=KINDS)
def case(request):
    """Return functions, float64 scores, lengths; and for each sentence, scores of all structures and their rows."""
    functions, shapes, lengths, enumerate_all = KINDS[request.param]
    gen = torch.Generator().manual_seed(0)
    scores = [torch.randn(*s, generator=gen, dtype=F64) for s in shapes]
    lists = []
    for b, length in enumerate(lengths):
        n = length[0] if isinstance(length, tuple) else length
        rows, totals = [], []
        for row, used in enumerate_all(n, scores):
            each = [x[b] if batched(request.param, i) else x for i, x in enumerate(scores)]
            rows.append(row)
            totals.append(sum(each[int(i)][at] for i, at in used))
        lists.append((torch.stack(totals), rows))
    return functions, scores, lengths, lists


def batched(kind, i):
    return i == 0 or kind in ("warping", "frames", "ctc")


@pytest.mark.parametrize("path", ["kernels", "reference"])
def test_inference_equals_enumeration(case, path):
    functions, scores, lengths, lists = case
    if path == "reference":
        with reference_only():
            check(functions, scores, lengths, lists)
    else:
        check(functions, scores, lengths, lists)
        gradcheck(lambda *s: functions.log_partition(*s, lengths=lengths), [s.requires_grad_() for s in scores])


def check(functions, scores, lengths, lists):
    leaves = [s.clone().requires_grad_() for s in scores]
    log_z = functions.log_partition(*leaves, lengths=lengths)
    torch.testing.assert_close(log_z, torch.stack([t.logsumexp(0) for t, _ in lists]))
    grads = torch.autograd.grad(log_z.sum(), leaves)
    p = functions.marginals(*scores, lengths=lengths)
    for x, g, s in zip(p, grads, scores, strict=True):
        torch.testing.assert_close(x if x.shape == s.shape else x.sum(0), g)
    entropy = torch.stack([-(t.softmax(0) * t.log_softmax(0)).sum() for t, _ in lists])
    torch.testing.assert_close(functions.entropy(*scores, lengths=lengths), entropy)
    found, rows = functions.topk(*scores, k=5, lengths=lengths)
    for b, (totals, all_rows) in enumerate(lists):
        best = totals.sort(descending=True)
        torch.testing.assert_close(found[: len(totals), b], best.values[:5])
        assert (found[len(totals) :, b] == -torch.inf).all() and (rows[len(totals) :, b] == -1).all()
        for r, which in enumerate(best.indices[:5].tolist()):
            assert [tuple(x) for x in rows[r, b].tolist() if x[0] >= 0] == sorted_rows(all_rows[which])
    again = functions.score(*scores, rows=rows, lengths=lengths)
    torch.testing.assert_close(again[found > -torch.inf], found[found > -torch.inf])
    assert torch.equal(functions.argmax(*scores, lengths=lengths)[1], rows[0])


def sorted_rows(rows):
    """Return rows in order; cells of trees in pre-order."""
    return sorted(rows, key=lambda r: (r[0], -r[1] if len(r) == 3 else r[1]))


def test_derivatives_of_all_operations_equal_finite_differences(case):
    functions, scores, lengths, _ = case
    leaves = [s.clone().requires_grad_() for s in scores]
    for f in (functions.marginals, functions.entropy):
        gradcheck(lambda *s, f=f: f(*s, lengths=lengths), leaves, fast_mode=True)
        gradgradcheck(lambda *s, f=f: f(*s, lengths=lengths), leaves, fast_mode=True)
    gradcheck(lambda *s: functions.argmax(*s, lengths=lengths)[0], leaves, fast_mode=True)


def test_samples_follow_the_distribution(case):
    functions, scores, lengths, lists = case
    k = 1000
    rows = functions.sample(*scores, k=k, lengths=lengths, generator=torch.Generator().manual_seed(0))
    drawn = functions.score(*scores, rows=rows, lengths=lengths)
    for b, (totals, _) in enumerate(lists):
        distance = (drawn[:, b, None] - totals).abs()
        assert distance.amin(1).max() < 1e-9
        counts, expected = torch.bincount(distance.argmin(1), minlength=len(totals)), totals.softmax(0) * k
        rare = expected < 5
        observed = [*counts[~rare].tolist(), counts[rare].sum().item()]
        wanted = [*expected[~rare].tolist(), max(expected[rare].sum().item(), 1e-9)]
        assert chisquare(observed, wanted).pvalue > 1e-3


@pytest.mark.parametrize("std", [1e3, 1e5])
def test_wide_spreads_forbidden_parts_and_padding_that_is_no_number(case, std):
    functions, scores, lengths, _ = case
    wide = [s * std for s in scores]
    wide[0][:, -1] = torch.where(torch.arange(wide[0].shape[-1]) % 2 == 0, -torch.inf, wide[0][:, -1])
    if isinstance(lengths[1], int):
        wide[0][1, lengths[1] :] = torch.nan
    for dtype in (F64, torch.float32):
        some = [s.to(dtype) for s in wide]
        found = [functions.log_partition(*some, lengths=lengths), *functions.marginals(*some, lengths=lengths)]
        with reference_only():
            exact = [functions.log_partition(*some, lengths=lengths), *functions.marginals(*some, lengths=lengths)]
        for x, y in zip(found, exact, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-2 if dtype == torch.float32 else 1e-6)
    wide[0][0, 0] = torch.nan
    log_z = functions.log_partition(*wide, lengths=lengths)
    assert log_z[0].isnan() and not log_z[1].isnan()


def test_empty_batches_and_structures(case):
    functions, scores, lengths, _ = case
    zero = [tuple(0 for _ in x) if isinstance(x, tuple) else 0 for x in lengths]
    assert functions.log_partition(*scores, lengths=zero).tolist() == [0, 0]
    assert functions.entropy(*scores, lengths=zero).tolist() == [0, 0]
    assert (functions.sample(*scores, k=2, lengths=zero) == -1).all()
    assert functions.argmax(*scores, lengths=zero)[0].tolist() == [0, 0]
    shared = functions in (segmentations, pcfg.trees)
    none = [s if i and shared else s[:0] for i, s in enumerate(scores)]
    assert functions.log_partition(*none).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_have_the_type_of_the_scores(case, dtype):
    functions, scores, lengths, _ = case
    short = [s.to(dtype) for s in scores]
    found = functions.log_partition(*short, lengths=lengths)
    assert found.dtype == torch.float32 and functions.marginals(*short, lengths=lengths)[0].dtype == dtype
    exact = functions.log_partition(*(s.double() for s in short), lengths=lengths)
    torch.testing.assert_close(found.double(), exact, rtol=1e-2, atol=1e-2)


def test_ctc_equals_that_of_torch():
    log_probs = torch.randn(3, 9, 5, dtype=F64).log_softmax(-1).requires_grad_()
    targets, frames, labels = (
        torch.tensor([[1, 1, 2], [3, 4, 0], [2, 0, 0]]),
        torch.tensor([9, 7, 4]),
        torch.tensor([3, 2, 1]),
    )
    cells, steps, lengths = alignment.ctc_scores(log_probs, targets, frames, labels)
    ours = -alignment.ctc.log_partition(cells, steps, lengths=lengths)
    theirs = torch.nn.functional.ctc_loss(log_probs.transpose(0, 1), targets, frames, labels, reduction="none")
    torch.testing.assert_close(ours, theirs)
    # the gradient of torch's loss is that to unnormalised scores, so ours is compared after the softmax
    scores = log_probs.detach().requires_grad_()
    cells, steps, lengths = alignment.ctc_scores(scores.log_softmax(-1), targets, frames, labels)
    own = torch.autograd.grad(-alignment.ctc.log_partition(cells, steps, lengths=lengths).sum(), scores)[0]
    loss = torch.nn.functional.ctc_loss(
        scores.log_softmax(-1).transpose(0, 1), targets, frames, labels, reduction="sum"
    )
    torch.testing.assert_close(own, torch.autograd.grad(loss, scores)[0])


def test_a_sentence_of_one_word_has_no_parse():
    scores = torch.randn(1, 3, 2), torch.randn(2, 4, 4), torch.randn(2)
    assert pcfg.trees.log_partition(*scores, lengths=[1]).item() == -torch.inf


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("name", ["spans", "joint"])
def test_the_k_best_trees_are_those_of_enumeration(name, n):
    q = enumerated(name, n, std=3.0)
    scores, *best = q.module.topk(*q.scores, 6)
    expected = q.total.sort(1, descending=True).values[:, :6].T
    torch.testing.assert_close(scores[: len(expected)], expected)
    assert (scores[len(expected) :] == -torch.inf).all()
    for r in range(len(expected)):
        one = [x[r] for x in best]
        torch.testing.assert_close(member_scores(name, q, one if name == "joint" else one[0]), expected[r])


@pytest.mark.parametrize("std", [1, 1000])
@pytest.mark.parametrize("shared", [True, False])
def test_products_of_matrices_and_the_engine_agree_on_grammars(monkeypatch, shared, std):
    """Scores that spread much, or a forbidden rule, are the engine's."""
    monkeypatch.setattr(pcfg, "SMALLEST", 0)
    B, n, N, P = 9, 6, 3, 4
    lead = () if shared else (B,)
    shapes = (B, n, P), (*lead, N, N + P, N + P), (*lead, N)
    scores = [(torch.randn(shape, dtype=F64) * std).requires_grad_() for shape in shapes]
    lengths, weight = torch.tensor([6, 0, 2, 3, 4, 5, 6, 2, 3]), torch.randn(B, dtype=F64)
    results = []
    for functions in (pcfg.trees, EngineAlone()):
        log_z = functions.log_partition(*scores, lengths=lengths)
        grads = torch.autograd.grad((log_z * weight).sum(), scores)
        results.append([log_z, *grads, *functions.marginals(*scores, lengths=lengths)])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
    forbidden = scores[1].detach().clone()
    forbidden[..., 0, :, :] = -torch.inf
    found = pcfg.trees.log_partition(scores[0], forbidden, scores[2], lengths=lengths)
    torch.testing.assert_close(found, EngineAlone().log_partition(scores[0], forbidden, scores[2], lengths=lengths))


class EngineAlone(pcfg.Grammar):
    kernels = (ENGINE,)


def test_a_grammar_of_published_size_trains_in_little_memory():
    """30 nonterminals and 60 preterminals, as in Kim et al. (2019): a table of edges would take gigabytes."""
    scores = [torch.randn(shape).requires_grad_() for shape in ((2, 20, 60), (30, 90, 90), (30,))]
    grads = torch.autograd.grad(pcfg.trees.log_partition(*scores).sum(), scores)
    assert grads[0].sum().item() == pytest.approx(40, rel=1e-4)  # each word has one preterminal
    assert grads[1].sum().item() == pytest.approx(38, rel=1e-4)  # and all words but one a rule


@pytest.mark.parametrize("by", [800.0, -800.0])
def test_roots_of_any_size_are_added_to_log_z_by_the_kernel_of_matrix_products(by):
    terms, rules, roots = torch.randn(2, 5, 30), torch.randn(20, 50, 50), torch.randn(20)
    before, after = (pcfg.trees.log_partition(terms, rules, each) for each in (roots, roots + by))
    torch.testing.assert_close(after, before + by)


@pytest.mark.parametrize("shared", [True, False])
def test_rules_of_low_rank_are_those_that_they_stand_for(shared):
    B, n, N, P, rank = 5, 5, 3, 4, 6
    lead = () if shared else (B,)
    shapes = (B, n, P), (*lead, N, rank), (*lead, N + P, rank), (*lead, N + P, rank), (*lead, N)
    terms, heads, left, right, roots = given = [torch.randn(s, dtype=F64).mul(3) for s in shapes]
    terms[3, 1], heads[0] = -torch.inf, heads[0] if shared else heads[0] - 900  # no tree; numbers beyond those of exp
    given = [x.requires_grad_() for x in given]
    lengths, weight = torch.tensor([5, 0, 3, 2, 5]), torch.randn(B, dtype=F64)
    rules = heads[..., :, None, None, :] + left[..., None, :, None, :] + right[..., None, None, :, :]
    want = pcfg.trees.log_partition(terms, rules.logsumexp(-1), roots, lengths=lengths)
    found = pcfg.low_rank_log_partition(*given, lengths)
    torch.testing.assert_close(found, want)
    pair = (torch.autograd.grad((z * weight).sum(), given) for z in (found, want))
    for one, other in zip(*pair, strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        terms[3, 1] = -1e30
        assert pcfg.low_rank_log_partition(*given, lengths)[3] == -torch.inf
    assert pcfg.low_rank_log_partition(*(x.bfloat16() for x in given)).dtype == torch.float32
    assert pcfg.low_rank_log_partition(*given, [1, 1, 0, 0, 2])[:3].tolist() == [-torch.inf, -torch.inf, 0]
    with pytest.raises(ValueError, match="must be"):
        pcfg.low_rank_log_partition(terms, heads, left[..., 1:, :], right, roots)


def test_entropy_keeps_no_part_of_each_sentence():
    scores = torch.randn(512, 3, 6), torch.randn(6, 12, 12), torch.randn(6)
    pcfg.trees.entropy(*scores)  # compiles
    tracemalloc.start()
    try:
        pcfg.trees.entropy(*scores)
        assert tracemalloc.get_traced_memory()[1] < 512 * scores[1].numel() * 4
    finally:
        tracemalloc.stop()
