"""Distributions over structures, and every line of ours in docs/structs.md."""

import importlib
import re
from pathlib import Path

import pytest
import torch
from test_enumeration import F64, problem
from torch.distributions import Distribution, kl_divergence

from phrasemodels.structs import eisner, nonprojective
from phrasemodels.structs.distributions import DependencyTree, LinearChain

PAGE = (Path(__file__).parents[2] / "docs/structs.md").read_text()
SETUP = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
ROWS = re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", sorted({ours for _, ours in ROWS}))
def test_every_line_of_ours_on_the_page_runs(line):
    names: dict[str, object] = {"torch": torch}
    exec(SETUP, names)
    result = eval(line, names)
    for x in result if isinstance(result, tuple) else (result,):
        assert not x.isnan().any() and 4 in x.shape[:2]


def test_the_modules_of_the_guide_s_table_exist():
    guide = (Path(__file__).parents[2] / "docs/guide/library.md").read_text()
    rows = re.findall(r"^\| (`[a-z].*?`) \|", guide, re.MULTILINE)
    assert len(rows) >= 6
    for row in rows:
        package = ""
        for name in re.findall(r"`(.+?)`", row):
            package = package if name.startswith(".") else name.split(".")[0]
            importlib.import_module(f"phrasemodels.{package}.{name.split('.')[-1]}")


def test_the_page_has_rows_of_every_library():
    assert len(ROWS) > 20 and all(f"\n## {name}\n" in PAGE for name in ("pytorch-crf", "supar", "torch-struct"))


def distributions(name, q, shift=0.0):
    if name == "chain":
        return LinearChain(q.scores[0] + shift * q.scores[0].sin(), q.scores[1])
    return DependencyTree(q.scores[0] + shift * q.scores[0].sin(), trees=q.module)


@pytest.mark.parametrize("name", ["chain", "multi_root", "single_root"])
def test_distributions_equal_enumeration(name):
    q = problem(name, 3)
    one, other = distributions(name, q), distributions(name, q, 0.5)
    assert isinstance(one, Distribution) and one.batch_shape == (2,)
    structures = one.topk(len(q.parts[0]))[1]
    assert structures.shape[2:] == one.event_shape
    log_p, log_q = one.log_prob(structures), other.log_prob(structures)
    torch.testing.assert_close(log_p.exp().sum(0), torch.ones(2, dtype=F64))
    torch.testing.assert_close(log_p.T, q.p.log().sort(1, descending=True).values)
    torch.testing.assert_close(one.entropy(), -(log_p.exp() * log_p).sum(0))
    torch.testing.assert_close(kl_divergence(one, other), (log_p.exp() * (log_p - log_q)).sum(0))
    assert torch.equal(one.mode, structures[0])
    assert one.sample().shape == structures.shape[1:] and one.sample((2, 5)).shape == (2, 5, *structures.shape[1:])


def test_gradients_reach_the_scores_of_both_distributions_of_a_divergence():
    a, b = (torch.randn(2, 4, 4, dtype=F64, requires_grad=True) for _ in range(2))
    for trees in (eisner.single_root, nonprojective.multi_root):
        torch.autograd.gradcheck(
            lambda x, y, t=trees: kl_divergence(DependencyTree(x, trees=t), DependencyTree(y, trees=t)), (a, b)
        )
    with pytest.raises(NotImplementedError, match="same structures"):
        kl_divergence(DependencyTree(a), DependencyTree(b, trees=eisner.multi_root))


@pytest.mark.parametrize("trees", [eisner.single_root, eisner.multi_root, nonprojective.single_root])
def test_scores_of_one_sentence_need_no_batch(trees):
    arcs = torch.randn(5, 5, dtype=torch.float64)
    score, heads = trees.argmax(arcs)
    assert score.shape == () and torch.equal(heads, trees.argmax(arcs[None])[1][0])
    assert torch.equal(trees.log_partition(arcs), trees.log_partition(arcs[None])[0])
