"""The command line: help, results, and one line for each mistake of a user."""

import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import PROJECT
from running import run_cli

from phrasemodels.data.corpora import added
from phrasemodels.data.formats.lines import lines_or_stdin, lines_with_replacements
from phrasemodels.flows.cli import machine, models
from phrasemodels.flows.cli.main import main
from phrasemodels.flows.cli.terminal import CONTROL, _best, _services, clean, print_rows, wrapped
from phrasemodels.flows.experiments.catalogue import about, all_papers, experiment, tables_of
from phrasemodels.flows.report import readable
from phrasemodels.flows.run.local import prepare_folder, train_prepared
from phrasemodels.flows.run.trained import keep_trained
from phrasemodels.tasks.train.config import inverse_sqrt

MISTAKES = (
    (("reproduce", "--paper", "0000"), "did you mean '000'"),
    (("reproduce", "--table", "9"), "known: 1, "),
    (("reproduce", "--profile", "labtop"), "did you mean 'laptop'"),
    (("reproduce", "--set", "train.step=5"), "did you mean 'steps'"),
    (("reproduce", "--set", "recipe.corpus.name=mine"), "generates its corpus; take profile laptop"),
    (("reproduce", "--row", "phrase-k4"), "did you mean 'phrase-k3'"),
    (("reproduce", "--seeds", "0"), "must be from 1 to 1000"),
    (("train", "000/table1/sample/phrase-k9", "--local"), "did you mean '000/table1/sample/phrase-k"),
    (("train", "000/table1/sample/phrase-k2", "--local", "--data", "nowhere"), "make the folder again"),
    (("sql", "select 1", "--to", "answer.txt"), "ends with .parquet"),
    (("draw", "x", "--text", " "), "an empty text"),
    (("sql", "selec '\x1b]0;evil\x07'"), "selec '\N{REPLACEMENT CHARACTER}]0;evil"),
    (("draw", "x", "--text", "a", "--to", "figure.png"), "ends with .html"),
    (("train", "000/table1/sample/phrase-k2", "--data", "nowhere"), "--data needs --local"),
    (("train", "000/table1/sample/phrase-k2", "--local", "--out", "here"), "--out needs --local --data"),
    (("plan", "--set", f"train.steps={'9' * 400}"), "must be a whole number"),
    (("plan", "--set", "train.steps=1\n\u202e2"), "train.steps=1 \ufffd2: must be int"),
    *(
        (("keep", name), "not the name of a folder in results/")
        for name in ("", ".", "../up", "a\x1b", ".a", "a" * 201)
    ),
    (("sql", "--database", "a\udcff"), "whose name is not UTF-8: choose another name"),
    (("plan", "--row", "a\udcff"), "is not UTF-8: write it again"),
    (("reproduce", "--profile", "laptop", "--offline"), "multi30k/test_2016_flickr.en.gz"),
)


def test_mistakes_are_explained_in_one_line(in_own_store, monkeypatch):
    for arguments, words in MISTAKES:
        monkeypatch.setattr(sys, "argv", ["phrasemodels", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert words in str(end.value), arguments


ROW = "000/table1/sample/phrase-k2"


@pytest.mark.parametrize("asked", ["train.gpus=1", "train.workers=64", "train.threads=64"])
@pytest.mark.parametrize(
    "command", [("reproduce",), ("train", ROW), ("train", ROW, "--local"), ("train", ROW, "--local", "--data", ".")]
)  # fmt: skip
def test_what_this_machine_never_holds_is_refused_before_anything_starts(command, asked, in_own_store, monkeypatch):
    monkeypatch.setattr("phrasemodels.infra.services.start_ray", lambda settings: pytest.fail("Ray started"))
    monkeypatch.setattr("phrasemodels.infra.services.services", lambda settings: pytest.fail("services started"))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    said = str(run_cli(*command, "--set", asked).exception)
    assert "need {'CPU': " in said and "this machine has [{'CPU': " in said
    assert not [path for path in Path(os.environ["PHRASEMODELS_STORE"]).rglob("*.json") if path.parent.name == "runs"]


def test_torchrun_is_refused(in_own_store, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert "leave it out, and set train.workers=N" in str(run_cli("train", ROW, "--local").exception)


def test_unknown_words_cannot_change_the_terminal(capsys):
    models.warn_of_unknown_words(SimpleNamespace(unknown_words=list), ["a\x1b[31m\nb", "\u202ec", "d" * 10_000])
    told = capsys.readouterr().err
    assert told.endswith("word: a\ufffd[31m b, \ufffdc, " + "d" * 100 + "\n") and told.count("\n") == 1


def test_the_version_is_that_of_the_package():
    assert run_cli("--version").stdout.split() == [version("phrasemodels")]


def test_a_mistake_prints_one_line_and_no_traceback(cli):
    done = cli("reproduce", "--paper", "0000")
    assert done.returncode == 1
    assert done.stderr.startswith("phrasemodels: ") and len(done.stderr.splitlines()) == 1


def test_an_unknown_option_suggests_the_nearest(cli):
    done = cli("reproduce", "--profil", "sample")
    assert done.returncode == 2
    assert "--profile" in done.stderr


def test_an_unwritable_store_is_named_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    done = run_cli("reproduce", env={"PHRASEMODELS_STORE": str(tmp_path / "file" / "store")})
    assert done.exit_code == 1
    assert "cannot be written to" in str(done.exception)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "Error writing bytes"), "the disk of the output is full: free some space"),
        (shutil.Error([("here/a", "there/a", "no room"), ("here/b", "there/b", "no room")]), "there/a: no room"),
    ],
)
def test_a_study_that_cannot_be_written_is_one_line_and_leaves_nothing(error, said, tmp_path, monkeypatch):
    monkeypatch.setattr(added, "add", lambda *_: (_ for _ in ()).throw(error))
    monkeypatch.setattr(sys, "argv", ["phrasemodels", "init", str(tmp_path / "mine")])
    with pytest.raises(SystemExit) as end:
        main()
    assert str(end.value).startswith(f"phrasemodels: {said}") and "/b" not in str(end.value)
    assert not any((tmp_path / "mine").iterdir())


def test_a_negative_seed_is_refused(cli):
    done = cli("train", "000/table1/sample/phrase-k2", "--local", "--seed", "-1")
    assert done.returncode == 2
    assert "'--seed'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("judgee",), "phrasemodels: no such command 'judgee': did you mean 'judge'?; `phrasemodels --help` says more"),
        (
            ("judge", "printed.csv"),
            "phrasemodels judge: missing argument 'results'; `phrasemodels judge --help` says more",
        ),
        (("corpora", "show"), "phrasemodels corpora show: missing argument 'name'; `phrasemodels corpora show --help`"),
    ],
)
def test_wrong_arguments_are_explained_in_one_line(arguments, said):
    done = run_cli(*arguments)
    assert done.exit_code == 2 and done.output.startswith(said) and done.output.count("\n") == 1


@pytest.mark.parametrize(("closed", "code", "message"), [(1, 1, "standard output is closed"), (2, 0, ""), (0, 0, "")])
def test_a_closed_stream_is_one_line_and_no_file_takes_its_number(closed, code, message, tmp_path):
    """The program prints the number of a file that it opens then, to the first stream that is open."""
    program = "import phrasemodels.__main__ as m; m._open_streams(); print(open('x', 'w').fileno() > 2)"
    shell = f'exec "$0" -c "$1" {closed}{"<&-" if closed == 0 else ">&-"}'
    done = subprocess.run(["sh", "-c", shell, sys.executable, program], cwd=tmp_path, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(PROJECT)})  # fmt: skip
    assert done.returncode == code and message in done.stderr and len(done.stderr.splitlines()) == bool(message)
    assert code or done.stdout == "True\n"


@pytest.mark.parametrize("read", [lines_or_stdin, lambda path: lines_with_replacements(path, print)])
def test_closed_standard_input_is_named(read, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match=r"^-: standard input is closed; name a file"):
        list(read(Path("-")))


def test_help_imports_no_large_library(cli):
    for arguments in ((), ("reproduce",), ("sql",), ("train",)):
        assert "Usage" in cli(*arguments, "--help").stdout
    heavy = ("torch", "ray", "prefect", "mlflow", "pyarrow")
    loaded = f"import sys, phrasemodels.flows.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_experiments_are_listed_with_the_numbers_they_answer(in_own_store):
    rows = json.loads(run_cli("experiments", "--json").stdout)
    assert {
        "experiment",
        "paper",
        "table",
        "system",
        "variant",
        "problem",
        "corpus",
        "dataset",
        "metric",
        "published",
        "comparable",
    } == rows[0].keys()
    assert (
        len([row for row in rows if row["experiment"].startswith("000/table1/")]) == 27
    )  # the paper's size thrice, 10 and 30 epochs and converged, and twice by the code that the paper was probably built on


def test_tables_are_listed_with_what_each_is_about(cli):
    said = cli("experiments").stdout
    assert (
        "--table 1  Table 1: BLEU of five systems, English to German\n      translation · multi30k · bleu · rows: 17"
        in said
    )
    assert all(about(paper, number) for paper in all_papers() for number in tables_of(paper))


SMALL = (
    "--set",
    "train.steps=12",
    "--set",
    "train.evaluate_every=6",
    "--set",
    "recipe.corpus.train=100",
    "--set",
    "recipe.corpus.test=20",
)
BLOCKED = (
    "ray",
    "prefect",
    "mlflow",
    "pydantic_settings",
    "sacremoses",
    "duckdb",
    "httpx",
    "tenacity",
    "scipy",
    "jinja2",
    "matplotlib",
)

BARE = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
from phrasemodels.flows.cli.main import main
sys.argv[0] = "phrasemodels"
main()
"""


def test_training_on_prepared_data_needs_nothing_of_the_pipeline(in_own_store, tmp_path):
    name = "000/table1/sample/phrase-k2"
    assert run_cli("prepare", name, "--to", str(tmp_path / "prepared"), *SMALL).exit_code == 0
    command = [
        sys.executable,
        "-c",
        BARE,
        "train",
        name,
        "--local",
        "--data",
        "prepared",
        "--out",
        "results",
        "--seed",
        "3",
        *SMALL,
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(PROJECT), "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["seed"], result["steps"]) == (3, 12)
    assert result["scores"]["bleu"]["sentences"] == 20
    kept = keep_trained(tmp_path / "results", tmp_path / "kept", "")  # by the keys of the code that is here
    assert json.loads(kept.read_text())["rows"][0]["seeds"] == [3]

    prepared, out = tmp_path / "prepared", tmp_path / "results"
    with pytest.raises(ValueError, match=r"was not prepared for this: .*`phrasemodels prepare \S+phrase-k3\S* --to "):
        train_prepared(experiment("000/table1/sample/phrase-k3", SMALL[1::2]), 3, prepared, out)
    for part in prepared.glob("*/"):
        shutil.rmtree(part)
    with pytest.raises(ValueError, match=r"prepared/dev is missing"):
        train_prepared(experiment(name, SMALL[1::2]), 3, prepared, out)


def test_prepared_rows_that_also_score_dev_and_other_settings_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    small = [f"recipe.corpus.{split}={rows}" for split, rows in (("train", 40), ("dev", 7), ("test", 9))]
    small += ["train.steps=2", "train.evaluate_every=2", "model.encoder.d=16", "model.encoder.d_ff=16"]
    row = experiment("002/table2/sample/atis-transformer", small)
    scores = train_prepared(row, 1, prepare_folder(row, tmp_path / "prepared"), tmp_path / "out")["scores"]
    assert (scores["exact"]["sentences"], scores["dev/exact"]["sentences"]) == (9, 7)
    changed = experiment("002/table2/sample/atis-transformer", [*small, "train.smoothing=0.2"])
    train_prepared(changed, 1, tmp_path / "prepared", tmp_path / "out")
    assert len(list((tmp_path / "out" / "objects" / "train").iterdir())) == 2


def test_a_prepared_training_with_more_updates_goes_on_from_one_with_fewer(tmp_path, monkeypatch):
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    small = [f"recipe.corpus.{split}={rows}" for split, rows in (("train", 40), ("dev", 7), ("test", 9))]
    small += ["train.evaluate_every=2", "model.encoder.d=16", "model.encoder.d_ff=16"]
    short, long = (
        dataclasses.replace(row, train=dataclasses.replace(row.train, schedule=inverse_sqrt))
        for row in (experiment("000/table1/sample/transformer", [*small, f"train.steps={n}"]) for n in (2, 4))
    )
    prepared = prepare_folder(short, tmp_path / "prepared")
    first = train_prepared(short, 1, prepared, tmp_path / "out")
    more, whole = (train_prepared(long, 1, prepared, tmp_path / folder) for folder in ("out", "alone"))
    assert (first["starts"], more["starts"], whole["starts"]) == ([0], [0, 2], [0])
    assert more["dev_loss"] == whole["dev_loss"]


def test_a_training_that_diverged_has_no_scores(in_own_store):
    options = ("--local", *SMALL, "--set", "train.learning_rate=1e30")
    for _ in range(2):  # also when it is started again
        found = run_cli("train", "000/table1/sample/transformer", *options)
        assert (found.exit_code, found.stdout) == (1, "") and isinstance(found.exception, ValueError)
        assert str(found.exception).startswith(
            "the training diverged: its loss or a weight was not finite after update 6; lower train.learning_rate"
        )


class Echo:
    """A model that answers with its input."""

    def answers(self, lines):
        return [(line, "") for line in lines]

    def unknown_words(self, lines):
        return []


@pytest.mark.parametrize("place", ["file", "-"])
@pytest.mark.parametrize(
    ("given", "answers"),
    [
        ("a\u2028b\fc\nd".encode(), ["a\u2028b\fc", "d"]),
        (b"\xef\xbb\xbfa\r\n\n\xc3\xa4\n", ["a", "", "ä"]),
        (b"\n", [""]),
        (b"", []),
        (b"a\x1b]0;evil\x07b\n", ["a\x1b]0;evil\x07b"]),
    ],
)
def test_every_line_of_a_file_or_of_stdin_gets_an_answer(place, given, answers, monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(given)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "find_model", lambda name: Echo())
    done = run_cli("predict", "echo", place, input=given)
    assert done.stdout == "".join(CONTROL.sub("\ufffd", answer) + "\n" for answer in answers)


@pytest.mark.parametrize(("place", "name"), [("file", "file"), ("-", "stdin")])
def test_input_that_is_not_utf8_is_refused_with_its_line(place, name, monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"a\n\xff\x00")
    monkeypatch.chdir(tmp_path)
    done = run_cli("predict", "echo", place, input=b"a\n\xff\x00")
    assert str(done.exception) == f"{name}, line 2: byte 1 is not UTF-8; convert the file"


def test_a_long_line_is_broken_on_a_terminal_alone(monkeypatch):
    line = "001 Table 2   62.3  lower  PSAN: " + "a reason of many words, " * 8
    assert wrapped(line, 8) == line
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    first, *others = wrapped(line, 8).splitlines()
    assert all(len(part) <= 60 for part in (first, *others)) and all(part.startswith(" " * 8) for part in others)
    assert " ".join([first, *others]).split() == line.split()


def test_numbers_are_whole_in_a_narrow_table_and_nothing_is_cut_in_a_pipe(monkeypatch, capsys):
    rows = [{"system": "a system " * 9, "name": "n" * 90, "one": "62.30 ± 0.41", "more": 1234567890, "p": 0.01234}] * 2
    print_rows("", list(rows[0]), rows)
    assert f"{'n' * 90} │ 62.30 ± 0.41 │ 1234567890" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows("", list(rows[0]), rows)
    printed = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out)
    assert printed.count(" 1234567890 ") == printed.count(" 0.01234 ") == printed.count(" 62.30 ") == 2
    assert all(len(line) <= 80 for line in printed.splitlines())


@pytest.mark.parametrize(("width", "lines"), [(60, 16 * 2 + 3), (200, 2 + 4)])
def test_a_terminal_too_narrow_for_the_columns_has_the_values_of_a_row_below_each_other(
    width, lines, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows("", [f"column{n}" for n in range(16)], [{f"column{n}": n * 1.5 for n in range(16)}] * 2)
    printed = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()
    assert len(printed) == lines and all(len(line) <= width for line in printed)


def test_reproduce_finds_what_a_local_training_made(in_own_store):
    small = (*SMALL, "--set", "train.checkpoint_every=1")
    done = run_cli("train", "000/table1/sample/transformer", "--local", *small)
    assert done.exit_code == 0
    assert "train.warmup=120 is more than train.steps=" in done.stderr
    assert "`train` are in metrics, seeds" in run_cli("sql", "select * from runs").stderr
    (curve,) = json.loads(run_cli("sql", "select count(*) as n from metrics where metric = 'dev_loss'", "--json").stdout)
    assert curve["n"] >= 1
    printed = re.findall(
        r"^step (\d+): training loss .*, dev loss \(nats a token\) .*, learning rate \S+, \d+ items/s$",
        done.stderr,
        re.MULTILINE,
    )
    assert printed and len(set(printed)) == len(printed)
    rows = json.loads(run_cli("plan", "--seeds", "1", "--row", "transformer", *small, "--json").stdout)
    title = f"Paper 000, Table 1, profile sample, {', '.join(sorted(SMALL[1::2]))}"
    assert [row["label"] for row in rows if not row["hit"]] == ["leaks sample", title]


FULL = """
import os, subprocess, sys
import sacrebleu, torch._dynamo  # as what follows, once for both processes: a training imports them
from phrasemodels.flows.cli.main import main
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.run import execute, local

experiment(sys.argv[2], sys.argv[5::2]).steps(0).scored.key

def mount(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", os.environ["PHRASEMODELS_STORE"]], check=True)

def run():
    if os.fork() == 0:
        main()
    return os.waitstatus_to_exitcode(os.wait()[1])

mount("size=2500k")
status = run()
mount("remount,size=100m")
sys.exit(run() or status)
"""


def test_a_full_disk_is_reported_in_one_line_and_the_same_command_continues(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    train = ["train", "000/table1/sample/phrase-k2", "--local", *SMALL]
    command = ["unshare", "--mount", *as_root, sys.executable, "-c", FULL, *train]
    environment = os.environ | {"PHRASEMODELS_STORE": str(store)}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"the disk of {store} is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["scores"]["bleu"]["sentences"] == 20


def test_a_question_to_an_empty_store_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "none"))
    asked = run_cli("sql", "select * from runs")
    assert asked.exit_code == 0 and f"nothing has been run in {tmp_path / 'none'}" in asked.stderr
    assert not (tmp_path / "none").exists()


def test_no_text_turns_the_direction_of_what_follows() -> None:
    for mark in "\u202a\u202e\u2066\u2069\x1b":
        assert clean(f"a{mark}b") == readable(f"a{mark}b") == "a\N{REPLACEMENT CHARACTER}b"


def test_doctor_names_a_proxy_that_no_client_knows_and_the_store_that_it_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(OSError, match="ALL_PROXY names a SOCKS proxy"):
        machine._proxies()
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert "ALL_PROXY" in machine._proxies()
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    assert str(tmp_path / "store") in machine._store() and not list((tmp_path / "store").glob(".doctor-*"))


def test_servers_of_the_settings_are_opened_and_not_started_again(monkeypatch):
    for name in ("PHRASEMODELS_MLFLOW_URI", "PHRASEMODELS_PREFECT_API_URL", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    assert ["mlflow ui" in line or "prefect server start" in line for line in _services()] == [True, True]
    monkeypatch.setenv("PHRASEMODELS_MLFLOW_URI", "http://127.0.0.1:5000")
    monkeypatch.setenv("PHRASEMODELS_PREFECT_API_URL", "http://127.0.0.1:4200/api/")
    assert _services() == ("MLflow:  http://127.0.0.1:5000", "Prefect: http://127.0.0.1:4200")


def test_doctor_says_of_a_named_service_that_it_be_started(monkeypatch, capsys):
    for name in ("_python", "_libraries", "_torch", "_proxies", "_store", "_duckdb", "_ray", "_corpora"):
        monkeypatch.setattr(machine, name, lambda *_: "")
    for name in ("_mlflow", "_prefect"):
        monkeypatch.setattr(machine, name, lambda _: 1 / 0)
    monkeypatch.setenv("PHRASEMODELS_MLFLOW_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert not machine.examine()
    told = capsys.readouterr().out
    assert "start this server, or unset PHRASEMODELS_MLFLOW_URI" in told
    assert "start this server, or unset PREFECT_API_URL" in told and "name a server" not in told


def test_what_to_do_next_names_the_best_row_by_the_first_metric() -> None:
    scores = {"a": 10.0, "b": 30.0, "c": float("nan"), "d": 20.0}
    rows = [
        {"experiment": row, "metric": "bleu", "intervals": {"bleu": {"mean": mean}}} for row, mean in scores.items()
    ]
    rows.append({"experiment": "d", "metric": "ratio", "intervals": {"ratio": {"mean": 99.0}}})
    assert _best(rows)["experiment"] == "b"
    assert _best(rows[2:3])["experiment"] == "c"
    lower = [{"experiment": row, "metric": "ppl", "intervals": {"ppl": {"mean": mean}}} for row, mean in scores.items()]
    assert _best(lower)["experiment"] == "a"
