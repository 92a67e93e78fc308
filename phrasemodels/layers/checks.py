"""Checks of configuration values; each raises a ValueError "NAME=VALUE: must be ..." for the first wrong field."""

import math
from collections.abc import Collection
from typing import Any


def at_least(config: object, least: float, *names: str) -> None:
    """Check that fields are numbers from `least` up."""
    _check(config, names, lambda value: value >= least, f"{least} or more")


def share(config: object, *names: str) -> None:
    """Check that fields are numbers from 0 up to, but not including, 1."""
    _check(config, names, lambda value: 0 <= value < 1, "from 0 up to, but not including, 1")


def positive(config: object, *names: str) -> None:
    """Check that fields are finite numbers above 0."""
    _check(config, names, lambda value: 0 < value < math.inf, "a finite number above 0")


def one_of(config: object, name: str, choices: Collection[Any]) -> None:
    """Check that a field is one of some values."""
    _check(config, (name,), lambda value: value in choices, f"one of {', '.join(map(str, choices))}")


def _check(config: object, names: Collection[str], right: Any, said: str) -> None:
    for name in names:
        if not right(value := getattr(config, name)):  # NaN is not
            raise ValueError(f"{name}={value}: must be {said}")
