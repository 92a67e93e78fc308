"""BLEU, intervals, verdicts and overrides against known values."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.flows.experiments.catalogue import Request, experiments
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.experiments.published import published_results
from phrasemodels.flows.report.plots import curves
from phrasemodels.flows.report.table import findings
from phrasemodels.inference.inputs import joined_letters_or_words
from phrasemodels.tasks.metrics.compare import CompareSettings, RowSettings, compare
from phrasemodels.tasks.metrics.scores import (
    OwnScoring,
    bleu,
    bleu_counts,
    bleu_of,
    ngram_counts,
    score_with_own,
    tokenised_bleu,
)
from phrasemodels.tasks.prepare.sharded import write_shards
from phrasemodels.tasks.problems.translation import TranslationScoring, score_translations
from phrasemodels.verdicts.judgement import judge
from phrasemodels.verdicts.significance import Statistic, holm, seed_group


def sources(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    terms = {"licences": [], "redistributable": True, "stand_in": True}
    return terms | write_shards(job.out, pa.Table.from_pylist(rows))


def guessed(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return write_shard(job.out / "predictions.arrow", pa.Table.from_pylist(rows))


def scored_by(store: Store, settings: TranslationScoring, targets: list[str], guesses: list[dict[str, Any]]) -> Artifact:
    """Score guesses of translations. targets: the references before they were divided into words."""
    rows = [{"id": 0, "target": text} for text in targets]
    inputs = {"rows": Step(sources, "rows", rows), "predictions": Step(guessed, "predictions", guesses)}
    return store.run(Step(score_translations, "scores", settings, inputs))


@pytest.mark.parametrize(("language", "tokens"), [("ja", "char"), ("de", "13a")])
def test_running_text_without_spaces_is_compared_by_characters(store: Store, language: str, tokens: str) -> None:
    raw, hypothesis = "".join(map(chr, range(0x3042, 0x304C))), [chr(code) for code in range(0x3042, 0x304B)]
    table = [{"id": 0, "group": "", "hypothesis": hypothesis, "reference": [*hypothesis, raw[-1]]}]
    made = scored_by(store, TranslationScoring(joined_letters_or_words, language), [raw], table)
    found = made.meta["scores"]["sacrebleu"]
    assert f"tok:{tokens}" in found["signature"] and (found["value"] > 85) == (language == "ja")


def test_counts_of_ids_are_those_of_their_texts() -> None:
    rng = np.random.default_rng(0)
    pairs = [[rng.integers(0, 4, n).tolist() for n in rng.integers(0, 9, 2)] for _ in range(50)]
    texts = ([" ".join(map(str, ids)) for ids in side] for side in zip(*pairs, strict=True))
    assert [ngram_counts(*pair) for pair in pairs] == bleu_counts(*texts).tolist()


@pytest.mark.parametrize("count_end", [False, True])
def test_the_end_of_hypotheses_counts_only_if_asked(store: Store, count_end: bool) -> None:
    words = "a b c d e f".split()
    table = [{"id": 0, "group": "", "hypothesis": words, "reference": words}]
    made = scored_by(store, TranslationScoring(None, "de", count_end), ["a b c d e f"], table)
    bleu = made.meta["scores"]["bleu"]["value"]
    assert bleu < 90 if count_end else bleu == pytest.approx(100)


def test_scores_of_blocks_are_those_of_sacrebleu_over_the_whole_set(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.metrics.bleu import BLEU

    monkeypatch.setattr("phrasemodels.tasks.problems.translation.SCORED_TOGETHER", 3)
    rng = np.random.default_rng(0)
    texts = [[" ".join(rng.choice(list("abcD."), 9)) for _ in range(10)] for _ in range(2)]
    groups = ["", "x", "x", "y", "", "", "y", "x", "", ""]
    rows = zip(groups, *texts, strict=True)
    table = [{"id": 0, "group": g, "hypothesis": h.split(), "reference": r.lower().split()} for g, h, r in rows]
    made = scored_by(store, TranslationScoring(joined_letters_or_words, "de"), texts[1], table)
    found = {name: score["value"] for name, score in made.meta["scores"].items()}
    assert found["sacrebleu"] == BLEU(force=True).corpus_score(texts[0], [texts[1]]).score
    assert found["sacrebleu_lc"] == BLEU(force=True, lowercase=True).corpus_score(texts[0], [texts[1]]).score
    for suffix in ("", "/x", "/y"):
        some = [k for k, group in enumerate(groups) if suffix in ("", f"/{group}")]
        whole = tokenised_bleu().corpus_score([texts[0][k] for k in some], [[texts[1][k].lower() for k in some]])
        assert found[f"bleu{suffix}"] == whole.score
        assert made.meta["scores"][f"bleu{suffix}"]["sentences"] == len(some)
    sentences = read_shard(made.file("sentences.arrow"))
    assert bleu_of(np.array(sentences["bleu_counts"].to_pylist()).sum(0)) == pytest.approx(found["bleu"])


def best(references: Sequence[str], answers: Sequence[str]) -> float:
    return 100 * sum(map(str.__eq__, references, answers)) / len(answers)


def no_scores(job: Job, settings: Any) -> dict[str, Any]:
    return {"scores": {}}


def test_an_own_metric_is_that_of_the_best_start(store: Store) -> None:
    rows = [{"restart": start, "answer": "a", "predicted": "ba"[start == 0]} for start in range(4)]
    scoring = OwnScoring(no_scores, None, ("answer", "predicted"), (best,))
    made = store.run(Step(score_with_own, "own", scoring, {"predictions": Step(guessed, "predictions", rows)}))
    assert (made.meta["scores"]["best"]["value"], made.meta["scores"]["best"]["sentences"]) == (100, 1)


def compared(name: str, metric: str, mean: float, differences: dict[str, tuple[float, float]] | None = None) -> dict[str, Any]:
    """Return a row of a table. differences: the difference from its baseline and its p by metric."""
    found = {key: {"difference": d, "low": -9, "high": 9, "p_holm": p, "seeds": 3} for key, (d, p) in (differences or {}).items()}
    return {"system": name, "variant": "", "experiment": name, "metric": metric, "seeds": [0, 1, 2],
            "against": {"baseline": "plain", "differences": found} if found else None,
            "intervals": {metric: {"mean": mean, "half_width": 1.0, "n": 3}}}  # fmt: skip


@pytest.mark.parametrize("metrics", [("bleu",), ("bleu", "exact")])
def test_the_rows_that_differ_are_counted_for_each_metric(metrics: tuple[str, ...]) -> None:
    rows = [compared("Plain", metric, 1.0) for metric in metrics]
    rows += [compared(name, metric, 1.0, {metric: (1.0, p)}) for metric in metrics for name, p in (("One", 0.01), ("Two", 0.9))]
    assert findings(rows)[len(metrics)].startswith("The largest: One gains 1.0")
    said = findings(rows)[: len(metrics)]
    assert [re.sub(" in [^(]*", " ", sentence) for sentence in said] == [
        "1 of 2 differences from baselines is significant (p < 0.05, corrected by Holm): One."
    ] * len(metrics)
    assert all(" in " in sentence for sentence in said) == (len(metrics) > 1)


def test_the_conclusion_says_of_what_chance_was_tested_and_nothing_of_rows_that_were_not() -> None:
    differences = {"bleu": (2.0, 0.01), "bleu/idiom": (3.0, 0.9), "bleu/plain": (-0.02, 0.9)}
    said = findings([compared("A", "bleu", 1.0), compared("B", "bleu", 1.0, differences)])
    assert said[0] == "The difference from the baseline is significant (p < 0.05)."
    assert said[1].startswith("B gains 2.0")
    assert "By kind: on idioms +3.0" in said[2] and "on plain sentences +0.0" in said[2]
    rows = [compared("A", "bleu", 1.0), compared("BB", "bleu", 2.0)]
    assert findings(rows) == ["2 rows, BLEU 1.00 to 2.00; none is tested against another."]
    (said,) = findings([compared("A", "bleu", 0.0), compared("B", "bleu", 0.0, differences)])
    assert said.startswith("No system learned")


def test_a_loss_that_is_no_number_leaves_a_gap_in_the_curve() -> None:
    history = [[{"step": step, "dev_loss": loss} for step, loss in enumerate((2.0, math.inf, 1.0))]]
    assert "<svg" in curves({"a": history})


def test_bleu_of_a_hand_computed_case() -> None:
    # 5 tokens against 5: matches 4/5, 3/4, 2/3, 1/2, no brevity penalty
    score = bleu(tokenised_bleu(), ["A b c d e"], ["a b c d f"])
    assert score.value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert "tok:none" in score.signature
    assert "case:lc" in score.signature
    shorter = bleu(tokenised_bleu(), ["a b c d"], ["a b c d e"])
    assert shorter.value == pytest.approx(100 * math.exp(1 - 5 / 4))
    assert bleu(tokenised_bleu(), ["a b c"], ["a b x"]).value == 0.0, "multi-bleu does not smooth"


def test_corpus_bleu_is_a_function_of_the_summed_counts() -> None:
    rng = np.random.default_rng(0)
    hypotheses = [" ".join(rng.choice(list("abcd"), 8)) for _ in range(50)]
    references = [" ".join(rng.choice(list("abcd"), 7)) for _ in range(50)]
    hyp, ref, *rest = bleu_counts(hypotheses, references).sum(0)
    precision = np.array(rest[:4]) / np.array(rest[4:])
    value = 100 * min(1, math.exp(1 - ref / hyp)) * np.exp(np.log(precision).mean())
    assert bleu(tokenised_bleu(), hypotheses, references).value == pytest.approx(value)


def test_the_interval_of_seeds_is_that_of_students_t() -> None:
    values = [34.1, 35.0, 33.2, 34.4]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    ours = seed_group(values)
    assert (ours.mean - ours.half_width, ours.mean + ours.half_width) == pytest.approx((low, high))
    assert math.isnan(seed_group([1.0]).half_width)


def test_a_row_is_tested_against_a_row_of_its_own_table() -> None:
    names = {e.name for e in experiments()}
    named = {e.name: e.sibling(e.baseline) for e in experiments() if e.baseline}
    assert names.issuperset(named.values())
    assert named["003/tablenmt/laptop/word-structured"] == "003/tablenmt/laptop/word-simple", "not characters"


@pytest.mark.parametrize(
    ("printed", "values", "reason", "verdict"),
    [
        ("34.61", [34.0, 34.5, 35.0], "", "reproduced"),
        ("20.90", [34.0, 34.5, 35.0], "", "higher"),
        ("50.00", [34.0, 34.5, 35.0], "", "lower"),
        ("34.61", [34.0, 35.0], "", "inconclusive"),
        ("34.61", [34.0, 34.5, 35.0], "other data", "not comparable"),
        ("47.1", [47.141, 47.142, 47.143], "", "reproduced"),
        ("47.10", [47.141, 47.142, 47.143], "", "reproduced"),
        ("47.1", [47.142], "", "inconclusive"),
        ("1.0", None, "", "not run"),
    ],
)
def test_verdicts(printed: str, values: list[float] | None, reason: str, verdict: str) -> None:
    assert judge(printed, values, reason).verdict == verdict


@pytest.mark.parametrize(
    ("printed", "value", "verdict"),
    [
        ("47.1", 47.142, "reproduced"),
        ("47.1", 47.151, "higher"),
        ("40", 39.4, "lower"),
        ("600", 600, "reproduced"),
        ("9930", 9927, "lower"),
    ],
)
def test_a_value_that_does_not_vary_needs_one_run_and_has_to_print_the_same(
    printed: str, value: float, verdict: str
) -> None:
    for runs in (1, 3):
        assert judge(printed, [value] * runs, "", exact=True).verdict == verdict
        assert judge(printed, [value] * runs, "other data", exact=True).verdict == "not comparable"
    assert judge("9930", [9927], "", exact=True).reason == "it is 9927, which is 3 lower than 9930"
    assert judge(printed, [value, value + 9], "", exact=True).verdict == "inconclusive", "it does vary"


@pytest.mark.parametrize(
    ("printed", "value", "reason"),
    [
        ("40", 40.0, "it is 40"),
        ("47.1", 47.142, "47.142, which prints as 47.1"),
        ("47.2", 47.151, "47.151, which prints as 47.2"),
        ("47.3", 47.1512345, "it is 47.1512, which is 0.1488 lower than 47.3"),
    ],
)
def test_a_reason_says_how_far_apart_the_numbers_are(printed: str, value: float, reason: str) -> None:
    assert judge(printed, [value], exact=True).reason == reason


def test_every_cell_is_one_published_number_and_only_the_papers_own_setting_is_comparable() -> None:
    assert len(published_results()) == 470
    for experiment in experiments():
        assert all(answer.cell.published >= 0 for answer in experiment.answers if answer.cell)
        assert experiment.profile == "paper" or not experiment.comparable
    table = Request("000", "1", "paper", 1).resolve().experiments
    assert [e.answers[0].cell.published for e in table if e.answers[0].cell] == [20.90, 21.60, 20.95, 34.61, 34.03]


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("train.step=5", "did you mean 'steps'"),
        ("train.steps=many", "must be int"),
        ("train.steps", "field=value"),
        ("train.steps.x=1", "no field 'x'"),
        ("train.schedule=lineardecay", "no schedule of this name; did you mean 'linear_decay'"),
        ("model.encoder.residual=PostNorm", "no residual of this name; did you mean 'PreNorm'"),
        ("name=000/table1", "'name': only fields of recipe, model, train"),
        ("answers=bleu,x", "'answers': only fields of"),
        ("train.betas=0.9", "train.betas=0.9: must be float,float"),
        ("train.steps=0", "train.steps=0: must be a whole number of at least 1"),
        ("train.workers=-3", "train.workers=-3: must be a whole number of at least 1"),
        ("train.threads=0", "train.threads=0"),
        ("train.gpus=nan", "train.gpus=nan: must be a finite number"),
        ("train.gpus=-1", "train.gpus=-1"),
        ("train.gpus=1.5", "train.gpus=1.5: must be a share of one GPU"),
        ("train.gpus=inf", "train.gpus=inf: must be a finite number"),
        ("train.warmup=0", "train.warmup=0: must be a whole number of at least 1"),
        ("train.precision=foo", "train.precision=foo: must be one of float32, tf32, bfloat16"),
        ("train.precision=Tensor", "train.precision=Tensor: must be one of"),
        ("train.learning_rate=nan", "train.learning_rate=nan: must be a finite number above 0"),
        ("train.learning_rate=inf", "train.learning_rate=inf: must be a finite number above 0"),
        ("train.betas=0.9,nan", r"train.betas=\(0.9, nan\): must be two numbers"),
        ("model.encoder.heads=0", "model.encoder.heads=0: must be a whole number of at least 1"),
        ("model.encoder.d=-4", "model.encoder.d=-4: must be a whole number of at least 1"),
        ("recipe.corpus.dev=0", "recipe.corpus.dev=0: must be a whole number of at least 1"),
    ],
)
def test_a_bad_override_is_explained(assignment: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        overridden(experiments()[0], assignment)


@pytest.mark.parametrize("seeds", [0, 1001, 10**12])
def test_the_number_of_seeds_is_bounded(seeds: int) -> None:
    with pytest.raises(ValueError, match=f"{seeds} seeds: must be from 1 to 1000"):
        Request("000", "1", "sample", seeds).resolve()


def test_overrides_reach_nested_fields() -> None:
    changed = overridden(experiments()[0], "train.steps=7", "model.encoder.dropout=0.3")
    assert (changed.train.steps, changed.model.encoder.dropout) == (7, 0.3)


RIGHT = Statistic("right", lambda sums: sums[..., 0] * 5.0)  # per cent of 20 sentences
# right answers by seed, of the first and of the second ten sentences; whether the data is a stand-in; the test set
SYSTEMS = {
    "a": ([(2, 3), (3, 3), (2, 4)], False, "t"),
    "b": ([(9, 9), (9, 8), (9, 10)], False, "t"),
    "c": ([(5, 3), (4, 3), (3, 3)], False, "t"),
    "d": ([(9, 9), (9, 9), (9, 9)], True, "other"),
}


def scored(folder: Path, first: int, second: int, stand_in: bool, test_set: str) -> Artifact:
    """Write the answers of a run and return its scores."""
    folder.mkdir()
    right = [[float(i < first)] for i in range(10)] + [[float(i < second)] for i in range(10)]
    write_shard(folder / "sentences.arrow", pa.table({"group": ["short"] * 10 + [""] * 10, "right": right}))
    value = {"value": (first + second) * 5.0, "signature": folder.name}
    return Artifact(folder, {"meta": {"scores": {"accuracy": value}, "stand_in": stand_in, "test_set": test_set}})


def test_a_table_is_compared_with_the_paper_and_its_rows_with_each_other(tmp_path: Path) -> None:
    rows = {
        "a": RowSettings("a", "A", "", "27.5", "accuracy", "", RIGHT, changed=("train.steps=7",)),
        "b": RowSettings("b", "B", "", "60", "accuracy", "", RIGHT, caveat="of other data"),
        "c": RowSettings("c", "C", "", "", "accuracy", "smaller", RIGHT, baseline="b"),
        "d": RowSettings("d", "D", "", "90", "accuracy", "smaller", RIGHT),
        "e": RowSettings("a", "A", "", "27.5", "accuracy", "", None),
    }
    inputs = {
        f"{name} seed {seed}": scored(tmp_path / f"{name}{seed}", *right, *about)
        for name, (seeds, *about) in SYSTEMS.items()
        for seed, right in enumerate(seeds)
    }
    job = Job(tmp_path, tmp_path, inputs, Store(tmp_path), Executor(), "")
    made = compare(job, CompareSettings("A table", tuple(rows.values()), (0, 1, 2)))
    assert json.loads((tmp_path / "verdicts.json").read_text()) == made
    assert made["title"] == "A table"
    a, b, c, d, e = made["rows"]
    assert (a["values"], a["seeds"], a["changed"]) == ({"accuracy": [25.0, 30.0, 30.0]}, [0, 1, 2], ["train.steps=7"])
    assert (a["signatures"], a["published"], c["published"]) == ({"accuracy": "a0"}, 27.5, None)
    assert a["intervals"]["accuracy"]["mean"] == pytest.approx(85 / 3)
    assert [row["verdict"] for row in (a, b, c, d)] == ["inconclusive", "higher", "not comparable", "not comparable"]
    assert b["reason"].endswith("; but of other data")
    assert d["reason"] == "a stand-in, not the paper's data; smaller" and d["stand_in"] and not a["stand_in"]
    assert a["against"] is d["against"] is e["against"] is None
    assert (b["against"]["baseline"], c["against"]["baseline"]) == ("a", "b")
    for row, whole, short in ((b, 90 - 85 / 3, 5 * (9 - 7 / 3)), (c, 35 - 90, 5 * (4 - 9))):
        found = row["against"]["differences"]
        assert found.keys() == {"accuracy", "accuracy/short"}
        assert [found[name]["difference"] for name in found] == pytest.approx([whole, short])
        assert [found[name]["sentences"] for name in found] == [20, 10]
    for name in ("accuracy", "accuracy/short"):
        each = [row["against"]["differences"][name] for row in (b, c)]
        assert [one["p_holm"] for one in each] == holm([one["p"] for one in each])
