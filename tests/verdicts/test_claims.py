"""The rule for claims: each answer, its edges, and its rates of error."""

import math
from dataclasses import replace

import numpy as np
import pytest

from phrasemodels.verdicts.claims import (
    ClaimVerdict,
    agreed,
    elsewhere,
    gain_of_items,
    gain_of_values,
    judge_gain,
    read_claims,
    weakest,
)
from phrasemodels.verdicts.rule import PrintedValue
from phrasemodels.verdicts.scores import ratio

PERCENT = PrintedValue()
HEADER = "id,paper,claim,table,better,than,dataset,metric,kind\n"


def answer(ours, base, printed=("84.0", "80.0"), how=PERCENT, kind="main"):
    return judge_gain(*printed, gain_of_values(ours, base, how), how, kind)


@pytest.mark.parametrize(
    ("ours", "base", "verdict", "further"),
    [
        ([83.9, 84.0, 84.1], [79.9, 80.0, 80.1], "confirmed", None),
        ([80.9, 81.0, 81.1], [79.9, 80.0, 80.1], "smaller", None),
        ([80.0, 80.2, 80.1], [79.9, 80.0, 80.1], "not confirmed", None),
        ([78.9, 79.0, 79.1], [79.9, 80.0, 80.1], "contradicted", None),
        ([76.0, 82.0, 88.0], [78.0, 80.0, 82.0], "open", 26),
        ([84.0, 84.1], [80.0, 80.1], "open", 1),
        ([84.0], [80.0, 80.1, 80.2], "open", 2),
    ],
)
def test_each_answer_by_welch_over_seeds(ours, base, verdict, further):
    found = answer(ours, base)
    assert (found.verdict, found.further_seeds) == (verdict, further), found


def test_the_interval_is_welchs():
    from scipy import stats

    ours, base = [80.0, 82.5, 81.0, 84.0], [79.0, 80.0, 78.5]
    theirs = stats.ttest_ind(ours, base, equal_var=False).confidence_interval(0.9)
    found = answer(ours, base)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [([96.0, 96.1, 96.2], "confirmed"), ([99.0, 99.1, 99.2], "confirmed"), ([90.0, 90.1, 90.2], "contradicted"),
     ([92.0, 96.0, 98.0], "open")],
)  # fmt: skip
def test_no_worse_bounds_the_loss_alone(ours, verdict):
    found = answer(ours, [96.0, 96.1, 96.2], ("96.13", "96.16"), kind="no worse")
    assert found.verdict == verdict and "no worse down to −1.92" in found.reason, found


def test_equal_means_within_the_narrower_margin():
    near, far = [96.0, 96.1, 96.2], [90.0, 90.1, 90.2]
    assert answer(near, near, ("96.16", "96.13"), kind="equal").verdict == "confirmed"
    assert answer(far, near, ("96.16", "96.13"), kind="equal").verdict == "contradicted"
    assert answer([94.0, 96.0, 98.0], near, ("96.16", "96.13"), kind="equal").verdict == "open"


def test_a_resource_is_judged_by_its_ratio():
    how, printed = PrintedValue("positive", lower_is_better=True), ("1192", "1508")
    for ours, verdict in (([80, 81, 79], "confirmed"), ([50, 51, 49], "confirmed"), ([95, 96, 94], "contradicted")):
        assert answer(ours, [100, 101, 99], printed, how, "resource").verdict == verdict
    once = gain_of_values([85], [100], how)
    assert judge_gain(*printed, once, how, "resource", exact=True).verdict == "confirmed", "a count needs one run"


def test_a_run_that_diverged_confirms_nothing():
    assert answer([84.0, 84.1, math.nan], [80.0, 80.1, 80.2]).verdict != "confirmed"
    endless = PrintedValue("", margin=1.0)
    assert gain_of_values([84.0, math.inf], [80.0, 80.1], endless) is None
    assert judge_gain("84.0", "80.0", None, endless).verdict == "open"


def test_shares_are_judged_in_percent_and_less_may_be_better():
    share = PrintedValue("share")
    found = answer([0.84, 0.841, 0.839], [0.80, 0.801, 0.799], ("0.84", "0.80"), share)
    assert found.verdict == "confirmed" and found.difference == pytest.approx(4.0)
    less = PrintedValue(lower_is_better=True)
    assert answer([80.0, 80.1, 79.9], [84.0, 84.1, 83.9], ("80.0", "84.0"), less).verdict == "confirmed"


def test_items_are_in_the_interval():
    draw = np.random.default_rng(0)
    right = np.tile(draw.random(400) < 0.8, (3, 1)) ^ (draw.random((3, 400)) < 0.01)
    base = np.stack([right, np.ones_like(right)], -1).astype(float)
    ours = base.copy()
    ours[:, :80, 0] = 1.0  # the same items are better in each seed
    found = judge_gain("84.0", "80.0", gain_of_items(ours, base, lambda sums: 100 * ratio(sums)), PERCENT)
    assert found.verdict == "confirmed" and "400 test items" in found.reason
    again = judge_gain("84.0", "80.0", gain_of_items(base, ours, lambda sums: 100 * ratio(sums), -1), PERCENT)
    assert again.difference == pytest.approx(found.difference), "less is better"
    with pytest.raises(ValueError, match="other items"):
        gain_of_items(ours, base[:, :10], ratio)


def test_an_answer_says_how_narrow_it_is():
    ours, base = (np.stack([right, np.ones_like(right)], -1) for right in np.zeros((2, 3, 200)))
    ours[:, :4, 0] = 1.0
    gain = gain_of_items(ours, base, lambda sums: 100 * ratio(sums))
    assert gain.interval()[0] > 0 and "resampling" not in judge_gain("84.0", "80.0", gain, PERCENT).reason
    near = replace(gain, difference=gain.difference - gain.interval()[0] + 0.001)
    found = judge_gain("84.0", "80.0", near, PERCENT)
    assert "+0.001 to" in found.reason and "another resampling" in found.reason
    half = gain.difference - gain.interval()[0]
    found = judge_gain(f"{80 + 2 * half + 0.001:.3f}", "80.000", replace(gain, difference=0.0), PERCENT)
    assert found.verdict == "not confirmed" and "another resampling" in found.reason  # the upper end is at half the printed gain
    equal = judge_gain("84.0", "84.0", gain, PERCENT, "equal")
    assert equal.verdict == "open" and "one side of 0" not in equal.reason
    small = replace(gain, difference=gain.difference / 10, shared=gain.shared / 400)
    equal = judge_gain("84.0", "84.0", small, PERCENT, "equal")
    assert equal.verdict == "confirmed" and equal.low > 0 and "one side of 0" in equal.reason


def test_a_claim_that_its_numbers_dont_carry_is_an_error():
    with pytest.raises(ValueError, match="not better"):
        answer([1.0, 2.0], [1.0, 2.0], ("80.0", "84.0"))


def test_several_rows_readings_and_small_sizes():
    confirmed, smaller, lost = (ClaimVerdict(v, v, 1.0) for v in ("confirmed", "smaller", "not confirmed"))
    assert weakest([confirmed, smaller, lost]).verdict == "not confirmed"
    assert agreed([("", smaller), ("by rows", smaller)]).verdict == "smaller" and agreed([("", lost)]) is lost
    differ = agreed([("", replace(smaller, difference=1.0)), ("by rows", replace(lost, difference=0.1))])
    assert differ.verdict == "open" and differ.difference == 1.0 and differ.further_seeds is None
    assert differ.reason == "readings differ: main +1.00 (smaller); by rows +0.10 (not confirmed)"
    some, more = (replace(lost, verdict="open", further_seeds=n) for n in (2, 5))
    assert agreed([("", some), ("by rows", more)]).further_seeds == 5, "all of them have to decide"
    assert agreed([("", some), ("by rows", replace(some, further_seeds=None))]).further_seeds is None
    assert elsewhere(confirmed, "at a small size").verdict == "supported at a small size"
    assert elsewhere(smaller, "on GUM").verdict == "smaller on GUM"


def test_a_wrong_file_of_claims_is_named(tmp_path):
    file = tmp_path / "claims.csv"
    row = "1,p,A beats B.,1,A,B,d,accuracy,main\n"
    for text, match in (
        (HEADER + row + row, "twice"),
        (HEADER + row.replace("main", "bold"), "kind"),
        (HEADER + row.replace("A,B", "A,"), "no than"),
        (HEADER.replace("kind", "colour") + row, "unknown column"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=match):
            read_claims(file)
    file.write_text("id,claim,table,better,than,metric\n1,A beats B.,1,A,B,accuracy\n")
    assert read_claims(file, "p")[0].paper == "p"
    file.write_text(HEADER + row.replace(",A,B", ",A | C,B").replace("main", "all"))
    assert read_claims(file)[0].rows == ["A", "C"]


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_the_rates_of_error_are_as_designed(n, spread):
    """P(confirmed or smaller | no gain) and P(not confirmed or contradicted | the printed gain) are at most 5 %."""
    draw = np.random.default_rng(3)
    counts = np.zeros(2)
    for true in range(2):
        for ours, base in spread * draw.standard_normal((600, 2, n)):
            found = answer(80 + 4 * true + ours, 80 + base).verdict
            counts[true] += found in (("confirmed", "smaller"), ("not confirmed", "contradicted"))[true]
    assert (counts / 600 <= 0.05 + 2 * (0.05 * 0.95 / 600) ** 0.5).all(), counts / 600
