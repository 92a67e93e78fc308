"""Treebanks that have phrases or dependencies alone, that have arcs without relations, or that are joined."""

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from phrasemodels.data.corpora.treebank import read
from phrasemodels.data.formats.schemas import TREES
from phrasemodels.data.samples.records import Treebank
from phrasemodels.data.store.step import Job, Step
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.experiments.english import FREE_GENRES, FREE_GUM
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards
from phrasemodels.tasks.prepare.treebanks import JoinTreebanks, Take, join_treebanks
from phrasemodels.tasks.problems.parsing.data import heads_by_rules
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import averaged_adam

TERMS = {"licences": ["MIT"], "redistributable": False, "stand_in": True}


def given(job: Job, rows: list[dict[str, object]]) -> dict[str, object]:
    return TERMS | write_shards(job.out, pa.Table.from_pylist(rows, schema=TREES))


def sample(sentences: int, **columns: object) -> list[dict[str, object]]:
    rows = Treebank().tables(0, {"train": sentences})["train"].to_pylist()
    return [{**row, **columns} for row in rows]


@dataclasses.dataclass(frozen=True)
class Given:
    """A corpus of given rows for train, dev and test."""

    rows: tuple[dict[str, object], ...]
    name: str = "given"

    def split(self, split: str) -> Step:
        return Step(given, f"given {split}", list(self.rows))


LACKING = {
    "phrases": {"heads": [], "relations": []},
    "arcs": {"tree": ""},
    "arcs without relations": {"tree": "", "relations": []},
    "head-rules": {"heads": [], "relations": []},
}


@pytest.mark.parametrize("name", LACKING)
def test_a_parser_learns_what_its_treebank_has(name: str, store: Store) -> None:
    """The loss falls, and predictions have trees, heads and relations only if the treebank has them."""
    chosen = experiment(
        f"004/alone/sample/{name.split()[0]}", ("train.steps=12", "train.evaluate_every=6", "train.warmup=2")
    )
    corpus = Given(tuple(sample(60, **LACKING[name])))
    chosen = dataclasses.replace(chosen, recipe=dataclasses.replace(chosen.recipe, corpus=corpus))
    pipeline = chosen.steps(0)
    trained = store.run(pipeline.trained)
    assert 0 < trained.meta["dev_loss"] < 2
    (parse,) = chosen.recipe.parser(chosen.model, trained, store.run(chosen.recipe.data()["vocabulary"])).parse(
        [["a", "b"]]
    )
    wanted = {"phrases": (True, False, False), "arcs": (False, True, True), "head-rules": (True, True, False)}
    assert (bool(parse.tree), bool(parse.heads), bool(parse.relations)) == wanted.get(name, (False, True, False))
    scores = {key: score["value"] for key, score in store.run(pipeline.scored).meta["scores"].items()}
    assert (scores["f1"] > 0) is bool(parse.tree) and (scores["uas"] > 0) is bool(
        parse.heads and "heads" not in LACKING[name]
    )
    if name == "arcs without relations":
        assert scores["las"] == scores["uas"]


def test_a_treebank_that_lacks_what_is_learned_is_refused(store: Store) -> None:
    chosen = experiment("004/parser/sample/lal")
    corpus = Given(tuple(sample(5, **LACKING["phrases"])))
    numbers = dataclasses.replace(chosen.recipe, corpus=corpus).data()["train"]
    with pytest.raises(ValueError, match=r"no sentence has a tree and heads and few enough words: .* table `alone`"):
        store.run(numbers)


def test_joined_treebanks_have_only_what_may_be_taken(store: Store) -> None:
    free, other = sample(3, group="GUM_news_a", universal=["X"]), sample(2, group="GUM_fiction_b")
    for row in free:
        row["universal"] = ["X"] * len(row["tokens"])  # type: ignore[arg-type]
    inputs = {"gum": Step(given, "gum", free + other), "ewt": Step(given, "ewt", sample(4, tree=""))}
    takes = {"gum": Take(("GUM_news_",), ("CC-BY-2.5",), times=2), "ewt": Take()}
    made = store.run(Step(join_treebanks, "join", JoinTreebanks(takes), inputs))
    rows = read_shards(made).to_pylist()
    assert made.meta["licences"] == ["CC-BY-2.5", "MIT"] and made.meta["redistributable"]
    assert [row["group"] for row in rows] == ["GUM_news_a"] * 6 + [row["group"] for row in sample(4)]
    assert rows[0]["tags"] == [f"{tag}/X" for tag in free[0]["tags"]] and rows[6]["tags"] == sample(4)[0]["tags"]  # type: ignore[attr-defined]
    assert [row["id"] for row in rows] == list(range(10))
    with pytest.raises(ValueError, match="no document begins with"):
        store.run(Step(join_treebanks, "join", JoinTreebanks({"gum": Take(("EWT",))}), inputs))
    assert not {"essay", "fiction", "letter", "podcast", "whow"} & set(FREE_GENRES)
    assert FREE_GUM.documents[0] == "GUM_academic_"


def test_heads_without_relations_stand_beside_trees(tmp_path: Path) -> None:
    """The layout of NLTK's treebank and dependency_treebank."""
    (tmp_path / "combined").mkdir()
    (tmp_path / "dp").mkdir()
    tree = "( (S (NP-SBJ (-LRB- -LRB-) (NN dog)) (VP (VBZ sleeps) (NP (-NONE- *T*))) (. .)) )\n"
    arcs = "-LRB-\t-LRB-\t2\ndog\tNN\t3\nsleeps\tVBZ\t0\n.\t.\t3\n\n"
    for n in (1, 2):
        (tmp_path / "combined" / f"wsj_000{n}.mrg").write_text(tree * n)
        (tmp_path / "dp" / f"wsj_000{n}.dp").write_text((arcs * n).rstrip("\n") + "\n")
    files = {"brackets": tmp_path / "combined", "arcs": tmp_path / "dp"}
    rows = read(files, 100).to_pylist()
    assert [row["group"] for row in rows] == ["wsj_0001", "wsj_0002", "wsj_0002"]
    assert rows[0]["tokens"] == ["(", "dog", "sleeps", "."] and rows[0]["heads"] == [2, 3, 0, 3]
    assert rows[0]["relations"] == ["_"] * 4 or not rows[0]["relations"]
    assert rows[0]["tree"].startswith("(ROOT (S (NP (-LRB- -LRB-) (NN dog))") and not rows[0]["reason"]
    assert heads_by_rules(rows[0]) == [2, 3, 0, 3]
    (tmp_path / "dp" / "wsj_0002.dp").write_text(arcs)
    with pytest.raises(ValueError, match=r"3 trees and .* 2 sentences"):
        read(files, 100)
    (tmp_path / "dp" / "wsj_0001.dp").write_text("dog NN 0\n")
    with pytest.raises(ValueError, match="line 1: 1 columns between tabs, not word, tag and head"):
        read({"arcs": tmp_path / "dp"}, 100)


def test_averages_of_weights_follow_them_and_give_them_back() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    unused = torch.nn.Parameter(torch.ones(1))
    optimiser = averaged_adam([weight, unused], TrainConfig(learning_rate=0.1))
    history = [weight.detach().clone()]
    for _ in range(50):
        (weight - 1).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        history.append(weight.detach().clone())
    expected = history[1]
    for t, value in enumerate(history[1:], 1):
        decay = min(0.999, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * value
    with optimiser.averaged():  # type: ignore[attr-defined]
        torch.testing.assert_close(weight.detach(), expected)
    assert torch.equal(weight.detach(), history[-1]) and unused.item() == 1
