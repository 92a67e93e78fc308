"""Formulas in prefix and in infix notation, whose trees must be read from brackets (paper 003, full version).

( * ( + ( + 15 7 ) 1 8 ) ( + 19 0 11 ) )  becomes  ( ( 15 + 7 ) + 1 + 8 ) * ( 19 + 0 + 11 ): three levels deep.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from phrasemodels.data.samples.derivations import pick
from phrasemodels.data.samples.splits import disjoint

OPERATORS = ("+", "*")
NUMBERS = range(21)
ARITIES = (2, 3)
SUBTREES = 0.3  # probability that an argument is a formula, apart from the one that has the required depth


@dataclass(frozen=True, slots=True)
class Formula:
    """An operator and its arguments, which are numbers or formulas."""

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
    """Return the tokens with each operator between its arguments, which are in brackets if they are formulas."""
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
    return disjoint(seed, sizes, lambda rng, i: _draw(rng, 2 + i % (deepest - 1)), lambda formula: formula)


def _draw(rng: random.Random, depth: int) -> Formula:
    arity = pick(rng, ARITIES)
    deep = int(rng.random() * arity)
    arguments = (_argument(rng, depth - 1, place == deep) for place in range(arity))
    return Formula(pick(rng, OPERATORS), tuple(arguments))


def _argument(rng: random.Random, depth: int, deep: bool) -> Formula | int:
    """Draw an argument of exactly this depth if it is to be deep, else of at most this depth."""
    if depth == 0 or not (deep or rng.random() < SUBTREES):
        return pick(rng, tuple(NUMBERS))
    return _draw(rng, depth if deep else 1 + int(rng.random() * depth))
