"""A parse as nodes, drawings, phrases for attention and text that can be read again; and the files that `parse` reads and
writes."""

import csv
import fcntl
import json
import math
import re
import subprocess
import sys
import threading
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import PROJECT

from phrasemodels import Parser, levels, members
from phrasemodels.data.formats.conllu import read_conllu
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.formats.trees import parse as read_tree
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.flows.cli import parse
from phrasemodels.flows.cli.parse import parse as command
from phrasemodels.parsing.constituents import nodes
from phrasemodels.parsing.files import Answer, written
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
    control = Parse(["a\0\x1b\ud800\uffff", "b"], ["X", "X"], read_tree("(S (X a) (X b))"), [0, 1], [])
    for kind in ("tree", "arcs"):
        assert "a\ufffd\ufffd\ufffd\ufffd" in control.svg(kind) or kind == "tree"
        ElementTree.fromstring(control.svg(kind))
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
    for function in (members, levels):
        with pytest.raises(TypeError, match="lists of parses of several texts: join them"):
            function([parses])


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
    command([str(tmp_path / "in" / "a.txt")], form="conllu", out=tmp_path)  # a folder above the texts
    assert (tmp_path / "a.conllu").is_file()
    for wrong_out, why in ((tmp_path / "in", "the texts are there"), (tmp_path / "in" / "a.txt", "it is a file")):
        with pytest.raises(ValueError, match=why):
            command([str(tmp_path / "in")], form="conllu", out=wrong_out)
    (tmp_path / "out" / "a.conllu").write_text("mine")
    with pytest.raises(ValueError, match="exists: name another place"):
        command([str(tmp_path / "in")], form="conllu", out=tmp_path / "out")
    for wrong, named in ((b"a\0b\0c\0\n\0", "line 1: UTF-16 without"), (b"ab\nc\0d\n", "line 2: a NUL byte")):
        (tmp_path / "x.txt").write_bytes(wrong)
        with pytest.raises(ValueError, match=named):
            command([str(tmp_path / "x.txt")])


REVIEWS = [(7, "It rains. We, and you, stay.", 5), (8, None, 1), (9, "Good\nfilm!", 3)]


def tables(folder: Path) -> Iterator[Path]:
    """The reviews as CSV with a cell of two lines, as JSON lines, and as Parquet."""
    rows = [dict(zip(("id", "text", "stars"), row, strict=True)) for row in REVIEWS]
    with (folder / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text", "stars"), *REVIEWS])
    (folder / "b.jsonl").write_text("\n".join(f"{json.dumps(row)}\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "c.parquet")
    yield from (folder / name for name in ("a.csv", "b.jsonl", "c.parquet"))


@pytest.mark.parametrize("form", ["jsonl", "arrow", "parquet"])
def test_a_table_becomes_a_table_of_sentences_with_the_ids_of_its_rows(form: str, tmp_path: Path) -> None:
    read = {"arrow": lambda path: pa.ipc.open_file(path).read_all(), "parquet": pq.read_table}
    for table in tables(tmp_path):
        command([str(table)], form=form, column="text", ids=["id", "stars"], out=tmp_path / "out", batch=2)
        made = (tmp_path / "out" / table.name).with_suffix(f".{form}")
        rows = [json.loads(line) for line in made.open()] if form == "jsonl" else read[form](made).to_pylist()
        assert [(row["row"], row["sentence"], int(row["id"]), row["file"]) for row in rows] == [
            (row, sentence, number, str(table))
            for row, sentence, number in ((1, 1, 7), (1, 2, 7), (2, 0, 8), (3, 1, 9))
        ]
        for row in (row for row in rows if row["sentence"]):
            text = REVIEWS[row["row"] - 1][1]
            assert text and text[row["start"] : row["end"]] == row["text"]
            assert [text[i:j] for i, j in zip(row["starts"], row["ends"], strict=True)] == row["tokens"]
            assert {len(row[name]) for name in ("lemmas", "tags", "heads", "relations", "tokens")} == {
                len(row["starts"])
            }
            phrases = {(p["label"], " ".join(row["tokens"][p["start"] : p["end"]])) for p in row["phrases"]}
            assert {("NP", "We"), ("VP", "stay")} <= phrases or row["tokens"][0] != "We"
        assert rows[2] == {
            **Parse([], [], None, [], []).record(),
            **{k: rows[2][k] for k in ("file", "row", "sentence", "id", "stars")},
        }


def test_a_kept_number_that_is_none_is_null_in_json_lines() -> None:
    (line,) = written(Answer(1, [], kept={"score": math.nan, "id": 7}), "jsonl")
    assert json.loads(line, parse_constant=pytest.fail)["score"] is None


def test_a_table_in_python_is_of_the_kind_that_was_given() -> None:
    parser = Parser.load()
    arrow = pa.table({"id": [7, 8, 9], "text": [row[1] for row in REVIEWS]})
    made = parser.parse_table(arrow, keep=["id"])
    assert made["id"].to_pylist() == [7, 7, 8, 9] and made["sentence"].to_pylist() == [1, 2, 0, 1]
    assert parser.parse_table(arrow.to_reader(), keep="id") == made
    frame = pd.DataFrame({"id": [7, 8, 9], "text": ["It rains.", float("nan"), "Yes."]})
    assert list(parser.parse_table(frame, keep=["id"])["text"]) == ["It rains.", "", "Yes."]
    assert (
        list(parser.parse_table(frame)["end"].dropna()) == [9, 4]
        and str(parser.parse_table(frame)["end"].dtype) == "Int32"
    )
    half = pd.DataFrame({"text": pd.Series(["It \ud83d rains."], dtype=object)})
    assert list(parser.parse_table(half)["text"]) == ["It \ufffd rains."]
    for no_table in (["It rains."], frame["text"]):
        with pytest.raises(TypeError, match="is no table: give a table of Arrow or pandas"):
            parser.parse_table(no_table)
    with pytest.raises(ValueError, match="no column 'txt'; there are id, text"):
        parser.parse_table(frame, "txt")
    for values, says in (
        (["a", 5], "row 2: text is 5, which is no text"),
        ([1, 2], "row 1: text is 1, which is no text"),
        (["a", pd.NA, "b\0"], "row 3: text has a NUL byte"),
    ):
        with pytest.raises(ValueError, match=says):
            parser.parse_table(pd.DataFrame({"text": values}))
    for kept in (pd.array([2**60 + 1, None], dtype="Int64"), [1, "b"], [uuid.UUID(int=1), uuid.UUID(int=2)]):
        given = pd.DataFrame({"text": "a", 0: kept})
        assert parser.parse_table(given, keep=[0])["0"].equals(given[0])
    for missing in (None, float("nan")):
        with pytest.raises(TypeError, match=r"is no text but .*: parse_table reads columns with missing texts"):
            parser.parse(["It rains.", missing])


@pytest.mark.parametrize(
    ("name", "content", "options", "says"),
    [
        ("a.csv", "id,text\n1,a\n", {}, "is a table: name the column of texts by --column"),
        ("a.csv", "id,text\n1,a\n", {"column": "txt"}, "row 1: no column 'txt'; there are id, text"),
        ("a.csv", "id,text\n1,a,b\n", {"column": "text"}, "row 1: more cells than the header has"),
        ("a.csv", "text,id\na\n", {"column": "text"}, "row 1: fewer cells than the header has, none of 'id'"),
        ("a.csv", "tags,text\n1,a\n", {"column": "text", "ids": ["tags"]}, "the name of a column of the parses"),
        ("a.jsonl", '{"text": 5}\n', {"column": "text"}, "row 1: text is 5, which is no text"),
        ("a.csv", "text\na\nb\0\n", {"column": "text"}, "row 2: text has a NUL byte, which is no text"),
        ("a.jsonl", '{"text": "\\u0000"}\n', {"column": "text"}, "row 1: text has a NUL byte"),
        ("a.jsonl", '{"text": \n', {"column": "text"}, "line 1: no JSON"),
        ("a.jsonl", '{"text":"a","id":1}\n{"text":"a","id":"b"}', {"column": "text", "ids": ["id"]}, "several types"),
        ("a.parquet", "PAR1", {"column": "text"}, "not a whole Parquet file"),
        ("a.txt", "It rains.", {"column": "text"}, "a table's name ends with .csv"),
        ("a.csv", "id,text,id\n1,a,2\n", {"column": "text", "ids": ["id"]}, "two columns are named 'id'"),
        ("a.csv", 'text\na\n"b\n', {"column": "text"}, "line 3: no CSV in UTF-8"),
        (
            "a.jsonl",
            '{"id": 1%s, "text": "a"}\n' % ("0" * 30),
            {"column": "text", "ids": ["id"]},
            "id: no table, or values",
        ),
        ("a.conllu", "1\tThe\tthe\n\n", {}, "line 1: 3 columns between tabs, CoNLL-U has 10"),
        ("a.txt", "It rains.", {"ids": ["id"]}, "--id names a column of a table"),
        ("a.csv", "text\na\n", {"column": "text", "read": "lines"}, "is text, sentences or tokens"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_one_line(tmp_path, name, content, options, says) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=says) as refused:
        command([str(tmp_path / name)], form="jsonl", **options)
    assert "\n" not in str(refused.value)


def test_the_page_about_duckdb_does_what_it_says(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "tutorials" / "phrases-in-duckdb.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["csv", "bash", "sql", "", "python"] and len(page.split()) <= 600
    reviews, shell, query, output, code = (text for _, text in blocks)
    (tmp_path / "reviews.csv").write_text(reviews, encoding="utf-8")
    command = f'phrasemodels() {{ "{sys.executable}" -m phrasemodels "$@"; }}\n{shell}'
    subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, check=True, timeout=300)
    found = duckdb.sql(query.replace("parses.parquet", str(tmp_path / "parses.parquet"))).fetchall()
    assert [" | ".join(map(str, row)) for row in found] == output.split("\n")[:-1]
    made = pq.read_table(tmp_path / "parses.parquet")
    names = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.split("\n") if line.startswith("| `")))
    assert made.column_names == names and made["review_id"].to_pylist() == ["a1", "a1", "a2", "a2", "a3", "a4", "a4"]
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=300, capture_output=True, text=True
    )
    assert ran.stdout.split()[-1] == "'film.']"


def test_workers_write_what_one_process_writes(tmp_path: Path) -> None:
    table = next(tables(tmp_path))
    for workers, to in ((1, "one"), (2, "two")):
        command([str(table)], form="jsonl", column="text", ids=["id"], out=tmp_path / to, batch=1, workers=workers)
    assert (tmp_path / "two" / "a.jsonl").read_text() == (tmp_path / "one" / "a.jsonl").read_text() != ""


class Broken:
    """A pool of processes that have ended."""

    def __init__(self, *_: object) -> None: ...

    def submit(self, *_: object) -> None:
        raise BrokenProcessPool

    def shutdown(self, **_: object) -> None: ...


def test_workers_that_end_are_said_and_half_written_files_are_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", Broken)
    (tmp_path / "a.txt").write_text("It rained.")
    left, written = (tmp_path / f".a.jsonl.{number}-0123456789ab" for number in (1, 2))
    left.touch()
    with written.open("wb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="a worker process was ended"):
            command([str(tmp_path / "a.txt")], form="jsonl", out=tmp_path, workers=2)
    assert sorted(tmp_path.iterdir()) == [written, tmp_path / "a.txt"]


def test_workers_end_with_their_parent(monkeypatch) -> None:
    watching = threading.Event()
    monkeypatch.setattr(parse, "_end_with_parent", watching.set)
    monkeypatch.setattr(parse, "reader", lambda *_: None)
    monkeypatch.setattr(parse, "_parser", [])
    parse._start([], "jointly")
    assert watching.wait(5)
    parent = (
        "import multiprocessing, os; from phrasemodels.flows.cli import parse;"
        "multiprocessing.get_context('spawn').Process(target=parse._end_with_parent).start(); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, timeout=60, cwd=PROJECT)
    assert ended.returncode == -9  # `run` waits for the end of every process that holds its stdout


def test_arcs_alone_are_written_as_conllu_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("It rained.")
    command([str(tmp_path / "a.txt")], decode="arcs", out=tmp_path / "out")
    assert "\t0\troot\t" in (tmp_path / "out" / "a.conllu").read_text()
    with pytest.raises(ValueError, match="arcs alone have no brackets"):
        command([str(tmp_path / "a.txt")], form="brackets", decode="arcs")
