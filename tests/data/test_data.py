"""Readers of text, shards, tokens, phrases and batches."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plain_000 as plain
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from phrasemodels.data.corpora import bitext
from phrasemodels.data.corpora.readers import read_split, whole
from phrasemodels.data.download.manifest import Split
from phrasemodels.data.formats.shards import TOKENS, check, content_digest, read_shard, write_parquet, write_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.inference.inputs import (
    adjacent,
    detokenise_moses,
    moses,
    moses_lower,
    moses_then_lower,
    no_phrases,
    spaces,
    tokeniser,
)
from phrasemodels.layers.blocks import BEGIN, END, SPECIAL
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, enumerated, phrases
from phrasemodels.tasks.prepare.sharded import read_shards, shard_tables, shards, write_shards
from phrasemodels.tasks.prepare.tokenise import TOKENISERS, Tokenise, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, read_ids, read_words, vocabulary, word_counts
from phrasemodels.tasks.problems.sentence_data import PhraseExamples
from phrasemodels.tasks.train.batches import (
    Arrange,
    Rows,
    _ragged,
    at_random,
    batches_from,
    by_length,
    cut,
    in_order,
    rows_of_worker,
    token_batches,
)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (b"a\nb\n", b"a\n", "has 2 lines and .*has 1"),
        (b"a\n\xff\xfe\n", b"a\nb\n", "line 2: byte 1 is not UTF-8"),
        ("a\nb\n".encode("utf-16"), b"a\nb\n", "x.en: UTF-16; convert the file to UTF-8"),
        (b"a\n \n", b"a\nb\n", "line 2: empty"),
        (b"a\n" + b"w " * 10_000 + b"\n", b"a\nb\n", "line 2: 10000 words, at most 1000"),
        (b"a\n", b"b\n", "1 rows, the manifest states 2"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, source: bytes, target: bytes, words: str) -> None:
    (tmp_path / "x.en").write_bytes(source)
    (tmp_path / "x.de").write_bytes(target)
    split = Split(rows=2, files={"en": "x.en", "de": "x.de"}, schema="bitext")
    with pytest.raises(ValueError, match=words):
        read_split(bitext.bitext_blocks, split, tmp_path, 1000, "x")


def test_unicode_line_separators_stay_in_lines(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_bytes("\ufeffa\u2028b\r\nc\x0cd".encode())
    (tmp_path / "x.de").write_bytes(b"e\nf")
    files = {"en": tmp_path / "x.en", "de": tmp_path / "x.de"}
    assert whole(bitext.bitext_blocks(files, 10))["source"].to_pylist() == ["a\u2028b", "c\x0cd"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.list_(pa.large_string()), pa.null()])
def test_values_without_a_digest_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="its values have no digest; cast the column"):
        content_digest(pa.table({"x": pa.array([], kind)}))


@pytest.mark.parametrize("values", [[["a"], None, ["b"]], [["a"], ["b", None], ["c"]]])
def test_a_null_in_a_column_is_named(values: list[Any]) -> None:
    rows = {"id": [0, 1, 2], "source": values, "target": [[]] * 3, "group": [""] * 3}
    table = pa.table(rows, schema=TOKENS)
    for found in (table, pa.concat_tables([table[:1], table[1:]])):
        with pytest.raises(ValueError, match="here: column 'source' is null in row 1"):
            check(found, TOKENS, "here")


def test_the_digest_depends_on_the_content_alone(tmp_path: Path) -> None:
    rows = {"id": range(5), "source": [["a"], [], ["b", "c"], ["é"], ["d"]], "target": [["x"]] * 5, "group": [""] * 5}
    table = pa.table({k: list(v) for k, v in rows.items()}, schema=TOKENS)
    chunked = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    assert content_digest(table) == content_digest(chunked) == content_digest(table.slice(0))
    assert content_digest(table) != content_digest(table.slice(1))
    shifted = pa.table(
        {**{k: list(v) for k, v in rows.items()}, "source": [["a"], ["b"], ["c"], ["é"], ["d"]]}, schema=TOKENS
    )
    assert content_digest(table) != content_digest(shifted), "the ends of lists are content"
    write_shard(tmp_path / "x.arrow", chunked)
    assert read_shard(tmp_path / "x.arrow").equals(table)
    whole = (tmp_path / "x.arrow").read_bytes()
    (tmp_path / "x.arrow").write_bytes(whole[:-10])
    with pytest.raises(ValueError, match=r"x\.arrow: not a whole Arrow file"):
        read_shard(tmp_path / "x.arrow")


@pytest.mark.parametrize("write", [write_durably, write_parquet])
def test_a_failed_write_leaves_the_old_file(write: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"good")
    broken = "\ud800" if write is write_durably else pa.table({"x": pa.array([], pa.month_day_nano_interval())})
    with pytest.raises((ValueError, pa.ArrowException)):
        write(tmp_path / "x", broken)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"good"]


@given(st.lists(st.integers(1, 12), max_size=6), st.integers(2, 4))
def test_adjacent_spans_equal_enumeration(lengths: list[int], k: int) -> None:
    counts, members = enumerated(Phrases(adjacent, k), np.array(lengths, np.int64), None)
    expected = [plain.phrases(n, k) for n in lengths]
    assert counts.tolist() == [len(p) for p in expected]
    assert [tuple(x for x in row if x >= 0) for row in members.tolist()] == [p for ps in expected for p in ps]


PIECES = [*"aZé9ß .,,''..-:;\t(«", "DOTMULTI", "...", " m.", " z.B.", "ﬁ", "中"]
SIGNS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@pytest.mark.parametrize("language", ["en", "de", "fr", "zh"])
@given(text=SIGNS)
def test_tokens_are_those_of_sacremoses(language: str, text: str) -> None:
    assert moses(text, language) == MosesTokenizer(language).tokenize(text, escape=False)


def test_full_stops_inside_of_a_text_are_tokens() -> None:
    text = "Open the folder. The file is there."
    assert moses_then_lower(text, "en") == "open the folder . the file is there .".split()
    assert "folder." in moses_lower(text, "en"), "as in the papers' scripts"
    assert TOKENISERS["moses"][0] is moses_then_lower
    assert tokeniser("moses_then_lower", {})(text, "en") == moses_then_lower(text, "en")


def test_moses_tokens_can_be_joined_again(tmp_path: Path) -> None:
    tokens = moses_lower("Zwei Männer's Hunde, 3,5 m & <groß>!", "de")
    assert tokens[:2] == ["zwei", "männer"]
    assert "&" in tokens
    assert detokenise_moses(moses_lower("a man, a dog.", "en"), "en") == "a man, a dog."


def stages(store: Store, corpus: SampleCorpus, enumerate_=adjacent, longest: int = 3):
    rows = {split: corpus.split(split) for split in ("train", "test")}
    tokens = {s: Step(tokenise, s, Tokenise(spaces, "en", "de"), {"rows": r}) for s, r in rows.items()}
    words = Step(vocabulary, "v", VocabularySettings(1), {"rows": tokens["train"]})
    numbers = {
        s: Step(phrases, s, Phrases(enumerate_, longest), {"rows": t, "vocabulary": words}) for s, t in tokens.items()
    }
    return store.run(tokens["train"]), store.run(words), store.run(numbers["train"])


def test_from_sentences_to_ids_and_back(store: Store) -> None:
    tokens, words, numbers = stages(store, SampleCorpus(train=50, dev=5, test=5))
    table, known = read_shards(numbers), read_words(words, "source")
    for row, text in zip(table.to_pylist(), read_shards(tokens)["source"].to_pylist(), strict=True):
        assert (row["source"][0], row["source"][-1]) == (BEGIN, END)
        assert [known[i] for i in row["source"][1:-1]] == text
        assert [tuple(x for x in p if x >= 0) for p in row["phrases"]] == plain.phrases(len(row["source"]), 3)
    assert numbers.meta["licences"] == ["Apache-2.0"]
    assert numbers.meta["stand_in"]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrasemodels.tasks.prepare.sharded.FIRST_ROWS", 1_000)


def test_words_are_counted_shard_by_shard(store: Store, small_shards: None) -> None:
    tokens, words, _ = stages(store, SampleCorpus(train=2_010, dev=5, test=5), no_phrases, 2)
    assert len(shards(tokens)) == 3
    counts, longest = word_counts(shard_tables(tokens))
    table = read_shards(tokens)
    for side, own in counts.items():
        assert own == Counter(word for row in table[side].to_pylist() for word in row)
        assert read_words(words, side)[len(SPECIAL) :] == sorted(own, key=lambda word, own=own: (-own[word], word))
    assert longest == words.meta["longest"] == max(map(len, table["target"].to_pylist()))


def test_a_process_reads_a_vocabulary_once(store: Store, small_shards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(
        "phrasemodels.tasks.prepare.vocabulary.read_words",
        lambda artifact, name: read.append(name) or read_words(artifact, name),
    )
    _, words, numbers = stages(store, SampleCorpus(train=2_010, dev=5, test=5), no_phrases, 2)
    assert sorted(read) == ["source", "target"] and len(shards(numbers)) == 3
    path = words.file("source.txt")
    path.write_text(path.read_text().replace("\n", "x\n"))
    assert "</s>x" in read_ids(words, "source")  # a file that changed is read again


def test_a_small_corpus_is_work_for_many_processors_and_a_large_one_has_large_shards(tmp_path: Path) -> None:
    for rows, sizes in (
        (0, []),
        (2_000, [2_000]),
        (29_000, [2_000] * 14 + [1_000]),
        (52_001, [2_000] * 16 + [10_000, 10_000, 1]),
    ):
        table = pa.table({"n": range(rows)})
        made = write_shards(tmp_path, table)
        assert [shard["rows"] for shard in made["shards"]] == sizes
        assert pa.concat_tables([read_shard(tmp_path / s["file"]) for s in made["shards"]] or [table]).equals(table)


def test_a_larger_corpus_keeps_its_first_shards(store: Store) -> None:
    small = stages(store, SampleCorpus(train=2_000, dev=5, test=5))[0]
    large = stages(store, SampleCorpus(train=2_400, dev=5, test=5))[0]
    assert shards(small)[0].content == shards(large)[0].content
    made = [a for a in store.artifacts() if a.manifest["step"] == "tokenise_shard"]
    assert len(made) == len({a.meta["content"] for a in made})


def test_finished_shards_are_cache_hits_of_other_workers(store: Store, small_shards: None) -> None:
    rows = SampleCorpus(train=2_050, dev=5, test=5).split("train")
    stage = Step(tokenise, "t", Tokenise(spaces, "en", "de"), {"rows": rows})
    missing: list[str] = []

    def two_workers(function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> list[Any]:
        work = list(items)
        missing.extend(step.key for own, step in work if own.find(step) is None)
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda item: function(*item), work))

    first = store.run(stage)
    made = [a for a in store.artifacts() if a.manifest["step"] == "tokenise_shard"]
    shutil.rmtree(first.path)  # as if a run had died before its second shard
    shutil.rmtree(made[1].path)
    again = store.run(stage, Executor(map=two_workers))
    assert again.meta == first.meta and len(made) == 3 and missing == [made[1].key]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PhraseExamples:
    store = Store(tmp_path_factory.mktemp("store")).open()
    numbers = stages(store, SampleCorpus(train=300, dev=5, test=5), no_phrases, 2)[2]
    return PhraseExamples([shard.path for shard in shards(numbers)])


@settings(max_examples=20)
@given(
    budget=st.integers(40, 2000),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
    arrange=st.sampled_from([by_length, at_random]),
)
def test_an_epoch_holds_every_row_once_within_the_budget(
    data: PhraseExamples, budget: int, seed: int, epoch: int, arrange: Arrange
) -> None:
    batches = token_batches(data, budget, seed, epoch, arrange=arrange)
    assert sorted(np.concatenate(batches)) == list(range(len(data)))
    assert sorted(np.concatenate(in_order(data, budget))) == list(range(len(data)))
    pieces = in_order(data, budget, batches[0], 2)
    assert sorted(np.concatenate(pieces)) == sorted(batches[0]) and len(pieces) >= min(2, len(batches[0]))
    for rows in batches + pieces:
        padded = len(rows) * (data.lengths[rows].max(0).sum())
        assert padded <= budget or len(rows) == 1
    again = token_batches(data, budget, seed, epoch, arrange=arrange)
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_workers_divide_a_batch(world: int) -> None:
    rows = np.array(random.Random(0).sample(range(1000), 17))
    parts = [rows_of_worker(rows, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(parts)) == sorted(rows)


def test_batches_after_resuming_are_those_without_interruption(data: PhraseExamples) -> None:
    whole = batches_from(data, 0, 0, 300, 5)
    expected = [next(whole) for _ in range(150)]
    epoch, place, _ = expected[97]
    assert epoch > 0 and place > 0
    for begin in ((0, 97), (epoch, place), (epoch - 1, place + sum(e == epoch - 1 for e, _, _ in expected))):
        rest = batches_from(data, *begin, 300, 5)
        for e, p, rows in expected[97:]:
            found_epoch, found_place, found = next(rest)
            assert (found_epoch, found_place) == (e, p) and (found == rows).all()


def test_a_place_in_an_epoch_is_found_without_the_epochs_before_it(
    data: PhraseExamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = []

    def counted(lengths: Rows, rng: np.random.Generator) -> Rows:
        ordered.append(1)
        return by_length(lengths, rng)

    assert next(batches_from(data, 30, 7, 300, 5, arrange=counted))[:2] == (30, 7)
    assert len(ordered) == 1


def plain_batches(
    lengths: list[tuple[int, int]], order: list[int], max_tokens: int, max_rows: int, equal: int
) -> list[Any]:
    """Return what `cut` makes, row by row."""
    batches: list[list[int]] = [[]]
    for row in order:
        batch = [*batches[-1], row]
        padded = len(batch) * sum(max(lengths[r][side] for r in batch) for side in (0, 1))
        differs = any(lengths[row][:equal] != lengths[r][:equal] for r in batch)
        if batches[-1] and (padded > max_tokens or len(batch) > max_rows or differs):
            batches.append([row])
        else:
            batches[-1] = batch
    return batches


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.integers(0, 60),
    st.integers(1, 5),
    st.integers(0, 2),
)
def test_compiled_batches_equal_a_plain_loop(
    lengths: list[tuple[int, int]], max_tokens: int, max_rows: int, equal: int
) -> None:
    examples = SimpleNamespace(lengths=np.array(lengths, np.int64).reshape(-1, 2))
    order = np.random.default_rng(0).permutation(len(lengths))
    found = cut(examples, order, max_tokens, max_rows, equal)
    assert [rows.tolist() for rows in found] == plain_batches(lengths, order.tolist(), max_tokens, max_rows, equal)


def test_a_column_of_one_chunk_is_not_copied(tmp_path: Path) -> None:
    lists = pa.array([[1, 2], [], [3]], pa.list_(pa.int32()))
    for table, copied in ((pa.table({"x": lists}), False), (pa.concat_tables([pa.table({"x": lists})] * 2), True)):
        offsets, values = _ragged(table["x"])
        same = values.ctypes.data == lists.values.buffers()[1].address
        assert same != copied and values[offsets[-2] : offsets[-1]].tolist() == [3]
