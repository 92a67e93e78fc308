"""Questions about an invented geography with their logical forms in the typed λ-calculus of GeoQuery.

A set of places is a condition on a variable in the logical form, and a phrase in English; sets are nested, and
superlatives ("the oldest province") become argmax or argmin. Tokens are separated by one space on both sides.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from phrasemodels.data.samples.derivations import pick
from phrasemodels.data.samples.splits import disjoint


@dataclass(frozen=True, slots=True)
class GeographyQuestion:
    source: tuple[str, ...]
    logical_form: tuple[str, ...]  # brackets, predicates such as lake:t, variables $0, $1, ..., names


class Kind(NamedTuple):
    """A kind of place: its names, its properties, and the measures that questions may ask for."""

    word: str
    plural: str
    names: tuple[str, ...]
    properties: tuple[str, ...]
    measures: tuple[str, ...]


class Measure(NamedTuple):
    adjective: str  # "how deep is ..."
    question: str  # "what is the depth of ..."
    most: str
    least: str
    function: str


class Relation(NamedTuple):
    """A relation between two kinds of place: its verb in the singular, in the plural and after "does"."""

    subject: str
    third: str
    plural: str
    base: str
    predicate: str
    object: str


def _rows(table: str) -> list[list[str]]:
    return [[column.strip() for column in line.split("|")] for line in table.strip().splitlines()]


KINDS = {
    row[0]: Kind(row[0], row[1], *(tuple(column.split()) for column in row[2:]))
    for row in _rows("""
province | provinces | arvenia belmark corundia dellmoor estwald | fertile coastal | age people
island | islands | foss garlow hemsay inglis | rocky remote | age people length
lake | lakes | mirrowmere nattersee oldwater pellan quillmere | salty frozen | depth length
valley | valleys | runedale sallow thornby | green remote | depth length
castle | castles | ulmgard vestrum wolfsburgh yarrow | ruined royal | age height
harbour | harbours | zellport amberhaven brinmouth | royal busy | age depth
""")
}
MEASURES = {
    row[0]: Measure(*row[1:])
    for row in _rows("""
age | old | what is the age of | oldest | newest | age:i
depth | deep | what is the depth of | deepest | shallowest | depth:i
length | long | what is the length of | longest | shortest | length:i
height | tall | what is the height of | tallest | lowest | height:i
people | populous | how many people live in | most populous | least populous | people:i
""")
}
RELATIONS = tuple(
    Relation(*row)
    for row in _rows("""
province | touches | touch | touch | touch:t | province
province | holds | hold | hold | hold:t | lake
province | holds | hold | hold | hold:t | castle
valley | lies in | lie in | lie in | in:t | province
lake | lies in | lie in | lie in | in:t | valley
lake | lies on | lie on | lie on | on:t | island
castle | overlooks | overlook | overlook | overlook:t | lake
castle | guards | guard | guard | guard:t | harbour
castle | guards | guard | guard | guard:t | valley
harbour | serves | serve | serve | serve:t | province
harbour | lies on | lie on | lie on | on:t | island
island | faces | face | face | face:t | harbour
island | belongs to | belong to | belong to | of:t | province
""")
)
_OF = {word: tuple(relation for relation in RELATIONS if relation.subject == word) for word in KINDS}


def questions(seed: int, sizes: Mapping[str, int]) -> dict[str, list[GeographyQuestion]]:
    """Draw disjoint splits of questions. ValueError: the grammar has too few questions."""
    return disjoint(seed, sizes, lambda rng, i: _draw(rng, i), lambda question: question.source)


def _draw(rng: random.Random, i: int) -> GeographyQuestion:
    english, form = FORMS[i % len(FORMS)](rng)
    return GeographyQuestion(tuple(f"{english} ?".split()), tuple(form.split()))


def _conjunction(conditions: list[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"( and {' '.join(conditions)} )"


def _members(rng: random.Random, word: str, plural: bool, variable: int) -> tuple[str, list[str]]:
    """Draw (phrase without determiner, conditions on the variable): "royal castles that guard the deepest harbour"."""
    kind, v = KINDS[word], f"${variable}"
    phrase, conditions = kind.plural if plural else kind.word, [f"( {word}:t {v} )"]
    if rng.random() < 0.35:
        quality = pick(rng, kind.properties)
        phrase, conditions = f"{quality} {phrase}", [f"( {quality}:t {v} )", *conditions]
    if rng.random() < (0.5, 0.3, 0)[min(variable, 2)]:
        relation = pick(rng, _OF[word])
        other, term = _individual(rng, relation.object, variable + 1)
        phrase += f" that {relation.plural if plural else relation.third} {other}"
        conditions.append(f"( {relation.predicate} {v} {term} )")
    return phrase, conditions


def _individual(rng: random.Random, word: str, variable: int) -> tuple[str, str]:
    """Draw (phrase, term) of one place: a name or, with few variables so far, a superlative."""
    if variable > 2 or rng.random() < 0.5:
        name = pick(rng, KINDS[word].names)
        return name, name
    return _superlative(rng, word, variable)


def _superlative(rng: random.Random, word: str, variable: int) -> tuple[str, str]:
    measure = MEASURES[pick(rng, KINDS[word].measures)]
    phrase, conditions = _members(rng, word, False, variable)
    adjective, operator = pick(rng, ((measure.most, "argmax"), (measure.least, "argmin")))
    return (
        f"the {adjective} {phrase}",
        f"( {operator} ${variable} {_conjunction(conditions)} ( {measure.function} ${variable} ) )",
    )


def _related(rng: random.Random) -> tuple[str, Relation, list[str]]:
    """Draw the subject phrase, the relation and the conditions on the subject $0 of a question about a relation."""
    relation = pick(rng, RELATIONS)
    kind = KINDS[relation.subject]
    if rng.random() < 0.4:
        quality = pick(rng, kind.properties)
        return f"{quality} {kind.plural}", relation, [f"( {quality}:t $0 )", f"( {relation.subject}:t $0 )"]
    return kind.plural, relation, [f"( {relation.subject}:t $0 )"]


def _which(rng: random.Random) -> tuple[str, str]:
    """Draw a question like "what castles guard zellport"."""
    phrase, relation, conditions = _related(rng)
    other, term = _individual(rng, relation.object, 1)
    conditions.append(f"( {relation.predicate} $0 {term} )")
    return (
        f"{pick(rng, ('what', 'which'))} {phrase} {relation.plural} {other}",
        f"( lambda $0 e {_conjunction(conditions)} )",
    )


def _count(rng: random.Random) -> tuple[str, str]:
    """Draw a question like "how many castles guard zellport"."""
    phrase, relation, conditions = _related(rng)
    other, term = _individual(rng, relation.object, 1)
    conditions.append(f"( {relation.predicate} $0 {term} )")
    return f"how many {phrase} {relation.plural} {other}", f"( count $0 {_conjunction(conditions)} )"


def _most(rng: random.Random) -> tuple[str, str]:
    """Draw a question like "which province holds the most salty lakes"."""
    relation = pick(rng, RELATIONS)
    phrase, conditions = _members(rng, relation.object, True, 1)
    conditions.append(f"( {relation.predicate} $0 $1 )")
    amount, operator = pick(rng, (("most", "argmax"), ("fewest", "argmin")))
    counted = f"( count $1 {_conjunction(conditions)} )"
    question = f"{pick(rng, ('what', 'which'))} {relation.subject} {relation.third} the {amount} {phrase}"
    return question, f"( {operator} $0 ( {relation.subject}:t $0 ) {counted} )"


def _best(rng: random.Random) -> tuple[str, str]:
    """Draw a question like "what is the deepest lake that lies on foss"."""
    phrase, term = _superlative(rng, pick(rng, tuple(KINDS)), 0)
    return f"what is {phrase}", term


def _measured(rng: random.Random) -> tuple[str, str]:
    """Draw a question like "how deep is mirrowmere" or "what is the depth of the longest lake"."""
    word = pick(rng, tuple(KINDS))
    phrase, term = _individual(rng, word, 0)
    measure = MEASURES[pick(rng, KINDS[word].measures)]
    english = pick(rng, (f"how {measure.adjective} is {phrase}", f"{measure.question} {phrase}"))
    return english, f"( {measure.function} {term} )"


def _whether(rng: random.Random) -> tuple[str, str]:
    """Draw a question like "does ulmgard guard the oldest harbour"."""
    relation = pick(rng, RELATIONS)
    subject, first = _individual(rng, relation.subject, 0)
    other, second = _individual(rng, relation.object, 1)
    return f"does {subject} {relation.base} {other}", f"( {relation.predicate} {first} {second} )"


FORMS = (_which, _best, _count, _most, _measured, _whether)
