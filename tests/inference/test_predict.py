"""Exported models answer with torch alone what the pipeline answered, on the whole test set of each problem."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import plain_001 as plain
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import small_corpus

import phrasemodels
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.formats.trees import Span, Tree, brackets
from phrasemodels.data.store.store import Store, with_dependencies
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import champion
from phrasemodels.inference import inputs
from phrasemodels.tasks.prepare import tokenise
from phrasemodels.tasks.prepare.sharded import read_shards

SMALL = ("train.steps=25", "train.evaluate_every=25", "train.batch_tokens=300", *small_corpus(80, 6, 24))  # fmt: skip
LONGER = (*SMALL, "train.steps=100")
Row = Mapping[str, Any]


def texts(row: Row) -> Any:
    return row["source"]


def tokens(row: Row) -> Any:
    return row["tokens"]


def headed(row: Row) -> Any:
    return {"tokens": row["tokens"], "heads": row["heads"]}


def trees(row: Row) -> Any:
    return row["premise_tree"], row["hypothesis_tree"]


def stories(row: Row) -> Any:
    return row["facts"], row["question"]


MODELS: Mapping[str, tuple[Callable[[Row], Any], Sequence[str]]] = {
    "000/table1/sample/phrase-k3": (texts, SMALL),
    "000/table2/sample/phrase-k2": (tokens, SMALL),
    "000/table2/sample/semantic-k3": (headed, SMALL),
    "001/table3/sample/psan": (trees, LONGER),
    "001/table3/sample/tbcnn": (trees, LONGER),
    "002/figure3/sample/merges-300": (texts, LONGER),
    "002/table2-geo/sample/model-4": (texts, SMALL),
    "003/tablenmt/sample/char-structured": (texts, (*SMALL, "train.steps=400")),
    "003/tabletrees/sample/structured": (texts, LONGER),
    "003/tablebabi/sample/binary-facts2": (stories, (*SMALL, "recipe.restarts=2")),
    "003/tablesnli/sample/hard": (trees, (*SMALL, "train.steps=400")),
    "004/parser/sample/lal": (tokens, SMALL),
    "004/alone/sample/arcs": (tokens, SMALL),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_answers_the_test_set_as_the_pipeline_did(name: str, store: Store, tmp_path: Path) -> None:
    asked, sets = MODELS[name]
    known = experiment(name, sets)
    steps = known.steps(0)
    for step in with_dependencies([steps.predicted]):
        store.run(step)
    model = champion(Lineage(store), known.name)
    assert model is not None
    records = read_shards(store.run(known.recipe.test_rows())).to_pylist()
    predicted = read_shard(store.find(steps.predicted).file("predictions.arrow"))
    loaded = phrasemodels.load(model.export(tmp_path / "model"))
    answers = loaded.predict([asked(row) for row in records])
    assert list(map(str, answers)) == list(map(str, model.loaded.predict([asked(row) for row in records])))
    if name.startswith("004"):
        answers = [[a.tokens, a.tags, a.brackets, a.heads, a.relations] for a in answers]
        expected: list[Any] = [
            [r[n] for n in ("tokens", "tags", "tree", "heads", "relations")] for r in rows(predicted)
        ]
    elif name.startswith("000/table2"):
        expected = predicted["hypothesis"].to_pylist()
    elif name.startswith("003/tablebabi"):
        expected = predicted["predicted"].to_pylist()[: len(records)]  # of the best start
    elif "label" in predicted.column_names:
        expected = predicted["label"].to_pylist()
    elif name.startswith("002"):
        expected = [known.recipe.form(row["hypothesis"]) for row in rows(predicted)]
    else:
        expected = [known.recipe.detokenise(row["hypothesis"], known.recipe.languages[1]) for row in rows(predicted)]
    assert answers == expected and len(answers) == 24
    assert len({str(answer) for answer in answers}) > 1, "what a model answers depends on the question"


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def test_every_tokeniser_of_a_manifest_is_known() -> None:
    for tokeniser, detokeniser in tokenise.TOKENISERS.values():
        assert tokeniser.__name__ in inputs.TOKENISERS and detokeniser.__name__ in inputs.DETOKENISERS


@given(st.lists(st.text("abcdé", min_size=1, max_size=8), min_size=1, max_size=12))
def test_words_have_the_pieces_of_the_tokenizers_library(words: list[str]) -> None:
    from tokenizers import models

    theirs = models.BPE(LEARNED["vocab"], [*map(tuple, _MERGES)], unk_token="<unk>", end_of_word_suffix="</w>")
    pieces = inputs.Pieces.__new__(inputs.Pieces)
    pieces.ranks, pieces._divided = {tuple(pair): rank for rank, pair in enumerate(LEARNED["merges"])}, {}
    for word in words:
        raw = word.encode()  # offsets are of bytes
        *inner, last = (raw[slice(*token.offsets)].decode() for token in theirs.tokenize(word))
        assert pieces([word]) == [*(f"{piece}@@" for piece in inner), last]
    assert inputs.without_pieces(pieces(words)) == " ".join(words)
    pieces.ranks, pieces._divided = {("<", "/"): 0, ("</", "w"): 1, ("</w", ">"): 2}, {}
    assert pieces(["a</w>b", "</w>"]) == ["a@@", "</w>@@", "b", "</w@@", ">"]


_LETTERS = [letter + end for letter in "abcd" for end in ("", "</w>")]
_MERGES = [["a", "b"], ["c", "d</w>"], ["ab", "c"], ["a", "b</w>"], ["b", "b"], ["ab", "ab"], ["d", "d"], ["dd", "a"]]
LEARNED = {
    "vocab": {piece: place for place, piece in enumerate(["<unk>", *_LETTERS, *("".join(pair) for pair in _MERGES)])},
    "merges": _MERGES,
}


@given(st.integers(1, 12), st.integers(0, 10**6), st.sampled_from([(1, 2, 3), (1, 3), (2,)]))
def test_levels_of_a_sentence_equal_plain_loops(n: int, seed: int, levels: tuple[int, ...]) -> None:
    rng = random.Random(seed)
    words = [rng.choice(["a", "b", ".", "c"]) for _ in range(n)]
    spans = inputs.random_spans(words, seed)
    labels = [rng.choice(["NP", "VP", "S", "PP"]) for _ in spans]
    tree = Tree(
        tuple(words),
        tuple("DT NN VB IN".split()[i % 4] for i in range(n)),
        (
            Span("ROOT", 0, n),
            *(Span(k, *s) for k, s in zip(labels, spans, strict=True) if rng.random() < 0.7),
        ),
    )
    written = brackets(tree) if rng.random() < 0.9 else ""
    spans_of = {
        "given": {(start, end) for _, start, end in tree.spans} if written else None,
        "none": None,
        "right_branching": {(start, n) for start in range(n)},
        "AtRandom": {*spans, (0, n)},
    }
    for partition, divide in {**dict.fromkeys(PARTITIONS, plain.with_words), "syntactic_binarised": plain.halves}.items():
        for trees, of in spans_of.items():
            divided = divide(of or (), n)
            begins = plain.span_levels(divided, n, max(levels)) if of is not None else [[0]] * max(levels)
            numbers = [[sum(start <= word for start in begins[t - 1]) - 1 for t in levels] for word in range(n)]
            if partition == "equal_blocks":
                numbers = [[word * (last + 1) // n for last in numbers[-1]] for word in range(n)]
            for stop in ("apart", "attached"):
                if stop == "attached" and n > 1 and words[-1] == ".":
                    numbers[-1] = numbers[-2]
                given_structure = inputs.Levels(partition, levels, trees, seed, stop)
                assert given_structure(words, written).tolist() == numbers, given_structure


PARTITIONS = ("syntactic", "syntactic_binarised", "equal_blocks")


def test_random_trees_stay_those_of_kept_artifacts() -> None:
    assert inputs.random_spans("a b c d e f".split(), 3) == [(0, 6), (0, 2), (2, 6), (2, 5), (2, 4)]


@given(st.lists(st.integers(-1, 7), min_size=1, max_size=9), st.randoms(), st.sampled_from([2, 3]))
def test_phrases_of_a_sentence_are_listed_in_a_fixed_order(drawn: list[int], rng: random.Random, longest: int) -> None:
    n = len(drawn)
    order = rng.sample(range(n), n)  # a word's head comes before it in this order, so there is no cycle
    heads = [-1] * n
    for place, word in enumerate(order):
        heads[word] = order[drawn[place]] if 0 <= drawn[place] < place else -1

    def key(phrase: tuple[int, ...]) -> tuple[int, ...]:
        """Edges by dependent; then chains by their lowest word, and two dependents of a head, by the first dependent."""
        first, *others = [word for word in phrase if heads[word] in phrase]
        if not others:
            return 2, first
        lowest = first if heads[first] == others[0] else others[0]
        return (3, first, 1, others[0]) if heads[first] == heads[others[0]] else (3, lowest, 0)

    parts = [part for size in range(2, longest + 1) for part in combinations(range(n), size)]
    subtrees = [part for part in parts if sum(heads[word] in part for word in part) == len(part) - 1]
    expected = {
        "no_phrases": [],
        "adjacent": [part for part in parts if part[-1] - part[0] == len(part) - 1],
        "subtrees": sorted(subtrees, key=key),
    }
    for kind, found in expected.items():
        wanted = [[*part, *[-1] * (longest - len(part))] for part in found]
        assert inputs.phrases(kind, n, longest, heads).tolist() == wanted, kind
