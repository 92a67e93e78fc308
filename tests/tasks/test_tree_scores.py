"""EVALB's rules one by one, and attachment scores, on cases counted by hand."""

import pyarrow as pa
import pytest

from phrasemodels.data.formats.shards import TREES, build
from phrasemodels.data.formats.trees import Span, Tree, parse
from phrasemodels.tasks.metrics.parseval import (
    NO_PARSE,
    SCORED,
    WRONG_WORDS,
    Arcs,
    attachments,
    brackets,
    match_brackets,
    nothing,
    penn,
    rates,
    treebank_scores,
    unicode,
)

GOLD = "(ROOT (S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (NN it)))) (. .)))"


@pytest.mark.parametrize(
    ("rule", "found", "counts"),
    [
        ("the same", GOLD, (5, 5, 5)),
        ("a label is wrong", GOLD.replace("PP", "VP"), (4, 5, 5)),
        ("a bracket is missing", "(ROOT (S (NP (DT the) (NN cat)) (VP (VBD sat) (IN on) (NN it)) (. .)))", (3, 5, 3)),
        ("a chain of one label counts twice", GOLD.replace("(NP (NN it))", "(NP (NP (NN it)))"), (5, 5, 6)),
        ("function tags are cut", GOLD.replace("(NP (DT", "(NP-SBJ=1 (DT"), (5, 5, 5)),
        ("punctuation may hang anywhere", "(ROOT (S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (NN it))) (. .))))",
         (5, 5, 5)),
        ("tags do not matter", GOLD.replace("VBD", "NN"), (5, 5, 5)),
        ("a bracket of punctuation alone is none", GOLD.replace("(. .)", "(X (. .))"), (5, 5, 5)),
    ],
)  # fmt: skip
def test_evalb_counts(rule: str, found: str, counts: tuple[int, int, int]) -> None:
    result = match_brackets(parse(GOLD), parse(found))
    assert (result[:3], result.status) == (counts, SCORED), rule
    assert result.exact == (counts == (5, 5, 5))


def test_prt_and_advp_are_one_label() -> None:
    tree = parse("(ROOT (S (ADVP (RB up)) (VP (VB go))))")
    assert match_brackets(tree, parse("(ROOT (S (PRT (RB up)) (VP (VB go))))"))[:3] == (3, 3, 3)


@pytest.mark.parametrize("mark", ["TOP", "ROOT", "S1", "-NONE-", ",", ":", "``", "''", ".", "?", "!"])
def test_deleted_marks_are_neither_labels_nor_words(mark: str) -> None:
    tree = Tree(("x", "go", "y"), (mark, "VB", mark), (Span("S", 0, 3), Span(mark, 0, 2), Span("NP", 0, 1)))
    assert brackets(tree) == (["go"], {Span("S", 0, 1): 1})


@pytest.mark.parametrize("mark", ["-LRB-", "$", "#", "SYM", "PRP$", "FRAG"])
def test_other_marks_are_labels_and_words(mark: str) -> None:
    tree = Tree(("x", "go"), (mark, "VB"), (Span("S", 0, 2), Span(mark, 0, 1)))
    assert brackets(tree)[0] == ["x", "go"] and brackets(tree)[1].total() == 2


def test_a_sentence_of_punctuation_is_a_complete_match() -> None:
    tree = parse("(ROOT (S (. .)))")
    assert match_brackets(tree, tree).exact


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (Tree((), (), ()), NO_PARSE),
        (parse(GOLD.replace("cat", "dog")), WRONG_WORDS),
        (parse(GOLD.replace("(. .)", "(SYM .)")), WRONG_WORDS),
    ],
)
def test_failed_parses_have_a_status_and_no_counts(found: Tree, status: str) -> None:
    result = match_brackets(parse(GOLD), found)
    assert (result[:3], result.status, result.exact) == ((0, 0, 0), status, False)


def test_precision_recall_and_f1() -> None:
    assert rates(3, 6, 4) == (50.0, 75.0, 60.0)
    assert rates(0, 0, 4) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("rule", "expected"), [(nothing, (5, 4, 3)), (penn, (3, 2, 1)), (unicode, (3, 3, 2))])
def test_attachments_by_rule_of_punctuation(rule, expected: tuple[int, int, int]) -> None:
    tokens, tags = ["go", "--", "away", "$%", ")"], ["VB", ":", "RB", ".", "-RRB-"]
    gold = Arcs([0, 1, 1, 1, 1], ["root", "punct", "advmod", "punct", "punct"])
    found = Arcs([0, 1, 1, 1, 3], ["root", "punct", "obj", "punct", "punct"])
    assert attachments(gold, found, [rule(*word) for word in zip(tokens, tags, strict=True)]) == expected


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
    none = pa.array([[], []], pa.list_(pa.string()))
    scores = treebank_scores(gold.set_column(gold.column_names.index("relations"), "relations", none), gold)
    assert scores.keys() == {"xpos", "uas", "f1"} and scores["uas"] == 100
    with pytest.raises(ValueError, match="row 0: other tokens"):
        treebank_scores(gold, treebank(tokens=[["a", "x"], ["c"]]))
