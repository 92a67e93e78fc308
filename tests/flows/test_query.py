"""Answers of `sql`: names of columns are unique, and views are found in any case."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import check_keys, run_cli
from small_steps import answers, scores, train_before, train_since

import phrasemodels
from phrasemodels.data.formats import shards
from phrasemodels.data.formats.shards import write_parquet
from phrasemodels.data.store.store import Job, Step, Store
from phrasemodels.flows.results import exchange, sql
from phrasemodels.flows.results.exchange import read_scores
from phrasemodels.flows.results.sql import VIEWS, Answers, query, write_shards
from phrasemodels.flows.results.sql import _rows_of as rows_of
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.prepare.corpora import SampleCorpus


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("select 1 as key, 2 as key, 3 as Key", ["key", "key_1", "Key_2"]),
        ("select 1 as key, 2 as key_1, 3 as key, 4 as key_1", ["key", "key_1", "key_2", "key_1_1"]),
        ("select a.n, b.n from (select 1 as n) a, (select 2 as n) b", ["n", "n_1"]),
        ("select 1 as a, 2 as b", ["a", "b"]),
    ],
)
def test_columns_of_an_answer_have_unique_names(question: str, names: list[str], store: Store) -> None:
    columns, (row,) = query(store, None, question)  # type: ignore[arg-type]
    assert columns == names and list(row) == list(range(1, len(names) + 1))


def test_several_questions_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="these are 2 questions: ask one at a time"):
        query(store, None, "select 1; select 2")  # type: ignore[arg-type]


def test_a_view_that_does_not_exist_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="no view 'verdict': did you mean 'verdicts'"):
        phrasemodels.results("verdict", "arrow")


ANSWERS = {  # of types that JSON, or Parquet, has not
    "select 170141183460469231731687303715884105727::hugeint as a, 3::hugeint as b": [
        {"a": 170141183460469231731687303715884105727, "b": 3}],
    "select map([1, 2], ['x', 'y']) as a": [{"a": {"1": "x", "2": "y"}}],
    "select date '2020-01-02' as a, timestamp '2020-01-02 03:04:05' as b": [{"a": "2020-01-02", "b": "2020-01-02 03:04:05"}],
    "select 'nan'::double as a, 'inf'::double as b, [1.5, 'nan'::double] as c": [{"a": None, "b": None, "c": [1.5, None]}],
    "select {'x': 'inf'::float} as a, time '10:00' as b, 1.25::decimal(30,2) as c": [
        {"a": {"x": None}, "b": "10:00:00", "c": "1.25"}],
}  # fmt: skip


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_of_any_type_is_written_as_json_and_as_parquet(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    done = run_cli("sql", question, "--json")
    assert json.loads(done.stdout, parse_constant=pytest.fail) == ANSWERS[question]
    assert run_cli("sql", question, "--to", str(tmp_path / "a.parquet")).exit_code == 0
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 1


def test_an_answer_is_written_as_csv_with_lists_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    run_cli(
        "sql",
        "select 'a, b' as x, sum(2) as n, [1, null] as l, {'d': date '2026-01-02'} as s",
        "--to",
        str(tmp_path / "a.csv"),
    )
    header, row = (tmp_path / "a.csv").read_text().splitlines()
    assert header == '"x","n","l","s"'
    assert row == '"a, b",2,"[1, null]","{""d"": ""2026-01-02""}"'


def test_kept_rows_are_traced_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    one, other = "results/000-table1-laptop/phrase-k2", "results/000-table1-laptop/transformer"
    known = {line["name"]: line["other"] for line in json.loads(run_cli("trace", one, "--json").stdout)}
    assert known["inputs.licences"] == '["LicenseRef-Multi30k"]' and len(known["result.commit"]) == 40
    differing = {line["name"] for line in json.loads(run_cli("trace", one, "--against", other, "--json").stdout)}
    assert "settings.model.encoder.sigma" in differing and "settings.config.steps" in known.keys() - differing
    assert "did you mean 'phrase-k3'?" in str(run_cli("trace", "results/000-table1-laptop/phrase-k9").exception)
    assert "did you mean '000-table1-laptop'?" in str(run_cli("trace", one.replace("table1", "tabe1")).exception)


def test_a_type_that_parquet_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    done = run_cli("sql", "select interval 1 day as c", "--to", str(tmp_path / "a.parquet"))
    assert done.exit_code == 0 or "cast the column" in str(done.exception or done.output)


def test_a_view_whose_name_is_computed_has_its_rows(store: Store, tmp_path: Path) -> None:
    """Every view is made for such a question, so one question names both ways."""
    question = (
        "select (select count(*) from query_table('publi' || 'shed')), count(*) from query('from publ' || 'ished')"
    )
    (counts,) = query(store, Tracker(f"sqlite:///{tmp_path}/none.db"), question)[1]
    assert min(counts) > 400


def test_a_question_that_takes_too_much_memory_is_refused_in_one_line(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phrasemodels.flows.results.sql.MEMORY", "50MB")
    with pytest.raises(ValueError, match=r"^Out of Memory Error[^\n]*$"):
        query(store, None, "select list(a order by random()) from range(20000000) t(a)")  # type: ignore[arg-type]


def test_a_long_question_ends_at_ctrl_c(store: Store) -> None:
    query(store, None, "select 1")  # type: ignore[arg-type]
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)  # as Ctrl-C, but of this process' time
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            query(store, None, "select count(*) from range(1000000) a, range(1000000) b where a.range * b.range = 7")  # type: ignore[arg-type]
    finally:
        signal.signal(signal.SIGVTALRM, before)


def test_views_are_found_in_any_case(store: Store) -> None:
    (row,) = query(store, None, "SELECT count(*) > 400 FROM Published")[1]  # type: ignore[arg-type]
    assert row == (True,)


def test_views_are_read_where_they_are_and_not_copied(store: Store) -> None:
    assert query(store, None, "select count(*) from duckdb_tables()")[1] == [(0,)]  # type: ignore[arg-type]
    assert ("published",) in query(store, None, "show tables")[1]  # type: ignore[arg-type]


def test_a_plain_duckdb_reads_the_shards_by_their_path_in_the_view(store: Store, tmp_path: Path) -> None:
    store.run(SampleCorpus(train=7, dev=1, test=1).split("train"))
    write_shards(store, str(tmp_path / "some" / "records"))
    shards = query(store, Tracker(f"sqlite:///{tmp_path}/none.db"), "select parquet, rows from shards")[1]
    (terms,) = duckdb.sql(
        f"select distinct value::varchar from parquet_kv_metadata('{tmp_path}/some/records/*/*/*.parquet') where key = 'licences'"
    ).fetchall()
    assert [rows for _, rows in shards] == [7] and "Apache-2.0" in str(terms)
    for path, rows in shards:
        assert duckdb.sql(f"select count(*) from '{tmp_path}/some/records/{path}'").fetchall() == [(rows,)]


ROW = "000/table1/sample/transformer"


def trained(store: Store, make: Callable[..., Any], seed: int) -> Step:
    """Train a seed of ROW, and answer by it. Return the answers."""
    about = {"experiment": ROW, "seed": seed}
    model = Step(make, "train", {"seed": seed}, about=about)
    store.run(made := Step(answers, "answer", None, {"model": model}, about=about))
    return made


def test_keys_are_unique_and_what_they_name_exists_over_all_kept_results(store: Store, tmp_path: Path) -> None:
    """Also of trainings by two versions of the code, one of which has two starts and was scored by both versions."""
    for make, seed in ((train_before, 0), (train_before, 1), (train_since, 1)):
        made = trained(store, make, seed)
    for value in (1.0, 2.0):
        store.run(Step(scores, "score", value, {"predictions": made}, about=made.about))
    with Answers(store, Tracker(f"sqlite:///{tmp_path}/none.db")) as results:
        check_keys(results)
        (counts,) = results.answer("select " + ", ".join(f"(select count(*) from {view})" for view in KEPT), rows_of)[1]
        assert results.answer("select value from metrics where metric = 'bleu'", rows_of)[1] == [(2.0,)]
        starts = "select restart, count(*) from predictions group by 1 order by 1"
        assert results.answer(starts, rows_of)[1] == [(0, 6), (1, 6)]
        sizes = "select count(*) > 90, count(*) filter (warning <> '') from seeds where problem like 'size-%'"
        assert results.answer(sizes, rows_of)[1] == [(True, 0)]
        beyond = "select count(*) from seeds where metric in ('answer', 'bleu') and (low < 0 or high > 100)"
        assert results.answer(beyond, rows_of)[1] == [(0,)]
        costs = "select seeds, train_seconds from experiments where origin = 'store'"
        assert results.answer(costs, rows_of)[1] == [(1, 10.0)]
    assert min(counts) > 30


def test_no_file_of_records_is_read_for_the_list_of_them(store: Store, tmp_path: Path) -> None:
    made = trained(store, train_since, 0)
    (store.run(made).path / "predictions.arrow").unlink()
    files = query(store, Tracker(f"sqlite:///{tmp_path}/none.db"), "select file, rows, columns from shards")
    assert files[1] == [("predictions.arrow", 4, ["restart", "id", "group"])]


def test_a_question_leaves_nothing_behind_that_a_later_one_sees(store: Store) -> None:
    with Answers(store, None) as results:  # type: ignore[arg-type]
        results.answer("explain analyze create view published as select 1 where false", rows_of)
        for question in ("create view published as select 1", "prepare a as select 1", "execute a", "begin"):
            with pytest.raises(ValueError, match="only questions are answered"):
                results.answer(question, rows_of)
        assert results.answer("select count(*) > 400 from published", rows_of)[1] == [(True,)]


KEPT = ("verdicts", "claims", "published", "compared", "seeds", "experiments", "settings", "sentence_scores")


def test_several_questions_are_asked_of_views_that_are_made_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    rows = sql._rows
    monkeypatch.setattr(sql, "_rows", lambda name, data: (made.append(name), rows(name, data))[1])
    monkeypatch.setenv("PHRASEMODELS_STORE", str(store.root))
    with phrasemodels.opened_results() as db:
        assert len(db.ask("published", "arrow")) == len(db.ask("from published", "arrow")) > 400
        with pytest.raises(ValueError, match='"paperr" not found'):
            db.ask("select paperr from verdicts")
        assert db.ask("select count(*) as n from published", "arrow")["n"].to_pylist() == [470]
    assert made == ["published"]


def test_a_view_is_described_with_the_meaning_of_its_columns(store: Store) -> None:
    columns, rows = query(store, None, " DESCRIBE Seeds;")  # type: ignore[arg-type]
    assert columns == ["column_name", "column_type", "key", "meaning"]
    assert [row[0] for row in rows if row[2]] == list(VIEWS["seeds"].key) and all(row[3] for row in rows)


def diverge(job: Job, settings: int) -> dict[str, Any]:
    """Leave no scores, as the data of a diverged training."""
    return {}


def compare(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": "t", "rows": rows}


def compared(store: Store, experiment: str, make: Callable[..., Any], values: dict[int, float | None]) -> None:
    """Compare seeds of a row by their values. None: the seed diverged."""
    steps, lost = {}, [seed for seed, value in values.items() if value is None]
    for seed, value in values.items():
        about = {"experiment": experiment, "seed": seed}
        model = Step(make, "train", {"seed": seed}, about=about)
        made = Step(diverge, "data", seed) if value is None else Step(scores, "score", value, {"m": model}, about=about)
        steps[f"{experiment} seed {seed}"] = made
    row = {"experiment": experiment, "metric": "bleu", "seeds": list(values), "diverged": lost}
    store.run(Step(compare, "compare", [row], steps))


LOST = None
SINCE = [(train_since, {0: LOST, 1: 7.0, 2: LOST})]


@pytest.mark.parametrize(
    ("comparisons", "mean", "n", "lost", "warned"),
    [
        ([*SINCE, (train_since, {3: 6.0, 4: LOST})], 2.6, 5, 3, "3 of 5 seeds diverged"),
        ([*SINCE, (train_since, {3: 5.0, 4: 6.0})], 3.6, 5, 2, "2 of 5 seeds diverged"),
        ([(train_since, {0: LOST}), (train_since, {1: 7.0})], 3.5, 2, 1, "1 of 2"),
        ([(train_before, {0: 9.0, 1: 9.0, 5: 9.0}), *SINCE], 7 / 3, 3, 2, "seeds 5 are of earlier"),
        ([(train_before, {0: 9.0, 1: 9.0}), (train_since, {0: LOST})], 0.0, 1, 1, "seeds 1 are of earlier"),
        ([(train_before, {0: LOST, 1: 9.0}), (train_since, {0: 7.0, 1: 8.0})], 7.5, 2, 0, ""),
        ([(train_before, {0: LOST}), (train_since, {0: 7.0, 1: 8.0})], 7.5, 2, 0, ""),
    ],
)
def test_seeds_that_diverged_are_counted_over_all_comparisons_of_the_newest_code(
    comparisons: Any, mean: float, n: int, lost: int, warned: str, store: Store, tmp_path: Path
) -> None:
    for make, values in comparisons:
        compared(store, ROW, make, values)
    question = "select mean, n, diverged, warning from seeds where origin = 'store'"
    (row,) = query(store, Tracker(f"sqlite:///{tmp_path}/none.db"), question)[1]
    assert (pytest.approx(row[0]), *row[1:3]) == (mean, n, lost) and warned in row[3]


@pytest.mark.parametrize("metric", ["edits", "length_ratio", "latency"])
def test_a_metric_without_a_known_worst_value_has_none_of_seeds_that_diverged(metric: str) -> None:
    scale = sql._scale(metric, {"answer"})
    row = sql._Seeds({0: (923.0, "a"), 1: (0.0, "b")}, {1}).over(scale)
    assert (row["mean"], row["n"], row["diverged"], row["run_ids"]) == (923.0, 1, 1, ["a"])
    assert "1 of 2 seeds diverged and have no value" in row["warning"]
    assert scale.higher_is_better is (False if metric == "latency" else None)
    assert sql._Seeds({0: (999.0, ""), 1: (1045.0, "")}).over(scale)["high"] > 1045
    assert sql._Seeds({}, {0}).over(scale)["mean"] is None
    assert sql._scale("answer/mean", {"answer"}).higher_is_better is True


@pytest.mark.parametrize(
    ("question", "made"),
    [
        ("select 'seeds', 'runs' as sentence_scores", []),
        ("with seeds as (select 1 as a) select a from seeds", []),
        ("select (select count(*) from Published)", ["published"]),
        ("pivot (select paper, value from published) on paper using avg(value)", ["published"]),
    ],
)
def test_only_the_views_that_a_question_reads_are_made(
    question: str, made: list[str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    rows = sql._rows
    monkeypatch.setattr(sql, "_rows", lambda name, *of: (asked.append(name), rows(name, *of))[1])
    query(store, None, question)  # type: ignore[arg-type]
    assert asked == made


BOUNDED = """
import sys
from pathlib import Path
from phrasemodels.data.store.store import Job, Step, Store
from phrasemodels.flows.results import records, sql
records.MEMORY = 2**29
try:
    sql.query(Store(Path(sys.argv[1])).open(), None, "select unnest(range(9000000))")
except ValueError as error:
    print(error)
"""


@pytest.mark.slow  # a process that reaches its limit may be ended by a library: by itself, not beside other tests
def test_the_rows_of_an_answer_are_bounded_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, tmp_path / "store"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r".*(needs more than 0.5 GiB of memory|may take 4GB).*\n", done.stdout)


def test_scores_in_parquet_are_read_from_the_needed_columns_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, pa.table({"score": [1.0, 2.0], "seed": ["0", "1"], "notes": [["x"] * 9, []]}))
    assert read_scores([str(path)])
    monkeypatch.setattr(exchange, "MOST_ROWS", 1)
    with pytest.raises(ValueError, match=r"a\.parquet: more than 1 rows"):
        read_scores([str(path)])
    write_parquet(path, pa.table({"bleu": [1.0], "notes": [["x"] * 9]}))
    with pytest.raises(ValueError, match=r"a\.parquet: column notes has lists or records"):
        read_scores([str(path)])


def test_a_file_that_unpacks_to_more_than_the_memory_is_refused_before_it_is_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shards, "MEMORY", 3 * 2**28)
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4000, np.int32)), pa.array(["x" * 100_000]))
    write_parquet(tmp_path / "a.parquet", pa.table({"score": np.ones(4000), "seed": text}))
    zeros = pa.table({"row": np.zeros(2**27)})
    with pa.ipc.new_file(tmp_path / "a.arrow", zeros.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as to:
        to.write_table(zeros)
    for name in ("a.parquet", "a.arrow"):
        assert (tmp_path / name).stat().st_size < 1e6
        with pytest.raises(ValueError, match=rf"{name}: it needs more than 0.75 GiB of memory$"):
            shards.check_unpacked(tmp_path / name, ["score", "seed"])
    with pytest.raises(ValueError, match="it needs more than"):
        read_scores([str(tmp_path / "a.parquet")])
    (tmp_path / "b.arrow").write_bytes(b"ARROW1")
    with pytest.raises(ValueError, match=r"b\.arrow: damaged \(.*too small"):
        shards.check_unpacked(tmp_path / "b.arrow")


def test_a_database_that_cannot_be_written_leaves_nothing(store: Store, tmp_path: Path, monkeypatch) -> None:
    def full(connection: duckdb.DuckDBPyConnection, *_: object) -> None:
        connection.execute("create table a as select 1")
        raise duckdb.IOException('IO Error: Could not write file "x": No space left on device\nmore')

    monkeypatch.setattr(sql, "_write_views", full)
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(OSError, match=r"a.duckdb could not be written: No space left on device$"):
        sql.write_database(store, None, folder / "a.duckdb")  # type: ignore[arg-type]
    assert not list(folder.iterdir())


def test_an_overridden_row_has_the_problem_of_its_recipe(store: Store, tmp_path: Path) -> None:
    name = "000/table2/sample/transformer+recipe.tags.column=universal"
    compared(store, name, train_since, {0: 7.0})
    question = "select distinct problem from seeds where origin = 'store'"
    assert query(store, Tracker(f"sqlite:///{tmp_path}/none.db"), question)[1] == [("tagging-sample-universal",)]
