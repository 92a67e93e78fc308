"""The scale of a metric: by its name, and once for all of its numbers, printed and ours."""

import math

import pytest

from phrasemodels.verdicts import Observation, Printed, collected, judge, judge_table
from phrasemodels.verdicts.scales import decide, known, scale_of_unit


@pytest.mark.parametrize(
    ("name", "usual", "lower"),
    [
        ("Acc.", "accuracy", False), ("test accuracy (%)", "accuracy", False), ("macro-F1", "f1", False), ("F1-score", "f1", False),
        ("accuracy on MR", "accuracy", False), ("R@1", "recall @", False), ("Hits@10", "hits @", False),
        ("nDCG@10", "ndcg", False), ("BLEU-4", "bleu", False), ("ROUGE-L", "rouge l", False), ("chrF++", "chrf + +", False),
        ("logic match", "em", False), ("AUC", "auc", False), ("MRR", "mrr", False), ("mAP", "map", False), ("mIoU", "miou", False),
        ("MCC", "mcc", False), ("Pearson r", "pearson", False), ("WER", "wer", True), ("latency (ms)", "latency", True),
        ("FID ↓", "fid", True), ("val loss", "loss", True), ("perplexity", "perplexity", True), ("exact time", "time", True),
        *((name, "", False) for name in ("acceleration", "copyright checks", "map size", "accuracy drop", "time to accuracy",
                                         "relative F1", "inaccuracy", "epoch", "formerly")),
    ],
)  # fmt: skip
def test_metrics_are_known_by_whole_words(name, usual, lower):
    assert (known(name).name, bool(known(name).lower_is_better)) == (usual, lower)


def test_units_have_scales():
    found = {unit: scale_of_unit(unit) for unit in ("%", "BLEU", "correlation", "MB", "count", "words")}
    assert found == {
        "%": "percent", "BLEU": "percent", "correlation": "share", "MB": "positive", "count": "count", "words": "",
    }  # fmt: skip


def scaled(metric, *pairs, **more):
    found = decide(metric, pairs, **more)
    return found.problem or (found.scale, found.factor)


def test_percent_and_share_are_decided_over_all_numbers():
    assert scaled("accuracy", ("0.9", [0.6]), ("0.5", [0.3])) == ("share", 1)
    assert scaled("accuracy", ("0.9", [0.8]), ("82.1", [81.0])) == ("percent", 1)
    assert scaled("accuracy", ("82.3", [0.82]), ("0.9", [0.01])) == ("percent", 100)
    assert scaled("accuracy", ("0.823", [82.1])) == ("share", 0.01)
    assert scaled("accuracy", ("1.0", [0.55])) == ("share", 1)
    assert scaled("accuracy", ("0.5%", [0.4]), stated="percent") == ("percent", 1)
    assert scaled("MCC", ("-0.2", [-0.1])) == ("share", 1)
    assert scaled("anything", ("87.1", [0.87]), shares=True) == ("percent", 100)


@pytest.mark.parametrize(
    ("metric", "pairs", "said"),
    [
        ("copyright checks", [("3", [3.0])], "unknown metric 'copyright checks': say --scale 'copyright checks'=percent, or"),
        ("error rate", [("0.9", [0.8])], "printed errors of at most 1 may be shares or percentages: say --scale 'error rate'=share"),
        ("accuracy", [("82.3", [82.1, 0.82])], "our 0.82 may be a share beside the percentage 82.1"),
        ("accuracy", [("0.9", [0.6, 61.0])], "our 0.6 may be a share, 61 is none: give all in one unit"),
        ("accuracy", [("1.2", [0.95])], "ours lie between 0 and 1, the printed numbers do not"),
        ("accuracy", [("99.1", [100.4])], "our 100.4 is no percent (0 to 100)"),
        ("accuracy", [("182.3", [82.0])], "printed 182.3 is no percent"),
        ("latency", [("0", [3.0])], "0 is not positive"),
        ("F1", [("82.3", [-40.0, 80.0])], "our -40 is no percent"),
    ],
)  # fmt: skip
def test_what_is_ambiguous_is_asked_for_in_one_line(metric, pairs, said):
    problem = decide(metric, pairs).problem
    assert problem.startswith(said) and "\n" not in problem


def table(metric, *rows, **more):
    """Judge rows of (printed, ours), with one run for each value of ours."""
    printed = [Printed("p", "1", str(row), "d", metric, text, **more) for row, (text, _) in enumerate(rows)]
    seen = [Observation(str(row), "d", metric, str(seed), "", value) for row, (_, values) in enumerate(rows)
            for seed, value in enumerate(values)]  # fmt: skip
    return judge_table(printed, collected(seen))


@pytest.mark.parametrize("unit", [1, 100])
def test_shares_with_one_digit_are_never_percentages(unit):
    rows = [("0.9", [0.60, 0.61, 0.59]), ("0.5", [0.30, 0.31, 0.29]), ("1.0", [0.55, 0.56, 0.55])]
    judged = table("accuracy", *((text, [unit * value for value in values]) for text, values in rows))
    assert [one.verdict for one in judged] == ["lower"] * 3
    assert all(("percentages, and divided by 100" in one.reason) == (unit == 100) for one in judged)
    for text, values in rows:
        assert judge(text, [unit * value for value in values]).verdict == "lower", "both doors give one answer"


def test_errors_above_one_are_not_taken_as_percentages():
    assert decide("WER", [("0.9", [1.05, 1.1])], "share").problem.startswith("our 1.05 may be an error above 1")
    assert scaled("WER", ("7.3", [104.0])) == ("percent", 1)


def test_a_stated_scale_excuses_no_mixture_of_units():
    assert "give all in one unit" in decide("Top-1", [("76.1", [76.0]), ("77.9", [0.779])], "percent").problem
    assert scaled("BLEU", ("34.0", [33.9, 0.9]), stated="percent") == ("percent", 1), "a run that collapsed"


def test_percentages_beside_shares_are_converted_and_said():
    (found,) = table("accuracy", ("87.1", [0.870, 0.871, 0.872]))
    assert found.verdict == judge("87.1", [0.870, 0.871, 0.872]).verdict == "reproduced"
    assert found.reason.endswith("ours are taken as shares, and multiplied by 100")


def test_what_has_no_scale_is_asked_for_and_blocks_no_other_number():
    printed = [Printed("p", "1", "a", "d", metric, "2.3") for metric in ("novelty", "loss")]
    ours = [
        Observation("a", "d", metric, str(seed), "", 2.3 + seed / 100)
        for metric in ("novelty", "loss")
        for seed in range(3)
    ]
    novelty, loss = judge_table(printed, collected(ours))
    assert (novelty.verdict, loss.verdict) == (
        "not comparable",
        "reproduced",
    ) and "--scale novelty=percent" in novelty.reason


def test_equal_scores_of_all_seeds_are_one_run_and_no_test():
    base, new = table("accuracy", ("80.0", [80.1] * 3), ("82.0", [82.1] * 3))
    assert base.verdict == new.verdict == "inconclusive" and "all 3 runs have the same scores" in new.reason
    assert new.test is not None and new.test.tested is None and new.test.note.startswith("not tested")


def test_seeds_with_equal_scores_of_many_digits_may_be_copies():
    (found,) = table("accuracy", ("82.3", [82.1346, 82.1346, 82.4512]))
    assert found.reason.endswith("seeds '0' and '1' have the same scores: one may be a copy")
    (found,) = table("accuracy", ("82.3", [82.1, 82.1, 82.5]))
    assert "copy" not in found.reason


def test_two_seeds_are_warned_of_at_every_verdict():
    with pytest.raises(ValueError, match="is no text: give the number with its printed digits"):
        judge(81.0, [81.0])  # type: ignore[arg-type]
    assert judge("81.0", [81.0] * 3).reason.endswith("all 3 runs have the same scores, so they count as one")
    for values, verdict in (([81.0, 81.1], "reproduced"), ([60.0, 60.1], "lower"), ([79.0, 83.5], "inconclusive")):
        (found,) = table("accuracy", ("81.0", values))
        assert found.verdict == verdict and "2 seeds, which say little" in found.reason
        assert "2 seeds, which say little" in judge("81.0", values).reason
    assert "2 seeds" not in judge("81.0", [81.0, 81.1, math.nan]).reason


def test_a_mean_of_several_runs_is_no_share_of_one_test_set():
    (found,) = table("accuracy", ("52.6", [52.5, 52.7, 52.4]), n=16, deviation=0.8)
    assert found.verdict == "reproduced"
