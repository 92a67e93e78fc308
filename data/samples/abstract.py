"""Abstract syntax of the sample grammar: what the two languages say in common, before either puts it in order.

A derivation is one of these values; `english.py` and `german.py` linearise it. So the grammar is
synchronous by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

from phrasemodels.data.samples.idioms import Idiom
from phrasemodels.data.samples.lexicon import WHAT, WHO, Adjective, Adverb, Determiner, Noun, Preposition, Pronoun, Verb


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
    """Tense is present, past, future, perfect, can or must. With an idiom, `verb` is the idiom's and `slot` its X."""

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
    """A sentence. `question` is "", "polar", "subject" (who) or "object" (what, who); `link` is "that", "because",
    "when", or "" without a
    subordinate clause."""

    main: Clause
    question: str = ""
    link: str = ""
    subordinate: Clause | None = None
    fronted: str = ""  # what stands before the subject: "adverb" or "subordinate"


def agreement(subject: Nominal) -> tuple[int, bool]:
    """Person (1 or 3) and whether it is plural. No second person: English "you" would need three German ones."""
    if isinstance(subject, Pronoun):
        return subject.person, subject.plural
    return 3, isinstance(subject, Pair) or subject.plural


def is_asked(phrase: Nominal) -> bool:
    """Whether it is the "who" or "what" of a question."""
    return phrase is WHO or phrase is WHAT
