"""Checks that configurations make of their own fields in `__post_init__`.

Each check raises a ValueError that begins with `field=value:`, so that a caller can put the path of the field before it.
A field that is a tuple must not be empty, and each of its numbers is checked.
"""

import math
from collections.abc import Callable, Collection
from typing import Any


def at_least(config: Any, least: int, *names: str) -> None:
    """Require whole numbers of at least `least`."""
    _require(config, names, lambda x: int(x) == x and x >= least, f"a whole number of at least {least}")


def even(config: Any, *names: str) -> None:
    """Require even numbers of at least 2."""
    _require(config, names, lambda x: x % 2 == 0 and x >= 2, "an even number of at least 2")


def positive(config: Any, *names: str) -> None:
    """Require numbers above 0."""
    _require(config, names, lambda x: x > 0, "a finite number above 0")


def not_negative(config: Any, *names: str) -> None:
    """Require numbers of at least 0."""
    _require(config, names, lambda x: x >= 0, "a finite number of at least 0")


def share(config: Any, *names: str) -> None:
    """Require numbers of at least 0 and below 1, such as a dropout."""
    _require(config, names, lambda x: 0 <= x < 1, "at least 0 and below 1")


def one_of(config: Any, name: str, choices: Collection[Any]) -> None:
    """Require one of some values."""
    value = getattr(config, name)
    if value not in choices:
        raise ValueError(f"{name}={value}: must be one of {', '.join(map(str, choices))}")


def divides(config: Any, part: str, whole: str) -> None:
    """Require that the number `part` divides the number `whole`."""
    total = getattr(config, whole)
    _require(config, [part], lambda x: total % x == 0, f"a divisor of {whole}={total}")


def _require(config: Any, names: Any, holds: Callable[[Any], bool], wanted: str) -> None:
    for name in names:
        value = getattr(config, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers:
            raise ValueError(f"{name}={value}: must not be empty")
        if not all(math.isfinite(x) and holds(x) for x in numbers):
            raise ValueError(f"{name}={value}: must be {wanted}")
