"""Heads by rules against the dependencies of the sample grammar."""

import pytest

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.formats.trees import heads, parse, plain


def test_heads_by_rules_make_projective_trees_and_mostly_agree_with_the_grammar():
    right = words = 0
    for row in Treebank().tables({"train": 300})["train"].to_pylist():
        found = heads(plain(parse(row["tree"])))
        right += sum(map(int.__eq__, found, row["heads"]))
        words += len(found)
        assert found.count(0) == 1
        arcs = [(min(h, m), max(h, m)) for m, h in enumerate(found, 1)]
        assert not any(a < c < b < d for a, b in arcs for c, d in arcs), "two arcs cross"
    assert right / words > 0.9  # most others are copulas, which are no heads in the grammar


@pytest.mark.parametrize(
    ("brackets", "expected"),
    [
        ("(ROOT (NP (DT the) (NN shop) (NN window)))", [3, 3, 0]),
        ("(ROOT (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NNS hats)))))", [2, 0, 4, 2]),
        ("(ROOT (X (FW ad) (FW hoc)))", [2, 0]),
        ("(ROOT (S (VP (VB sleep))))", [0]),
    ],
)
def test_head_rules_on_known_trees(brackets, expected):
    assert heads(parse(brackets)) == expected
