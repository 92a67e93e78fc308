"""The sample corpora, checked independently of the grammar that made them: trees, translations, labels, answers, splits."""

import itertools
import math
import re
from collections import Counter

import pytest

from phrasemodels.data.corpora.samples import (
    Entailment,
    Formula,
    Formulas,
    LogicalForms,
    Polarity,
    Stories,
    Translations,
    Treebank,
    formulas,
    infix,
    prefix,
)
from phrasemodels.data.formats.trees import parse

# every size that a row of a paper takes: its kind, its splits, and the columns that no two records share
TAKEN = [
    (Translations(), (4000, 300, 600), ("source",)),
    (Translations(), (1500, 100, 200), ("source",)),
    (Treebank(), (2000, 200, 400), ("tree",)),
    (Treebank(), (1500, 150, 300), ("tree",)),
    (Entailment(), (4000, 400, 600), ("premise", "hypothesis")),
    (Entailment(), (1500, 150, 300), ("premise", "hypothesis")),
    (Polarity(), (600, 100, 200), ("text",)),
    (LogicalForms(), (2000, 200, 300), ("source",)),
    (Stories(), (900, 100, 300), ("facts", "question")),
    (Formulas(3), (2000, 100, 200), ("source",)),
]
ROOMS = ("attic", "barn", "cellar", "library", "workshop", "yard")


def rows(records, **sizes):
    return {split: table.to_pylist() for split, table in records.tables(sizes).items()}


@pytest.mark.parametrize(("records", "sizes", "content"), TAKEN, ids=lambda value: str(value)[:30])
def test_splits_are_disjoint_and_a_smaller_one_begins_the_larger(records, sizes, content):
    made = rows(records, **dict(zip(("train", "dev", "test"), sizes, strict=True)))
    assert tuple(map(len, made.values())) == sizes
    assert len({str([row[name] for name in content]) for split in made.values() for row in split}) == sum(sizes)
    fewer = rows(records, train=sizes[0] - 1, dev=sizes[1], test=sizes[2])
    assert fewer["train"] == made["train"][:-1] and fewer["dev"] == made["dev"]


def test_too_large_sizes_and_an_edited_file_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="sentences: train has 4000 records, not 4001: ask for fewer"):
        Translations().tables({"train": 4001})
    monkeypatch.setattr("phrasemodels.data.corpora.samples.ATTEMPTS", 0)
    with pytest.raises(ValueError, match="train needs 1 formulas, but only 0 new ones were found"):
        formulas({"train": 1}, 2)
    with pytest.raises(ValueError, match="give 2 or more"):
        formulas({"train": 1}, 1)
    monkeypatch.setattr("phrasemodels.data.corpora.samples._digests", lambda: {"pairs": "0"})
    with pytest.raises(ValueError, match=r"pairs\.tsv: its sha256 isn't that in .*samples; change it there"):
        Entailment().tables({"train": 1})


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


def test_trees_tags_and_heads_are_consistent_and_translations_are_of_the_same_sentences():
    trees, pairs = (rows(kind, train=4000)["train"] for kind in (Treebank(), Translations()))
    for row, pair in zip(trees, pairs, strict=True):
        assert " ".join(row["tokens"]) == pair["source"] and row["group"] == pair["group"]
        assert pair["source"][-1] == pair["target"][-1] and pair["source"][-1] in ".?"
        assert len(row["tokens"]) == len(row["tags"]) == len(row["heads"]) == len(row["relations"])
        assert [relation == "root" for relation in row["relations"]] == [head == 0 for head in row["heads"]]
    for row in trees[:500]:
        assert re.findall(r"\(([^ ()]+) ([^ ()]+)\)", row["tree"]) == list(zip(row["tags"], row["tokens"], strict=True))
        assert is_projective_tree(row["heads"])
    assert Counter(row["group"] for row in trees) == {"plain": 2800, "idiom": 1200}


def test_an_idiom_has_its_own_translation_and_its_words_the_literal_one():
    pairs = rows(Translations(), train=4000)["train"]
    for group, english, german in (("idiom", r"kick(s|ed)? the bucket\b", "löffel"), ("plain", "bucket", "eimer")):
        found = [row for row in pairs if row["group"] == group and re.search(english, row["source"])]
        assert found and all(german in row["target"] for row in found)


def test_labels_of_pairs_are_balanced_and_both_sentences_have_trees():
    records = rows(Entailment(), train=900)["train"]
    assert Counter(row["label"] for row in records) == {"entailment": 300, "contradiction": 300, "neutral": 300}
    for row in records:
        assert row["premise"] != row["hypothesis"]
        assert all(" ".join(parse(row[f"{side}_tree"]).tokens) == row[side] for side in ("premise", "hypothesis"))
    idiomatic = Counter(row["label"] for row in records if row["group"] == "idiom")
    assert min(idiomatic.values()) > 15 and len(idiomatic) == 3
    families = {}
    assert all(families.setdefault(row["premise"], row["family"]) == row["family"] for row in records)


def test_labels_of_short_sentences_follow_from_their_words():
    seen = Counter()
    for row in rows(Polarity(), train=600)["train"]:
        pattern = r"(?!.* (?:that|because|who|which) )(?!because ).*? (not )?(?:be )?(good|happy|bad|sad) \."
        if found := re.fullmatch(pattern, row["text"]):
            good = (found[2] in ("good", "happy")) != bool(found[1])
            seen[row["label"]] += 1
            assert row["label"] == ("positive" if good else "negative"), row["text"]
    assert min(seen.values()) > 25


def test_a_clause_with_because_does_not_change_the_label():
    labels = Counter()
    for row in rows(Polarity(), train=600)["train"]:
        text = row["text"]
        if text.startswith("because") and (found := re.search(r" , \S+ \S+ (is|was|are|were) (good|bad) \.$", text)):
            labels[found[2], row["label"]] += 1
    assert labels.keys() == {("good", "positive"), ("bad", "negative")}


def test_logical_forms_bind_all_variables_and_follow_from_the_question():
    records = rows(LogicalForms(), train=2000)["train"]
    for row in records:
        form = row["target"]
        assert form.split().count("(") == form.split().count(")")
        bound = re.findall(r"\( (?:lambda|count|argmax|argmin) (\$\d)", form)
        assert set(re.findall(r"\$\d", form)) == set(bound)
    forms = {row["source"]: row["target"] for row in records}
    assert forms["how many people live in dellmoor ?"] == "( people:i dellmoor )"


def rooms_of(facts, thing):
    """Return the rooms that a thing was in, from the text alone."""
    where, holder, rooms = {}, None, []
    for fact in map(str.split, facts):
        if fact[-2] in ROOMS:
            where[fact[0]] = fact[-2]
        elif f" the {thing} ." in f" {' '.join(fact)}":
            taken = re.search(r" (took|picked up|lifted) the ", " ".join(fact))
            holder = fact[0] if taken else None
            rooms.append(where.get(fact[0]))
        if holder == fact[0]:
            rooms.append(where.get(holder))
    known = [room for room in rooms if room]  # supporting facts alone may not tell where a thing was taken
    return [room for i, room in enumerate(known) if i == 0 or known[i - 1] != room]


def test_answers_follow_from_the_story_and_from_its_supporting_facts():
    for row in rows(Stories(), train=900)["train"]:
        assert len(row["support"]) == 2 and row["lines"] == [*range(1, len(row["facts"]) + 1)]
        thing = re.fullmatch(r"where is the (.*) \?", row["question"])[1]
        for facts in (row["facts"], [row["facts"][place] for place in row["support"]]):
            assert rooms_of(facts, thing)[-1] == row["answer"]


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
    records = formulas({"train": 500}, 6)["train"]
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
