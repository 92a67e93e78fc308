"""Abstract syntax of the sample grammar, which both languages share.

`english.py` and `german.py` linearise the same derivation, an `Utterance`: the grammar is synchronous.
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
    """A clause; the tense is present, past, future, perfect, can or must.

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
