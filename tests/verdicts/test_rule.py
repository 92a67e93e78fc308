"""The rule for a verdict on one printed number: its twelve cases, its edges, and its rates of error."""

import math

import numpy as np
import pytest

from phrasemodels.verdicts import judge
from phrasemodels.verdicts.rule import PrintedValue, judge_runs

NONE = None  # no number of further seeds decides
CASES = [
    ("noise", "89.5", [80.31, 45.21, 38.50], {}, "inconclusive", NONE),
    ("precision", "3.9", [4.58, 4.62, 4.80], {}, "reproduced", NONE),
    ("far", "46.8", [74.99, 76.75, 76.38], {}, "higher", NONE),
    ("near 0", "1.4", [0.18, 0.20, 0.54], {}, "lower", NONE),
    ("end of the scale", "100.0", [99.4, 97.6, 99.0], {}, "inconclusive", NONE),
    ("one seed", "87.1", [87.2], {}, "inconclusive", 1),
    ("printed deviation", "86.8", [87.5, 85.357, 85.357], {"items": 280, "deviation": 0.76}, "inconclusive", 1),
    ("no spread", "85.7", [85.714] * 3, {"items": 280}, "reproduced", NONE),
    ("diverged", "90.0", [89.8, 90.1, math.nan], {}, "inconclusive", NONE),
    ("ratio", "2.3", [2.21, 2.35, 2.28], {"scale": "positive"}, "reproduced", NONE),
    ("one run", "92.0", [87, 87.5, 88], {}, "lower", NONE),
    ("best of 20", "92.0", [87, 87.5, 88], {"runs": 1, "of": 20}, "inconclusive", 1),
    ("one run, wider", "92.0", [87, 88, 89], {}, "inconclusive", 1),
    ("mean of 5", "92.0", [87, 88, 89], {"runs": 5}, "lower", NONE),
    ("edge", "87.9", [86.79, 86.07, 86.07, 86.07, 84.29], {"items": 280, "deviation": 0.36}, "inconclusive", NONE),
    ("on the edge", "83.5", [80.6, 82.0, 81.9], {}, "inconclusive", NONE),
]


@pytest.mark.parametrize(
    ("printed", "ours", "how", "verdict", "further"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_twelve_cases_of_the_rule(printed, ours, how, verdict, further):
    found = judge_runs(printed, ours, PrintedValue(**how))
    assert (found.verdict, found.further_seeds) == (verdict, further), found
    assert ("too near to the edge of the margin" in found.reason) == (printed in ("87.9", "83.5"))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e30, 1.7976931348623157e308, -1e300])
@pytest.mark.parametrize("scale", ["percent", "share", "positive", "count"])
def test_a_run_that_diverged_never_leads_to_reproduced(wrong, scale):
    ours = {"percent": [81.0, 82.0], "share": [0.81, 0.82], "positive": [81.0, 82.0], "count": [81, 81]}[scale]
    printed = "0.81" if scale == "share" else "81"
    assert judge_runs(printed, [*ours, wrong], PrintedValue(scale)).verdict == "inconclusive"
    assert judge(printed, [*ours, wrong]).verdict != "reproduced"


def test_the_margin_stands_in_the_unit_of_the_number():
    for printed, scale, margin in (
        ("0.871", "share", 0.02), ("87.1", "percent", 2.0), ("1.4", "percent", 0.7), ("100.0", "percent", 0.1), ("99", "percent", 1.0),
        ("0.4", "percent", 0.2), ("7", "count", 0.5),
    ):  # fmt: skip
        assert judge_runs(printed, [float(printed)] * 2, PrintedValue(scale)).margin == pytest.approx(margin)
    assert judge_runs("20.0", [19.0, 21.0], PrintedValue("positive")).margin == pytest.approx(math.log(1.1))
    assert judge_runs("20.0", [19.0, 21.0], PrintedValue("", margin=1.0)).verdict == "inconclusive"
    assert judge_runs("20.0", [19.99, 20.01], PrintedValue("", margin=1.0)).verdict == "reproduced"


def test_bounds_are_reproduced_on_one_side_alone():
    above, below = PrintedValue(bound=">"), PrintedValue(bound="<")
    for ours, verdict in (([80, 81, 82], "reproduced"), ([44, 45, 46], "lower"), ([50, 62, 60], "inconclusive")):
        assert judge_runs("60", ours, above).verdict == verdict
    assert judge_runs("60", [40, 41, 42], below).verdict == "reproduced"
    assert judge_runs("60", [80, 81, 82], below).verdict == "higher"


def test_a_value_outside_of_its_scale_is_an_error_and_never_zero():
    for printed, scale, wrong in (("0.823", "share", 82.1), ("99.9", "percent", 100.4), ("0.9", "share", 60.0)):
        with pytest.raises(ValueError, match=f"^{wrong:g} is no {scale}: give values in the unit"):
            judge_runs(printed, [wrong, wrong], PrintedValue(scale))
    errors = judge_runs("7.3", [104.0, 105.0], PrintedValue("percent", lower_is_better=True))
    assert errors.verdict == "higher" and "104.50" in errors.reason, "more words can be wrong than there are"


def test_a_printed_deviation_without_runs_is_of_several_runs():
    assert "printed: several runs, counted as 2" in judge_runs("86.8", [86.7, 86.9], PrintedValue(deviation=0.3)).reason


def test_what_cannot_be_judged_is_said():
    with pytest.raises(ValueError, match="neither a scale"):
        judge_runs("3.4", [3.3, 3.5], PrintedValue(""))
    with pytest.raises(ValueError, match="not positive"):
        judge_runs("0", [3.3, 3.5], PrintedValue("positive"))
    with pytest.raises(ValueError, match="no values"):
        judge_runs("3.4", [])
    for wrong in (
        {"margin": 0.0},
        {"margin": math.nan},
        {"runs": 3, "of": 2},
        {"deviation": -1.0},
        {"bound": "≥"},
        {"scale": "%"},
    ):
        with pytest.raises(ValueError, match="must"):
            PrintedValue(**wrong)


def test_a_value_that_cannot_vary_is_judged_by_its_digits():
    assert judge("44.2", [44.18], exact=True).verdict == "reproduced"
    assert judge("44.2", [44.1], exact=True).verdict == "lower"
    assert judge("44", [44, 47], exact=True).verdict == "inconclusive"


def test_the_rates_of_error_are_as_designed():
    """P(reproduced) at twice the margin ≤ 5 %, P(higher or lower) at no difference ≤ 6 %; give or take the simulation's error."""
    draw = np.random.default_rng(7)
    for n, spread in ((3, 0.5), (3, 2.0), (5, 1.0)):
        at_twice, at_none = [], []
        for _ in range(600):
            printed = f"{70 + spread * draw.standard_normal():.1f}"
            at_twice.append(judge_runs(printed, list(74 + spread * draw.standard_normal(n))).verdict == "reproduced")
            at_none.append(
                judge_runs(printed, list(70 + spread * draw.standard_normal(n))).verdict in ("higher", "lower")
            )
        assert np.mean(at_twice) <= 0.05 + 0.027 and np.mean(at_none) <= 0.06 + 0.029, (n, spread)
