"""A parse as nodes, drawings, phrases for attention and text that can be read again; and the files that `parse` reads and
writes."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from phrasemodels import levels, members
from phrasemodels.data.formats.conllu import read_conllu
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.formats.trees import parse as read_tree
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.flows.cli.parse import parse as command
from phrasemodels.parsing.constituents import nodes
from phrasemodels.parsing.parser import Parse
from phrasemodels.parsing.words import Word, by_spaces

TREE = read_tree("(ROOT (S (NP (DT The) (JJ old) (NN man)) (VP (VBZ sees) (NP (PRP it))) (. .)))")
HEADS = [3, 3, 4, 0, 4, 4]
PARSE = Parse([*TREE.tokens], [*TREE.tags], TREE, HEADS, ["det", "amod", "nsubj", "root", "obj", "punct"])


def test_nodes_know_children_parents_and_leaves() -> None:
    root = PARSE.root
    noun, verb = root.find("NP")[0], root.find("VP")[0]
    assert [node.label for node in root] == "ROOT S NP DT JJ NN VP VBZ NP PRP .".split()
    assert noun.leaves == ["The", "old", "man"] and noun.parent is verb.parent and noun.parent in root.children
    assert [child.label for child in verb.children] == ["VBZ", "NP"] and verb.children[0].is_word
    assert all(child.parent is node for node in root for child in node.children)
    assert [(node.start, node.end) for node in root.find("NP", "VP")] == [(0, 3), (3, 5), (4, 5)]
    deep = read_tree("(S " * 3000 + "(X a)" + ")" * 3000)
    assert len(list(nodes(deep))) == 3001
    with pytest.raises(ValueError, match="no phrases"):
        _ = Parse(["a"], [], None, [0], []).root


def test_drawings_are_whole_and_name_what_they_show() -> None:
    for kind, said in (("tree", "(ROOT (S (NP"), ("arcs", "The depends on man")):
        drawn = ElementTree.fromstring(PARSE.svg(kind))
        texts = [part.text for part in drawn if part.tag.endswith("text")]
        assert {*PARSE.tokens} <= {*texts} and drawn[0].text.startswith(said)
    assert PARSE._repr_html_().count("<svg") == 2 and PARSE.conllu().count("\n") == 8
    odd = read_tree("(ROOT (X <b>&) (NFP :--RRB-) (-LRB- -LRB-))")
    shown = Parse([*odd.tokens], [*odd.tags], odd, [0, 1, 1], [])
    assert "&lt;b&gt;&amp;" in shown.svg() and "<b>" not in shown._repr_html_()
    assert r"[X [<b>\&]] [NFP [:-)]]" in shown.forest() and shown.forest().count("[") == shown.forest().count("]")
    assert PARSE.displacy()["arcs"][0] == {"start": 0, "end": 2, "label": "det", "dir": "left"}
    with pytest.raises(ValueError, match="tree or arcs"):
        PARSE.svg("pie")


def test_phrases_are_read_by_the_layers_of_the_library() -> None:
    assert [(p.label, p.start, p.end) for p in PARSE.phrases(3)] == [("VP", 3, 5), ("NP", 0, 3)]
    assert PARSE.phrases(1, "NP") == [] and [p.start for p in PARSE.phrases(9, "NP")] == [0]
    short = Parse(["a"], ["X"], read_tree("(ROOT (X a))"), [0], [])
    parses = [PARSE, short, Parse([], [], None, [], [])]
    torch.manual_seed(0)
    words, lengths = torch.randn(3, 6, 8), torch.tensor([6, 1, 0])
    encoder = HypernodeEncoderConfig(d=8, heads=2, layers=1, d_ff=8, longest=3).build()
    for kind in ("constituents", "subtrees", "adjacent"):
        made = members(parses, 3, kind)
        assert made.shape[0] == 3 and (made[1] == -1).all()
        assert encoder(words[:2], lengths[:2], made[:2]).isfinite().all()
    assert members(parses, 3)[0].tolist() == [[3, 4, -1], [0, 1, 2]]
    divided = levels(parses[:2], (1, 2))
    assert divided[0].tolist() == [[0, 0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 2]] and divided[1].sum() == 0
    assert PsanConfig(d=8, levels=2).build().eval()(words[:2], lengths[:2], divided).isfinite().all()
    with pytest.raises(ValueError, match="no phrases 'x'"):
        members(parses, 3, "x")


def test_brackets_inside_of_words_can_be_read_again() -> None:
    for word in (":-)", "f(x)", "(", "a-LRB"):
        tree = read_tree("(ROOT (X a))")._replace(tokens=(word,))
        assert read_tree(Parse([word], ["X"], tree, [0], []).brackets).tokens == (word,)


def test_multiword_tokens_are_written_as_conllu_has_them() -> None:
    words = [Word("du", 0, 2), Word("de", 3, 5), Word("le", 3, 5, True), Word("do", 6, 8), Word("n't", 8, 11, True)]
    words += [Word(".", 11, 12)]
    found = Parse(
        [w.form for w in words], [], None, [0, 1, 1, 1, 1, 1], ["root", *["dep"] * 5], (), "du du don't.", words
    )
    lines = found.conllu().split("\n")
    assert lines[:2] == ["# sent_id = 1", "# text = du du don't."]
    assert [line.split("\t")[::9] for line in lines[2:-1]] == [
        ["1", "_"], ["2-3", "_"], ["2", "_"], ["3", "_"], ["4-5", "SpaceAfter=No"], ["4", "_"], ["5", "_"], ["6", "_"],
    ]  # fmt: skip
    (again,) = read_conllu([Line(k, line) for k, line in enumerate(lines, 1)], "here")
    assert again.tokens == found.tokens and lines[3].split("\t")[1] == "du" and lines[6].split("\t")[1] == "don't"


def test_a_no_break_space_divides_no_tokens() -> None:
    assert [word.form for word in by_spaces(" New\u00a0York\tis \u00a0 big")[0]] == ["New\u00a0York", "is", "big"]


def test_files_and_folders_are_parsed_to_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a.txt").write_text("It rains.\n\n\n\nWe\nstay.\n")
    (tmp_path / "in" / "sub" / "b.txt").write_text("Yes.\n")
    (tmp_path / "in" / "c.pdf").write_text("no text")
    command([str(tmp_path / "in")], form="conllu", out=tmp_path / "out")
    made = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*.conllu")}
    assert sorted(made) == ["a.conllu", "b.conllu"] and capsys.readouterr().out == ""
    assert made["a.conllu"].count("# sent_id = a-") == 2 and "# text = We stay." in made["a.conllu"]
    assert "\n\n\n" not in made["a.conllu"] and made["a.conllu"].endswith("\n\n")
    (tmp_path / "out" / "a.conllu").write_text("mine")
    with pytest.raises(ValueError, match="exists: name another place"):
        command([str(tmp_path / "in")], form="conllu", out=tmp_path / "out")
    for wrong, named in ((b"a\0b\0c\0\n\0", "line 1: UTF-16 without"), (b"ab\nc\0d\n", "line 2: a NUL byte")):
        (tmp_path / "x.txt").write_bytes(wrong)
        with pytest.raises(ValueError, match=named):
            command([str(tmp_path / "x.txt")])
