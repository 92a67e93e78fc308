"""Agreement of parses with a treebank."""

import pyarrow as pa
import pytest

from phrasemodels.data.formats.shards import TREES, build
from phrasemodels.tasks.metrics.parseval import treebank_scores


def treebank(**columns: list) -> object:
    return build(TREES, "here", columns, len(columns["tokens"]))


def test_agreement_counts_the_annotations_of_the_treebank() -> None:
    gold = treebank(
        tokens=[["a", "b"], ["c"]], tags=[["DT", "NN"], []], heads=[[2, 0], []], relations=[["det", "root"], []],
        tree=["(ROOT (NP (DT a) (NN b)))", ""],
    )  # fmt: skip
    found = treebank(
        tokens=[["a", "b"], ["c"]], tags=[["DT", "JJ"], ["X"]], heads=[[2, 0], [0]],
        relations=[["nmod", "root:x"], ["root"]], tree=["(ROOT (X (DT a) (JJ b)))", "(ROOT (X c))"],
    )  # fmt: skip
    assert treebank_scores(gold, found) == {"xpos": 50, "uas": 100, "las": 50, "f1": 0}
    assert treebank_scores(gold, gold)["f1"] == 100
    nothing = treebank(tokens=[["a", "b"], ["c"]])
    assert treebank_scores(gold, nothing) == {"xpos": 0, "uas": 0, "las": 0, "f1": 0}
    unlabelled = gold.set_column(
        gold.column_names.index("relations"), "relations", pa.array([[], []], pa.list_(pa.string()))
    )
    assert (
        treebank_scores(unlabelled, gold).keys() == {"xpos", "uas", "f1"}
        and treebank_scores(unlabelled, gold)["uas"] == 100
    )
    with pytest.raises(ValueError, match="row 0: other tokens"):
        treebank_scores(gold, treebank(tokens=[["a", "x"], ["c"]]))
