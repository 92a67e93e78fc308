"""Stories with questions whose answers need one, two or three of the facts.

People walk between rooms, take things and put them down. Things are told apart by a phrase: "the blue cup", "the blue
lamp", "the red cup". Which facts support an answer follows bAbI: the last one that tells who had the thing, and the
walk that tells where that was.
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
FACTS = {1: range(3, 7), 2: range(5, 13), 3: range(8, 19)}  # by the number of supporting facts: how long a story is


@dataclass(frozen=True, slots=True)
class Story:
    """The facts before a question, the question, its answer in one word, and the 1-based ids of the facts that it
    needs, ascending."""

    facts: tuple[tuple[str, ...], ...]
    question: tuple[str, ...]
    answer: str
    support: tuple[int, ...]


@dataclass(slots=True)
class _World:
    """What is the case, and with every room the facts from which one knows it."""

    facts: list[str] = field(default_factory=list)
    person: dict[str, tuple[str, int]] = field(default_factory=dict)  # person: (room, fact)
    holder: dict[str, tuple[str, int]] = field(default_factory=dict)  # thing: (person, fact)
    journey: dict[str, list[tuple[str, frozenset[int]]]] = field(
        default_factory=dict
    )  # thing: (room, facts), one entry a stay

    def tell(self, rng: random.Random, who: str, did: tuple[str, ...], what: str) -> int:
        """Add a fact and return its id."""
        self.facts.append(f"{who} {pick(rng, did)} {what} .")
        return len(self.facts)

    def place(self, thing: str, who: str, fact: int) -> None:
        """Note that a thing is where `who` is, since `fact` says that they have it or leave it there."""
        room, walked = self.person[who]
        stays = self.journey.setdefault(thing, [])
        if stays and stays[-1][0] == room:
            stays.pop()
        stays.append((room, frozenset({walked, fact})))


def stories(seed: int, sizes: Mapping[str, int], support: int = 2) -> dict[str, list[Story]]:
    """Disjoint splits of stories whose question needs `support` facts (1, 2 or 3). Raises ValueError for another
    number, and for sizes that
    cannot be met."""
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
    """One event: who knows no room yet walks; else taking or dropping something, where possible, is as likely as
    walking."""
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
    """Asks for the room before one that the thing was in once."""
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
