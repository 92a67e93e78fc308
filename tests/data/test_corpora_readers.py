"""Readers of all formats, on handwritten records."""

import hashlib
import json
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from phrasemodels.data.corpora import added, bitext, releases, treebank
from phrasemodels.data.corpora.added import Added, add
from phrasemodels.data.corpora.readers import (
    READERS,
    counted,
    counts,
    leakage,
    read,
    read_files,
    read_split,
    take,
    whole,
)
from phrasemodels.data.download.manifest import Part, Split
from phrasemodels.data.download.manifest import read as read_manifest
from phrasemodels.data.formats.lines import bounded
from phrasemodels.data.formats.shards import BITEXT, PAIRS, SENTENCES, STORIES, TREES, build

WORDS = 100


def read_columns(*arguments: Any, **options: Any) -> pa.Table:
    return whole(bitext.column_blocks(*arguments, **options))


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def block(number: int, *values: str) -> str:
    lines = (f"<{tag} id={number}>\t{value}".rstrip(" ") for tag, value in zip(bitext.TAGS, values, strict=True))
    return "\r\n".join(lines) + "\r\n" + "=" * 50 + "\r\n"


def test_blocks_of_logical_forms(tmp_path: Path) -> None:
    text = "".join(block(i, f"who drew it {i}", f"( lambda ?x ( mso:a.b it_{i} ?x ) )", "p", "cvt") for i in range(10))
    path = put(tmp_path, "a.dev", text)
    table = bitext.read_mspars({"blocks": path}, WORDS)
    assert table.schema == BITEXT
    assert table.num_rows == 10
    assert table.slice(3, 1).to_pylist() == [
        {"id": 3, "source": "who drew it 3", "target": "( lambda ?x ( mso:a.b it_3 ?x ) )", "group": "cvt"}
    ]
    assert bitext.read_mspars_questions({"blocks": path}, WORDS)["text"][9].as_py() == "who drew it 9"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (block(1, "q", "", "", ""), "line 1: a question without logical form"),
        (block(1, "q", "l", "p", "t")[:-60], "line [34]: .* in place of <question type|line 1: the block .* cut off"),
        (
            block(1, "q", "l", "p", "t").replace("logical form id=1", "logical form id=2"),
            "line 2: .* in place of <logical form",
        ),
    ],
)
def test_wrong_blocks_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bitext.read_mspars({"blocks": put(tmp_path, "a.dev", text)}, WORDS)


def test_empty_lines_of_classes_become_rows_with_a_reason(tmp_path: Path) -> None:
    files = {"positive": put(tmp_path, "p", "good\nfine \n\n"), "negative": put(tmp_path, "n", "bad\r\n")}
    table = releases.read_classes(files, WORDS)
    assert table.schema == SENTENCES
    assert table["text"].to_pylist() == ["good", "fine", "", "bad"]
    assert table["label"].to_pylist() == ["positive"] * 3 + ["negative"]
    assert table["reason"].to_pylist() == ["", "", "empty", ""]


def test_latin_1_needs_the_option_encoding(tmp_path: Path) -> None:
    path = put(tmp_path, "TREC", "LOC:city Where is M\xfcnchen ?\nNUM:date When ?\n".encode("latin-1"))
    table = releases.read_trec({"questions": path}, WORDS, "iso-8859-1")
    assert table.select(["text", "label", "group"]).to_pylist()[0] == {
        "text": "Where is München ?",
        "label": "LOC",
        "group": "city",
    }
    with pytest.raises(ValueError, match="TREC, line 1: byte 20 is not UTF-8"):
        releases.read_trec({"questions": path}, WORDS)


def test_sentiment_with_and_without_neutral(tmp_path: Path) -> None:
    path = put(tmp_path, "t", "(3 (2 So) (3 good))\n(2 (2 A) (2 -LRB-))\n(0 bad)\n")
    fine = releases.read_sentiment({"trees": path}, WORDS)
    assert fine["label"].to_pylist() == ["3", "2", "0"]
    assert fine["text"].to_pylist() == ["So good", "A (", "bad"]
    binary = releases.read_sentiment({"trees": path}, WORDS, binary=True)
    assert binary["label"].to_pylist() == ["positive", "negative"]
    assert binary["id"].to_pylist() == [0, 2]


def test_sst2_as_senteval_reads_it(tmp_path: Path) -> None:
    table = releases.read_polarity({"sentences": put(tmp_path, "s", "a gem \t1\nno wit , only gags\t0\n")}, WORDS)
    assert table.select(["text", "label"]).to_pylist() == [
        {"text": "a gem", "label": "positive"},
        {"text": "no wit , only gags", "label": "negative"},
    ]
    with pytest.raises(ValueError, match=r"line 2: polarity '2' is neither 0 nor 1"):
        releases.read_polarity({"sentences": put(tmp_path, "w", "a\t1\nb\t2\n")}, WORDS)


def test_pairs_in_tables(tmp_path: Path) -> None:
    header = "\t".join(releases.SICK)
    sick = put(tmp_path, "s", f"{header}\r\n1\tA dog\tA cat\t2.5\tNEUTRAL\r\n2\tA dog\tA pet\t4\tENTAILMENT\r\n")
    table = releases.read_sick({"pairs": sick}, WORDS)
    assert table.schema == PAIRS
    assert table.select(["label", "score", "family"]).to_pylist() == [
        {"label": "neutral", "score": 2.5, "family": 0},
        {"label": "entailment", "score": 4.0, "family": 0},
    ]
    para = put(tmp_path, "m", "\ufeff" + "\t".join(releases.MRPC) + '\r\n1\t7\t8\tHe message "no.\tHe refused.\r\n')
    assert releases.read_paraphrases({"a": para}, WORDS)["premise"].to_pylist() == ['He message "no.']
    score = put(tmp_path, "o", "6\ta\tb\n")
    with pytest.raises(ValueError, match="line 1: a score of 6"):
        releases.read_similarity({"OnWN": score}, WORDS)
    with pytest.raises(ValueError, match="line 1: the columns are"):
        releases.read_paraphrases({"a": sick}, WORDS)


def test_stories(tmp_path: Path) -> None:
    story = "1 Ann went out.\n2 Bob slept.\n3 Where is Ann? \tout\t1\n4 Ann came back.\n5 And now?\thome,in\t4 1\n"
    table = releases.read_babi({"stories": put(tmp_path, "s", story * 5)}, WORDS, "qa02")
    assert table.schema == STORIES
    assert table.num_rows == 10
    last = table.slice(9, 1).to_pylist()[0]
    assert last["facts"] == ["Ann went out.", "Bob slept.", "Ann came back."]
    assert (last["lines"], last["support"], last["answer"], last["story"]) == ([1, 2, 4], [2, 0], "home,in", 4)
    for text, words in (
        ("2 x.\n", "line 1"),
        ("1 a.\n2 b?\tc\t2\n", "line 2: .* line 2"),
        ("1 a.\n2 \tc\t1\n", "line 2: the question"),
    ):
        with pytest.raises(ValueError, match=words):
            releases.read_babi({"stories": put(tmp_path, "bad", text)}, WORDS)


def official(label: str, tree: str, binary: str) -> str:
    pair = {"gold_label": label, "sentence1": "A dog", "sentence2": "No dog"}
    other = {"sentence2_parse": "(ROOT (NP (DT No) (NN dog)))", "sentence2_binary_parse": "( No dog )"}
    return json.dumps(pair | other | {"sentence1_parse": tree, "sentence1_binary_parse": binary}) + "\n"


def test_official_pairs_with_both_parses(tmp_path: Path) -> None:
    good = "(ROOT (NP (DT A) (NN dog)))"
    text = (
        official("neutral", good, "( A dog )")
        + official("-", good, "( A dog )")
        + official("neutral", "(ROOT (", "( A dog )")
    )
    table = releases.read_snli_official({"jsonl": put(tmp_path, "x.jsonl", text)}, WORDS)
    assert table["premise"].to_pylist() == ["A dog"] * 3
    assert table["premise_tree"].to_pylist() == [good, good, ""]
    assert table["reason"].to_pylist() == ["", releases.UNDECIDED, "no parse of the premise"]
    for broken in ("{}\n", "nothing\n", official("maybe", good, "( A dog )")):
        with pytest.raises(ValueError, match=r"x\.jsonl, line 1: "):
            releases.read_snli_official({"jsonl": put(tmp_path, "x.jsonl", broken)}, WORDS)


def test_tokenised_pairs_must_agree_in_length(tmp_path: Path) -> None:
    files = {"premise": put(tmp_path, "1", "a\na\nb\n"), "hypothesis": put(tmp_path, "2", "c\nd\ne\n")}
    labels = put(tmp_path, "l", "neutral\nneutral\nentailment\n")
    assert releases.read_snli(files | {"label": labels}, WORDS)["family"].to_pylist() == [0, 0, 1]
    with pytest.raises(ValueError, match="3, 3 and 1 lines"):
        releases.read_snli(files | {"label": put(tmp_path, "s", "neutral\n")}, WORDS)


def test_long_pairs_are_a_group(tmp_path: Path) -> None:
    path = put(tmp_path, "train-1.txt", "0.9 ||| A ||| 1 ||| 犬だ ||| a dog\n0.8 ||| B ||| 1 ||| 犬だよね ||| a dog\n")
    table = bitext.read_aspec({"1": path, "2": path}, WORDS, characters=3)
    assert table["group"].to_pylist() == ["", "long", "", "long"]
    short = bitext.read_aspec({"1": path, "2": path}, WORDS, characters=3, drop_long=True)
    assert short["id"].to_pylist() == [0, 2]
    assert short["source"].to_pylist() == ["犬だ", "犬だ"]


def test_trees_and_sentences_side_by_side(tmp_path: Path) -> None:
    row = "{}\t{}\t_\tNOUN\tNN\t_\t{}\tdep\t_\t_\n"
    sentences = "# newdoc id = d\n" + "".join(
        row.format(1, word, 2) + row.format(2, "dogs", head) + "\n" for word, head in (("(", 0), ("big", 0), ("big", 1))
    )
    trees = "( (NP (-LRB- -LRB-) (NNS dogs)) )\n( (NP (JJ small) (NNS dogs)) )\n( (NP (JJ big) (NNS dogs)) )\n"
    files = {"brackets": put(tmp_path, "t", trees), "conllu": put(tmp_path, "c", sentences)}
    table = treebank.read(files, WORDS)
    assert table.schema == TREES
    assert table["tree"].to_pylist() == ["(ROOT (NP (-LRB- -LRB-) (NNS dogs)))", "", "(ROOT (NP (JJ big) (NNS dogs)))"]
    assert table["heads"].to_pylist() == [[2, 0], [2, 0], []]
    assert table["reason"].to_pylist() == ["", treebank.OTHER_WORDS, "cyclic dependencies"]
    assert set(table["group"].to_pylist()) == {"d"}
    assert treebank.tagged(table)["reason"].to_pylist() == ["", "", ""]
    with pytest.raises(ValueError, match="2 words, at most 1"):
        treebank.read(files, 1)
    with pytest.raises(ValueError, match=r"2 trees and .* 3 sentences"):
        treebank.read(files | {"brackets": put(tmp_path, "u", trees[: trees.rindex("( (NP")])}, WORDS)


def test_a_tree_of_traces_keeps_its_row(tmp_path: Path) -> None:
    path = put(tmp_path, "t", "( (S (-NONE- *)) )\n( (S (X x)) )\n")
    assert treebank.read({"brackets": path}, WORDS)["reason"].to_pylist() == [treebank.NO_WORDS, ""]


def pairs(*premises: str) -> pa.Table:
    return build(PAIRS, "here", {"premise": list(premises), "hypothesis": ["h"] * len(premises)}, len(premises))


def part_of(tables: Sequence[pa.Table], **given: Any) -> pa.Table:
    return whole(take(lambda: iter(tables), Part(**given), "x"))


def test_a_part_of_many_tables_is_that_of_one_and_follows_sha256() -> None:
    table = pairs(*(f"p{i // 3}" for i in range(300)))
    blocks = [table.slice(at, 7) for at in range(0, 300, 7)]
    drawn = sorted(set(table["premise"].to_pylist()), key=lambda text: hashlib.sha256(text.encode()).digest())
    for start, stop in ((0, 50), (50, 51), (51, None), (299, None)):
        part = part_of(blocks, by="premise", start=start, stop=stop)
        assert part == part_of([table], by="premise", start=start, stop=stop)
        wanted = {text for place, text in enumerate(drawn) if start <= 3 * place < (300 if stop is None else stop)}
        assert part["premise"].to_pylist() == [text for text in table["premise"].to_pylist() if text in wanted]


def test_parts_are_disjoint_and_keep_together() -> None:
    table = pairs(*(f"p{i // 3}" for i in range(300)))
    first, last = (part_of([table], by="premise", **given) for given in ({"stop": 50}, {"start": 50}))
    assert first.num_rows + last.num_rows == 300
    assert 50 <= first.num_rows <= 52
    assert not set(first["premise"].to_pylist()) & set(last["premise"].to_pylist())
    assert first["id"].to_pylist() == sorted(first["id"].to_pylist())


@pytest.mark.parametrize("by", ["id", "premise"])
def test_each_label_has_its_share_of_each_part(by: str) -> None:
    labels = ["rare"] * 2 + ["some"] * 20 + ["many"] * 278
    given = {"premise": [f"p{i // 2}" for i in range(300)], "hypothesis": ["h"] * 300, "label": labels}
    table = build(PAIRS, "here", given, 300)
    blocks = [table.slice(at, 7) for at in range(0, 300, 7)]
    dev, test, train = (
        part_of(blocks, by=by, alike="label", start=a, stop=b) for a, b in ((0, 30), (30, 60), (60, None))
    )
    found = [Counter(part["label"].to_pylist()) for part in (dev, test, train)]
    assert sum(found, Counter()) == Counter(labels) and [own["rare"] for own in found] == [0, 0, 2]
    assert all(abs(own["some"] - 2) <= 2 and abs(own["many"] - 28) <= 3 for own in found[:2])
    assert by == "id" or not set(dev["premise"].to_pylist()) & set(train["premise"].to_pylist())


def test_leakage_counts_whole_records() -> None:
    train, test = pairs("a", "b"), pairs("a", "c", "a", "d")
    assert leakage([train], [test]) == (2, 4)
    assert str(leakage([train], [test])) == "2 of 4 records (50%) stand verbatim in train"
    facts = build(STORIES, "s", {"facts": [["a", "b"]], "question": ["q"]}, 1)
    apart = build(STORIES, "s", {"facts": [["a b"], ["a", "b"]], "question": ["q", "q"]}, 2)
    assert leakage([facts], [apart]) == (1, 2)


def test_leakage_holds_one_shard_of_train_at_a_time() -> None:
    alive: list[weakref.ref[pa.Table]] = []

    def shards() -> Iterator[pa.Table]:
        for name in "abcdefg":
            assert sum(table() is not None for table in alive) <= 1
            made = pairs(name, f"{name}2")
            alive.append(weakref.ref(made))
            yield made

    assert leakage(shards(), [pairs("a", "x"), pairs("g2"), pairs("a")]) == (3, 4)


def test_sizes_and_reasons_are_those_of_the_manifest(tmp_path: Path) -> None:
    table = releases.read_classes({"p": put(tmp_path, "p", "a\n\n")}, WORDS)
    assert [*counted([table[:1], table[1:]], Split(rows=2, files={}, reasons={"empty": 1}), "x")] == [
        table[:1],
        table[1:],
    ]
    with pytest.raises(ValueError, match="x: 2 rows, the manifest states 3"):
        list(counted([table], Split(rows=3, files={}), "x"))
    with pytest.raises(ValueError, match="x: no rows; change its part"):
        list(counted([table[:0]], Split(files={}, part=Part(start=200)), "x"))
    with pytest.raises(ValueError, match=r"x: unusable rows: \{'empty': 1\}"):
        list(counted([table], Split(rows=2, files={}), "x"))


@pytest.mark.parametrize(
    ("name", "roles", "options", "message"),
    [
        ("babi", ["stories"], {"taks": "1"}, "x train: phrasemodels.data.corpora.releases has no option 'taks': did you mean 'task'?"),
        ("babi", ["stories"], {"task": 3}, "x train, task: Input should be a valid string"),
        ("babi", ["story"], {}, "x train, files: none is 'stories': did you mean 'story'"),
        ("bitext", ["en", "de"], {"source": "fr"}, "x train, files: none is 'fr': known: de, en"),
        ("bitext", ["en"], {}, "x train, files: .* at least 2 items"),
        ("bitext", ["en", "de", "fr"], {}, "x train, files: .* at most 2 items"),
        ("columns", ["a", "b"], {}, "x train, files: .* at most 1 item"),
        ("columns", ["a"], {"separator": 3}, "x train, separator: Input should be a valid string"),
        ("columns", ["a"], {"separator": ""}, "x train, separator: .* at least 1 character"),
        ("columns", ["a"], {"prefix": True}, "x train, prefix: Input should be a valid string"),
        ("senteval.trec", ["trees"], {}, "x train, files: none is 'questions': known: trees"),
        ("senteval.trec", ["questions"], {"encoding": 8}, "x train, encoding: Input should be a valid string"),
        ("senteval.trec", ["questions"], {"encoding": "latin9x"}, "x train, encoding: unknown encoding: latin9x"),
        ("senteval.trec", ["questions"], {"encoding": "hex"}, "x train, encoding: 'hex' is not a text encoding"),
        ("senteval.classes", [], {}, "x train, files: there are none"),
        ("aspec", ["train"], {"characters": "x"}, "x train, characters: Input should be a valid integer"),
        ("treebank", ["brackets"], {"sections": ("2",)}, "x train, sections: 0: Input should be a valid integer"),
    ],
)  # fmt: skip
def test_wrong_files_and_options_of_a_manifest_are_named_in_one_line(
    tmp_path: Path, name, roles, options, message
) -> None:
    put(tmp_path, "f", "a\tb\n")
    split = Split(files=dict.fromkeys(roles, "f"), options=options, schema="bitext")
    with pytest.raises(ValueError, match=f"^{message}") as error:
        read_split(READERS[name], split, tmp_path, WORDS, "x train")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("reader", "roles"), [("columns", 1), ("labelled", 1), ("bitext", 2)])
@pytest.mark.parametrize("part", [None, Part(stop=1)])
def test_an_empty_file_has_no_rows(tmp_path: Path, reader: str, roles: int, part: Part | None) -> None:
    put(tmp_path, "f", "")
    schema = "sentences" if reader == "labelled" else "bitext"
    split = Split(files=dict.fromkeys("ab"[:roles], "f"), part=part, schema=schema)
    with pytest.raises(ValueError, match=r"^x train: no rows"):
        read_split(READERS[reader], split, tmp_path, WORDS, "x train")


@pytest.mark.parametrize("by", ["nope", "facts"])
def test_a_part_by_an_unknown_column_is_named(by: str) -> None:
    with pytest.raises(ValueError, match=f"^x, part.by: no column '{by}' of single values: known: answer"):
        part_of([build(STORIES, "here", {}, 1)], by=by)


SCAN = "IN: jump twice OUT: I_JUMP I_JUMP\nIN: walk OUT: I_WALK\n"
COGS = "A rose was helped .\trose ( x _ 1 ) AND help . theme ( x _ 3 , x _ 1 )\tin_distribution\nEmma ran .\trun ( Emma )\tcp\n"


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        (
            SCAN,
            {"prefix": "IN: ", "separator": " OUT: "},
            [("jump twice", "I_JUMP I_JUMP", ""), ("walk", "I_WALK", "")],
        ),
        (COGS, {}, [tuple(line.split("\t")) for line in COGS.splitlines()]),
    ],
)
def test_pairs_in_columns(tmp_path, text, options, rows):
    path = tmp_path / "pairs"
    path.write_text(text)
    table = pa.concat_tables(read_files(bitext.column_blocks, {"pairs": path}, WORDS, options, "x"))
    assert table.schema == BITEXT
    assert [(r["source"], r["target"], r["group"]) for r in table.to_pylist()] == rows


@pytest.mark.parametrize(
    ("line", "message"),
    [("one column", "give prefix and separator"), ("a\t", "no source, or no target"), ("a\tb\tc\td", "4 columns"),
     ("", "empty; remove the line")],
)  # fmt: skip
def test_a_line_that_is_not_a_pair_is_named(tmp_path, line, message):
    path = tmp_path / "pairs"
    path.write_text(f"a\tb\n{line}\n")
    with pytest.raises(ValueError, match=f"line 2: .*{message}|line 2: {message}"):
        read_columns({"pairs": path}, WORDS)


def test_a_wrong_line_is_named_without_the_folder_of_the_store(tmp_path) -> None:
    put(tmp_path, "pairs.txt", "a\tb\n\n")
    split = Split(files={"pairs": "pairs.txt"}, schema="bitext")
    with pytest.raises(ValueError, match=r"^mine train: pairs\.txt, line 2: empty"):
        read_split(READERS["columns"], split, tmp_path, WORDS, "mine train")


def test_treebanks_with_any_line_ends_and_sentence_lengths(tmp_path: Path) -> None:
    words = [["a"], [f"w{i}" for i in range(500)]]
    trees = ["(S " + " ".join(f"(X {w})" for w in sentence) + ")" for sentence in words]
    rows = [
        "\n".join(f"{i}\t{w}\t_\tX\tX\t_\t{i - 1}\tdep\t_\t_" for i, w in enumerate(sentence, 1)) + "\n\n"
        for sentence in words
    ]
    for end in ("\n", "\r\n"):
        for name, content in (("trees", "\n".join(trees) + "\n"), ("rows", "".join(rows))):
            (tmp_path / name).write_bytes(("\ufeff" + content.replace("\n", end)).encode())
        table = treebank.read({"brackets": tmp_path / "trees", "conllu": tmp_path / "rows"}, 500)
        assert table["tokens"].to_pylist() == words and table["reason"].to_pylist() == ["", ""]
        assert [len(heads) for heads in table["heads"].to_pylist()] == [1, 500]
    with pytest.raises(ValueError, match="b, line 7: 900 characters, fewer than 900 are expected"):
        bounded("字" * 900, "b", 7, 9)
    with pytest.raises(ValueError, match="rows, the sentence on line 3: 500 words, at most 499"):
        treebank.read({"conllu": tmp_path / "rows"}, 499)
    (tmp_path / "rows").write_bytes(rows[0].encode() + b"1\t\xe9\n")
    with pytest.raises(ValueError, match="rows, line 3: byte 3 is not UTF-8"):
        treebank.read({"conllu": tmp_path / "rows"}, 499)


LINES = "a\tb\n\nc\t\nd\te\n\n\tf\ng h\n1\t2\t3\t4\nw w w\tx x\nü\t"


def test_all_bad_lines_are_listed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    path.write_bytes(LINES.encode() + b"\xff\n")
    with pytest.raises(ValueError, match="empty; remove the line") as found:
        read_columns({"pairs": path}, 2)
    said = str(found.value)
    for text in ("line 2: empty; remove the line (also line 5)", "line 3: no source, or no target; correct the line (also line 6)",
                 "line 7: 'g h' is not", "line 8: 4 columns", "line 9: 3 words, at most 2", "line 10: byte 4 is not UTF-8"):  # fmt: skip
        assert text in said
    table = read_columns({"pairs": path}, 2, bad_lines="skip", max_bad=0.8)
    assert table["source"].to_pylist() == ["a", "d"] and table["id"].to_pylist() == [0, 1]
    with pytest.raises(ValueError, match=r"8 of 10 lines are bad, more than max_bad = 0.79: .*line 2: empty"):
        read_columns({"pairs": path}, 2, bad_lines="skip", max_bad=0.79)


def test_a_file_is_read_in_blocks_and_is_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "pairs", "a\tb\nc\td\t1\n\ne\tf\ng\th\n")
    whole = read_columns({"pairs": path}, 2, bad_lines="skip", max_bad=0.2)
    monkeypatch.setattr(bitext, "BLOCK_LINES", 2)
    table = read_columns({"pairs": path}, 2, bad_lines="skip", max_bad=0.2)
    assert table.equals(whole) and table["id"].to_pylist() == [0, 1, 2, 3] and table["id"].num_chunks == 1


def test_each_side_is_bounded_by_itself(tmp_path: Path) -> None:
    path = put(tmp_path, "pairs", "a a a\tb b b\n")
    assert read_columns({"pairs": path}, 3).num_rows == 1
    with pytest.raises(ValueError, match="line 1: 3 words, at most 1"):
        read_columns({"pairs": path}, 1)


def test_records_that_a_split_repeats_are_counted() -> None:
    assert counts([pairs("a", "b"), pairs("a", "a", "c")]).repeated == 2


def test_a_corpus_that_another_command_adds_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other, copy_of = tmp_path / "mine.tsv", tmp_path / "other.tsv", added._put
    for one in (file, other):
        one.write_text("".join(f"{one.stem} {i}\tt{i}\n" for i in range(30)), encoding="utf-8")
    about, corpora = Added("mine", languages=("en", "de")), tmp_path / "corpora"

    def meanwhile(*arguments: Any) -> Path:
        monkeypatch.undo()
        add(other, about, corpora)
        return copy_of(*arguments)

    monkeypatch.setattr(added, "_put", meanwhile)
    with pytest.raises(ValueError, match=r"mine\.toml exists"):
        add(file, about, corpora)
    assert "other.tsv" in (corpora / "mine.toml").read_text(encoding="utf-8")
    (corpora / f".mine.toml.7-{'0' * 12}").write_text("of a killed one")
    add(file, about, corpora, overwrite=True)
    assert sorted(path.name for path in corpora.iterdir()) == ["mine", "mine.toml"]


def test_an_added_file_is_read_in_blocks_and_its_parts_are_as_of_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.tsv"
    file.write_text("".join(f"s{i // 3}\tt{i}\n" for i in range(100)), encoding="utf-8")
    about = Added("mine", by="source", languages=("en", "de"))
    once = add(file, about, tmp_path / "once")
    monkeypatch.setattr(bitext, "BLOCK_LINES", 7)
    again = add(file, about, tmp_path / "again")
    assert once.path.read_text(encoding="utf-8") == again.path.read_text(encoding="utf-8")
    rows = {split: read(read_manifest(again.path), split, again.path.with_suffix("")) for split in again.splits}
    assert [counts.rows for counts in again.splits.values()] == [table.num_rows for table in rows.values()]
    assert sorted(value for table in rows.values() for value in table["id"].to_pylist()) == list(range(100))
    assert not set(rows["train"]["source"].to_pylist()) & set(rows["test"]["source"].to_pylist())
