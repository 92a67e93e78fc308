"""Sentences classified by their polarity: whether they assert something good or bad.

The label depends on phrases: an adjective, a verb or an idiom has a polarity, which "not" inverts if it is in its scope.
A second clause has polar words, and sometimes "not", that do not count, so counting words does not give the label.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from phrasemodels.data.samples.abstract import Clause, Utterance
from phrasemodels.data.samples.derivations import clause, nominal, noun_phrase, nouns, pick
from phrasemodels.data.samples.idioms import VERB_IDIOMS, readings
from phrasemodels.data.samples.lexicon import ADJECTIVES, VERBS
from phrasemodels.data.samples.sentences import LENGTHS, Sentence, sentence
from phrasemodels.data.samples.splits import disjoint

LABELS = ("negative", "positive")
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
        seed, sizes, lambda rng, i: _draw(rng, LABELS[i % len(LABELS)]), lambda record: record.sentence.source
    )


def _draw(rng: random.Random, label: str) -> ClassifiedSentence | None:
    derivation, polarity, idioms = _utterance(rng)
    if LABELS[polarity > 0] != label:
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
