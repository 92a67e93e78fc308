"""Brackets and CoNLL-U: reading, writing, and error messages; heads by rules."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.formats.conllu import flaw, read_conllu, sentence_to_conllu
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.formats.trees import Span, Tree, alike, brackets, heads, parse, plain, read_brackets, wh_phrases


def numbered(text: str) -> list[Line]:
    return [Line(number, line) for number, line in enumerate(text.split("\n"), 1)]


def trees(text: str) -> list[tuple[int, Tree]]:
    return list(read_brackets(numbered(text), "x.mrg"))


def complaint(action: Callable[[], object]) -> str:
    """Return the message of the ValueError; without an error, a text that holds what every message must."""
    try:
        action()
    except ValueError as error:
        return str(error)
    return "x.mrg, line 0; x.conllu, line 0"


def test_a_penn_tree_over_several_lines() -> None:
    text = "\n( (S (NP-SBJ-1 (DT The) (NN cat))\n   (VP=2 (VBD sat) (NP (-NONE- *-1)))\n   (-LRB- -LRB-)) )\n(NN x)"
    (line, tree), (other, single) = trees(text)
    assert (line, other) == (2, 5)
    assert plain(tree) == Tree(
        ("The", "cat", "sat", "("),
        ("DT", "NN", "VBD", "-LRB-"),
        (Span("ROOT", 0, 4), Span("S", 0, 4), Span("NP", 0, 2), Span("VP", 2, 3)),
    )
    assert brackets(plain(tree)) == "(ROOT (S (NP (DT The) (NN cat)) (VP (VBD sat)) (-LRB- -LRB-)))"
    assert brackets(plain(single)) == "(ROOT (NN x))"


def test_traces_are_left_out_also_without_their_tag() -> None:
    tree = parse("(S (NP-SBJ *T*-1) (NP *ICH*) (VP (VB go) (SYM *) (NN *T*x)))")
    assert tree.tokens == ("go", "*", "*T*x") and [span.label for span in tree.spans] == ["S", "VP"]


def test_unicode_spaces_are_parts_of_words() -> None:
    assert parse("(3 (2 It) (4 (2 's\u2009so) (4 good)))").tokens == ("It", "'s\u2009so", "good")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(S (NP (DT a))", "line 1: the tree that begins here lacks 1 closing bracket"),
        ("(S (DT a))\n\n(S (X b)", "line 3: the tree that begins here lacks 1 closing bracket"),
        ("(S (DT a)))", r"line 1: '\)' outside of all brackets"),
        ("word", "line 1: 'word' outside of all brackets"),
        ("(S\n(NP ))", "line 2: a bracket 'NP' with nothing in it"),
        ("(S (DT a b))", "line 1: 'b' beside other words"),
        ("(S (DT a) b)", "line 1: 'b' beside other words"),
        ("(S\x1b[2J (DT a))", r"line 1: 'S\\x1b\[2J' is no label"),
        (f"({'S' * 101} (DT a))", "line 1: 'SSSSSSSSSSSSSSSSSSSS' is no label"),
        ("(S (DT a (NN b)))", "line 1: a bracket after the word 'a'"),
    ],
)
def test_wrong_brackets_are_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"x\.mrg, " + words):
        trees(text)


@pytest.mark.parametrize("text", ["", "(S (A a)) (S (B b))"])
def test_parse_refuses_no_tree_and_two_trees(text: str) -> None:
    with pytest.raises(ValueError, match="trees, not one"):
        parse(text)


def test_deep_and_long_trees_are_read() -> None:
    deep = "(S " * 50_000 + "(X x)" + ")" * 50_000
    assert len(parse(deep).spans) == 50_000
    assert brackets(parse(deep)) == deep
    assert len(parse("(S " + " ".join(f"(X w{i})" for i in range(500)) + ")").tokens) == 500


leaves = st.tuples(st.sampled_from(["NN", "-LRB-", "VB"]), st.sampled_from(["a", "(", "b/c", ")", "d\u200ae"]))
phrases = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(["NP", "S"]), st.lists(inner, min_size=1, max_size=4)),
    max_leaves=30,
)


def linear(node: tuple[str, str | list]) -> str:
    label, content = node
    if isinstance(content, str):
        content = content.replace("(", "-LRB-").replace(")", "-RRB-")
        return f"({label} {content})"
    return f"({label} " + " ".join(map(linear, content)) + ")"


@given(phrases)
def test_written_brackets_are_those_that_were_read(node: tuple[str, str | list]) -> None:
    assert brackets(parse(linear(node))) == linear(node)


def test_any_words_and_tags_are_written_so_that_they_can_be_read() -> None:
    tree = Tree(("a\x0bb", "c\x0c", "("), ("$(", "", "NN"), (Span("S", 0, 3),))
    assert brackets(tree) == "(S ($-LRB- a␣b) (X c␣) (NN -LRB-))"
    assert parse(brackets(tree)).tokens == ("a␣b", "c␣", "(")


@settings(max_examples=300)
@given(st.text(alphabet="()ab -\n\t", max_size=200))
def test_any_text_is_brackets_or_an_error_that_names_a_line(text: str) -> None:
    assert "x.mrg, line " in complaint(lambda: [brackets(tree) for _, tree in trees(text)])


def test_words_that_differ_in_quotes_and_escapes_are_alike() -> None:
    assert alike("``", '"')
    assert alike("-LRB-", "(")
    assert alike("and\\/or", "and/or")
    assert not alike("b", "c")


def conllu(*heads: object) -> str:
    rows = (f"{i}\tw{i}\t_\tNOUN\tNN\t_\t{head}\tdep\t_\t_" for i, head in enumerate(heads, 1))
    return "# newdoc id = one\n" + "\n".join(rows) + "\n\n"


def test_a_new_document_without_a_name_is_none_of_the_ones_before() -> None:
    text = conllu(2, 0)
    text += conllu(0).replace("# newdoc id = one", "# newdoc") + conllu(0).replace("newdoc id", "newdoc_id")
    found = read_conllu((Line(*line) for line in enumerate(text.split("\n"), 1)), "x")
    assert [sentence.document for sentence in found] == ["one", "", ""]


def test_multiword_tokens_and_empty_nodes_are_skipped() -> None:
    text = (
        conllu(2, 0)
        + "1-2\tdon't"
        + "\t_" * 8
        + "\n"
        + "1\tdo"
        + "\t_" * 8
        + "\n1.1\tx"
        + "\t_" * 8
        + "\n2\tn't"
        + "\t_" * 8
    )
    first, second = read_conllu(numbered(text), "x.conllu")
    assert first == (2, "one", ["w1", "w2"], ["NN", "NN"], ["NOUN", "NOUN"], [2, 0], ["dep", "dep"], "")
    assert second == (5, "one", ["do", "n't"], [], [], [], [], "")


@pytest.mark.parametrize(
    ("heads", "reason"),
    [
        ((2, 1), "cyclic dependencies"),
        ((0, 3, 2), "cyclic dependencies"),
        ((1,), "cyclic dependencies"),
        ((0, 0), "2 roots"),
    ],
)
def test_heads_that_make_no_tree_are_a_reason(heads: tuple[int, ...], reason: str) -> None:
    (sentence,) = read_conllu(numbered(conllu(*heads)), "x")
    assert (sentence.reason, sentence.heads, sentence.relations) == (reason, [], [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (conllu("2|3", 0), "line 2: head '2|3' is not one number".replace("|", r"\|")),
        (conllu(0, 9), "line 3: head 9 in a sentence of 2 tokens"),
        (conllu("_", 0), "line 2: head '_' is not one number"),
        ("1\ta\n", "line 1: 2 columns"),
        ("1\ta\t_\tX Y\t_\t_\t0\troot\t_\t_\n", "line 1: 'X Y' is no tag or relation"),
        ("1\ta\t_\tX\t_\t_\t0\tro\x1b[2Jot\t_\t_\n", r"line 1: 'ro\\x1b\[2Jot' is no tag or relation"),
        ("1\ta\t_\tX\tX(\t_\t0\ta[b]\t_\t_\n", r"line 1: 'a\[b\]' is no tag or relation"),
        (conllu(0).replace("1\tw1", "2\tw1"), "line 2: token 2 where 1 should be"),
        (conllu(0).replace("1\tw1", "1\t"), "line 2: token 1 has no form"),
        (conllu(0).replace("1\tw1", "x\tw1"), "line 2: 'x' is no token number"),
        ("# only\n\n", "line 1: comments on a sentence without words"),
        ("1-2" + "\tx" * 9, "line 1: 1-2 is no multiword token here"),
        (conllu(0).rstrip() + "\n# inside\n", "line 3: a comment inside a sentence"),
    ],
)
def test_wrong_conllu_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=rf"x\.conllu, {words}"):
        list(read_conllu(numbered(text), "x.conllu"))


def test_a_written_sentence_is_read_back() -> None:
    columns = {"tags": ["DT", "NN"], "universal": ["DET", "NOUN"], "heads": [2, 0], "relations": ["det", "root"]}
    text = sentence_to_conllu(["the", "cat"], **columns, misc=["_", "SpaceAfter=No"])
    assert text.splitlines()[1] == "2\tcat\t_\tNOUN\tNN\t_\t0\troot\t_\tSpaceAfter=No"
    (sentence,) = read_conllu(numbered(text), "x.conllu")
    assert sentence == (1, "", ["the", "cat"], *columns.values(), "")
    assert sentence_to_conllu(["a"]) == "1" + "\ta" + "\t_" * 8 + "\n"
    with pytest.raises(ValueError, match="argument"):
        sentence_to_conllu(["a", "b"], tags=["DT"])


fields = st.sampled_from(["1", "2", "3", "0", "_", "1-2", "1.1", "", "x", "٣", "²", "-", "#"])


@given(st.lists(st.one_of(st.just(""), st.lists(fields, min_size=9, max_size=11).map("\t".join), st.text(max_size=5))))
def test_any_lines_are_conllu_or_an_error_that_names_a_line(rows: list[str]) -> None:
    lines = [Line(i, row) for i, row in enumerate(rows, 1)]
    assert "x.conllu, line " in complaint(lambda: [sentence.tokens[0] for sentence in read_conllu(lines, "x.conllu")])


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.integers(0, n), min_size=n, max_size=n)))
def test_flaw_agrees_with_following_every_head(heads: list[int]) -> None:
    def reaches_root(token: int) -> bool:
        for _ in heads:
            token = heads[token - 1] if token else 0
        return token == 0

    assert (flaw(heads) == "") == (heads.count(0) == 1 and all(map(reaches_root, range(1, len(heads) + 1))))


def test_flaw_is_linear_in_the_length_of_the_sentence() -> None:
    compared = 0

    class Head(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

    heads = [Head(head) for head in [*range(2, 1001), 0]]
    assert flaw(heads) == ""
    assert compared < 5 * len(heads)
    assert flaw([*heads[:-2], Head(1), Head(0)]) == "cyclic dependencies"


def test_noun_phrases_with_wh_words_before_a_clause_are_wh_phrases() -> None:
    tree = parse(
        "(NP (NP (DT a) (NN man)) (SBAR (NP (WP who)) (S (VP (VBZ sees) (SBAR (WHNP (WP what)) (S (NP (PRP it)) (VP (VBZ is))))))))"
    )
    assert brackets(wh_phrases(tree)) == brackets(tree).replace("(NP (WP who))", "(WHNP (WP who))")
    kept = parse("(SBARQ (NP (WP$ whose) (NN dog)) (SQ (VBZ is) (NP (WP what))) (NP (WDT which)))")
    assert [span.label for span in wh_phrases(kept).spans] == ["SBARQ", "WHNP", "SQ", "NP", "NP"]


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
    ("text", "expected"),
    [
        ("(ROOT (NP (DT the) (NN shop) (NN window)))", [3, 3, 0]),
        ("(ROOT (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NNS hats)))))", [2, 0, 4, 2]),
        ("(ROOT (X (FW ad) (FW hoc)))", [2, 0]),
        ("(ROOT (S (VP (VB sleep))))", [0]),
    ],
)
def test_head_rules_on_known_trees(text, expected):
    assert heads(parse(text)) == expected
