"""Idioms of the sample corpora: phrases whose translation is not composed from the translations of their words.

Every word of an idiom also occurs in plain sentences with its literal translation. `readings` finds the idioms that a
sentence can be read as. The grammar keeps such strings out of plain sentences, so each English sentence has one
translation.
"""

import re
from typing import NamedTuple

from phrasemodels.data.samples.lexicon import VERBS, Adjective, Adverb, Noun, Verb, german_verb, rows


class Idiom(NamedTuple):
    """A verb idiom.

    english: its complement in annotated brackets, with {iobj}, {obj} or {poss} for X. case: the German case of X, or
    "refl". before, after: the German words before and after "nicht".
    """

    name: str
    polarity: int
    verb: Verb
    english: str
    case: str
    before: str
    after: str


_ANY = ("present", "past", "future")
ADVERB_IDIOMS = {
    "once in a blue moon": Adverb(
        "(ADVP/advmod (RB once) (PP/obl (IN/case in) (NP (DT/det a) (JJ/amod blue) (NN moon))))",
        "alle jubeljahre",
        _ANY,
    ),
    "out of the blue": Adverb(
        "(PP/obl (IN/case out) (PP (IN/case of) (NP (DT/det the) (NN blue))))", "aus heiterem himmel", _ANY
    ),
}
NOUN_IDIOMS = {
    "big cheese": (Adjective("big", "hoch", "hoh", "", ()), Noun("cheese", "-", "n", "tier", "-", ("person",)))
}


def _idiom(columns: list[list[str]]) -> Idiom:
    (words, polarity, german, english, case, before, after) = (" ".join(column) for column in columns)
    subjects = ("event",) if words == "be a piece of cake" else ("person",)
    verb = Verb(VERBS[words.split()[0]].english, german_verb(german.split()), subjects, (), (), None)
    return Idiom(words, int(polarity), verb, english, case, before, after)


VERB_IDIOMS = {
    idiom.name: idiom
    for idiom in map(
        _idiom,
        rows("""
kick the bucket | -1 | geben gibt gegeben haben ab | (NP/obj (DT/det the) (NN bucket)) | | den löffel |
bite the dust | -1 | beißen beißt gebissen haben | (NP/obj (DT/det the) (NN dust)) | | | ins gras
spill the beans | -1 | plaudern plaudert geplaudert haben | (NP/obj (DT/det the) (NNS beans)) | | | aus der schule
hit the sack | 0 | hauen haut gehauen haben | (NP/obj (DT/det the) (NN sack)) | refl | | aufs ohr
miss the boat | -1 | schauen schaut geschaut haben | (NP/obj (DT/det the) (NN boat)) | | | in die röhre
smell a rat | -1 | riechen riecht gerochen haben | (NP/obj (DT/det a) (NN rat)) | | den braten |
paint the town red | 1 | hauen haut gehauen haben | (NP/obj (DT/det the) (NN town)) (ADJP/xcomp (JJ red)) | | | auf die pauke
pull X 's leg | -1 | nehmen nimmt genommen haben | (NP/obj {poss} (NN leg)) | acc | | auf den arm
steal X 's thunder | -1 | nehmen nimmt genommen haben | (NP/obj {poss} (NN thunder)) | dat | | den wind aus den segeln
step on X 's toes | -1 | treten tritt getreten haben | (PP/obl (IN/case on) (NP {poss} (NNS toes))) | dat | | auf den schlips
give X the boot | -1 | setzen setzt gesetzt haben | {iobj} (NP/obj (DT/det the) (NN boot)) | acc | | vor die tür
give X a hand | 1 | greifen greift gegriffen haben | {iobj} (NP/obj (DT/det a) (NN hand)) | dat | | unter die arme
keep X in the dark | -1 | führen führt geführt haben | {obj} (PP/obl (IN/case in) (NP (DT/det the) (NN dark))) | acc | | hinters licht
take X for a ride | -1 | ziehen zieht gezogen haben | {obj} (PP/obl (IN/case for) (NP (DT/det a) (NN ride))) | acc | | über den tisch
drive X up the wall | -1 | bringen bringt gebracht haben | {obj} (PP/obl (IN/case up) (NP (DT/det the) (NN wall))) | acc | | auf die palme
be in hot water | -1 | sitzen sitzt gesessen haben | (PP (IN/case in) (NP (JJ/amod hot) (NN water))) | | | in der tinte
be a piece of cake | 1 | sein ist gewesen sein | (NP (NP (DT/det a) (NN piece)) (PP/nmod (IN/case of) (NP (NN cake)))) | | | kinderleicht
"""),
    )
}
IDIOMS = (*VERB_IDIOMS, *ADVERB_IDIOMS, *NOUN_IDIOMS)


_SLOT = r"(?:\S+ ){1,6}?"


def _reading(name: str, idiom: Idiom | None) -> str:
    """Return a regular expression of the English strings that can be read as the idiom: any tense, up to six tokens for X."""
    if idiom is None or idiom.verb.english.base == "be":
        return re.escape(name.removeprefix("be "))
    english = idiom.verb.english
    forms = "|".join({english.base: 0, english.third: 0, english.past: 0, english.participle: 0})
    words = " ".join(re.findall(r"\{\w+\}|(?<= )\w+(?=\))", idiom.english))
    return f"(?:{forms}) " + re.sub(r"\{\w+\} ", lambda _: _SLOT, words)


_READINGS = {name: re.compile(rf"\b{_reading(name, VERB_IDIOMS.get(name))}\b") for name in IDIOMS}
_ANY_READING = re.compile("|".join(pattern.pattern for pattern in _READINGS.values()))


def readings(english: str) -> list[str]:
    """Return the names of the idioms that an English sentence (tokens separated by one space) can be read as.

    X may be any words, so there may be too many readings, never too few.
    """
    if not _ANY_READING.search(english):
        return []
    return [name for name, pattern in _READINGS.items() if pattern.search(english)]
