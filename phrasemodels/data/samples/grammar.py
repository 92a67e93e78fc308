"""Abstract syntax of the sample grammar, and random derivations of sentences.

`english.py` and `german.py` linearise the same derivation, an `Utterance`: the grammar is synchronous.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from phrasemodels.data.samples.lexicon import (
    ADJECTIVES,
    ADVERB_IDIOMS,
    ADVERBS,
    BARE,
    CLAUSAL,
    DETERMINERS,
    NOUN_IDIOMS,
    NOUNS,
    PREPOSITIONS,
    PRONOUNS,
    VERB_IDIOMS,
    VERBS,
    WHAT,
    WHO,
    Adjective,
    Adverb,
    Determiner,
    Idiom,
    Noun,
    Preposition,
    Pronoun,
    Verb,
)


@dataclass(frozen=True, slots=True)
class NounPhrase:
    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjective: Adjective | None = None
    possessor: NounPhrase | Pronoun | None = None  # replaces the determiner: "the man 's leg"
    content: Noun | None = None  # of a measure: "a piece of cake"
    relative: Clause | None = None  # its subject is this phrase


@dataclass(frozen=True, slots=True)
class Pair:
    """Two coordinated noun phrases: "the man and the woman"."""

    first: NounPhrase
    second: NounPhrase


Nominal = Pronoun | NounPhrase | Pair


@dataclass(frozen=True, slots=True)
class PrepositionalPhrase:
    preposition: Preposition
    nominal: Nominal


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause. The tense is present, past, future, perfect, can or must.

    With an idiom, `verb` is the verb of the idiom and `slot` replaces the X in its name.
    """

    subject: Nominal
    verb: Verb
    tense: str = "present"
    negated: bool = False
    objects: tuple[Nominal, ...] = ()
    complement: Adjective | PrepositionalPhrase | None = None
    place: PrepositionalPhrase | None = None
    adverb: Adverb | None = None
    idiom: Idiom | None = None
    slot: NounPhrase | Pronoun | None = None


@dataclass(frozen=True, slots=True)
class Utterance:
    """A sentence.

    question: "", "polar", "subject" (who) or "object" (what, who). link: "that", "because", "when", or "" without a
    subordinate clause.
    """

    main: Clause
    question: str = ""
    link: str = ""
    subordinate: Clause | None = None
    fronted: str = ""  # the part before the subject: "adverb", "subordinate" or ""


def agreement(subject: Nominal) -> tuple[int, bool]:
    """Return the person (1 or 3) and whether it is plural. There is no second person: "you" has three translations."""
    if isinstance(subject, Pronoun):
        return subject.person, subject.plural
    return 3, isinstance(subject, Pair) or subject.plural


def is_asked(phrase: Nominal) -> bool:
    """Whether a nominal is the "who" or "what" of a question."""
    return phrase is WHO or phrase is WHAT


T = TypeVar("T")

# probabilities of constructions; together they make English sentences of about ten tokens
PLURAL, ADJECTIVE, POSSESSOR, RELATIVE, PRONOUN, PAIR = 0.25, 0.3, 0.12, 0.1, 0.15, 0.1
NEGATION, PLACE, ADVERB, FRONTED = 0.12, 0.35, 0.3, 0.4
QUESTION, SUBORDINATE, COPULA = 0.15, 0.3, 0.08

_TENSES = ("present", "present", "present", "past", "past", "perfect", "future", "future", "can", "must")
_SINGULAR = tuple(DETERMINERS[word] for word in ("the", "the", "the", "a", "a", "this", "every"))
_PLURAL = (*(DETERMINERS[word] for word in ("the", "the", "these", "two", "three", "nine")), BARE)
_MASS = tuple(DETERMINERS[word] for word in ("the", "the", "this"))
_SPEAKERS = tuple(PRONOUNS.values())
_LITERAL = tuple(verb for name, verb in VERBS.items() if name != "be" and name not in CLAUSAL)
_TRANSITIVE = tuple(verb for verb in _LITERAL if verb.cases == ("acc",))


def pick(rng: random.Random, options: Sequence[T]) -> T:
    """Draw one option. All are equally likely."""
    return options[int(rng.random() * len(options))]


@cache
def nouns(classes: tuple[str, ...]) -> tuple[Noun, ...]:
    """Return the nouns of any of these classes."""
    return tuple(noun for noun in NOUNS.values() if any(name in classes for name in noun.classes))


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    """Return the adjectives for a noun."""
    return tuple(
        adjective for adjective in ADJECTIVES.values() if any(name in adjective.classes for name in noun.classes)
    )


@cache
def adverbs(tense: str) -> tuple[Adverb, ...]:
    """Return the adverbs for a tense."""
    return tuple(adverb for adverb in ADVERBS.values() if tense in adverb.tenses)


_PERSONS = nouns(("person",))
_FILLERS = tuple(noun for noun in nouns(("food",)) if "mass" in noun.classes)


def noun_phrase(rng: random.Random, noun: Noun, adjective: float = ADJECTIVE) -> NounPhrase:
    """Draw a noun phrase without a relative clause. adjective: the probability of an adjective."""
    plural = noun.plural != "-" and rng.random() < PLURAL
    determiner = pick(rng, _PLURAL if plural else _MASS if noun.plural == "-" else _SINGULAR)
    suited = adjectives(noun)
    chosen = pick(rng, suited) if suited and rng.random() < adjective else None
    content = pick(rng, _FILLERS) if "measure" in noun.classes else None
    possessor = None
    if not content and rng.random() < (0.7 if "body" in noun.classes else POSSESSOR):
        possessor = pick(rng, _SPEAKERS) if rng.random() < 0.5 else plain(rng, pick(rng, _PERSONS))
    return NounPhrase(noun, determiner, plural, chosen, possessor, content)


def plain(rng: random.Random, noun: Noun) -> NounPhrase:
    """Draw a singular noun phrase, perhaps with an adjective: a possessor, a part of a pair, or the X of an idiom."""
    suited = adjectives(noun)
    return NounPhrase(
        noun, pick(rng, _SINGULAR), False, pick(rng, suited) if suited and rng.random() < ADJECTIVE / 2 else None
    )


def nominal(rng: random.Random, classes: tuple[str, ...], relative: bool = False) -> Nominal:
    """Draw a noun phrase or, for persons, a pronoun. relative: it may have a relative clause."""
    if "person" in classes and rng.random() < PRONOUN:
        return pick(rng, _SPEAKERS)
    phrase = noun_phrase(rng, pick(rng, nouns(classes)))
    if relative and not phrase.possessor and not phrase.content and rng.random() < RELATIVE:
        return replace(phrase, relative=_relative(rng, phrase))
    return phrase


def _relative(rng: random.Random, phrase: NounPhrase) -> Clause | None:
    """Draw a relative clause with its object at the end, so later words belong to the outer clause in both languages."""
    able = _verbs(phrase.noun.classes)
    return _with_objects(rng, Clause(phrase, pick(rng, able), _tense(rng)), relative=False) if able else None


@cache
def _verbs(classes: tuple[str, ...]) -> tuple[Verb, ...]:
    """Return the verbs without a preposition for a subject of one of these classes."""
    return tuple(verb for verb in _LITERAL if not verb.preposition and any(name in verb.subjects for name in classes))


def _tense(rng: random.Random) -> str:
    return pick(rng, _TENSES)


def _with_objects(rng: random.Random, clause: Clause, relative: bool) -> Clause:
    """Add the objects and the governed preposition of the verb. An ambiguous tense becomes the perfect."""
    verb = clause.verb
    last = len(verb.cases) - 1
    objects = tuple(
        _other(rng, clause.subject, verb.objects, relative)
        if i == last
        else _other(rng, clause.subject, ("person",), False)
        for i in range(len(verb.cases))
    )
    complement = prepositional(rng, verb.preposition) if verb.preposition else None
    return _unambiguous(replace(clause, objects=objects, complement=complement))


def _other(rng: random.Random, subject: Nominal, classes: tuple[str, ...], relative: bool) -> Nominal:
    """Draw an object other than the subject's own pronoun. It would have to be reflexive."""
    drawn = nominal(rng, classes, relative)
    return plain(rng, pick(rng, _PERSONS)) if drawn == subject else drawn


def _unambiguous(clause: Clause) -> Clause:
    """Replace an ambiguous past by the perfect: "they hit" may be present or past, "they have hit" may not."""
    english = clause.verb.english
    same = english.base == english.past and agreement(clause.subject) != (3, False)
    return replace(clause, tense="perfect", adverb=None) if same and clause.tense == "past" else clause


def prepositional(rng: random.Random, preposition: Preposition) -> PrepositionalPhrase:
    """Draw a nominal for the preposition."""
    return PrepositionalPhrase(preposition, nominal(rng, preposition.classes))


def _subject(rng: random.Random, classes: tuple[str, ...]) -> Nominal:
    if "person" in classes and rng.random() < PAIR:
        return Pair(plain(rng, pick(rng, _PERSONS)), plain(rng, pick(rng, _PERSONS)))
    return nominal(rng, classes, relative=True)


def clause(rng: random.Random, idiom: str | None = None, ending: bool = True) -> Clause:
    """Draw a clause with this idiom, if any. ending: a place and an adverb may follow."""
    if idiom in VERB_IDIOMS:
        drawn = _idiomatic(rng, idiom)
    elif rng.random() < COPULA and idiom is None:
        drawn = _copular(rng)
    else:
        verb = pick(rng, _LITERAL)
        bare = Clause(_subject(rng, verb.subjects), verb, _tense(rng), rng.random() < NEGATION)
        drawn = _with_objects(rng, bare, relative=idiom not in ADVERB_IDIOMS)
    if idiom in NOUN_IDIOMS:
        drawn = _unambiguous(replace(drawn, subject=_noun_idiom(rng, idiom), negated=False))
    if idiom in ADVERB_IDIOMS:
        adverb = ADVERB_IDIOMS[idiom]
        tense = drawn.tense if drawn.tense in adverb.tenses else "present"
        return replace(drawn, adverb=adverb, tense=tense, negated=False)
    return _with_ending(rng, drawn) if ending else drawn


def _with_ending(rng: random.Random, drawn: Clause) -> Clause:
    """Perhaps add a place and an adverb, but not after a relative clause: it would include them."""
    if any(isinstance(phrase, NounPhrase) and phrase.relative for phrase in drawn.objects):
        return drawn
    if not drawn.complement and not drawn.idiom and rng.random() < PLACE:
        drawn = replace(drawn, place=prepositional(rng, pick(rng, tuple(PREPOSITIONS.values()))))
    suited = adverbs(drawn.tense)
    return replace(drawn, adverb=pick(rng, suited)) if suited and rng.random() < ADVERB else drawn


def _copular(rng: random.Random) -> Clause:
    """Draw a clause with "be", as "the soup is hot" or "the key is in the box", never in the rare perfect."""
    phrase = noun_phrase(rng, pick(rng, tuple(NOUNS.values())), adjective=0)
    suited = adjectives(phrase.noun)
    where = PREPOSITIONS[pick(rng, ("in", "behind", "near", "on"))]
    complement = pick(rng, suited) if suited and rng.random() < 0.6 else prepositional(rng, where)
    return Clause(
        phrase,
        VERBS["be"],
        pick(rng, ("present", "past", "future", "must")),
        rng.random() < NEGATION,
        complement=complement,
    )


def _idiomatic(rng: random.Random, name: str) -> Clause:
    idiom = VERB_IDIOMS[name]
    subject = _subject(rng, idiom.verb.subjects)
    slot = None
    if "{" in idiom.english:
        slot = pick(rng, _SPEAKERS) if rng.random() < 2 * PRONOUN else plain(rng, pick(rng, _PERSONS))
        slot = plain(rng, pick(rng, _PERSONS)) if slot == subject else slot
    return _unambiguous(Clause(subject, idiom.verb, _tense(rng), rng.random() < NEGATION, idiom=idiom, slot=slot))


def _noun_idiom(rng: random.Random, name: str) -> NounPhrase:
    adjective, noun = NOUN_IDIOMS[name]
    return NounPhrase(noun, pick(rng, _SINGULAR), False, adjective)


def utterance(rng: random.Random, idiom: str | None = None) -> Utterance:
    """Draw a sentence: a question, one clause, or a main and a subordinate clause. One clause has the idiom."""
    kind = rng.random()
    if kind < QUESTION:
        return _question(rng, idiom)
    if kind < QUESTION + SUBORDINATE:
        return _complex(rng, idiom)
    main = clause(rng, idiom)
    fronted = "adverb" if main.adverb and rng.random() < FRONTED else ""
    return Utterance(main, fronted=fronted)


def _question(rng: random.Random, idiom: str | None) -> Utterance:
    kind = pick(rng, ("polar", "polar", "subject", "object"))
    if kind == "object" and idiom is None:
        verb = pick(rng, _TRANSITIVE)
        person = "person" in verb.objects and rng.random() < 0.5
        objects = (WHO if person else WHAT,)
        return Utterance(
            _with_ending(rng, Clause(nominal(rng, verb.subjects), verb, _tense(rng), objects=objects)), "object"
        )
    main = replace(clause(rng, idiom), negated=False)
    if kind == "subject" and idiom not in NOUN_IDIOMS and "person" in main.verb.subjects:
        return Utterance(_unambiguous(replace(main, subject=WHO)), "subject")
    return Utterance(main, "polar")


def _complex(rng: random.Random, idiom: str | None) -> Utterance:
    """Draw a sentence of two clauses. The first has no ending, since it could include the second."""
    link = pick(rng, ("that", "because", "when"))
    if link == "that":
        saying = Clause(nominal(rng, ("person",)), VERBS[pick(rng, CLAUSAL)], _tense(rng), rng.random() < NEGATION)
        return Utterance(saying, link=link, subordinate=clause(rng, idiom))
    in_main = idiom is not None and rng.random() < 0.5
    main = clause(rng, idiom if in_main else None, ending=False)
    inner = clause(rng, None if in_main else idiom)
    if link == "when":
        tense = "past" if main.tense in ("past", "perfect") else "present"
        adverb = inner.adverb if inner.adverb and tense in inner.adverb.tenses else None
        inner = _unambiguous(replace(inner, tense=tense, adverb=adverb))
    return Utterance(main, link=link, subordinate=inner, fronted="subordinate" if rng.random() < FRONTED else "")
