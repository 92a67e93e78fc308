"""Report sections of semantic parsing (paper 002), from small real trainings; models that divide words into pieces."""

from pathlib import Path

import pytest
from running import executed, prepared, small_corpus

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.flows.cli.terminal import print_table
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.report.plots import attention_figures, svg_of
from phrasemodels.flows.report.table import _problem_sections
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import champion, load
from phrasemodels.flows.run.execute import Execution
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.metrics.logic_match import MISSING, ROLE
from phrasemodels.tasks.problems.recipe import Section
from phrasemodels.tasks.problems.semantic_parsing import (
    AnsweredQuestion,
    improvement,
)
from phrasemodels.tasks.train.trainer import history

TINY = ("train.batch_tokens=200", "train.evaluate_every=100", *small_corpus(60, 4, 20))  # fmt: skip
PIECES, WHOLE = (experiment(f"002/figure3/sample/merges-{n}", (*TINY, "train.steps=4")).name for n in (300, 0))


def trained(store: Path, number: str, rows: tuple[str, ...], *sets: str) -> Execution:
    """Rows of a table of paper 002, trained and compared in this process."""
    return executed(prepared(Settings(store=store), Request("002", number, "sample", 1, (*TINY, *sets), rows)))


def sections(session: Execution) -> dict[str, Section]:
    """The sections of the table's problem, by heading."""
    return {section.title: section for section in _problem_sections(session.finished())}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Execution:
    return trained(tmp_path_factory.mktemp("forms"), "figure3", ("merges-0", "merges-300"), "train.steps=4")


def test_a_model_with_pieces_answers_text_as_it_answered_the_test_set(session, tmp_path):
    model = champion(Lineage(session.store), PIECES)
    pipeline = next(p for p in session.plan.pipelines if p.trained.key == model.weights.key)
    rows = read_shard(session.store.find(pipeline.predicted).file("predictions.arrow")).to_pylist()
    assert any(piece.endswith("@@") for row in rows for piece in row["source"])
    questions = [" ".join(row["source"]).replace("@@ ", "") for row in rows]
    answers = model.predict(questions)
    assert answers == [" ".join(row["hypothesis"]).replace("@@ ", "").removesuffix("@@") for row in rows]
    assert load(model.export(tmp_path / "model")).predict(questions[:3]) == answers[:3], "merges travel with a model"


def test_every_head_of_every_attention_has_a_plot(session):
    rows = champion(Lineage(session.store), PIECES).attend("which city is the oldest ?")
    assert [row["shape"][0] for row in rows] == [8] * 4, "two layers of the encoder, two from the decoder to it"
    for figure in attention_figures(rows):
        assert all(f"head {head}<" in figure["heads"] for head in range(1, 9))


def test_the_sweep_of_merges_has_every_number(session):
    found = sections(session)
    assert found.keys() == {"Merges"}
    plot = svg_of(found["Merges"].figure)
    assert all(f">{number}<" in plot for number in (0, 300))
    assert "logic match" in plot and "exact match" in plot


def test_accuracy_on_test_is_drawn_at_every_checkpoint_and_the_last_weights_are_the_model(tmp_path):
    sets = ("train.steps=6", "train.evaluate_every=2", "train.learning_rate=0.1", "recipe.search.extra=3")
    session = trained(tmp_path / "store", "figure4", ("transformer",), *sets)
    plot = svg_of(sections(session)["Token accuracy against updates"].figure)
    assert all(f">{step}<" in plot for step in (2, 4, 6)) and "Transformer ours" in plot
    (pipeline,) = session.plan.pipelines
    made = session.store.find(pipeline.trained)
    losses = [row["dev_loss"] for row in history(made)]
    assert made.meta["best_step"] == 6 and made.meta["dev_loss"] == losses[-1] > min(losses), (
        "a rate that makes it worse"
    )


def test_a_terminal_shows_every_metric_with_its_value_on_new_pairs(session, capsys):
    rows = session.finished().comparison.meta["rows"]
    print_table({"title": "T", "rows": rows, "leaks": {}, "stages": {}, "seconds": 1.0, "report": "page"})
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("│", "┃"))]
    head = next(line for line in lines if "variant" in line)
    assert [name for name in ("metric", "ours", "new") if name in head] == ["metric", "ours", "new"]
    assert sum("logic" in line for line in lines) == sum("exact" in line for line in lines) == 2


def test_errors_are_counted_by_kind():
    gold = "( lambda $0 e ( and ( flight $0 ) ( from $0 ci1 ) ( to $0 ci0 ) ) )"
    role, part = gold.replace("ci1", "ci0"), "( lambda $0 e ( flight $0 ) )"
    first = [AnsweredQuestion("q", gold, wrong, wrong == gold, True) for wrong in (role, part, part, gold, role)]
    second = [AnsweredQuestion("q", gold, gold, right, True) for right in (True, True, True, False, False)]
    section = improvement("merges-0", first, "merges-300", second)
    counts = {kind.kind: (kind.count, len(kind.examples)) for kind in section.errors}
    assert (counts[ROLE], counts[MISSING]) == ((1, 1), (2, 2))
    assert section.text.startswith("3 questions") and "1 the other way round" in section.text
    hidden = improvement("merges-0", [AnsweredQuestion("secret", gold, part, False, False)], "merges-300", second[:1])
    assert "secret" not in str(hidden)
