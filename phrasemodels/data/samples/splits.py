"""Disjoint, reproducible splits of random records."""

import random
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

T = TypeVar("T")

ATTEMPTS = 2_000  # draws for one new record before an error


def disjoint(
    seed: int,
    sizes: Mapping[str, int],
    draw: Callable[[random.Random, int], T | None],
    identity: Callable[[T], Hashable],
) -> dict[str, list[T]]:
    """Draw splits of these sizes in which no two records have the same identity.

    draw(rng, i): a candidate for the i-th record of a split, or None to be called again. Smaller splits are drawn first,
    so if the largest split grows, the others stay the same, and it begins with its former records. ValueError: a size
    below 0, or too few different records.
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
                    f"{name} needs {sizes[name]} records, but only {i} new ones were found: ask for fewer in all splits"
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
