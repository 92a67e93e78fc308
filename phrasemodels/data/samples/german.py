"""German linearisation of the abstract syntax: tokens separated by one space.

A clause has fields: one constituent before the finite verb (none in a question), the finite verb, the midfield, and the
rest of the verb (separable particle, participle or infinitive). In a subordinate clause the finite verb is last.
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
from phrasemodels.data.samples.lexicon import Adjective, GermanVerb, Pronoun

_GENDERS = {"m": 0, "f": 1, "n": 2, "p": 3}


def _table(nom: str, acc: str, dat: str) -> dict[str, list[str]]:
    """Return endings by case, then by gender m, f, n or plural p. "-" is no ending."""
    return {case: row.replace("-", "").split(" ") for case, row in (("nom", nom), ("acc", acc), ("dat", dat))}


_ENDINGS = {
    "article": _table("er ie as ie", "en ie as ie", "em er em en"),
    "der": _table("er e es e", "en e es e", "em er em en"),
    "ein": _table("- e - e", "en e - e", "em er em en"),
}
_ADJECTIVE_ENDINGS = {
    "article": _table("e e e en", "en e e en", "en en en en"),
    "der": _table("e e e en", "en e e en", "en en en en"),
    "ein": _table("er e es en", "en e es en", "en en en en"),
    "none": _table("er e es e", "en e es e", "em er em en"),
}
_AUXILIARIES = {
    verb.infinitive: verb
    for verb in (
        GermanVerb("haben", "hat", "gehabt", "haben", ""),
        GermanVerb("sein", "ist", "gewesen", "sein", ""),
        GermanVerb("werden", "wird", "geworden", "sein", ""),
        GermanVerb("können", "kann", "gekonnt", "haben", ""),
        GermanVerb("müssen", "muss", "gemusst", "haben", ""),
    )
}
_MODALS = {"future": "werden", "can": "können", "must": "müssen"}
_FIRST = {"sein": "bin", "können": "kann", "müssen": "muss"}


def utterance(sentence: Utterance) -> str:
    """Return the tokens of a sentence, with commas and the final "." or "?"."""
    main, question = sentence.main, sentence.question
    subordinate = f" , {_subordinate(sentence.link, sentence.subordinate)}" if sentence.subordinate else ""
    if question == "subject":
        words = _clause(main, nominal(main.subject, "nom"), "")
    elif question == "object":
        words = _clause(main, nominal(main.objects[-1], main.verb.cases[-1]), nominal(main.subject, "nom"))
    elif question:
        words = _clause(main, "", nominal(main.subject, "nom"))
    elif main.adverb and sentence.fronted == "adverb":
        words = _clause(main, main.adverb.german, nominal(main.subject, "nom")) + subordinate
    elif sentence.fronted == "subordinate":
        words = _clause(main, f"{subordinate[3:]} ,", nominal(main.subject, "nom"))
    else:
        words = _clause(main, nominal(main.subject, "nom"), "") + subordinate
    words += " ?" if question else " ."
    # a relative clause ends with a comma, except before another comma and at the end of the sentence
    return words.replace(" , , ", " , ").replace(" , .", " .").replace(" , ?", " ?")


def _subordinate(link: str, inner: Clause) -> str:
    """Return conjunction and verb-final clause. "when" is "als" for one time in the past, else "wenn"."""
    when = "als" if inner.tense in ("past", "perfect") else "wenn"
    conjunction = {"that": "dass", "because": "weil", "when": when}[link]
    return f"{conjunction} {_verb_final(inner, nominal(inner.subject, 'nom'))}"


def _clause(clause: Clause, first: str, subject: str) -> str:
    """Return a verb-second clause with `first` before the verb. A subject elsewhere follows the verb."""
    finite, rest, particle = _verb_complex(clause)
    fronted = first if clause.adverb and first == clause.adverb.german else ""
    middle = _midfield(clause, fronted)
    return " ".join(field for field in (first, finite, subject, middle, rest or particle) if field)


def _verb_final(clause: Clause, subject: str) -> str:
    finite, rest, particle = _verb_complex(clause)
    last = finite if rest else particle + finite
    return " ".join(field for field in (subject, _midfield(clause, ""), rest, last) if field)


def _verb_complex(clause: Clause) -> tuple[str, str, str]:
    """Return the finite verb, its infinitive or participle, and the separated particle, if there is one."""
    verb, tense = clause.verb.german, clause.tense
    person, plural = agreement(clause.subject)
    if tense in _MODALS:
        return _conjugate(_AUXILIARIES[_MODALS[tense]], person, plural), verb.particle + verb.infinitive, ""
    if tense == "past" and verb.infinitive == "sein":
        return "waren" if plural else "war", "", ""
    if tense in ("past", "perfect"):
        return _conjugate(_AUXILIARIES[verb.auxiliary], person, plural), verb.particle + verb.participle, ""
    return _conjugate(verb, person, plural), "", verb.particle


def _conjugate(verb: GermanVerb, person: int, plural: bool) -> str:
    """Return the form in the present tense."""
    if plural:
        return "sind" if verb.infinitive == "sein" else verb.infinitive
    if person == 3:
        return verb.third
    stem = verb.infinitive.removesuffix("n").removesuffix("e")
    return _FIRST.get(verb.infinitive, stem + "e")


def _midfield(clause: Clause, fronted: str) -> str:
    """Return pronouns, adverb, dative, accusative, "nicht", places and complements.

    "nicht" with an indefinite object becomes "kein".
    """
    arguments = sorted(zip(clause.verb.cases, clause.objects, strict=True), key=lambda argument: argument[0] == "acc")
    before = after = ""
    pronouns = []
    if clause.idiom:
        before, after = clause.idiom.before, clause.idiom.after
        if clause.slot:
            arguments.append((clause.idiom.case, clause.slot))
        elif clause.idiom.case == "refl":
            pronouns.append(_reflexive(clause.subject))
    negative = [clause.negated and _indefinite(phrase) for _, phrase in arguments]
    full = []
    for (case, phrase), kein in zip(arguments, negative, strict=True):
        if not isinstance(phrase, Pronoun):
            full.append(nominal(phrase, case, kein))
        elif not is_asked(phrase):  # the question word is the first constituent
            pronouns.insert(0 if case == "acc" else len(pronouns), getattr(phrase, case))
    adverb = clause.adverb.german if clause.adverb and not fronted else ""
    nicht = "nicht" if clause.negated and not any(negative) else ""
    fields = (*pronouns, adverb, *full, before, nicht, after, _prepositional(clause.place), _complement(clause))
    return " ".join(field for field in fields if field)


def _indefinite(phrase: Nominal) -> bool:
    return isinstance(phrase, NounPhrase) and not phrase.possessor and phrase.determiner.english in ("a", "")


def _reflexive(subject: Nominal) -> str:
    return subject.reflexive if isinstance(subject, Pronoun) else "sich"


def _complement(clause: Clause) -> str:
    if isinstance(clause.complement, Adjective):
        return clause.complement.german
    return _prepositional(clause.complement)


def _prepositional(phrase: PrepositionalPhrase | None) -> str:
    return f"{phrase.preposition.german} {nominal(phrase.nominal, phrase.preposition.case)}" if phrase else ""


def nominal(phrase: Nominal, case: str, negative: bool = False) -> str:
    """Return a nominal in the case nom, acc or dat. negative: "ein", or no article, becomes "kein"."""
    if isinstance(phrase, Pronoun):
        return str(getattr(phrase, case))
    if isinstance(phrase, Pair):
        return f"{nominal(phrase.first, case)} und {nominal(phrase.second, case)}"
    gender = "p" if phrase.plural else phrase.noun.gender
    determiner, declension = _determiner(phrase, case, gender, negative)
    adjective = (
        phrase.adjective.stem + _ADJECTIVE_ENDINGS[declension][case][_GENDERS[gender]] if phrase.adjective else ""
    )
    words = [determiner, adjective, _noun(phrase, case)]
    if phrase.content:
        words.append(phrase.content.german)
    if phrase.possessor and not isinstance(phrase.possessor, Pronoun):
        words.append(f"von {nominal(phrase.possessor, 'dat')}")
    if phrase.relative:
        relative = _article("nom", gender)
        words.append(f", {_verb_final(phrase.relative, relative)} ,")
    return " ".join(word for word in words if word)


def _determiner(phrase: NounPhrase, case: str, gender: str, negative: bool) -> tuple[str, str]:
    """Return the inflected determiner and the declension of the adjective after it."""
    if isinstance(phrase.possessor, Pronoun):
        stem, declension = phrase.possessor.german_possessive, "ein"
    elif phrase.possessor:
        stem, declension = "d", "article"
    elif negative:
        stem, declension = "kein", "ein"
    else:
        stem, declension = phrase.determiner.german, phrase.determiner.declension
    if declension == "none":
        return stem, declension
    return stem + _ENDINGS[declension][case][_GENDERS[gender]], declension


def _article(case: str, gender: str) -> str:
    return "d" + _ENDINGS["article"][case][_GENDERS[gender]]


def _noun(phrase: NounPhrase, case: str) -> str:
    """Return the noun form. Dative plurals end in n. Weak nouns have the plural form in all singular cases but nom."""
    noun = phrase.noun
    plural = noun.german_plural.removesuffix("*")
    if phrase.plural:
        return plural if case != "dat" or plural[-1] in "ns" else plural + "n"
    return plural if case != "nom" and noun.german_plural.endswith("*") else noun.german
