"""Entailment pairs, and sentences classified by polarity, by construction.

As in natural language inference on captions, both sentences of a pair are about the same event. So another agent is a
contradiction. A hypothesis is its premise with a part dropped, changed or added. Negation swaps dropping and adding: who did
not sleep did not sleep in the garden. An idiom entails its own meaning, not the meaning of its words.

A sentence asserts something good or bad. An adjective, a verb or an idiom has a polarity. "not" inverts it inside of its
scope. A second clause has polar words, and sometimes "not", but does not count. So counting words does not give the label.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from phrasemodels.data.samples.grammar import (
    Clause,
    Nominal,
    NounPhrase,
    Pair,
    PrepositionalPhrase,
    Utterance,
    adjectives,
    adverbs,
    clause,
    nominal,
    noun_phrase,
    nouns,
    pick,
    prepositional,
)
from phrasemodels.data.samples.lexicon import (
    ADJECTIVES,
    ADVERBS,
    DETERMINERS,
    NOUNS,
    PREPOSITIONS,
    VERB_IDIOMS,
    VERBS,
    Adjective,
    readings,
)
from phrasemodels.data.samples.sentences import LENGTHS, Sentence, disjoint, sentence

LABELS = ("entailment", "contradiction", "neutral")
IDIOMATIC = 0.15  # share of the pairs whose premise holds an idiom

# idioms with a plain verb of the same meaning, and an object that gives the idiom's own verb another meaning
PARAPHRASES = {"give X a hand": ("help", "apple"), "hit the sack": ("sleep", "sack")}


@dataclass(frozen=True, slots=True)
class SentencePair:
    premise: Sentence
    hypothesis: Sentence
    label: str  # one of LABELS


def pairs(seed: int, sizes: Mapping[str, int]) -> dict[str, list[SentencePair]]:
    """Draw disjoint splits of pairs, the labels in turn. ValueError: the grammar has too few pairs."""
    return disjoint(
        seed,
        sizes,
        lambda rng, i: _draw(rng, LABELS[i % len(LABELS)]),
        lambda pair: (pair.premise.source, pair.hypothesis.source),
    )


def _draw(rng: random.Random, label: str) -> SentencePair | None:
    idiom = pick(rng, tuple(PARAPHRASES)) if rng.random() < IDIOMATIC else None
    premise = clause(rng, idiom)
    if any(_is_universal(phrase) for phrase in _nominals(premise)):
        return None  # dropping "big" from "every big dog" makes the claim stronger
    hypothesis = _without_idiom(premise, label) if premise.idiom else _hypothesis(rng, premise, label)
    if hypothesis is None:
        return None
    pair = SentencePair(sentence(Utterance(premise), idiom), sentence(Utterance(hypothesis)), label)
    expected = [idiom] if idiom else []
    unread = readings(" ".join(pair.premise.source)) == expected and not readings(" ".join(pair.hypothesis.source))
    return pair if unread else None


def _nominals(clause: Clause) -> list[Nominal]:
    inside = [phrase.nominal for phrase in (clause.place, clause.complement) if isinstance(phrase, PrepositionalPhrase)]
    return [clause.subject, *clause.objects, *inside, *([clause.slot] if clause.slot else [])]


def _is_universal(phrase: Nominal) -> bool:
    if isinstance(phrase, Pair):
        return _is_universal(phrase.first) or _is_universal(phrase.second)
    if isinstance(phrase, NounPhrase):
        return phrase.determiner.english == "every" or (
            phrase.possessor is not None and _is_universal(phrase.possessor)
        )
    return False


def _hypothesis(rng: random.Random, premise: Clause, label: str) -> Clause | None:
    """Apply one step for the label, and sometimes drop a part left unchanged by the step."""
    if premise.negated:
        steps = _under_negation(rng, premise, label)
    elif label == "entailment":
        steps = reduced(premise)
    else:
        steps = contradicted(rng, premise) if label == "contradiction" else extended(rng, premise)
    if not steps:
        return None
    part = pick(rng, tuple(steps))
    smaller = [clause for other, clause in reduced(steps[part]).items() if other != part]
    if smaller and not premise.negated and rng.random() < 0.5:
        return pick(rng, smaller)
    return steps[part]


def _under_negation(rng: random.Random, premise: Clause, label: str) -> dict[str, Clause]:
    """Return the steps from a negated premise: adding is entailed, dropping is neutral, removing "not" contradicts."""
    if label == "contradiction":
        return {"negation": replace(premise, negated=False)}
    places = extended(rng, premise) if label == "entailment" else reduced(premise)
    return {part: clause for part, clause in places.items() if part == "place"}


def reduced(premise: Clause) -> dict[str, Clause]:
    """Return entailed clauses of a positive clause, by the part without its modifier."""
    steps = {"subject": replace(premise, subject=_less(premise.subject))}
    if premise.objects:
        steps["object"] = replace(premise, objects=(*premise.objects[:-1], _less(premise.objects[-1])))
    steps |= {"place": replace(premise, place=None), "adverb": replace(premise, adverb=None)}
    return {part: clause for part, clause in steps.items() if clause != premise}


def _less(phrase: Nominal) -> Nominal:
    if isinstance(phrase, Pair):
        return phrase.first
    return replace(phrase, adjective=None, relative=None) if isinstance(phrase, NounPhrase) else phrase


def extended(rng: random.Random, premise: Clause) -> dict[str, Clause]:
    """Return neutral clauses for a positive clause, by the part with a new modifier."""
    steps = {"subject": replace(premise, subject=_more(rng, premise.subject))}
    if premise.objects:
        steps["object"] = replace(premise, objects=(*premise.objects[:-1], _more(rng, premise.objects[-1])))
    if not any(isinstance(phrase, NounPhrase) and phrase.relative for phrase in premise.objects):
        if not (premise.place or premise.complement):
            steps["place"] = replace(premise, place=prepositional(rng, pick(rng, tuple(PREPOSITIONS.values()))))
        # the past implies "once"
        suited = [adverb for adverb in adverbs(premise.tense) if adverb != ADVERBS["once"]]
        if suited and not premise.adverb:
            steps["adverb"] = replace(premise, adverb=pick(rng, suited))
    return {
        part: clause
        for part, clause in steps.items()
        if clause != premise and not any(map(_is_universal, _nominals(clause)))
    }


def _more(rng: random.Random, phrase: Nominal) -> Nominal:
    if not isinstance(phrase, NounPhrase) or phrase.adjective or not (suited := adjectives(phrase.noun)):
        return phrase
    return replace(phrase, adjective=pick(rng, suited))


def contradicted(rng: random.Random, premise: Clause) -> dict[str, Clause]:
    """Return contradictions of a positive clause: its negation, an opposite adjective, another agent."""
    steps = {"negation": replace(premise, negated=True)}
    if isinstance(premise.complement, Adjective):
        steps["complement"] = replace(premise, complement=ADJECTIVES[premise.complement.antonym])
    if isinstance(premise.subject, NounPhrase):
        steps["subject"] = replace(premise, subject=_other(rng, premise.subject))
    return {part: clause for part, clause in steps.items() if clause != premise}


def _other(rng: random.Random, phrase: NounPhrase) -> NounPhrase:
    """Draw the opposite adjective, or another noun of the same classes."""
    if phrase.adjective and rng.random() < 0.5:
        return replace(phrase, adjective=ADJECTIVES[phrase.adjective.antonym])
    alike = tuple(noun for noun in nouns(phrase.noun.classes) if noun.classes == phrase.noun.classes)
    return replace(phrase, noun=pick(rng, alike), relative=None)


def _without_idiom(premise: Clause, label: str) -> Clause | None:
    """Return the meaning of the idiom in plain words, its negation, or the words of the idiom in their literal sense."""
    if premise.idiom is None:
        return None
    verb, thing = PARAPHRASES[premise.idiom.name]
    others = (premise.slot,) if premise.slot else ()
    plain = replace(premise, verb=VERBS[verb], objects=others, idiom=None, slot=None)
    if label == "neutral":
        literal = VERBS[premise.idiom.verb.english.base]
        return replace(plain, verb=literal, objects=(*others, NounPhrase(NOUNS[thing], DETERMINERS["a"])))
    return replace(plain, negated=premise.negated != (label == "contradiction"))


POLARITIES = ("negative", "positive")
ADJECTIVE_POLARITY = {"good": 1, "happy": 1, "bad": -1, "sad": -1}
VERB_POLARITY = {"love": 1, "help": 1, "hit": -1, "steal": -1, "bite": -1, "miss": -1}
IDIOM_POLARITY = {name: idiom.polarity for name, idiom in VERB_IDIOMS.items() if idiom.polarity}


@dataclass(frozen=True, slots=True)
class ClassifiedSentence:
    sentence: Sentence
    label: str  # one of LABELS


def classified(seed: int, sizes: Mapping[str, int]) -> dict[str, list[ClassifiedSentence]]:
    """Draw disjoint splits of sentences, the labels in turn. ValueError: the grammar has too few sentences."""
    return disjoint(
        seed,
        sizes,
        lambda rng, i: _draw_classified(rng, POLARITIES[i % len(POLARITIES)]),
        lambda record: record.sentence.source,
    )


def _draw_classified(rng: random.Random, label: str) -> ClassifiedSentence | None:
    derivation, polarity, idioms = _utterance(rng)
    if POLARITIES[polarity > 0] != label:
        return None
    drawn = sentence(derivation, idioms[0] if idioms else None)
    allowed = readings(" ".join(drawn.source)) == idioms and len(drawn.source) in LENGTHS
    return ClassifiedSentence(drawn, label) if allowed else None


def _utterance(rng: random.Random) -> tuple[Utterance, int, list[str]]:
    """Draw (derivation, its polarity, its idioms). A clause after "that" counts, a clause after "because" does not."""
    inner, polarity, idiom = _polar(rng)
    idioms = [idiom] if idiom else []
    kind = rng.random()
    if kind < 0.4:
        return Utterance(inner), polarity, idioms
    if kind < 0.7:
        thinking = Clause(nominal(rng, ("person",)), VERBS["think"], "present", rng.random() < 0.5)
        return Utterance(thinking, link="that", subordinate=inner), -polarity if thinking.negated else polarity, idioms
    other, _, other_idiom = _polar(rng)
    if idiom and other_idiom:
        return _utterance(rng)
    fronted = "subordinate" if rng.random() < 0.5 else ""
    idioms += [other_idiom] if other_idiom else []
    return Utterance(inner, link="because", subordinate=other, fronted=fronted), polarity, idioms


def _polar(rng: random.Random) -> tuple[Clause, int, str | None]:
    """Draw (clause, its polarity, its idiom): with an adjective, a verb or an idiom, negated or not."""
    kind = rng.random()
    negated = rng.random() < 0.4
    sign = -1 if negated else 1
    if kind < 0.35:
        name = pick(rng, tuple(IDIOM_POLARITY))
        return replace(clause(rng, name, ending=False), negated=negated), sign * IDIOM_POLARITY[name], name
    if kind < 0.65:
        word = pick(rng, tuple(VERB_POLARITY))
        return replace(_deed(rng, word), negated=negated), sign * VERB_POLARITY[word], None
    word = pick(rng, tuple(ADJECTIVE_POLARITY))
    subject = noun_phrase(rng, pick(rng, nouns(ADJECTIVES[word].classes)), adjective=0)
    tense = pick(rng, ("present", "past", "future"))
    return (
        Clause(subject, VERBS["be"], tense, negated, complement=ADJECTIVES[word]),
        sign * ADJECTIVE_POLARITY[word],
        None,
    )


def _deed(rng: random.Random, word: str) -> Clause:
    verb = VERBS[word]
    subject, tense = (
        noun_phrase(rng, pick(rng, nouns(verb.subjects)), adjective=0),
        pick(rng, ("present", "perfect", "future")),
    )
    return Clause(subject, verb, tense, objects=(noun_phrase(rng, pick(rng, nouns(verb.objects)), adjective=0),))
