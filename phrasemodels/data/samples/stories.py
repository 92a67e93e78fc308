"""Stories with questions whose answers need one, two or three of the facts.

People walk between rooms, take things and put them down. A thing is identified by a phrase: "the blue cup", "the blue
lamp", "the red cup". Supporting facts are those of bAbI: the last fact about who had the thing, and the walk of that
person into the room.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from phrasemodels.data.samples.derivations import pick
from phrasemodels.data.samples.splits import disjoint

PEOPLE = ("ada", "boris", "clara", "doran", "elsa")
ROOMS = ("attic", "barn", "cellar", "library", "workshop", "yard")
THINGS = tuple(f"{colour} {thing}" for colour in ("blue", "red", "green") for thing in ("cup", "lamp", "scarf"))
WALK = ("walked to the", "hurried to the", "went over to the", "returned to the")
TAKE = ("took the", "picked up the", "lifted the")
DROP = ("put down the", "left the", "let go of the")
FACTS = {
    1: range(3, 7),
    2: range(5, 13),
    3: range(8, 19),
}  # the length of a story, by the number of its supporting facts


@dataclass(frozen=True, slots=True)
class Story:
    """Facts, a question, its answer in one word, and the numbers of the supporting facts, from 1, ascending."""

    facts: tuple[tuple[str, ...], ...]
    question: tuple[str, ...]
    answer: str
    support: tuple[int, ...]


@dataclass(slots=True)
class _World:
    """The state of the story, and for every room the facts that it follows from."""

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
        """Note that a thing is in the room of the person `who`, which follows from `fact`."""
        room, walked = self.person[who]
        stays = self.journey.setdefault(thing, [])
        if stays and stays[-1][0] == room:
            stays.pop()
        stays.append((room, frozenset({walked, fact})))


def stories(seed: int, sizes: Mapping[str, int], support: int = 2) -> dict[str, list[Story]]:
    """Draw disjoint splits of stories whose question has `support` supporting facts.

    ValueError: support is not 1, 2 or 3, or there are too few stories.
    """
    if support not in FACTS:
        raise ValueError(f"support is {support}: give 1, 2 or 3 facts")
    return disjoint(seed, sizes, lambda rng, i: _draw(rng, support), lambda story: (story.facts, story.question))


def _draw(rng: random.Random, support: int) -> Story | None:
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
    """Add one event: a walk if the person is in no room yet; else a walk or, if possible, taking or dropping a thing."""
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
    """Ask for the room in which a thing was before a room that it was in once."""
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
