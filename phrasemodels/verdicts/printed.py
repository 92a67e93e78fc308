"""Printed numbers: which values a number with so many digits stands for, and which numbers cannot be what they say.

A printed number is its text ("47.1", "2.00"), because its digits are its precision.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal


def half_unit(printed: str) -> float:
    """Return half a unit of the last digit: 0.05 for "47.1", 0.5 for "29"."""
    exponent = Decimal(printed).as_tuple().exponent
    assert isinstance(exponent, int), f"{printed} is not a number"
    return 0.5 * 10.0**exponent


def prints_as(printed: str, value: float) -> bool:
    """Return whether a value, rounded to the digits of a printed number, is that number; a tie may go either way."""
    return abs(float(printed) - value) <= half_unit(printed) * (1 + 1e-9)


def counts_of(percent: str, n: int) -> list[int]:
    """Return every k for which k of n, rounded, is a printed percentage; a tie may go either way."""
    ways = (ROUND_HALF_UP, ROUND_HALF_DOWN)
    return [k for k in _near(percent, n) if any(_percent(k, n, percent, way) == Decimal(percent) for way in ways)]


def least_whole(percents: Sequence[str]) -> int:
    """Return the least n of which all printed percentages, from 0 to 100, are shares k of n."""
    most = 10 ** (2 + max(map(digits, percents)))  # of which every percentage with so many digits is a share
    return next(n for n in range(1, most + 1) if n == most or all(counts_of(percent, n) for percent in percents))


def no_share(percent: str, n: int) -> str:
    """Say why a printed percentage is no share k of n; empty if it is one."""
    if counts_of(percent, n):
        return ""
    below = math.floor(float(percent) * n / 100)
    shares = ", ".join(f"{k} of {n} is {100 * k / n:.{digits(percent) + 1}f}" for k in (below, below + 1) if k <= n)
    cut = [k for k in _near(percent, n) if _percent(k, n, percent, ROUND_DOWN) == Decimal(percent)]
    said = f"{Decimal(percent):f} % is no share of {n}: {shares}"
    return said + (f"; {cut[0]} of {n} cut off instead of rounded gives it" if cut else "")


def no_mean(printed: str, values: Sequence[str]) -> str:
    """Say why a printed mean is not the mean of the printed values; empty if it may be, whatever their rounding hid."""
    mean = math.fsum(map(float, values)) / len(values)
    slack = half_unit(printed) + math.fsum(map(half_unit, values)) / len(values)
    if abs(float(printed) - mean) <= slack * (1 + 1e-9):
        return ""
    return f"{printed} is not the mean of the {len(values)} values that it stands below: they give {mean:.2f}"


def no_total(printed: str, weights: Sequence[float], values: Sequence[str]) -> str:
    """Say why a printed number is not the weighted total of printed values; empty if it may be, whatever their rounding hid.

    weights: one for each value, such as 1, -1 for a difference.
    """
    total = math.fsum(weight * float(text) for weight, text in zip(weights, values, strict=True))
    slack = math.fsum(abs(weight) * half_unit(text) for weight, text in zip(weights, values, strict=True))
    if _reaches(printed, total, slack):
        return ""
    terms = "".join(f" {'+-'[weight < 0]} {text}" for weight, text in zip(weights, values, strict=True))
    return f"{printed} is not {terms.removeprefix(' + ').strip()}, which is {total:.{digits(printed) + 1}f}"


def no_f1(printed: str, precision: str, recall: str) -> str:
    """Say why a printed F1 is not that of a printed precision and recall; empty if it may be, whatever their rounding hid."""
    low, middle, high = (
        _harmonic(*(max(0.0, float(text) + sign * half_unit(text)) for text in (precision, recall)))
        for sign in (-1, 0, 1)
    )
    slack = half_unit(printed) * (1 + 1e-9)
    if low - slack <= float(printed) <= high + slack:
        return ""
    return f"precision {precision} and recall {recall} have F1 {middle:.{digits(printed) + 1}f}, not {printed}"


def _harmonic(one: float, other: float) -> float:
    """Return the harmonic mean of two numbers; 0 if both are 0."""
    return 2 * one * other / (one + other) if one + other else 0.0


def no_product(factors: Sequence[tuple[str, str]]) -> str:
    """Say why pairs of printed numbers do not have one product; empty if they may, whatever their rounding hid."""
    ranges = [_product_range(*pair) for pair in factors]
    if max(low for low, _ in ranges) <= min(high for _, high in ranges) + 1e-9:
        return ""
    return ", ".join(f"{one} × {other} is {float(one) * float(other):.2f}" for one, other in factors)


def product_outside(one: str, other: str, least: float, most: float) -> str:
    """Say why two printed numbers do not have a product from `least` to `most`; empty if they may."""
    low, high = _product_range(one, other)
    if low <= most and least <= high:
        return ""
    return f"{one} × {other} is {float(one) * float(other):.2f}"


def _product_range(one: str, other: str) -> tuple[float, float]:
    """Return the smallest and the largest product of two values that print as these positive numbers."""
    pairs = [(float(text) - half_unit(text), float(text) + half_unit(text)) for text in (one, other)]
    return pairs[0][0] * pairs[1][0], pairs[0][1] * pairs[1][1]


def exchanged(printed: tuple[str, str], values: tuple[float, float]) -> str:
    """Say that two printed numbers stand in each other's place; empty if they do not."""
    one, other = printed
    here = prints_as(one, values[0]) or prints_as(other, values[1])
    there = prints_as(one, values[1]) and prints_as(other, values[0])
    return f"{one} and {other} are exchanged: each is the other's" if there and not here else ""


def no_sum(printed: str, step: float, base: float, parts: int, slack: float = 0.0) -> str:
    """Say why a printed number is not `base + parts * step`, with the number of parts that it does fit, if any.

    slack: how far the base may be from its true value, because it follows from rounded numbers.
    """
    expected = base + parts * step
    if _reaches(printed, expected, slack):
        return ""
    fits = [k for k in range(1, 2 * parts + 1) if _reaches(printed, base + k * step, slack)]
    return f"{parts} layers have {expected:.{digits(printed)}f}, not {printed}" + (
        f", which {fits[0]} have" if fits else ""
    )


def base_of(printed: Mapping[int, str], step: float) -> tuple[float, float]:
    """Return the base of sums `base + parts * step` that print as these, by their parts, and how far it may be off.

    ValueError: no base gives all of them.
    """
    low = max(float(text) - half_unit(text) - parts * step for parts, text in printed.items())
    high = min(float(text) + half_unit(text) - parts * step for parts, text in printed.items())
    if low > high:
        raise ValueError(f"{printed} are not sums with a step of {step}")
    return (low + high) / 2, (high - low) / 2


def _reaches(printed: str, value: float, slack: float) -> bool:
    return abs(float(printed) - value) <= (half_unit(printed) + slack) * (1 + 1e-9)


def digits(printed: str) -> int:
    """Return the digits behind the decimal point."""
    exponent = Decimal(printed).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _near(percent: str, n: int) -> range:
    """The counts whose share may round to a percentage."""
    middle = float(percent) * n / 100
    reach = half_unit(percent) * 2 * n / 100 + 1
    return range(max(0, math.floor(middle - reach)), min(n, math.ceil(middle + reach)) + 1)


def _percent(k: int, n: int, printed: str, rounding: str) -> Decimal:
    return (Decimal(100 * k) / n).quantize(Decimal(printed), rounding)
