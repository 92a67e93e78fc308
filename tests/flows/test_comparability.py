"""Settings of experiments beside the published ones, by the lines of phrasemodels/data/published_settings."""

from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from phrasemodels.flows.experiments.catalogue import experiment, experiments
from phrasemodels.flows.experiments.comparability import (
    ASPECTS,
    OURS,
    STATED,
    THEIRS,
    UNLIKE,
    _plain,
    kind_of,
    published_settings,
    setting_of,
    value_at,
)
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.experiments.published import published_results
from phrasemodels.flows.report.table import needed
from phrasemodels.flows.results.needs import trainings
from phrasemodels.flows.results.results import Result, _answer, kept_results
from phrasemodels.flows.results.verdicts import AVERAGE, verdicts
from phrasemodels.tasks.parsers.stanford import ByStanford
from phrasemodels.tasks.train.config import OPTIONAL
from phrasemodels.verdicts.significance import seed_group

BINARY = "003/tablebabi/paper/binary-qa02"


PAPERS = sorted({row["paper"] for row in published_results()})


def matches(e: Experiment, line: dict[str, str]) -> bool:
    return fnmatchcase(e.table.folder, line["table"]) and fnmatchcase(e.row, line["row"])


def test_every_line_is_about_a_setting_of_an_experiment_at_the_papers_size() -> None:
    known = [e for e in experiments() if e.profile == "paper" and e.recipe.trains]
    for paper, line in [(name, line) for name in PAPERS for line in published_settings(name)]:
        about = [e for e in known if e.table.paper == paper and matches(e, line)]
        assert (
            about and line["aspect"] in ASPECTS and line["by"] in (*THEIRS, OURS, STATED, UNLIKE) and line["source"]
        ), line
        assert bool(line["setting"]) or line["by"] in (OURS, STATED, UNLIKE), line
        if line["setting"]:
            may_be_none = line["value"] == "none" or setting_of(line).removeprefix("train.") in OPTIONAL
            assert may_be_none or all(value_at(e, setting_of(line)) != "none" for e in about), line


def test_of_every_row_that_answers_a_printed_number_all_aspects_are_spoken_of() -> None:
    for e in experiments():
        if e.profile == "paper" and e.recipe.trains and any(answer.cell for answer in e.answers):
            silent = [aspect for aspect, one in e.aspects.items() if not any(vars(one).values())]
            assert not silent, (e.name, silent)


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ("train.batch_rows=32", "not the paper's training: train.batch_rows is 32, not 1 (one question an update)"),
        ("model.d=50", "not the paper's size: model.d is 50, not 20 (default of the released program)"),
        ("train.threads=2", ""),
    ],
)
def test_a_row_is_comparable_as_long_as_no_setting_differs(assignment: str, reason: str) -> None:
    chosen = overridden(experiment(BINARY), assignment)
    assert chosen.differences == reason and chosen.comparable == (not reason)


def test_what_is_other_than_published_or_left_open_is_said_beside_the_verdict() -> None:
    chosen = experiment(BINARY)
    assert chosen.comparable and chosen.caveat.startswith("other than published: 8 settings: words of the task alone")
    assert any("words of the task alone" in words for words in chosen.aspects["data"].stated)
    assert experiment("003/tablebabi/laptop/binary-qa02").differences.startswith(
        "not the paper's model, training and tuning: "
    )


def test_a_setting_without_its_stated_value_is_compared_with_what_is_published() -> None:
    for system, updates in (("binary", ()), ("memn2n", ("model.linear_updates is 232, not 18000",))):
        aspects = experiment(f"003/tablebabi/laptop/{system}-qa02").aspects
        differing = [words.partition(" (")[0] for one in aspects.values() for words in one.differing]
        assert {"train.clip is 1.25, not 40", *updates} <= {*differing}
        assert not any("learning_rate" in words for words in differing), "0.01 is the released one"


def test_fewer_starts_than_are_averaged_are_said_and_either_of_two_published_values_will_do() -> None:
    few, whole = (
        experiment(f"003/tablebabi/{profile}/memn2n-qa03").aspects["training"] for profile in ("laptop", "paper")
    )
    said = "recipe.averaged is 4, not 10 (full version: facts are averaged over the best 10 starts)"
    assert said in few.differing and not whole.differing
    atis = experiment("002/table2/laptop/atis-model-6")
    for setting, shown in (("0.9 0.998", ""), ("0.9 0.98", ""), ("0.9 0.9", "0.9 0.9, not 0.9 0.98 or 0.9 0.998 (")):
        chosen = overridden(atis, f"train.betas={setting.replace(' ', ',')}")
        differing = [words for words in chosen.aspects["training"].differing if "betas" in words]
        assert [words.startswith(f"train.betas is {shown}") for words in differing] == [True] * bool(shown)
    assert not any("residual" in words or "NgramSum" in words for words in atis.aspects["model"].differing)


def test_trees_of_another_parser_are_said_of_the_rows_that_read_them() -> None:
    said = "recipe.parsed is ByStanza, not as_they_are (section 3.1: SNLI's own parses)"
    for row, reads in (
        ("table3/laptop/psan", True),
        ("table4/laptop/no-syntax", True),
        ("table4/laptop/no-psa", False),
    ):
        assert (said in experiment(f"001/{row}").aspects["data"].differing) == reads
    tasks = (
        "recipe.suite.0.parsed is ByStanza, not the Stanford parser 3.5.2 (PCFG) (section 3.1, of all transfer tasks)"
    )
    for row, reads in (("table3/laptop/psan", True), ("table2/laptop/tbcnn", True), ("table3/laptop/disan", False)):
        assert (tasks in experiment(f"001/{row}").aspects["data"].differing) == reads
    assert any("transfer tasks" in words for words in experiment("001/table2/laptop/psan").aspects["data"].stated)


def test_an_average_that_was_kept_with_another_task_in_it_says_so() -> None:
    made = next(
        r for r in kept_results() if r.experiment.name == "001/table2/laptop/psan" and r.row["metric"] == "macro"
    )
    again = replace(made, row=made.row | {"outdated": ""})
    for result, said in ((made, True), (again, False)):
        (line,) = [line for line in verdicts([result], "001") if line["source"]]
        assert line["verdict"] == "not comparable" and "transfer tasks by Stanza" in line["reason"]
        assert ("ours is an average with SST5 in it, the printed one without" in line["reason"]) == said


def test_sst2_of_whole_sentences_is_said_of_results_kept_before_it_was_phrases() -> None:
    kept = [r for r in kept_results() if r.experiment.name == "001/table3/laptop/bilstm-max"]
    whole = [r for r in kept if "learned from its 6,920 whole sentences" in r.outdated]
    assert [r.row["metric"] for r in whole] == ["SST2"] and len(kept) > 20  # of two results, the earlier one
    (old,) = whole
    assert "whole sentences" not in replace(old, row=old.row | {"outdated": ""}).outdated
    (line,) = [line for line in verdicts([old], "001") if line["source"]]
    assert (
        "whole sentences" in line["reason"]
        and "SNLI 1.0, with both parses" in line["needs"]
        and "SST-2" not in line["needs"]
    )
    assert not any("whole sentences" in line["reason"] for line in verdicts([], "001")), "nothing has run"


def test_an_inconclusive_average_has_the_further_seeds_of_its_reason() -> None:
    lines = [line for line in verdicts(list(kept_results()), "003") if line["dataset"].endswith(AVERAGE)]
    open_ones = [line for line in lines if "would decide" in line["reason"]]
    assert open_ones and all(f"{line['further_seeds']} further seed" in line["reason"] for line in open_ones)


def test_a_number_without_a_judgement_says_what_it_takes() -> None:
    lines = verdicts([], "004")
    (xlnet,) = [
        x["needs"] for x in lines if (x["table"], x["system"], x["metric"]) == ("Table 3", "LAL parser + XLNet", "F1")
    ]
    for words in ("Linguistic Data Consortium", "LDC99T42", "xlnet-large-cased (MIT"):
        assert words in xlnet
    glove = trainings([experiment("001/table2/paper/psan")])
    assert "nlp.stanford.edu/projects/glove" in glove and "Creative Commons Attribution-ShareAlike" in glove
    lines = verdicts([], "003")
    taken = next(x for x in lines if x["system"] == "Binary CRF" and x["dataset"].endswith("02"))
    assert taken["needs"] == trainings([experiment(BINARY)])
    average = next(x for x in lines if x["system"] == "Unary CRF" and x["dataset"].endswith(AVERAGE))
    assert average["needs"].startswith("12 trainings at the paper's size")
    derived = [x["needs"] for x in verdicts([], "002") if x["metric"].startswith(("gain", "relative"))]
    assert sum(words.startswith("2 trainings at the paper's size") for words in derived) == 1
    assert derived.count("ten updates of both systems on one machine") == 2


def test_both_schedules_of_paper_000_are_rows_and_the_converged_one_answers() -> None:
    for system in ("transformer", "linear-k2", "linear-k3", "phrase-k2", "phrase-k3"):
        long, short = (experiment(f"000/table1/paper/{system}{kind}") for kind in ("", "-10-epochs"))
        sentences = [e.train.steps * e.train.batch_rows / 29_000 for e in (short, long)]
        assert [round(epochs) for epochs in sentences] == [10, 80]
        assert long.answers[0].cell and not short.answers[0].cell and short.baseline == "transformer-10-epochs"
        assert short.answers[0].reading == long.answers[0].cell and not long.answers[0].reading
        assert long.comparable and any("converged reading" in words for words in long.aspects["training"].open)
        assert (long.model, long.recipe) == (short.model, short.recipe)


def test_readings_vote_with_three_runs_and_smaller_runs_never_stand_in_front() -> None:
    kept = next(r for r in kept_results() if r.experiment.name == "000/table1/laptop/transformer")

    def run(name: str, bleu: list[float]) -> Result:
        one = experiment(f"000/table1/paper/{name}")
        row = kept.row | {
            "values": {"bleu": bleu},
            "seeds": list(range(len(bleu))),
            "intervals": {"bleu": asdict(seed_group(bleu))},
            "reason_not": "",
            "settings": {},
        }
        return replace(kept, experiment=one, answer=one.answers[0], row=row | {"experiment": one.name})

    def judged(*results: Result) -> dict[str, Any]:
        (line,) = [x for x in verdicts([kept, *results], "000") if x["table"] == "Table 1" and x["source"]]
        return line

    assert judged()["verdict"] == "not comparable"
    two = judged(run("transformer-10-epochs", [20.8, 20.9]))
    assert (two["verdict"], two["kind"], two["further_seeds"], two["seeds"]) == ("not run", "too few runs", 1, 2)
    assert "10 epochs 20.85" in two["reason"] and two["readings"][1]["experiment"] == kept.experiment.name
    near, far = run("transformer-10-epochs", [20.8, 20.9, 21.0]), run("transformer", [34.8, 35.0, 35.2])
    assert judged(near)["verdict"] == "reproduced"
    both = judged(near, far)
    assert both["verdict"] == "inconclusive" and both["reason"].startswith("readings differ: main 35.00 (higher")
    assert [one["votes"] for one in both["readings"]] == [True, True, False]
    also = run("transformer-30-epochs", [20.8, 20.9])
    assert judged(near, also)["verdict"] == "reproduced", "two runs have no vote"
    looks = judged(run("transformer-10-epochs", [20.8, 20.9]), also)["readings"]
    assert [one["name"] for one in looks] == ["30 epochs", "10 epochs", ""], "the later look at one training is first"
    few, none = run("transformer-10-epochs", [19.0, 20.0, 21.0]), run("transformer", [10.0, 20.9, 32.0])
    assert judged(few)["further_seeds"] and judged(none)["further_seeds"] is None
    both = judged(few, none)
    assert both["verdict"] == "inconclusive" and both["further_seeds"] is None, "one reading alone decides nothing"
    assert "the 2 readings would all have to decide" in both["reason"]


def test_reasons_are_counted_without_their_details() -> None:
    data = "a stand-in, not the paper's data"
    assert (
        kind_of(f"{data}; not the paper's size and model: 5 settings (phrasemodels compare-settings a)")
        == f"{data}; not the paper's size and model"
    )
    assert kind_of(data) == data
    assert (
        kind_of(f"not the paper's size: 9 settings (phrasemodels compare-settings a); {data}; {data}").count(";") == 1
    )


def test_a_kept_training_whose_settings_were_changed_since_says_so() -> None:
    made = next(r for r in kept_results() if r.experiment.name == "000/table2/laptop/transformer")
    earlier = {"config": made.row["settings"]["config"] | {"steps": 300}}
    for settings, said in ((made.row["settings"], False), (earlier, True)):
        result = replace(made, row=made.row | {"settings": settings})
        (line,) = [line for line in verdicts([result], "000") if line["source"]]
        assert line["verdict"] == "not comparable"
        assert ("run with earlier settings: train.steps was 300 and is now 600" in line["reason"]) == said
        assert said or result.worth > replace(made, row=made.row | {"settings": earlier}, made="9999").worth


def test_a_counted_row_has_no_settings_to_compare() -> None:
    counted = experiment("002/table4-parameters/paper/layers-1")
    assert counted.aspects == {} and counted.comparable and not counted.caveat


def test_rows_share_a_reason_that_names_each_of_them() -> None:
    rows = [
        {
            "verdict": "not comparable",
            "reason": f"a stand-in; not the paper's size: 5 settings (phrasemodels compare-settings {name})",
        }
        for name in ("000/table1/sample/a", "000/table1/sample/b+train.steps=2")
    ]
    assert needed(rows) == ["a stand-in", "not the paper's size: 5 settings (phrasemodels compare-settings ROW)"]
    for place, row in enumerate(rows):
        row["reason"] = row["reason"].replace("5", str(5 + place)) + f"; changed: train.steps={place}"
    of_each = [
        "a stand-in",
        "not the paper's size: 5 settings (phrasemodels compare-settings ROW)",
        "changed: settings of each row",
    ]
    assert needed(rows) == of_each and needed(rows[:1]) == [*of_each[:2], "changed: train.steps=0"]


def test_word_vectors_that_are_learned_are_not_called_fixed() -> None:
    for row in ("table2/{}/psan", "table3/{}/tbcnn", "table5/{}/multi-head", "table2/{}/bilstm-max"):
        learned, fixed = (experiment(f"001/{row.format(profile)}") for profile in ("laptop", "paper"))
        said = [words for one in learned.aspects.values() for words in (*one.open, *one.differing)]
        assert not any("model.tuned" in words for words in said) and any(
            "vectors are learned" in words for words in said
        )
        one, other = (e.aspects["model"] for e in (learned, fixed))
        spoken = [one.agreeing + len(one.open) + len(one.differing) for one in (one, other)]
        assert spoken[1] == spoken[0] + 1, "of a file they are fixed, which is said"


def test_a_precision_that_the_paper_leaves_open_changes_key_and_caveat_but_no_name():
    name = "000/table1/paper/phrase-k2"
    short, exact = experiment(name), experiment(name, ["train.precision=float32"])
    assert short.train.precision == "bfloat16" and exact.train.precision == "float32"
    assert exact.name == name and not exact.reason_not(exact.answers[0])
    assert short.steps(0).trained.key != exact.steps(0).trained.key
    assert any("train.precision float32" in said for said in exact.aspects["training"].open)
    other = experiment("002/table2/paper/atis-model-4", ["train.precision=bfloat16"])
    assert other.name.endswith("+train.precision=bfloat16") and "changed" in other.reason_not(other.answers[0])


def test_a_kept_result_has_the_precision_that_it_was_trained_with():
    row = {"experiment": "000/table1/paper/phrase-k2", "settings": {"config": {"precision": "float32"}}}
    found, _ = _answer(row)
    assert found.train.precision == "float32" and found.name == row["experiment"]


def test_numbers_of_settings_are_compared_by_value() -> None:
    assert [_plain(text) for text in ("1.0", "2e-3", "0.9,0.98", "0.10", "adam")] == [
        "1",
        "0.002",
        "0.9 0.98",
        "0.1",
        "adam",
    ]


def test_trees_are_no_reason_for_a_row_without_trees() -> None:
    rows = [experiment(f"across/entailment/laptop/{row}") for row in ("transformer", "psan")]
    rows = [replace(row, recipe=replace(row.recipe, parsed=ByStanford())) for row in rows]
    assert ["trees by" in row.reason_not(row.answers[0]) for row in rows] == [False, True]
