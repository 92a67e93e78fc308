"""What printed digits stand for, and which printed numbers cannot be what they say."""

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemodels.verdicts.printed import (
    base_of,
    counts_of,
    exchanged,
    half_unit,
    least_whole,
    no_mean,
    no_product,
    no_share,
    no_sum,
    prints_as,
    product_outside,
)


@pytest.mark.parametrize(("printed", "unit"), [("47.1", 0.05), ("2.00", 0.005), ("29", 0.5), ("-1.5", 0.05)])
def test_half_a_unit_of_the_last_digit(printed: str, unit: float) -> None:
    assert half_unit(printed) == pytest.approx(unit)


def test_a_number_is_every_value_that_rounds_to_it() -> None:
    assert prints_as("47.1", 47.142) and prints_as("47.1", 47.05) and prints_as("47.1", 47.15)
    assert not prints_as("47.1", 47.151) and not prints_as("47.10", 47.142)
    assert not prints_as("47.1", math.nan) and not prints_as("47.1", math.inf)


@pytest.mark.parametrize(
    ("percents", "n"), [(["50.0"], 2), (["45.5", "27.3"], 11), (["46.2", "27.3"], 132), (["0.1"], 667), (["50"], 2)]
)
def test_the_least_whole_of_shares(percents: list[str], n: int) -> None:
    assert least_whole(percents) == n
    assert all(counts_of(percent, n) for percent in percents)


@given(st.integers(1, 2000), st.data(), st.integers(0, 3))
def test_every_share_is_found_again_rounded_or_cut_off(n: int, data: st.DataObject, digits: int) -> None:
    k = data.draw(st.integers(0, n))
    share, unit = Decimal(100 * k) / n, Decimal(1).scaleb(-digits)
    assert k in counts_of(str(share.quantize(unit, ROUND_HALF_UP)), n)
    refusal = no_share(str(share.quantize(unit, ROUND_DOWN)), n)
    assert not refusal or f"{k} of {n} cut off instead of rounded" in refusal


def test_shares_that_do_not_exist() -> None:
    assert counts_of("89.0", 500) == [445] and no_share("89.0", 500) == ""
    assert no_share("89.1", 500) == "89.1 % is no share of 500: 445 of 500 is 89.00, 446 of 500 is 89.20"
    assert no_share("86.96", 491).endswith("427 of 491 cut off instead of rounded gives it")
    assert no_share("100.0", 3) == "" and no_share("100.1", 3) != ""
    assert no_share("90.62", 448) == no_share("90.63", 448) == "", "406 of 448 is 90.625"
    assert no_share("9E+1", 7) == "", "6 of 7 is 0.9"
    assert no_share("5E+1", 3) == "50 % is no share of 3: 1 of 3 is 33.3, 2 of 3 is 66.7"


def test_means_that_are_not_their_rows() -> None:
    facts = ["46.8", "1.4", "38.2", "14.8", "77.6", "59.3", "91.0", "23.9", "3.3", "10.2"]
    said = "39.6 is not the mean of the 10 values that it stands below: they give 36.65"
    assert no_mean("39.6", facts) == f"{said}; without 10.2, number 10, they give 39.59, which prints it"
    assert no_mean("39.7", facts) == said.replace("39.6", "39.7"), "no nine of them give that"
    assert no_mean("36.6", facts) == no_mean("36.7", facts) == ""


def test_products_that_are_not_one() -> None:
    assert no_product([("2.00", "10.79"), ("2.89", "7.47"), ("6.03", "3.58")]) == "", "21.58, 21.59 and 21.59"
    said = "2.00 × 5.03 is 10.06, 3.73 × 2.98 is 11.12, 5.59 × 1.99 is 11.12"
    assert no_product([("2.00", "5.03"), ("3.73", "2.98"), ("5.59", "1.99")]) == said
    assert product_outside("1.98", "5.61", 24.06, 25.73) == "1.98 × 5.61 is 11.11"
    assert product_outside("3.73", "2.98", 9.98, 10.53) == "3.73 × 2.98 is 11.12"
    assert product_outside("2.00", "5.03", 10.09, 10.53) == "", "2.005 × 5.035 is 10.095"
    assert product_outside("2.00", "5.03", 9.98, 10.03) == "", "1.995 × 5.025 is 10.025"


def test_exchanged_numbers() -> None:
    assert exchanged(("433", "120"), (120.0, 433.0)) == "433 and 120 are exchanged: each is the other's"
    assert exchanged(("120", "433"), (120.0, 433.0)) == exchanged(("5", "5"), (5.0, 5.0)) == ""


def test_sums_of_layers() -> None:
    assert no_sum("44.9", 0.2, 44.33, 4) == "4 layers have 45.1, not 44.9, which 3 have"
    assert no_sum("45.1", 0.2, 44.33, 4) == ""


def test_a_base_that_follows_from_rounded_sums_has_a_range() -> None:
    base, slack = base_of({1: "44.5", 2: "44.7", 3: "44.9", 6: "45.5"}, 0.19968)
    assert (base, slack) == pytest.approx((44.30112, 0.0492))
    assert no_sum("44.9", 0.19968, base, 4, slack) == "4 layers have 45.1, not 44.9, which 3 have"
    assert no_sum("45.1", 0.19968, base, 4, slack) == "" != no_sum("45.0", 0.19968, base, 4, slack)
    with pytest.raises(ValueError, match="are not sums with a step of 1"):
        base_of({1: "44.5", 2: "44.7"}, 1)
