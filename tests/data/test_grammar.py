"""Sentences of the sample grammar: translations, trees, idioms, splits, and reproducible bytes."""

import hashlib
import itertools
import os
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemodels.data.samples import english as english_grammar
from phrasemodels.data.samples import german as german_grammar
from phrasemodels.data.samples.grammar import Clause, NounPhrase, PrepositionalPhrase, Utterance
from phrasemodels.data.samples.lexicon import (
    ADJECTIVES,
    ADVERBS,
    DETERMINERS,
    IDIOMS,
    NOUNS,
    PREPOSITIONS,
    PRONOUNS,
    VERB_IDIOMS,
    VERBS,
    WHAT,
    WHO,
    readings,
)
from phrasemodels.data.samples.sentences import LENGTHS, corpus, draw, read

DIGEST = """
import hashlib
from phrasemodels.data.samples.sentences import corpus
print(hashlib.sha256(repr(corpus(3, {"train": 300, "test": 50})).encode()).hexdigest())
"""
# the literal translation of every word of an idiom, as a prefix of its inflected forms
LITERAL = dict(
    pair.split("=")
    for pair in """
    kick=treten bucket=eimer bite=beißen dust=staub spill=verschütten beans=bohnen hit=geschlagen sack=sack miss=verpassen boat=boot
    smell=riechen rat=ratte paint=streichen town=stadt red=rot pull=ziehen leg=bein steal=stehlen thunder=donner step=treten on=auf
    toes=zehen give=geben boot=stiefel hand=hand keep=behalten in=in dark=dunk take=nehmen for=für ride=fahrt drive=fahren up=auf
    wall=wand hot=heiß water=wasser piece=stück of=kuchen cake=kuchen once=einmal blue=blau moon=mond out=aus big=gr cheese=käse
    """.split()
)


@pytest.fixture(scope="module")
def sentences():
    return corpus(1, {"train": 20_000})["train"]


def np(word, determiner="the", plural=False, **fields):
    return NounPhrase(NOUNS[word], DETERMINERS[determiner], plural, **fields)


BALL = Clause(np("dog"), VERBS["kick"], "past", objects=(np("ball"),))
PULL = Clause(np("king"), VERB_IDIOMS["pull X 's leg"].verb, idiom=VERB_IDIOMS["pull X 's leg"], slot=np("boy"))
GIVE = Clause(
    PRONOUNS["i"], VERBS["give"], "future", objects=(np("boy", "a"), np("apple", adjective=ADJECTIVES["big"]))
)
LAUGH = Clause(np("woman"), VERBS["laugh"], "perfect")
BUCKET = Clause(np("boy"), VERB_IDIOMS["kick the bucket"].verb, idiom=VERB_IDIOMS["kick the bucket"])
CALL = Clause(np("king"), VERBS["call"], objects=(PRONOUNS["she"],))
BOYS = np("boy", "these", plural=True)

CASES = [
    (Utterance(BALL), "the dog kicked the ball .", "der hund hat den ball getreten ."),
    (
        Utterance(replace(BALL, adverb=ADVERBS["yesterday"]), fronted="adverb"),
        "yesterday the dog kicked the ball .",
        "gestern hat der hund den ball getreten .",
    ),
    (Utterance(BALL, "polar"), "did the dog kick the ball ?", "hat der hund den ball getreten ?"),
    (Utterance(replace(BALL, subject=WHO), "subject"), "who kicked the ball ?", "wer hat den ball getreten ?"),
    (Utterance(replace(BALL, objects=(WHAT,)), "object"), "what did the dog kick ?", "was hat der hund getreten ?"),
    (
        Utterance(replace(BALL, negated=True, objects=(np("ball", "a", adjective=ADJECTIVES["red"]),))),
        "the dog did not kick a red ball .",
        "der hund hat keinen roten ball getreten .",
    ),
    (Utterance(GIVE), "i will give a boy the big apple .", "ich werde einem jungen den großen apfel geben ."),
    (
        Utterance(LAUGH, link="because", subordinate=PULL),
        "the woman has laughed because the king pulls the boy 's leg .",
        "die frau hat gelacht , weil der könig den jungen auf den arm nimmt .",
    ),
    (
        Utterance(replace(LAUGH, tense="past"), link="when", subordinate=BALL, fronted="subordinate"),
        "when the dog kicked the ball , the woman laughed .",
        "als der hund den ball getreten hat , hat die frau gelacht .",
    ),
    (
        Utterance(Clause(PRONOUNS["i"], VERBS["say"]), link="that", subordinate=BUCKET),
        "i say that the boy kicks the bucket .",
        "ich sage , dass der junge den löffel abgibt .",
    ),
    (
        Utterance(replace(BUCKET, negated=True)),
        "the boy does not kick the bucket .",
        "der junge gibt den löffel nicht ab .",
    ),
    (Utterance(CALL), "the king calls her .", "der könig ruft sie an ."),
    (
        Utterance(replace(LAUGH, tense="present", subject=replace(BOYS, relative=replace(CALL, subject=BOYS)))),
        "these boys who call her laugh .",
        "diese jungen , die sie anrufen , lachen .",
    ),
    (
        Utterance(replace(BALL, place=PrepositionalPhrase(PREPOSITIONS["in"], np("garden", "three", True)))),
        "the dog kicked the ball in three gardens .",
        "der hund hat den ball in drei gärten getreten .",
    ),
    (
        Utterance(
            Clause(np("egg", "every", adjective=ADJECTIVES["bad"]), VERBS["be"], "past", complement=ADJECTIVES["hot"])
        ),
        "every bad egg was hot .",
        "jedes schlechte ei war heiß .",
    ),
]


@pytest.mark.parametrize(("derivation", "english", "german"), CASES)
def test_known_translations(derivation, english, german):
    assert " ".join(read(english_grammar.utterance(derivation))[0]) == english
    assert german_grammar.utterance(derivation) == german


def test_known_analysis():
    tokens, tags, tree, heads, relations = read(english_grammar.utterance(CASES[7][0]))
    assert tree == (
        "(S (NP (DT the) (NN woman)) (VP (VBZ has) (VP (VBN laughed) (SBAR (IN because) (S (NP (DT the) (NN king)) "
        "(VP (VBZ pulls) (NP (NP (DT the) (NN boy) (POS 's)) (NN leg))))))) (. .))"
    )
    assert heads == (2, 4, 4, 0, 8, 7, 8, 4, 10, 12, 10, 8, 4)
    assert relations == tuple("det nsubj aux root mark det nsubj advcl det nmod:poss case obj punct".split())
    assert len(tokens) == len(tags) == 13


def is_projective_tree(heads):
    arcs = [(min(head, child), max(head, child)) for child, head in enumerate(heads, 1)]
    crossing = any(a < c < b < d for (a, b), (c, d) in itertools.permutations(arcs, 2))
    tops = set()
    for token in range(1, len(heads) + 1):
        top = token
        for _ in heads:
            top = heads[top - 1] or top
        tops.add(top)
    return heads.count(0) == 1 and len(tops) == 1 and not crossing


def test_trees_tags_and_heads_are_consistent(sentences):
    for sentence in sentences[:2_000]:
        leaves = re.findall(r"\(([^ ()]+) ([^ ()]+)\)", sentence.tree)
        assert leaves == list(zip(sentence.tags, sentence.source, strict=True))
        assert sentence.tree.count("(") == sentence.tree.count(")")
        assert is_projective_tree(sentence.heads)
        assert [relation == "root" for relation in sentence.relations] == [head == 0 for head in sentence.heads]
        assert len(sentence.source) in LENGTHS
        assert sentence.source[-1] == sentence.target[-1]
        assert sentence.source[-1] in ".?"


def test_a_sentence_has_one_translation_and_one_tree():
    rng, reached, repeated = random.Random(0), {}, 0
    for name in itertools.islice(
        itertools.cycle([None, None, *IDIOMS]), 20_000
    ):  # so many draws repeat sentences, and repeated ones must agree
        if sentence := draw(rng, name):
            repeated += sentence.source in reached
            assert reached.setdefault(sentence.source, sentence) == sentence
    assert repeated > 100


def test_sentences_have_exactly_the_idiom_that_they_name(sentences):
    assert abs(sum(sentence.idiom is not None for sentence in sentences) / len(sentences) - 0.3) < 0.02
    for sentence in sentences:
        assert readings(" ".join(sentence.source)) == [name for name in [sentence.idiom] if name]


def test_every_word_of_an_idiom_occurs_with_its_literal_translation(sentences):
    words = {word for name in IDIOMS for word in name.split()} - {"X", "'s", "a", "the", "be"}
    assert words == LITERAL.keys()
    plain = [sentence for sentence in sentences if sentence.idiom is None]
    for word, german in LITERAL.items():
        assert any(
            word in sentence.source and any(token.startswith(german) for token in sentence.target) for sentence in plain
        ), word


def test_every_idiom_is_in_every_split():
    for name, split in corpus(5, {"train": 800, "dev": 500, "test": 500}).items():
        assert {sentence.idiom for sentence in split} == {None, *IDIOMS}, name


@settings(max_examples=10)
@given(st.integers(0, 1000), st.lists(st.integers(0, 60), min_size=3, max_size=3))
def test_splits_are_disjoint(seed, sizes):
    splits = corpus(seed, dict(zip("abc", sizes, strict=True)))
    sources = [sentence.source for split in splits.values() for sentence in split]
    assert [len(split) for split in splits.values()] == sizes
    assert len(set(sources)) == len(sources)


def test_a_larger_training_split_begins_with_the_smaller_one():
    small, large = corpus(2, {"train": 200, "test": 50}), corpus(2, {"train": 400, "test": 50})
    assert large["test"] == small["test"]
    assert large["train"][:200] == small["train"]


def test_the_same_bytes_under_any_hash_seed():
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {hashlib.sha256(repr(corpus(3, {"train": 300, "test": 50})).encode()).hexdigest()}


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="0 or more"):
        corpus(0, {"a": -1})


def test_an_exhausted_grammar_is_reported(monkeypatch):
    monkeypatch.setattr("phrasemodels.data.samples.sentences.ATTEMPTS", 0)
    with pytest.raises(ValueError, match="ask for fewer"):
        corpus(0, {"a": 1})
