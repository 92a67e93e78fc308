"""Samples for question answering, semantic parsing and tree transduction.

- Stories with questions about one, two or three of the facts. People walk between rooms, take things and put them
  down. A phrase identifies a thing: "the blue cup", "the blue lamp", "the red cup". Supporting facts are chosen as in
  bAbI: the last fact about who had the thing, and the walk of this person into the room.
- Questions about an invented geography with their logical forms in the typed λ-calculus of GeoQuery. A set of places is a
  condition on a variable in the logical form, and a phrase in English. Sets are nested, and superlatives ("the oldest
  province") become argmax or argmin. Tokens are separated by one space on both sides.
- Formulas in prefix and in infix notation, with trees to be read from brackets (paper 003, full version):
  ( * ( + ( + 15 7 ) 1 8 ) ( + 19 0 11 ) )  becomes  ( ( 15 + 7 ) + 1 + 8 ) * ( 19 + 0 + 11 ), three levels deep.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from phrasemodels.data.samples.grammar import pick
from phrasemodels.data.samples.sentences import disjoint

PEOPLE = ("ada", "boris", "clara", "doran", "elsa")
ROOMS = ("attic", "barn", "cellar", "library", "workshop", "yard")
THINGS = tuple(f"{colour} {thing}" for colour in ("blue", "red", "green") for thing in ("cup", "lamp", "scarf"))
WALK = ("walked to the", "hurried to the", "went over to the", "returned to the")
TAKE = ("took the", "picked up the", "lifted the")
DROP = ("put down the", "left the", "let go of the")
# the length of a story, by the number of its supporting facts
FACTS = {1: range(3, 7), 2: range(5, 13), 3: range(8, 19)}


@dataclass(frozen=True, slots=True)
class Story:
    """Facts, a question, its answer in one word, and the numbers of the supporting facts, from 1, ascending."""

    facts: tuple[tuple[str, ...], ...]
    question: tuple[str, ...]
    answer: str
    support: tuple[int, ...]


@dataclass(slots=True)
class _World:
    """The state of the story, and for every room the facts behind it."""

    facts: list[str] = field(default_factory=list)
    person: dict[str, tuple[str, int]] = field(default_factory=dict)  # person: (room, fact)
    holder: dict[str, tuple[str, int]] = field(default_factory=dict)  # thing: (person, fact)
    # thing: (room, facts) of each stay
    journey: dict[str, list[tuple[str, frozenset[int]]]] = field(default_factory=dict)

    def tell(self, rng: random.Random, who: str, did: tuple[str, ...], what: str) -> int:
        """Add a fact and return its number."""
        self.facts.append(f"{who} {pick(rng, did)} {what} .")
        return len(self.facts)

    def place(self, thing: str, who: str, fact: int) -> None:
        """Note that a thing is in the room of the person `who`, by `fact`."""
        room, walked = self.person[who]
        stays = self.journey.setdefault(thing, [])
        if stays and stays[-1][0] == room:
            stays.pop()
        stays.append((room, frozenset({walked, fact})))


def stories(seed: int, sizes: Mapping[str, int], support: int = 2) -> dict[str, list[Story]]:
    """Draw disjoint splits of stories with a question about `support` supporting facts.

    ValueError: support is not 1, 2 or 3, or there are too few stories.
    """
    if support not in FACTS:
        raise ValueError(f"support is {support}: give 1, 2 or 3 facts")
    return disjoint(seed, sizes, lambda rng, i: _draw_story(rng, support), lambda story: (story.facts, story.question))


def _draw_story(rng: random.Random, support: int) -> Story | None:
    world = _World()
    people, things = _some(rng, PEOPLE, 3), _some(rng, THINGS, 3)
    for _ in range(pick(rng, FACTS[support])):
        _happen(rng, world, pick(rng, people), things)
    asked = {1: _whereabouts, 2: _location, 3: _location_before}[support](rng, world)
    if asked is None or len(asked[2]) != support:
        return None
    question, answer, facts = asked
    return Story(
        tuple(tuple(fact.split()) for fact in world.facts), tuple(question.split()), answer, tuple(sorted(facts))
    )


def _some(rng: random.Random, options: tuple[str, ...], count: int) -> list[str]:
    left = list(options)
    return [left.pop(int(rng.random() * len(left))) for _ in range(count)]


def _happen(rng: random.Random, world: _World, who: str, things: list[str]) -> None:
    """Add one event: a walk if the person is in no room yet, else a walk or, if possible, taking or dropping a thing."""
    room = world.person.get(who, ("", 0))[0]
    held = [thing for thing in things if thing in world.holder and world.holder[thing][0] == who]
    near = [
        thing for thing in things if thing not in world.holder and world.journey.get(thing, [(room,)])[-1][0] == room
    ]
    doing = rng.random()
    if room and near and doing < 0.35:
        thing = pick(rng, near)
        world.holder[thing] = (who, world.tell(rng, who, TAKE, thing))
        world.place(thing, *world.holder[thing])
    elif held and doing > 0.85:
        thing = pick(rng, held)
        world.place(thing, who, world.tell(rng, who, DROP, thing))
        del world.holder[thing]
    else:
        there = pick(rng, tuple(other for other in ROOMS if other != room))
        world.person[who] = (there, world.tell(rng, who, WALK, there))
        for thing in held:
            world.place(thing, *world.holder[thing])


def _whereabouts(rng: random.Random, world: _World) -> tuple[str, str, frozenset[int]] | None:
    who = pick(rng, tuple(world.person))
    room, fact = world.person[who]
    return f"where is {who} ?", room, frozenset({fact})


def _location(rng: random.Random, world: _World) -> tuple[str, str, frozenset[int]] | None:
    if not world.journey:
        return None
    thing = pick(rng, tuple(world.journey))
    room, facts = world.journey[thing][-1]
    return f"where is the {thing} ?", room, facts


def _location_before(rng: random.Random, world: _World) -> tuple[str, str, frozenset[int]] | None:
    """Ask for the room of a thing before a room that it was in once."""
    travelled = tuple(thing for thing, rooms in world.journey.items() if len(rooms) > 1)
    if not travelled:
        return None
    thing = pick(rng, travelled)
    rooms = world.journey[thing]
    at = 1 + int(rng.random() * (len(rooms) - 1))
    later, facts = rooms[at]
    if [room for room, _ in rooms].count(later) > 1:
        return None
    earlier, known = rooms[at - 1]
    return f"where was the {thing} before the {later} ?", earlier, facts | known


@dataclass(frozen=True, slots=True)
class GeographyQuestion:
    source: tuple[str, ...]
    logical_form: tuple[str, ...]  # brackets, predicates such as lake:t, variables $0, $1, ..., names


class Kind(NamedTuple):
    """A kind of place: its names, its properties, and the measures for questions."""

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
    return disjoint(seed, sizes, lambda rng, i: _draw_question(rng, i), lambda question: question.source)


def _draw_question(rng: random.Random, i: int) -> GeographyQuestion:
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


OPERATORS = ("+", "*")
NUMBERS = range(21)
ARITIES = (2, 3)
SUBTREES = 0.3  # probability that an argument is a formula, apart from the one that has the required depth


@dataclass(frozen=True, slots=True)
class Formula:
    """An operator and its arguments, numbers or formulas."""

    operator: str
    arguments: "tuple[Formula | int, ...]"

    @property
    def depth(self) -> int:
        """The number of nested operators."""
        return 1 + max(a.depth if isinstance(a, Formula) else 0 for a in self.arguments)


def prefix(formula: Formula | int) -> list[str]:
    """Return the tokens with each operator before its arguments."""
    if isinstance(formula, int):
        return [str(formula)]
    return ["(", formula.operator, *(token for a in formula.arguments for token in prefix(a)), ")"]


def infix(formula: Formula | int) -> list[str]:
    """Return the tokens with each operator between its arguments. Formulas as arguments are in brackets."""
    if isinstance(formula, int):
        return [str(formula)]
    tokens: list[str] = []
    for argument in formula.arguments:
        inner = infix(argument)
        tokens += [formula.operator, *(["(", *inner, ")"] if isinstance(argument, Formula) else inner)]
    return tokens[1:]


def formulas(seed: int, sizes: Mapping[str, int], deepest: int) -> dict[str, list[Formula]]:
    """Draw disjoint splits of formulas of the depths 2 to `deepest`, in turn. ValueError: there are too few formulas."""
    if deepest < 2:
        raise ValueError(f"deepest is {deepest}: give 2 or more")
    return disjoint(seed, sizes, lambda rng, i: _draw_formula(rng, 2 + i % (deepest - 1)), lambda formula: formula)


def _draw_formula(rng: random.Random, depth: int) -> Formula:
    arity = pick(rng, ARITIES)
    deep = int(rng.random() * arity)
    arguments = (_argument(rng, depth - 1, place == deep) for place in range(arity))
    return Formula(pick(rng, OPERATORS), tuple(arguments))


def _argument(rng: random.Random, depth: int, deep: bool) -> Formula | int:
    """Draw an argument of exactly this depth if it is to be deep, else of at most this depth."""
    if depth == 0 or not (deep or rng.random() < SUBTREES):
        return pick(rng, tuple(NUMBERS))
    return _draw_formula(rng, depth if deep else 1 + int(rng.random() * depth))
