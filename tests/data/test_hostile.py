"""Untrusted text and names through a real run: pages, MLflow and SQL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from running import executed

from phrasemodels.data.corpora.samples import Translations
from phrasemodels.data.store.store import Store
from phrasemodels.flows.cli.terminal import print_rows
from phrasemodels.flows.experiments.catalogue import Request, Table
from phrasemodels.flows.report.page import write_report
from phrasemodels.flows.results.records import open_store
from phrasemodels.flows.results.sql import LARGE, VIEWS, query
from phrasemodels.flows.run.execute import Execution
from phrasemodels.flows.run.plan import Plan
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import ATTEMPT, Tracker, quoted
from phrasemodels.tasks.prepare.corpora import SampleCorpus

HOSTILE = {
    "markup": """</title></style>--><script>evil(1)</script>"><evil x="> &lt; {{ 7 * 7 }} {% raw %}""",
    "SQL": "x'; drop table runs; select $1, ':a' --",
    "quotes": 'one" %s \\" `',
    "lines": "one\ntwo\r\nthree\u2028four",
    "directions": "\u202eright \u2066to\u2069 left\u200f \u0301",
}
NAMES = (("markup", "quotes", "directions"), ("SQL", "lines"))  # of the rows, so long that plots have to wrap them
TINY = ("train.steps=4", "train.evaluate_every=4", "train.checkpoint_every=4", "train.batch_tokens=600",
        "model.encoder.layers=1", "model.encoder.heads=2")  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    """BITEXT whose sentences and groups hold the hostile texts in turn."""

    def tables(self, sizes: Mapping[str, int]) -> dict[str, pa.Table]:
        return {split: hostile(found) for split, found in Translations().tables(sizes).items()}


def hostile(found: pa.Table) -> pa.Table:
    texts = [list(HOSTILE.values())[row % len(HOSTILE)] for row in range(found.num_rows)]
    for name in ("source", "target", "group"):
        values = texts if name == "group" else [f"{a} {b}" for a, b in zip(found[name].to_pylist(), texts, strict=True)]
        place = found.schema.get_field_index(name)
        found = found.set_column(place, found.schema.field(name), pa.array(values, found.schema.field(name).type))
    return found


class Read(HTMLParser):
    """A parsed page: its elements and attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements += [tag, *(name for name, _ in attrs)]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    ("question", "message"),
    [("", "is empty"), (" ;", "is empty"), ("-- x", "is empty"), ("select '\ud800'", "is no UTF-8")],
)
def test_a_query_that_is_empty_or_not_utf8_is_refused_in_one_line(question: str, message: str, store: Store) -> None:
    with pytest.raises(ValueError, match=f"^the question {message}: .*$"):
        query(store, Tracker("sqlite:///nowhere.db"), question)


def test_a_query_that_would_change_a_table_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="only questions are answered"):
        query(store, Tracker("sqlite:///nowhere.db"), "select 1; delete from verdicts")


def test_control_characters_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;evil\x07\x9b2J\x7f犬"
    print_rows(evil, [evil], [{evil: evil}])
    out = capsys.readouterr().out
    assert out.count("]0;evil") == out.count("犬") == 3
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Execution, Read]:
    """A table whose rows have hostile names, run in this process and logged to MLflow, and its page."""
    (row,) = Request("000", "1", "sample", 1, TINY, ["transformer"]).resolve().experiments
    recipe = replace(row.recipe, corpus=SampleCorpus(train=60, dev=10, test=5, records=Hostile()))
    rows = tuple(
        replace(row, row=f"{row.row}{text}", system=text, variant=text, recipe=recipe)
        for text in (" ".join(HOSTILE[name] for name in names) for names in NAMES)
    )
    plan, settings = Plan(Table("000", "1", "sample", rows, (0,))), Settings(store=tmp_path_factory.mktemp("hostile"))
    made = executed(Execution.of(plan, open_store(settings), settings, "it's"))
    for pipeline in made.plan.pipelines:
        made.record.finish(pipeline, made.store.run(pipeline.scored))
    for view in VIEWS.keys() - {*LARGE}:  # which have kept results alone
        query(made.store, made.record.tracker, f"select * from {view}")
    return made, Read(write_report(made.finished()).read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_stays_text_in_pages_sql_and_mlflow(ran: tuple[Execution, Read], text: str) -> None:
    session, page = ran
    assert not [name for name in page.elements if re.search(r"evil|[^a-z0-9:-]", name, re.I)]
    shown = re.sub("[\u202a-\u202e\u2066-\u2069]", "\ufffd", text)  # marks that turn the direction of what follows
    assert " ".join(shown.split()) in " ".join(page.text.split())

    words = text.split()
    _, rows = query(session.store, session.record.tracker, "select distinct source from predictions")
    assert any(source[-len(words) :] == words for (source,) in rows)

    tracker = session.record.tracker
    first = tracker.open_run(text, text, f"key {text}", {ATTEMPT: text})
    assert tracker.open_run(text, text, f"key {text}", {ATTEMPT: text}) == first
    tracker.end_runs(text)
    assert tracker.client().get_run(first).info.status == "KILLED"
    assert tracker.client().search_model_versions(f"name = {quoted(text)}") == []
    with pytest.raises(ValueError, match="both kinds of quotes"):
        quoted(f"{text}\"'")
