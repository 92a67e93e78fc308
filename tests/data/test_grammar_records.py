"""The other sample corpora: labels, logical forms and supporting facts, checked independently of the generator."""

import math
import re
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from phrasemodels.data.samples.entailment import LABELS, classified, contradicted, extended, pairs, reduced
from phrasemodels.data.samples.grammar import Clause, NounPhrase
from phrasemodels.data.samples.lexicon import ADJECTIVES, ADVERBS, DETERMINERS, NOUNS, VERB_IDIOMS, VERBS
from phrasemodels.data.samples.questions import ROOMS, THINGS, Formula, formulas, infix, prefix, questions, stories

SIZES = {"train": 900, "test": 90}
GENERATORS = {
    "pairs": (pairs, lambda pair: (pair.premise.source, pair.hypothesis.source)),
    "polarity": (classified, lambda record: record.sentence.source),
    "geography": (questions, lambda question: question.source),
    "formulas": (partial(formulas, deepest=6), lambda formula: formula),
    "stories": (stories, lambda story: (story.facts, story.question)),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_splits_are_disjoint_and_reproducible(name):
    generate, identity = GENERATORS[name]
    first, second = generate(4, SIZES), generate(4, SIZES)
    assert first == second
    assert {split: len(records) for split, records in first.items()} == SIZES
    assert len({identity(record) for records in first.values() for record in records}) == sum(SIZES.values())
    assert generate(4, {"train": 1_000, "test": 90})["train"][:900] == first["train"]


@pytest.mark.parametrize("name", GENERATORS)
def test_wrong_sizes_are_refused(name):
    with pytest.raises(ValueError, match="0 or more"):
        GENERATORS[name][0](4, {"train": -1})


def dog(**fields):
    return NounPhrase(NOUNS["dog"], DETERMINERS["the"], **fields)


def test_reduced_contradicted_and_extended_clauses(monkeypatch):
    premise = Clause(dog(adjective=ADJECTIVES["old"]), VERBS["sleep"], "past", adverb=ADVERBS["yesterday"])
    assert reduced(premise) == {"subject": replace(premise, subject=dog()), "adverb": replace(premise, adverb=None)}
    monkeypatch.setattr("phrasemodels.data.samples.entailment.pick", lambda rng, options: options[0])

    class Low:
        def random(self):
            return 0.0

    assert contradicted(Low(), premise) == {
        "negation": replace(premise, negated=True),
        "subject": replace(premise, subject=dog(adjective=ADJECTIVES["young"])),
    }
    assert extended(Low(), premise).keys() == {"place"}


def test_labels_of_pairs_are_balanced_and_both_sentences_have_trees():
    records = pairs(1, {"train": 900})["train"]
    assert Counter(record.label for record in records) == dict.fromkeys(LABELS, 300)
    for record in records:
        assert record.premise.source != record.hypothesis.source
        assert all(
            side.tree.startswith("(S ") and side.heads.count(0) == 1 for side in (record.premise, record.hypothesis)
        )
    idiomatic = Counter((record.premise.idiom, record.label) for record in records if record.premise.idiom)
    assert all(idiomatic[name, label] > 5 for name in ("give X a hand", "hit the sack") for label in LABELS)


def test_labels_of_short_sentences_follow_from_their_words():
    seen = Counter()
    for record in classified(1, {"train": 3_000})["train"]:
        text = " ".join(record.sentence.source)
        if found := re.fullmatch(
            r"(?!.* (?:that|because|who|which) )(?!because ).*? (not )?(?:be )?(good|happy|bad|sad) \.", text
        ):
            good = (found[2] in ("good", "happy")) != bool(found[1])
        elif record.sentence.idiom and not re.search(r"\b(that|because|who)\b", text):
            good = (VERB_IDIOMS[record.sentence.idiom].polarity > 0) != (" not " in text)
        else:
            continue
        seen[record.label] += 1
        assert record.label == ("positive" if good else "negative"), text
    assert min(seen.values()) > 200


def test_a_clause_with_because_does_not_change_the_label():
    labels = Counter()
    for record in classified(2, {"train": 3_000})["train"]:
        text = " ".join(record.sentence.source)
        if text.startswith("because") and (found := re.search(r" , \S+ \S+ (is|was|are|were) (good|bad) \.$", text)):
            labels[found[2], record.label] += 1
    assert labels.keys() == {("good", "positive"), ("bad", "negative")}


def test_logical_forms_bind_all_variables_and_follow_from_the_question():
    reached = {}
    for seed in range(5):
        for question in questions(seed, {"train": 600})["train"]:
            form = " ".join(question.logical_form)
            assert question.logical_form.count("(") == question.logical_form.count(")")
            bound = re.findall(r"\( (?:lambda|count|argmax|argmin) (\$\d)", form)
            assert set(re.findall(r"\$\d", form)) == set(bound)
            assert reached.setdefault(question.source, form) == form
    form = reached[tuple("how many people live in dellmoor ?".split(" "))]
    assert form == "( people:i dellmoor )"


def rooms_of(facts, thing):
    """Return the rooms that a thing was in, from the text alone: a second implementation."""
    where, holder, rooms = {}, None, []
    for fact in facts:
        text = " ".join(fact)
        if fact[-2] in ROOMS:
            where[fact[0]] = fact[-2]
        elif f" the {thing} ." in f" {text}":
            taken = re.search(r" (took|picked up|lifted) the ", text)
            holder = fact[0] if taken else None
            rooms.append(where.get(fact[0]))
        if holder == fact[0]:
            rooms.append(where.get(holder))
    known = [room for room in rooms if room]  # supporting facts alone may not tell where a thing was taken
    return [room for i, room in enumerate(known) if i == 0 or known[i - 1] != room]


@pytest.mark.parametrize("support", [1, 2, 3])
def test_answers_follow_from_the_story_and_from_its_supporting_facts(support):
    for story in stories(1, {"train": 300}, support)["train"]:
        assert len(story.support) == support
        supporting = [story.facts[fact - 1] for fact in story.support]
        thing = next((thing for thing in THINGS if f" {thing} " in " ".join(story.question)), None)
        for facts in (list(story.facts), supporting):
            if thing is None:
                answer = next(
                    fact[-2] for fact in reversed(facts) if fact[0] == story.question[2] and fact[-2] in ROOMS
                )
            elif "before" in story.question:
                rooms = rooms_of(facts, thing)
                answer = rooms[rooms.index(story.question[-2]) - 1]
            else:
                answer = rooms_of(facts, thing)[-1]
            assert answer == story.answer


def test_support_must_be_one_to_three():
    with pytest.raises(ValueError, match="1, 2 or 3"):
        stories(1, {"train": 1}, support=4)


def value(tokens):
    """Return the value of a formula in prefix notation; its tokens are consumed."""
    token = tokens.pop(0)
    if token != "(":
        return int(token)
    operator, values = tokens.pop(0), []
    while tokens[0] != ")":
        values.append(value(tokens))
    tokens.pop(0)
    return sum(values) if operator == "+" else math.prod(values)


def test_both_notations_of_a_formula_have_the_same_value_and_depths_alternate():
    records = formulas(1, {"train": 500}, 6)["train"]
    assert [record.depth for record in records] == [2, 3, 4, 5, 6] * 100
    for record in records:
        tokens = prefix(record)
        depth = max(tokens[:i].count("(") - tokens[:i].count(")") for i in range(len(tokens)))
        assert depth == record.depth
        assert value(tokens) == eval(" ".join(infix(record)))
    assert {t for r in records for t in prefix(r)} == {"(", ")", "+", "*", *map(str, range(21))}
    example = "( ( 15 + 7 ) + 1 + 8 ) * ( 19 + 0 + 11 )"
    inner = Formula("+", (Formula("+", (15, 7)), 1, 8))
    assert " ".join(infix(Formula("*", (inner, Formula("+", (19, 0, 11)))))) == example
