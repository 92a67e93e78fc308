"""English linearisation of the abstract syntax: annotated Penn brackets.

Every node except the head of its phrase has its relation to the head after a slash: `(NP/nsubj (DT/det the) (NN dog))`.
`phrasemodels.data.samples.sentences.read` extracts tokens, tags, heads and relations.
"""

from phrasemodels.data.samples.grammar import (
    Clause,
    Nominal,
    NounPhrase,
    Pair,
    PrepositionalPhrase,
    Utterance,
    agreement,
    is_asked,
)
from phrasemodels.data.samples.lexicon import Adjective, Pronoun

_MODALS = {"future": "will", "can": "can", "must": "must"}


def utterance(sentence: Utterance) -> str:
    """Return the annotated brackets of a sentence, with its final "." or "?"."""
    main = sentence.main
    if sentence.question:
        return _question(sentence)
    clausal = f" {_subordinate(sentence.link, sentence.subordinate)}" if sentence.subordinate else ""
    if sentence.fronted == "subordinate":
        front, tail = f"{clausal[1:]} (,/punct ,) ", ""
    elif main.adverb and sentence.fronted == "adverb":
        front, tail = f"{main.adverb.english} ", clausal
    else:
        front, tail = "", clausal
    adverb = f" {main.adverb.english}" if main.adverb and sentence.fronted != "adverb" else ""
    return f"(S {front}{nominal(main.subject, '/nsubj')} {_verb_phrase(main, adverb + tail)} (./punct .))"


def _question(sentence: Utterance) -> str:
    main = sentence.main
    adverb = f" {main.adverb.english}" if main.adverb else ""
    if sentence.question == "subject":
        return f"(SBARQ {nominal(main.subject, '/nsubj')} (SQ {_verb_phrase(main, adverb)}) (./punct ?))"
    (label, word), *rest = _verb_forms(main, inverted=True)
    complements = _complements(main) + adverb
    tail = f"(VP ({rest[0][0]} {rest[0][1]}){complements})" if rest else complements[1:]
    inverted = f"({label} {word}) {nominal(main.subject, '/nsubj')} {tail}"
    if sentence.question == "object":
        return f"(SBARQ {nominal(main.objects[-1], '/obj')} (SQ {inverted}) (./punct ?))"
    return f"(SQ {inverted} (./punct ?))"


def _subordinate(link: str, inner: Clause) -> str:
    adverb = f" {inner.adverb.english}" if inner.adverb else ""
    clause = f"(S {nominal(inner.subject, '/nsubj')} {_verb_phrase(inner, adverb)})"
    if link == "that":
        return f"(SBAR/ccomp (IN/mark that) {clause})"
    if link == "when":
        return f"(SBAR/advcl (WHADVP/advmod (WRB when)) {clause})"
    return f"(SBAR/advcl (IN/mark {link}) {clause})"


def _verb_phrase(clause: Clause, tail: str) -> str:
    (label, word), *rest = _verb_forms(clause, inverted=False)
    negation = " (RB/advmod not)" if clause.negated else ""
    complements = _complements(clause) + tail
    if not rest:
        return f"(VP ({label} {word}){negation}{complements})"
    return f"(VP ({label} {word}){negation} (VP ({rest[0][0]} {rest[0][1]}){complements}))"


def _verb_forms(clause: Clause, inverted: bool) -> list[tuple[str, str]]:
    """Return (annotated tag, word) of the auxiliary, if any, and of the verb.

    "do" is added for negation and inversion, except with "be".
    """
    verb, tense = clause.verb.english, clause.tense
    person, plural = agreement(clause.subject)
    third = person == 3 and not plural
    finite = "VBZ" if third else "VBP"
    mark = "/cop" if verb.base == "be" else ""
    if tense in _MODALS:
        return [("MD/aux", _MODALS[tense]), (f"VB{mark}", verb.base)]
    if tense == "perfect":
        return [(f"{finite}/aux", "has" if third else "have"), (f"VBN{mark}", verb.participle)]
    if verb.base == "be":
        forms = ("was", "was", "were") if tense == "past" else ("am", "is", "are")
        return [(("VBD" if tense == "past" else finite) + mark, forms[2 if plural else int(third)])]
    if tense == "past":
        return [("VBD/aux", "did"), ("VB", verb.base)] if clause.negated or inverted else [("VBD", verb.past)]
    if clause.negated or inverted:
        return [(f"{finite}/aux", "does" if third else "do"), ("VB", verb.base)]
    return [(finite, verb.third if third else verb.base)]


def _complements(clause: Clause) -> str:
    """Return everything after the verb except the adverb, each part after a space. After "be" it is the head of its
    phrase."""
    parts = [""]
    if clause.idiom:
        parts.append(_idiom(clause.idiom.english, clause.slot))
    for i, phrase in enumerate(clause.objects):
        if not is_asked(phrase):
            parts.append(nominal(phrase, "/obj" if i == len(clause.objects) - 1 else "/iobj", objective=True))
    if isinstance(clause.complement, Adjective):
        parts.append(f"(ADJP (JJ {clause.complement.english}))")
    elif clause.complement:
        parts.append(_prepositional(clause.complement, "" if clause.verb.english.base == "be" else "/obl"))
    if clause.place:
        parts.append(_prepositional(clause.place, "/obl"))
    return " ".join(parts)


def _idiom(complement: str, slot: NounPhrase | Pronoun | None) -> str:
    if slot is None:
        return complement
    if "{poss}" in complement:
        return complement.format(poss=_possessive(slot))
    return complement.format(iobj=nominal(slot, "/iobj", objective=True), obj=nominal(slot, "/obj", objective=True))


def nominal(phrase: Nominal, relation: str, objective: bool = False) -> str:
    """Return the brackets of a nominal. relation: with its slash, or "" for the head of a phrase."""
    if isinstance(phrase, Pronoun):
        if is_asked(phrase):
            return f"(WHNP{relation} (WP {phrase.english}))"
        return f"(NP{relation} (PRP {phrase.objective if objective else phrase.english}))"
    if isinstance(phrase, Pair):
        return f"(NP{relation} {nominal(phrase.first, '')} (CC/cc and) {nominal(phrase.second, '/conj')})"
    if phrase.content:
        return f"(NP{relation} (NP {_words(phrase)}) (PP/nmod (IN/case of) (NP (NN {phrase.content.singular}))))"
    if phrase.relative:
        relative = _verb_phrase(phrase.relative, "")
        who = "WP who" if "person" in phrase.noun.classes else "WDT which"
        return f"(NP{relation} (NP {_words(phrase)}) (SBAR/acl:relcl (WHNP/nsubj ({who})) (S {relative})))"
    return f"(NP{relation} {_words(phrase)})"


def _words(phrase: NounPhrase) -> str:
    """Return determiner or possessor, adjective and noun. "a" becomes "an" before a vowel."""
    noun = phrase.noun.plural if phrase.plural else phrase.noun.singular
    adjective = f"(JJ/amod {phrase.adjective.english}) " if phrase.adjective else ""
    head = f"{adjective}({'NNS' if phrase.plural else 'NN'} {noun})"
    if phrase.possessor:
        return f"{_possessive(phrase.possessor)} {head}"
    determiner = phrase.determiner
    if not determiner.english:
        return head
    following = phrase.adjective.english if phrase.adjective else noun
    word = "an" if determiner.english == "a" and following[0] in "aeiou" else determiner.english
    return f"({determiner.tag}/{determiner.relation} {word}) {head}"


def _possessive(owner: NounPhrase | Pronoun) -> str:
    if isinstance(owner, Pronoun):
        return f"(PRP$/nmod:poss {owner.possessive})"
    return f"(NP/nmod:poss {_words(owner)} (POS/case 's))"


def _prepositional(phrase: PrepositionalPhrase, relation: str) -> str:
    """Return the brackets of a prepositional phrase. Its noun is its head, as in Universal Dependencies.

    "out of" is a phrase inside another.
    """
    first, *second = phrase.preposition.english.split()
    inner = nominal(phrase.nominal, "", objective=True)
    if second:
        inner = f"(PP (IN/case {second[0]}) {inner})"
    return f"(PP{relation} (IN/case {first}) {inner})"
