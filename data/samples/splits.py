"""Disjoint, reproducible splits of anything that can be drawn at random."""

import random
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

T = TypeVar("T")

ATTEMPTS = 2_000  # draws for one new record before the source counts as exhausted


def disjoint(
    seed: int,
    sizes: Mapping[str, int],
    draw: Callable[[random.Random, int], T | None],
    identity: Callable[[T], Hashable],
) -> dict[str, list[T]]:
    """Splits of these sizes in which no two records have the same identity.

    `draw(rng, i)` gives a candidate for the i-th record of a split, or None to be asked again. The splits are drawn in
    the order of their sizes, so the small ones stay as they are when the largest grows, and the largest keeps what it
    had. Raises ValueError for a size below 0, and for sizes that the draws cannot fill.
    """
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"size of {name} is {size}: give 0 or more")
    seen: set[Hashable] = set()
    drawn: dict[str, list[T]] = {}
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        rng = random.Random(f"{seed}/{name}")
        drawn[name] = []
        for i in range(sizes[name]):
            record = _new(rng, i, draw, identity, seen)
            if record is None:
                raise ValueError(
                    f"{name} asks for {sizes[name]}, but the draws ran out at {i}: ask for fewer in all splits together"
                )
            drawn[name].append(record)
    return {name: drawn[name] for name in sizes}


def _new(
    rng: random.Random,
    i: int,
    draw: Callable[[random.Random, int], T | None],
    identity: Callable[[T], Hashable],
    seen: set[Hashable],
) -> T | None:
    for _ in range(ATTEMPTS):
        record = draw(rng, i)
        if record is not None and (key := identity(record)) not in seen:
            seen.add(key)
            return record
    return None
