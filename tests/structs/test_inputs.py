"""Inputs that are easily forgotten: short and mixed types, empty sentences, sentences without a structure and memory that is read-only.
Each is compared with float64, or with the list of all structures."""

import inspect
import threading
from functools import reduce

import numpy as np
import pytest
import torch
from register import STRUCTURES
from torch import Tensor

from phrasemodels.structs import alignment, chain, eisner, joint, nonprojective, pcfg, spans
from phrasemodels.structs.distributions import DependencyTree, HiddenMarkov, LinearChain
from phrasemodels.structs.kernels import reference_only
from phrasemodels.structs.semimarkov import segmentations
from phrasemodels.structs.spans import margin

F64 = torch.float64
LONG = {  # shapes of a sentence of 50 words and more
    "chain": [(2, 500, 9), (9, 9)],
    "single-root": [(2, 51, 51)],
    "crossing, multi-root": [(2, 51, 51)],
    "spans": [(2, 40, 40, 5)],
    "semi-Markov": [(2, 120, 4, 5), (5, 5)],
    "warping": [(2, 60, 50)],
    "ctc": [(2, 120, 31), (2, 31, 3)],
    "joint": [(2, 12, 12, 3), (2, 13, 13)],
    "grammar": [(2, 12, 4), (3, 7, 7), (3,)],
}


def scores_of(name: str) -> list[Tensor]:
    gen = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=gen) for shape in LONG[name]]


def close_but_for_rounding(found: Tensor, exact: Tensor, kind: torch.dtype) -> None:
    assert found.dtype == kind
    torch.testing.assert_close(found.double(), exact, rtol=2 * torch.finfo(kind).eps, atol=1e-4)


@pytest.mark.parametrize(
    "kinds", [["bfloat16"], ["float16"], ["bfloat16", "float32"], ["float32", "float64"], ["float16", "bfloat16"]]
)
@pytest.mark.parametrize("name", LONG)
def test_log_probabilities_are_rounded_once(name: str, kinds: list[str]) -> None:
    """Both terms of a log probability are large, and their difference is small."""
    types = [getattr(torch, kind) for kind in kinds]
    given = [s.to(types[i % len(types)]).requires_grad_() for i, s in enumerate(scores_of(name))]
    exact = [s.detach().double().requires_grad_() for s in given]
    wanted = reduce(torch.promote_types, [s.dtype for s in given])
    make = STRUCTURES[name].distribution
    p, q = make(*given, None), make(*exact, None)
    value = q.sample((2,))
    found, right = p.log_prob(value), q.log_prob(value)
    close_but_for_rounding(found, right, wanted)
    assert (found <= 0).all()
    for got, want in zip(
        torch.autograd.grad(found.float().sum(), given), torch.autograd.grad(right.sum(), exact), strict=True
    ):
        torch.testing.assert_close(got.double(), want, rtol=2 * torch.finfo(got.dtype).eps, atol=1e-4)
    close_but_for_rounding(p.log_partition, q.log_partition, torch.promote_types(wanted, torch.float32))
    close_but_for_rounding(p.entropy(), q.entropy(), wanted)
    close_but_for_rounding(p.topk(2)[0], q.topk(2)[0], wanted)


def test_a_hidden_markov_model_in_short_types() -> None:
    gen = torch.Generator().manual_seed(1)
    short = [torch.randn(*s, generator=gen).log_softmax(-1).bfloat16() for s in ((5,), (5, 5), (5, 7))]
    observed = torch.randint(0, 7, (2, 400), generator=gen)
    p, q = HiddenMarkov(*short, observed), HiddenMarkov(*(s.double() for s in short), observed)
    value = q.sample()
    close_but_for_rounding(p.log_prob(value), q.log_prob(value), torch.bfloat16)
    close_but_for_rounding(p.log_partition, q.log_partition, torch.float32)


@pytest.mark.parametrize("path", ["kernels", "reference"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_an_empty_sentence_has_one_structure_and_a_forbidden_one_none(name: str, path: str) -> None:
    kind, scores = STRUCTURES[name], STRUCTURES[name].scores()
    scores[0][1] = -torch.inf
    p = kind.distribution(*scores, [0, 1] if kind.functions.length_axes == 1 else [[0, 0], [1, 1]])
    with reference_only() if path == "reference" else torch.no_grad():
        best, rows = p.functions.argmax(*scores, lengths=p.lengths)[:2]
        assert best.tolist() == [0, -torch.inf]
        assert (rows == -1).all() and (p.mode == -1).all() and (p.minimum_risk == -1).all()
        assert p.log_prob(p.mode).tolist() == [0, -torch.inf]
        assert p.log_partition.tolist() == [0, -torch.inf] and p.entropy().tolist() == [0, 0]
        assert (p.sample((3,)) == -1).all()
        log_p, structures = p.topk(2)
        assert log_p.tolist() == [[0, -torch.inf], [-torch.inf, -torch.inf]] and (structures == -1).all()
        assert p.log_prob(structures)[0].tolist() == [0, -torch.inf]
        support = p.enumerate_support()
        assert len(support) == 1 and (support == -1).all()
        expected = p.functions.minimum_risk(*scores, lengths=p.lengths)[0]
        assert expected.tolist() == [0, -torch.inf]


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_that_do_not_exist_are_impossible(name: str) -> None:
    """`topk` fills up with -1, which has no probability, unless the sentence is empty."""
    p = STRUCTURES[name].distribution(*STRUCTURES[name].scores(), STRUCTURES[name].lengths)
    support = p.enumerate_support()
    log_p, structures = p.topk(len(support) + 2)
    assert (structures[-2:] == -1).all() and (log_p[-2:] == -torch.inf).all()
    torch.testing.assert_close(p.log_prob(structures), log_p)


def read_only(x: Tensor, path) -> Tensor:
    memory = np.memmap(path, dtype=np.float32, mode="w+", shape=tuple(x.shape))
    memory[:] = x.numpy()
    memory.flush()
    return torch.from_numpy(np.memmap(path, dtype=np.float32, mode="r", shape=tuple(x.shape)))


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_nothing_is_written_to_an_input(tmp_path) -> None:
    """A write to a read-only map ends the process."""
    for number, (functions, *shapes) in enumerate([
        (chain, (2, 6, 3), (3, 3)), (eisner.multi_root, (2, 6, 6)), (nonprojective.single_root, (2, 6, 6)), (spans, (2, 5, 5, 3)),
        (joint, (2, 4, 4, 2), (2, 5, 5)), (segmentations, (2, 6, 3, 2), (2, 2)), (alignment.warping, (2, 5, 4)),
        (pcfg.trees, (2, 5, 3), (2, 5, 5), (2,)),
    ]):  # fmt: skip
        scores = [read_only(torch.randn(*s), tmp_path / f"{number}.{i}") for i, s in enumerate(shapes)]
        leaves = [s.requires_grad_() for s in scores]
        for name in ("log_partition", "marginals", "entropy", "argmax", "minimum_risk"):
            found = getattr(functions, name)(*leaves)
            sum(x.sum() for x in (found if isinstance(found, tuple) else (found,)) if x.requires_grad).backward()
        functions.topk(*leaves, k=3)
        functions.sample(*leaves, k=3)
    labels = read_only(torch.randn(2, 5, 5, 3), tmp_path / "labels").requires_grad_()
    margin(labels, spans.argmax(torch.randn(2, 5, 5, 3))[1]).sum().backward()


def test_threads_may_share_scores() -> None:
    labels = torch.randn(4, 30, 30, 20)
    gold = [spans.argmax(torch.randn(4, 30, 30, 20))[1] for _ in range(3)]
    right = [margin(labels, cells, cost=3.0) for cells in gold]
    wrong: list[int] = []

    def run(which: int) -> None:
        wrong.extend(which for _ in range(20) if not torch.equal(margin(labels, gold[which], cost=3.0), right[which]))

    threads = [threading.Thread(target=run, args=[which]) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_margin_refuses_cells_outside_of_the_scores() -> None:
    for wrong in ([[[0, 9, 0]]], [[[0, 0, 3]]], [[[0, 0, -100]]], [[0, 0, 0]]):
        with pytest.raises(ValueError, match=r"^gold must be cells"):
            margin(torch.zeros(1, 4, 4, 3), torch.tensor(wrong))


@pytest.mark.parametrize("std", [1.0, 1e4])
def test_the_entropy_of_trees_that_may_cross_keeps_its_digits(std: float) -> None:
    arcs = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(0)) * std
    for trees in (nonprojective.multi_root, nonprojective.single_root):
        for path in (reference_only(), torch.no_grad()):
            with path:
                torch.testing.assert_close(
                    trees.entropy(arcs), trees.entropy(arcs.double()).float(), rtol=1e-5, atol=1e-5
                )


def test_distributions_of_whole_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="floating point"):
        chain.log_partition(torch.zeros(1, 2, 3, dtype=torch.long), torch.zeros(3, 3, dtype=torch.long))
    unary, pairwise = torch.zeros(1, 2, 3), torch.zeros(3, 3)
    with pytest.raises(ValueError, match=r"^scores must be tensors of floating point, not ndarray$"):
        chain.topk(unary.numpy(), pairwise.numpy(), 2)
    with pytest.raises(ValueError, match=r"3 scores, but there are 2; lengths must be integers, not torch.float32"):
        chain.log_partition(unary, pairwise, torch.tensor([2.0]))
    with pytest.raises(ValueError, match="floating point"):
        LinearChain(torch.zeros(1, 2, 3, dtype=torch.long), torch.zeros(3, 3, dtype=torch.long)).entropy()
    assert DependencyTree(torch.zeros(1, 3, 3)).log_prob(torch.tensor([[-1, 0, -100]])).item() == -torch.inf


def test_signatures_name_the_scores() -> None:
    shown = {str(inspect.signature(f)).replace("torch.", "") for f in (chain.topk, alignment.warping.entropy)}
    lengths = "lengths: Tensor | collections.abc.Sequence[int] | None = None)"
    assert shown == {
        f"(unary: Tensor, pairwise: Tensor, k: int, {lengths} -> tuple[Tensor, Tensor]",
        f"(cells: Tensor, steps: Tensor = None, {lengths} -> Tensor",
    }
