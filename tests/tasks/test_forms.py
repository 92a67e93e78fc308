"""Report sections of semantic parsing (paper 002), from small real trainings; models that divide words into pieces."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from running import executed, prepared, small_corpus

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.encoders.transformer import PsanTokenEncoderConfig
from phrasemodels.flows.cli.terminal import print_table
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.report.plots import attention_figures, draw, svg_of
from phrasemodels.flows.report.table import _problem_sections
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import champion, load
from phrasemodels.flows.run.execute import Execution
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.metrics.logic_match import MISSING, ROLE
from phrasemodels.tasks.problems.recipe import Section
from phrasemodels.tasks.problems.semantic_parsing import (
    NEAREST,
    AnsweredQuestion,
    gram_neighbours,
    improvement,
    phrase_queries,
)
from phrasemodels.tasks.problems.sentence_data import PhraseBatch
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


def test_the_sweep_of_merges_has_every_number_and_phrases_have_neighbours(session):
    found = sections(session)
    assert found.keys() == {"Merges", "Phrases of merges-0", "Phrases of merges-300"}
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


def test_a_user_may_draw_any_phrase_of_the_test_set(session, monkeypatch):
    monkeypatch.setenv("PHRASEMODELS_STORE", str(session.store.root))
    model = champion(Lineage(session.store), WHOLE)
    pipeline = next(p for p in session.plan.pipelines if p.trained.key == model.weights.key)
    words = read_shard(session.store.find(pipeline.predicted).file("predictions.arrow"))["source"].to_pylist()
    phrase = next(" ".join(row[:4]) for row in words if len(row) > 4)
    assert f"{NEAREST} nearest to" in draw([model], phrase) and phrase in draw([model], phrase)
    with pytest.raises(ValueError, match="did you mean"):
        draw([model], phrase[:-1])


def test_the_nearest_phrases_have_the_smallest_angles():
    angles = np.random.default_rng(0).permutation(90)
    lengths = np.random.default_rng(1).uniform(1, 9, 90)
    vectors = np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], 1) * lengths[:, None]
    names = [f"angle {angle}" for angle in angles]
    grams = pa.table({"row": range(90), "last": [1] * 90, "phrase": names, "vector": vectors.tolist()})
    drawn = svg_of(gram_neighbours(grams, ["angle 0"]))
    assert {int(n) for n in re.findall(r">\(\d+, 1\) angle (\d+)<", drawn)} == set(range(NEAREST))
    with pytest.raises(ValueError, match="30 phrases"):
        gram_neighbours(grams.slice(0, NEAREST))


def test_a_phrase_vector_depends_on_the_four_words_that_end_there_alone():
    torch.manual_seed(0)
    (chosen,) = Request("002", "2", "sample", 1, (), ("atis-model-4",)).resolve().experiments
    encoder = dataclasses.replace(chosen.model.encoder, phrase_layers=(1,))  # later ones see words through attention
    model = dataclasses.replace(chosen.model, encoder=encoder, source_vocabulary=30, target_vocabulary=30)
    source = torch.arange(4, 22).view(2, 9)
    batch = PhraseBatch(source, torch.tensor([9, 6]), torch.empty(2, 0, 2).long(), torch.ones(2, 3).long())
    changed = source.clone()
    changed[0, 2] = 25
    built = model.build().eval()
    (size, one), (_, other) = (phrase_queries(built, dataclasses.replace(batch, source=x)) for x in (source, changed))
    assert (size, one.shape) == (4, (2, 9, 2 * 8)), "heads 7 and 8 of eight, of eight numbers each"
    assert (one != other).any(2).nonzero().tolist() == [[0, 2], [0, 3], [0, 4], [0, 5]]


def test_a_word_vector_of_a_model_without_n_grams_is_the_queries_of_its_last_heads():
    torch.manual_seed(0)
    (chosen,) = Request("002", "2", "sample", 1, (), ("atis-transformer",)).resolve().experiments
    built = dataclasses.replace(chosen.model, source_vocabulary=30, target_vocabulary=30).build().eval()
    batch = PhraseBatch(
        torch.arange(4, 13)[None], torch.tensor([9]), torch.empty(1, 0, 2).long(), torch.ones(1, 3).long()
    )
    size, vectors = phrase_queries(built, batch)
    hidden = []
    built.encoder.layers[-1].register_forward_hook(lambda _, inputs, outputs: hidden.append(inputs[0]))
    built.encode(batch.source, batch.lengths, batch.members)
    query = built.encoder.layers[-1].attention.query
    assert size == 4 and torch.allclose(vectors, hidden[0] @ query.weight[-16:].T + query.bias[-16:], atol=1e-6)
    psan = PsanTokenEncoderConfig(d=64, heads=8, layers=1, d_ff=64)
    without = dataclasses.replace(chosen.model, encoder=psan, source_vocabulary=30, target_vocabulary=30).build().eval()
    assert phrase_queries(without, batch)[1].shape == (1, 9, 0), "its attention has no heads"


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
