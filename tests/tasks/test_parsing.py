"""A trained parser for use: text as it is, sentences of any length, saved folders, the command, and the served page."""

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from browser import chromium
from serving import serving

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.formats.conllu import flaw, read_conllu
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.formats.trees import parse as read_tree
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.encoders.inputs import CharactersConfig, WordsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.flows.cli.parse import parse
from phrasemodels.flows.experiments.catalogue import Request, missing_vectors, resolved
from phrasemodels.flows.experiments.paper_004 import GLOVE
from phrasemodels.flows.run import page_server
from phrasemodels.flows.run.page_server import RefusedError, Turns, page, served_parser, server
from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.layers.labels import LabelAttentionConfig
from phrasemodels.models.parser import Jointly, ParserConfig, arcs_alone, phrases_alone
from phrasemodels.parsing.files import answers, blocks, recognised
from phrasemodels.parsing.parser import Limits, Parser, batches, parts
from phrasemodels.parsing.saved import ABOUT, ENGLISH, WEIGHTS, Saved, load, save
from phrasemodels.parsing.splitter import on_threads
from phrasemodels.parsing.words import Sentences, sentences, universal_sentences
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.sentence_data import VectorFile

ENTRIES = {
    "words": ["<pad>", "<unk>", "<s>", "</s>", "the", "house", "sleeps"],
    "characters": ["<pad>", "<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz"],
    "tags": ["<pad>", "<unk>", "<s>", "</s>", "DT/DET", "NN/NOUN", "VBZ/VERB", "./PUNCT"],
    "labels": ["", "<H>", "S", "NP", "VP::S"],
    "relations": ["root", "det", "nsubj", "punct"],
}
CONFIG = ParserConfig(
    PartitionedEncoderConfig(
        d=16, heads=2, layers=1, d_kv=4, d_ff=8, top=LabelAttentionConfig(d_kv=4, d_out=4, d_ff=4)
    ),
    (WordsConfig(), CharactersConfig(d=4, filters=4)),
    hidden=8,
    arc_hidden=8,
).sized({side: len(own) for side, own in ENTRIES.items()})
LIMITS = Limits(max_joint_words=15, max_words=40, max_batch_words=60, chunk_words=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = CONFIG.build().eval()
    for parameter in model.parameters():  # zeros would make ties
        torch.nn.init.normal_(parameter, std=0.5)
    saved = Saved(model, CONFIG, ENTRIES, Jointly(), {"name": "random"}, universal_sentences)
    return save(saved, tmp_path_factory.mktemp("saved") / "parser")


@pytest.fixture(scope="module")
def parser(folder: Path) -> Parser:
    return Parser.load(folder, LIMITS)


def test_a_program_that_parses_needs_torch_numpy_numba_and_safetensors_alone(folder: Path) -> None:
    """The libraries of the pipeline cannot be imported in this process."""
    others = (
        "pyarrow duckdb ray prefect mlflow pydantic typer jinja2 scipy sacremoses stanza transformers tokenizers matplotlib "
        "nltk httpx filelock fsspec sympy"
    )
    program = f"""
import sys
for name in {others.split()!r}:
    sys.modules[name] = None
from phrasemodels import Parser
found = Parser.load({str(folder)!r}).parse("The house sleeps. It does.")
print(len(found), found[0].conllu("1").count("\\t"), sum(m.startswith("phrasemodels.flows") for m in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["2", str(4 * 9), "0"], done.stderr


ODD = {
    "variation selector": ("I ❤️ it .", "I ❤️ it ."),
    "joined emoji, skin tone, flag": ("👩‍👩‍👧 👍🏽 🇩🇪🇫🇷", "👩‍👩‍👧 👍🏽 🇩🇪 🇫🇷"),
    "zero-width space, soft hyphen, byte order mark": ("\ufeffa\u200bb co\u00ado\u2060p", "a b coop"),
    "soft hyphen or zero-width space before a mark": ("Yes\u00ad. so\u200b.", "Yes . so ."),
    "no-break space": ("a\u00a0b", "a b"),
    "address": ("See https://x.org/a_(b)?c=1&d=2, ok", "See https://x.org/a_(b)?c=1&d=2 , ok"),
    "brackets": ("(a [b] {c})", "( a [ b ] { c } )"),
    "brackets of treebanks": ("a -LRB- b -RRB- -rrb", "a -LRB- b -RRB- - rrb"),
    "hyphens and slashes": ("well-known COVID-19 non-white and/or", "well - known COVID - 19 non-white and / or"),
    "marks and initials": ("What ?! By J. K. Smith", "What ?! By J. K. Smith"),
    "emoticons": ("Hi :-) (well ;) ) a:b :( 8) no:(x) :D.", "Hi :-) ( well ;) ) a : b :( 8 ) no : ( x ) :D ."),
    "control characters": ("a\x00b\x07", "a \x00 b \x07"),
    "Chinese": ("我喜欢。", "我喜欢 。"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_text_becomes_words_and_a_parse_that_can_be_read_again(parser: Parser, name: str) -> None:
    text, words = ODD[name]
    parses = parser.parse(text)
    assert " ".join(token for found in parses for token in found.tokens) == words
    for found in parses:
        places = [found.text[w.start - found.words[0].start :][: w.end - w.start] for w in found.words]
        assert [re.sub("[\u00ad\u2060]", "", own) for own in places] == found.tokens
        lines = found.conllu("1").split("\n")
        (again,) = read_conllu([Line(k, line) for k, line in enumerate(lines, 1)], name)
        spaces = ["" if line.endswith("SpaceAfter=No") else " " for line in lines if "\t" in line]
        assert "# text = " + "".join(map(str.__add__, found.tokens, spaces)).strip() == lines[1]
        assert (again.tokens, again.heads, again.tags) == (found.tokens, found.heads, found.tags)
        assert len(read_tree(found.brackets).tokens) == len(found.tokens)
        assert json.loads(found.json())["tokens"] == found.tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. We stay.", ["It rains.", "We stay."]),
        ("Mr. Smith met Dr. J. K. Lee of the U.S. Army. He left.", ["Mr. Smith met Dr. J. K. Lee of the U.S. Army.", "He left."]),
        ('"Go!" he said. (Why?) Nobody knows.', ['"Go!" he said.', "(Why?)", "Nobody knows."]),
        ("A title\n\nThe text goes\non. 3.5 is it", ["A title", "The text goes\non.", "3.5 is it"]),
        ("He waits... and waits. ok?", ["He waits... and waits. ok?"]),
        ("So I did. I did!", ["So I did.", "I did!"]),
        ("1. Buy it. 2. Sell it.", ["1. Buy it.", "2. Sell it."]),
        (" \n \n ", []),
    ],
)  # fmt: skip
def test_text_is_divided_into_sentences(text: str, expected: list[str]) -> None:
    for split in (sentences, universal_sentences):
        assert [text[own[0].start : own[-1].end] for own in split(text)] == expected


def _joined(split: Sentences, text: str) -> str:
    return " ".join(word.form for own in split(text) for word in own)


@pytest.mark.parametrize(
    ("text", "penn", "universal"),
    [
        ("1.5kg at 10:30am", "1.5 kg at 10:30 am", None),
        ("the 1,000th of the 1990s", "the 1,000th of the 1990s", None),
        ("a 20-year-old on 2026-11-24", "a 20-year-old on 2026-11-24", "a 20 - year - old on 2026-11-24"),
        ("1,000-mile 1.5-liter", "1,000-mile 1.5-liter", "1,000 - mile 1.5 - liter"),
        ("No. 5, I said no.", "No. 5 , I said no .", None),
        ("(joe@x.org), <a.b@c.de>", "( joe@x.org ) , < a.b@c.de >", None),
    ],
)  # fmt: skip
def test_numbers_and_addresses_are_divided_as_in_treebanks(text: str, penn: str, universal: str | None) -> None:
    assert _joined(sentences, text) == penn and _joined(universal_sentences, text) == (universal or penn)


def test_phrases_are_not_asked_of_a_parser_that_has_none(folder: Path, tmp_path: Path) -> None:
    saved = load(folder)
    text = tmp_path / "text"
    text.write_text("The cat sleeps.")
    arcs = save(dataclasses.replace(saved, decode=arcs_alone), tmp_path / "arcs")
    with pytest.raises(ValueError, match="arcs alone have no brackets"):
        parse([str(arcs), str(text)], form="brackets")
    entries = {**ENTRIES, "labels": ENTRIES["labels"][:2]}
    config = CONFIG.sized({side: len(own) for side, own in entries.items()})
    without = save(dataclasses.replace(saved, model=config.build(), config=config, entries=entries), tmp_path / "none")
    with pytest.raises(ValueError, match="learned no phrases"):
        parse([str(without), str(text)], decode="phrases")
    own = Parser.load(without)
    own.decode = arcs_alone
    assert "<h3>Dependencies" in page(own, "The cat sleeps.")


def test_the_text_is_kept_as_it_was_written(parser: Parser) -> None:
    (found,) = parser.parse('  She said "yes",  (twice).')
    assert found.text == 'She said "yes",  (twice).'
    lines = found.conllu("7").splitlines()
    assert lines[:2] == ["# sent_id = 7", '# text = She said "yes", (twice).']
    spaces = ["" if line.endswith("SpaceAfter=No") else " " for line in lines[2:]]
    assert "".join(t + s for t, s in zip(found.tokens, spaces, strict=True)).rstrip() == 'She said "yes", (twice).'


def test_no_sentence_can_hurt_another(parser: Parser) -> None:
    """Long sentences are decoded apart, then in parts, and all the others get the parse that they get alone."""
    lengths = (1, 3, 15, 16, 39, 41, 130, 0, 2)
    tokens = [(["the", "house", "sleeps", "."] * 40)[:n] for n in lengths]
    found = list(parser.parse_tokens(tokens))
    assert [len(one.tokens) for one in found] == list(lengths)
    apart = "more than 15 words: phrases and heads were decoded apart, and may contradict each other"
    assert [one.note for one in found[:5]] == ["", "", "", apart, apart]
    assert found[6].note == f"more than 40 words: parsed in 4 parts; {apart}"
    for own, one in zip(tokens, found, strict=True):
        assert not flaw(one.heads) and (not own or len(read_tree(one.brackets).tokens) == len(own))
        assert list(parser.parse_tokens([own])) == [one]
    assert found[6].relations.count("parataxis") == 3 and found[7].brackets == found[7].conllu() == ""


def test_batches_are_bounded_in_memory() -> None:
    lengths = [5, 40, 1, 16, 15, 20, 9, 9]
    made = list(batches(lengths, LIMITS))
    assert sorted(row for batch in made for row in batch) == list(range(len(lengths)))
    for batch in made:
        longest = max(lengths[row] for row in batch)
        assert len(batch) * longest <= 60 and (longest <= 15 or min(lengths[row] for row in batch) > 15)
    assert parts(["a"] * 90, 40) == [["a"] * 40, ["a"] * 40, ["a"] * 10]
    assert [len(part) for part in parts([*"abcdefghij", ".", *"klmnopq"], 12)] == [11, 7]


def test_documents_and_generators_are_read_as_they_are_needed(parser: Parser) -> None:
    read = []

    def texts() -> Iterator[str]:
        for k in range(10):
            read.append(k)
            yield "The house sleeps. Yes." if k % 2 else ""

    made = parser.parse_each(texts(), batch=2)
    assert [len(next(made)) for _ in range(2)] == [0, 2] and read == [0, 1]
    assert [len(found) for found in made] == [0, 2] * 4
    assert [found.tokens for found in parser.predict(["It is. So", ""])] == [["It", "is", ".", "So"], []]


def test_labels_look_at_words(parser: Parser) -> None:
    labels, weights = parser.attention(["the", "house"])
    assert labels == ["(none)", "<H>", "S", "NP", "VP::S"] and weights.shape == (5, 4)
    torch.testing.assert_close(torch.from_numpy(weights.sum(1)), torch.ones(5))


def test_a_saved_parser_is_whole_or_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    again = load(folder)
    assert again.config == CONFIG and again.split is universal_sentences and again.card == {"name": "random"}
    arcs_only = dataclasses.replace(again, decode=phrases_alone)
    assert load(save(arcs_only, tmp_path / "phrases")).decode is phrases_alone
    other = shutil.copytree(folder, tmp_path / "other")
    (other / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-7])
    with pytest.raises(ValueError, match="cannot be read"):
        load(other)
    about = json.loads((folder / ABOUT).read_text())
    (other / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes())
    for broken in ({**about, "config": {"part": "system"}}, {**about, "entries": {}}, {**about, "config": []}):
        (other / ABOUT).write_text(json.dumps(broken))
        with pytest.raises(ValueError, match="cannot be read"):
            load(other)
    with pytest.raises(ValueError, match="no saved parser"):
        load(tmp_path)


def test_words_that_the_treebank_lacks_have_the_vectors_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "glove").mkdir()
    file = tmp_path / GLOVE.name
    as_fasttext = "3 2\nthe 1 2\nnowhere 3 4\nThe 5 6\nno\u2028 7 8\nbeyond 7 8\n. 9 9\n"
    file.write_text(as_fasttext, encoding="utf-8")
    (chosen,) = Request("004", "english", "sample", 1, ["train.steps=2"], ["lal"]).resolve().experiments
    words = dataclasses.replace(chosen.recipe.vocabulary, min_count=2, vectors=VectorFile(GLOVE.name, 2), most=5)
    corpus = SampleCorpus(40, 5, 5, records=Treebank())
    chosen = dataclasses.replace(chosen, recipe=dataclasses.replace(chosen.recipe, corpus=corpus, vocabulary=words))
    found = resolved(chosen, Sources((tmp_path,)))
    store, executor = Store(tmp_path / "store").open(), Executor(sources=Sources((tmp_path,)))
    trained = store.run(found.steps(0).trained, executor)
    vocabulary = store.run(found.recipe.data()["vocabulary"], executor)
    entries, learned = read_words(vocabulary, "words"), vocabulary.meta["learned"]
    assert entries[learned:] == ["nowhere"], (
        "a line of the file after the first five is read for the treebank's words alone"
    )
    parser = found.recipe.parser(found.model, trained, vocabulary)
    table = parser.original.inputs[0].fixed.weight
    wanted = {"the": [1.0, 2.0], ".": [9.0, 9.0], "nowhere": [3.0, 4.0]}
    assert {word: table[entries.index(word)].tolist() for word in wanted} == wanted and not table[UNKNOWN].any()
    packed = Saved(parser.original, parser.config, parser.entries, Jointly(), {})
    assert str(tmp_path) not in (save(packed, tmp_path / "packed") / ABOUT).read_text()
    again = Parser.load(tmp_path / "packed").fused.inputs[0]
    torch.testing.assert_close(again.fixed.weight, table)
    ids = torch.tensor([[entries.index(word) for word in ("nowhere", "the")]])
    rows = again(dataclasses.replace(parser.ids.batch([["the", "the"]]), words=ids))[0]
    outside, inside = again.table.weight[UNKNOWN], again.table.weight[entries.index("the")]
    expected = torch.stack([outside, inside]) + torch.tensor([[3.0, 4.0], [1.0, 2.0]]) @ again.project.weight.T
    torch.testing.assert_close(rows, expected)
    assert resolved(chosen, Sources()).recipe.vocabulary.vectors is None, "without the file there are none"
    assert missing_vectors(chosen, Sources((tmp_path,))) == [] and missing_vectors(chosen, Sources()) == [GLOVE.name]
    file.write_text("3 2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no vector of a word"):
        store.run(resolved(chosen, Sources((tmp_path,))).recipe.data()["vocabulary"], executor)


def test_the_command_answers_every_line_and_recognises_conllu(parser: Parser, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"\xef\xbb\xbfIt is. So what?\n\nwrong \xff byte\r\n" + b"a " * 90 + b"\n")
    found = list(answers(parser, text, "lines", 2))
    assert [(one.line, len(one.parses)) for one in found] == [(1, 2), (2, 0), (3, 1), (4, 1)]
    assert found[0].parses[0].tokens[0] == "It" and "\ufffd" in found[2].parses[0].tokens
    assert [len(one.parses) for one in answers(parser, text, "sentences", 256)] == [1, 0, 1, 1]
    assert [(one.line, len(one.parses)) for one in answers(parser, text, "auto", 2)] == [(1, 2), (3, 1)], "paragraphs"
    conllu = tmp_path / "pasted"
    conllu.write_text("".join(p.conllu(str(k)) + "\n" for k, p in enumerate(parser.parse("It is. So what?"))))
    assert [one.parses[0].tokens for one in answers(parser, conllu, "auto", 256)] == [
        ["It", "is", "."],
        ["So", "what", "?"],
    ]
    assert recognised(iter([Line(1, "# a"), Line(2, "1 a b")]), text)[1] == "text"
    assert [b.text for b in blocks([Line(1, "a"), Line(2, "b"), Line(3, " "), Line(4, "c")])] == ["a\nb", "c"]


CONLLU = """\
# newdoc id = d1
# sent_id = d1-1
# text = I don't.
1\tI\tI\tPRON\tPRP\tCase=Nom\t_\t_\t5:nsubj\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
2\tdo\tdo\t_\t_\t_\t_\t_\t_\t_
3\tn't\tnot\t_\t_\t_\t_\t_\t_\t_
3.1\tgo\tgo\t_\t_\t_\t_\t_\t0:root\t_
4\t.\t.\t_\t_\t_\t_\t_\t_\tEnd=Yes

"""


def test_conllu_keeps_what_the_parser_does_not_predict(parser: Parser, tmp_path: Path) -> None:
    file = tmp_path / "a.conllu"
    file.write_text(CONLLU + CONLLU + "1\tbroken\n", encoding="utf-8")
    found = answers(parser, file, "auto", 1)
    first = next(found)
    lines = first.parses[0].conllu(read=first.conllu).split("\n")
    assert lines[:3] == CONLLU.split("\n")[:3] and len(lines) == 9 and not any(line.startswith("3.1") for line in lines)
    assert (
        lines[4].startswith("2-3\tdon't\t_") and lines[3].split("\t")[2] == "I" and lines[-2].endswith("\t_\tEnd=Yes")
    )
    (again,) = read_conllu([Line(k, line) for k, line in enumerate(lines, 1)], "a")
    assert (again.heads, again.tags) == (first.parses[0].heads, first.parses[0].tags)
    assert next(found).line == 11, "sentences before a broken line are answered"
    with pytest.raises(ValueError, match="line 21: 2 columns"):
        next(found)


def test_a_parse_takes_one_thread_of_torch_and_gives_the_others_back(parser: Parser) -> None:
    seen, before = [], torch.get_num_threads()

    def decode(*given):
        seen.append(torch.get_num_threads())
        return phrases_alone(*given)

    torch.set_num_threads(3)
    try:
        Parser(parser.original, ENTRIES, decode, limits=Limits(threads=2)).parse("It is.")
        Parser(parser.original, ENTRIES, decode).parse("It is.")
        assert (seen, torch.get_num_threads()) == ([2, 1], 3)
        with on_threads(1), ThreadPoolExecutor(1) as pool:  # a new thread begins with 1
            pool.submit(on_threads(1)(lambda: None)).result()
            assert pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def test_a_pipe_is_read_and_a_folder_or_no_file_is_refused(parser: Parser, tmp_path: Path) -> None:
    end, start = os.pipe()
    os.write(start, b"It is.\n")
    os.close(start)
    (answer,) = answers(parser, Path(f"/dev/fd/{end}"), "sentences", 1)
    os.close(end)
    assert [parse.tokens for parse in answer.parses] == [["It", "is", "."]]
    for given, why in (([str(tmp_path)], "without texts"), (["-", str(tmp_path / "none")], "no such file")):
        with pytest.raises(ValueError, match=why):
            parse(given)


def test_words_that_are_not_tokenised_are_refused(parser: Parser) -> None:
    for given in ("It is.", ["It is."], [["It", ""]], [["It", 3]]):
        with pytest.raises((TypeError, ValueError), match=r"not tokenised|empty"):
            list(parser.parse_tokens(given))
    with pytest.raises(TypeError, match="one text"):
        next(parser.parse_each("It is."))
    assert "5 labels" in repr(parser) and str(parser.parse("It is.")[0]).startswith("(ROOT")


@pytest.fixture
def address(parser: Parser) -> Iterator[str]:
    with serving(server(served_parser(parser), "127.0.0.1", 0)) as url:
        yield url


def test_the_page_shows_parses_without_tags_and_cards_of_any_fields(parser: Parser) -> None:
    entries = {side: list(own) for side, own in parser.ids.ids.items()} | {"tags": list(SPECIAL)}
    untagged = Parser(parser.original, entries, card={"licence": "CC0"})
    assert "Licence: CC0" in page(untagged, "It is.")


def _ask(address: str, path: str, data: bytes | None, kind: str = "application/json", method: str | None = None):
    """Return the status and the text of an answer."""
    asked = urllib.request.Request(f"{address}{path}", data, {"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_white_space_is_the_same_for_the_command_python_and_the_server(
    address: str, parser: Parser, tmp_path: Path
) -> None:
    text = "> The house sleeps.\u00a0 It does.\r\n> Yes. \f It is.\r\n\r\n\u2003A house\r\n    sleeps."
    (tmp_path / "text.txt").write_bytes(text.encode())
    wanted = ["The house sleeps .", "It does .", "Yes .", "It is .", "A house sleeps ."]
    served = json.loads(_ask(address, "/parse.json", json.dumps({"text": text}).encode())[1])
    found = [parse for answer in answers(parser, tmp_path / "text.txt", "text", 2) for parse in answer.parses]
    assert [" ".join(one["tokens"]) for one in served] == wanted
    assert [" ".join(one.tokens) for one in found] == [" ".join(one.tokens) for one in parser.parse(text)] == wanted


def test_programs_get_json_and_what_is_wrong_is_refused_in_one_line(address: str) -> None:
    status, body = _ask(address, "/parse.json", json.dumps({"text": "It is."}).encode())
    assert status == 200 and json.loads(body)[0]["tokens"] == ["It", "is", "."]
    assert json.loads(_ask(address, "/health", None)[1])["status"] == "ok"
    assert "/parse.json" in json.loads(_ask(address, "/openapi.json", None)[1])["paths"]
    assert _ask(address, "/?text=It+is.", None, method="HEAD") == (200, "")
    for kind, status in (("text/plain", 415), ("multipart/form-data; boundary=a", 415), (page_server.FORM, 422)):
        assert _ask(address, "/parse.json", b'{"text": "It is."}', kind)[0] == status, (
            "no answer to a text that isn't read"
        )
    for path, data, status, why in (
        ("/parse.json", None, 422, "no field text"),
        ("/?txt=It+is.", None, 422, "no field text"),
        ("/parse.json?text=It+is.&decode=x", None, 422, "no option 'decode'"),
        ("/parse.json", b'{"text": "It is.", "k": 2}', 422, "no option 'k'"),
        ("/x", None, 404, "form is at /"),
        (f"/?{'&'.join(f'a{n}=1' for n in range(11))}", None, 400, "one field"),
        ("/parse.json", b"[1]", 422, "no field text"),
        ("/parse.json", b'{"text": null}', 422, "text is null"),
        ("/parse.json", b'{"text": ["a"]}', 422, "text is list"),
        ("/parse.json", b'{"text": 1', 400, "no JSON"),
        ("/parse.json", b"[" * 19_000, 400, "no JSON"),
        ("/", b"x" * 300_000, 413, "at most"),
    ):
        found, line = _ask(address, path, data)
        assert found == status and why in line and line.count("\n") == 1, path


def test_many_clients_are_answered_and_broken_requests_leave_no_traceback(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    port = int(address.rpartition(":")[2])
    clients = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(100)]
    for client in clients:
        client.sendall(b"GET /parse.json?text=It+is. HTTP/1.0\r\n\r\n")
    assert all(b'["It", "is", "."]' in client.makefile("rb").read() for client in clients)
    for sent in (
        b"nonsense\r\n\r\n",
        b"GET //[ HTTP/1.0\r\n\r\n",
        b"PUT / HTTP/1.0\r\n\r\n",
        b"\xff\0 / HTTP/9.9\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(sent)
            assert re.match(rb"HTTP/1.0 [45]\d\d|[A-Z]", client.makefile("rb").read())
    for sent in (b"", b"GET / HT", b"POST / HTTP/1.0\r\nContent-Length: 9\r\n\r\nte"):
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(sent)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset
    assert _ask(address, "/health", None)[0] == 200
    for client in clients:
        client.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_sends_or_reads_too_slowly_is_left(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "SECONDS", 0.5)
    with serving(server(served_parser(parser), "127.0.0.1", 0)) as url:
        for sent in (b"GET / HTTP/1.0\r\nX: ", b"POST / HTTP/1.0\r\nContent-Length: 999\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as client:
                client.sendall(sent)
                began = time.monotonic()
                with pytest.raises(OSError, match=r"reset|[Bb]roken"):  # noqa: PT012
                    while time.monotonic() < began + 20:
                        client.sendall(b"a")
                        time.sleep(0.05)


def test_connections_beyond_a_number_are_refused_at_once(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "CONNECTIONS", 3)
    with serving(server(served_parser(parser), "127.0.0.1", 0)) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        clients = [socket.create_connection(place, 30) for _ in range(3)]
        with socket.create_connection(place, 30) as late:
            assert late.makefile("rb").read().startswith(b"HTTP/1.0 503")
        for client in clients:
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert b"200 OK" in client.makefile("rb").read()
            client.close()
        assert _ask(url, "/health", None)[0] == 200


def test_a_port_that_is_taken_is_named(parser: Parser) -> None:
    with server(served_parser(parser), "127.0.0.1", 0) as made:
        port = made.server_address[1]
        with pytest.raises(OSError, match=rf"127.0.0.1:{port}: Address already in use: choose another --port"):
            server(served_parser(parser), "127.0.0.1", port)


def test_a_text_whose_client_has_left_takes_no_further_turn(parser: Parser) -> None:
    ours, client = socket.socketpair()
    with server(served_parser(parser), "127.0.0.1", 0) as made, ours, client:
        handler = made.RequestHandlerClass.__new__(made.RequestHandlerClass)
        handler.connection = ours
        client.sendall(b"x")
        assert len(json.loads(handler.in_turns(handler.served.answer, "It is."))) == 1
        assert ours.recv(1) == b"x", "what a client sends stays there"
        client.close()
        for answer in (handler.served.answer, handler.served.page):
            with pytest.raises(ConnectionError, match="the client is gone"):
                handler.in_turns(answer, "It is.")


def test_texts_beyond_a_number_are_refused(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "REQUESTS", 2)
    with server(served_parser(parser), "127.0.0.1", 0) as made:
        handler = made.RequestHandlerClass.__new__(made.RequestHandlerClass)
        for _ in range(2):  # the places are free again
            with handler.places, handler.places:
                for answer in (handler.served.answer, handler.served.page):
                    with pytest.raises(RefusedError, match="2 texts are being answered: ask again later"):
                        handler.in_turns(answer, "It is.")


def test_turns_are_taken_in_the_order_in_which_they_were_asked_for(parser: Parser) -> None:
    turns, order = Turns(), []

    def wait(number: int) -> None:
        with turns():
            order.append(number)

    with turns():
        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            while len(turns._waiting) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == [*range(5)]
    text = "It is. " * 7
    assert parser.parse_in_turns(text, turns) == parser.parse(text)


def test_a_sentence_that_is_parsed_in_parts_takes_a_turn_for_each(parser: Parser) -> None:
    taken = []

    @contextmanager
    def turn() -> Iterator[None]:
        taken.append("")
        yield

    text = "the " * 200
    (found,) = parser.parse_in_turns(text, turn)
    assert [found] == parser.parse(text) and len(found.tokens) == 200
    assert len(taken) == 1 + 200 // LIMITS.chunk_words, "one for the division into sentences"


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_the_page_works_in_a_browser_by_keyboard_and_for_a_screen_reader(address: str, tmp_path: Path) -> None:
    with chromium("chromium", tmp_path) as browser:
        browser.visit(f"{address}/")
        assert browser.until("document.activeElement.id === 'text'"), "one can type at once"
        browser.call("Input.insertText", text="The house <b>sleeps</b>. Yes.")
        browser.press("Tab")
        assert browser.ask("document.activeElement.tagName") == "BUTTON"
        browser.events.clear()
        browser.press("Enter")
        browser.loaded()
        assert browser.ask("document.querySelectorAll('section').length") == 2
        assert browser.ask("document.querySelectorAll('svg').length") == 4
        assert browser.ask("document.querySelector('textarea').value") == "The house <b>sleeps</b>. Yes."
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        spoken = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
        assert ("textbox", "Text, one or more sentences") in spoken and ("button", "Parse") in spoken
        images = [name for role, name in spoken if role == "image"]
        assert len(images) == 4 and "house depends on" in images[1] and "(ROOT" in images[0]
        assert browser.ask("document.body.scrollWidth <= innerWidth")
        requested = {event["request"]["url"] for event in browser.heard("Network.requestWillBeSent")}
        assert all(url.startswith((address, "data:")) for url in requested), "nothing from elsewhere"
        assert not browser.heard("Runtime.exceptionThrown", "Log.entryAdded")


def test_the_english_parser_of_the_package_is_small_described_and_knows_english() -> None:
    assert sum(path.stat().st_size for path in ENGLISH.iterdir()) < 16e6
    english = Parser.load()
    assert {"name", "corpora", "licence", "command", "seed", "scores", "weak"} <= english.card.keys()
    (found,) = english.parse("The old man sees a dog in the house.")
    assert found.heads == [3, 3, 4, 0, 6, 4, 9, 9, 4, 4] or found.heads == [3, 3, 4, 0, 6, 4, 9, 9, 6, 4]
    assert found.relations[:6] == ["det", "amod", "nsubj", "root", "det", "obj"]
    assert found.tags[:6] == ["DT", "JJ", "NN", "VBZ", "DT", "NN"] and found.universal[3] == "VERB"
    assert found.brackets.startswith("(ROOT (S (NP (DT The) (JJ old) (NN man)) (VP (VBZ sees) (NP ")


FIRST = """
import sys
from phrasemodels import Parser
parser = Parser.load()
short = ["The man who left saw it.", "It rained in the old town, and nobody came to see us."]
found = [parse.conllu(str(k)) for k, (parse,) in enumerate(parser.parse(short))]
assert "numba" not in sys.modules, [m for m in sys.modules if "numba" in m][:3]
parser.load_kernels()
assert "numba" in sys.modules
assert found == [parse.conllu(str(k)) for k, (parse,) in enumerate(parser.parse(short))]
"""


def test_the_first_short_sentences_are_decoded_without_numba() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST], check=True, timeout=300)
