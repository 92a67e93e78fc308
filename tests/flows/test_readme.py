"""The README: its numbers are those of the results, and its code gives the output that it shows."""

import contextlib
import io
import json
import re
import runpy
import shlex
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import PROJECT
from scipy.stats import ttest_ind
from typer.main import get_command

from phrasemodels.flows.cli.main import app
from phrasemodels.flows.cli.terminal import _next
from phrasemodels.flows.experiments.published import JUDGED, papers, published_results
from phrasemodels.flows.results.claims import answered_claims
from phrasemodels.flows.results.judged import FULLER, least_wrong
from phrasemodels.flows.results.results import kept_results
from phrasemodels.flows.results.verdicts import EXACT, verdicts

README = (PROJECT / "README.md").read_text(encoding="utf-8")


EVIDENCE = [  # a row of README's first table: claim, and where its numbers are from: a reading or a place elsewhere
    ("000-1", ["30 epochs", "10 epochs"]),
    ("001-1", ["at a small size, on SNLI 1.0 dev and test"]),
    ("002-2", ["", "at a small size"]),
    ("003-5", ["as released, θ_12 = 0 after the linear start against as published",
               "θ_12 normalised by rows, rate 0.03 against as published"]),
    ("003-4", [""]),
    ("003-1", ["at a small size, on small_parallel_enja"]),
    ("004-1", [GUM := "at a small size, on GUM, against hpsg-3", CRAFT := "at a small size, on CRAFT v5, against hpsg-3"]),
    ("004-2", [GUM, CRAFT]),
]  # fmt: skip


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, Any]]:
    """The answers to all claims from the kept results, by id."""
    return {one["id"]: one for one in answered_claims(list(kept_results()))}


def gain(claim: dict[str, Any], where: str) -> float:
    """Return our gain, at the paper's size, in one reading of it, or elsewhere."""
    parts = [claim | {"reading": ""}, *claim["readings"], *claim["elsewhere"]]
    found = [one["difference"] for one in parts if where == one.get("reading", one.get("place"))]
    return found[-1] if "size" in where and len(found) > 1 and claim["id"].startswith("002") else found[0]


@pytest.mark.parametrize(("line", "evidence"), enumerate(EVIDENCE), ids=[claim for claim, _ in EVIDENCE])
def test_each_row_of_the_first_table_is_a_claim_with_its_answer_and_gain(line, evidence, claims):
    rows = re.findall(r"^\| (?:\[.*?\)\]\(docs.*?|the same) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", README, re.MULTILINE)
    assert len(rows) == len(EVIDENCE)
    said, answer, shown = rows[line]
    claim = claims[evidence[0]]
    assert answer == claim["verdict"].capitalize()
    found = [f"{abs(gain(claim, where)):.2f}" for where in evidence[1]]
    assert re.findall(r"\d+\.\d\d", shown) == found and len(found) <= 2
    if printed := re.findall(r"\d+\.\d+", said):
        assert abs(float(printed[0]) - claim["printed"]) < 0.051


def test_the_claims_are_counted(claims):
    counts, numbers = Counter(one["verdict"] for one in claims.values()), ["none", "one"]
    text = " ".join(README.split())
    none, contradicted = (numbers[counts[one]] for one in ("confirmed", "contradicted"))
    said = f"our runs confirm {none}, contradict {contradicted}, and leave {counts['open']} open"
    assert f"The papers make {len(claims)} claims. At the paper's size {said}." in text
    assert counts.keys() <= {"confirmed", "contradicted", "open"}
    answered = Counter(
        any(part["place"].startswith("at a small size") for part in parts)
        for one in claims.values()
        if one["verdict"] == "open" and (parts := [p for p in one["elsewhere"] if not p["verdict"].startswith("open")])
    )
    assert f"{answered[True]} of them have an answer at a small size, and {numbers[answered[False]]} by counting" in text
    small = [{part["verdict"].partition(" at a")[0] for part in one["elsewhere"] if "at a small size" in part["place"]}
             for one in claims.values() if one["verdict"] == "open"]  # fmt: skip
    best = [next((word for word in ("supported", "contradicted", "not supported", "smaller") if word in of), "") for of in small]
    said = "{supported} are supported, {contradicted} contradicted and {not supported} not supported; one gain is smaller"
    assert said.format_map(found := Counter(best)) in text and found["smaller"] == 1
    assert not any({"supported", "contradicted"} <= of for of in small)
    assert f"Of these {answered[True]}, {sum('open' in of and len(of) > 1 for of in small)} are open on another corpus" in text
    for one in claims.values():  # the source is that of the reading whose numbers stand in front
        first = next(iter(one["readings"]), {"source": "", "difference": one["difference"]})
        assert (one["source"], one["difference"]) == (first["source"], first["difference"])


QUOTED = {"000": ["000-1", "000-2", "000-3"], "002": ["002-2"], "003": ["003-5", "003-4", "003-3"]}  # their intervals


@pytest.mark.parametrize("paper", QUOTED)
def test_a_page_quotes_the_intervals_of_the_claims(paper, claims):
    text = " ".join((PROJECT / f"docs/papers/{paper}.md").read_text(encoding="utf-8").split())
    for claim in (claims[name] for name in QUOTED[paper]):
        one = claim if claim["low"] is not None else claim["elsewhere"][0]
        low, high = (f"{one[end]:.2f}".replace("-", "−") for end in ("low", "high"))
        assert f"{abs(one['difference']):.2f}" in text and f"(90 %: {low} to {high})" in text, claim["id"]


EASY = ("02", "11", "13", "14", "15", "17", "18", "19")  # tasks of bAbI that the chain of paper 003 learns in some way
LEARNED = {"answer": (3, (*EASY, "07", "08")), "fact": (10, (*EASY, "03"))}  # seeds and tasks of an average


@pytest.mark.parametrize("metric", LEARNED)
def test_the_page_says_how_far_the_chain_is_ahead_where_it_learns(metric):
    kept = json.loads((PROJECT / "results/003-tablebabi-paper/result.json").read_text(encoding="utf-8"))
    values, (seeds, tasks) = {row["experiment"].split("/")[-1]: row["values"] for row in kept["rows"]}, LEARNED[metric]
    ours = [np.mean([values[f"{of}-qa{t}"][metric][:seeds] for t in tasks], 0) for of in ("binary", "memn2n")]
    low, high = ttest_ind(*ours, equal_var=False).confidence_interval(0.9)
    text = " ".join((PROJECT / "docs/papers/003.md").read_text(encoding="utf-8").split())
    shown = re.findall(rf"{np.subtract(*ours).mean():.2f}(?: ahead)? \(([\d.]+) to ([\d.]+); printed", text)
    assert shown == [(f"{low:.2f}", f"{high:.2f}")]


def test_the_code_gives_the_output_that_is_shown():
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.S)
    assert len(blocks) == 3
    for code, output in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, {})
        assert printed.getvalue() == output


@pytest.mark.parametrize("paper", papers().values(), ids=papers())
def test_the_table_names_each_paper_as_the_data_do(paper):
    (line,) = re.findall(rf"^\| \[{re.escape(paper.name)}\].*$", README, re.MULTILINE)
    shown = re.sub(r" \(\d{3}\)\]\([^)]*\)|\[", "", line.split(" | ")[0])
    by = paper.by[0].lower() + paper.by[1:] if not paper.authors else paper.by
    assert shown == f"| {paper.title}, {by}, {paper.venue}]({paper.url})"


def test_the_citation_names_the_papers_as_the_data_do():
    given = yaml.safe_load((PROJECT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert len(given) == len(papers())
    for one, paper in zip(given, papers().values(), strict=True):
        assert (one["title"], one["year"], one["url"]) == (paper.title, paper.year, paper.url)
        assert one["notes"] == f"Paper {paper.number}." + f" {paper.text}." * bool(paper.text)
        assert (one.get("doi", ""), one.get("collection-title", "")) == (paper.doi, paper.booktitle)
        names = [f"{of['family-names']}, {of['given-names']}" if "family-names" in of else "" for of in one["authors"]]
        assert tuple(filter(None, names)) == paper.authors


PAGES = sorted(
    {path.resolve() for name in ("*.md", "docs/**/*.md", "phrasemodels/**/README.md") for path in PROJECT.glob(name)}
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, or of the file that it includes."""
    text = page.read_text(encoding="utf-8")
    if included := re.match(r"---\ninclude: (\S+)", text):
        text = (PROJECT / included[1]).read_text(encoding="utf-8")
    plain = (re.sub(r"[^\w\- ]", "", line.lower()) for line in re.findall(r"^#+ +(.+)$", text, re.MULTILINE))
    return {line.strip().replace(" ", "-") for line in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_the_links_lead_to_files_and_headings(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = page.parent / link if link else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{link}: no heading #{anchor}"


COMMAND = re.compile(r"(?:^|&& |\| |`)(phrasemodels [a-z][^`|&;\n]*)", re.MULTILINE)
FINISHED = [
    {"experiment": name, "published": 1.0, "seeds": [0]}
    for name in ("000/table1/sample/transformer", "001/table2/laptop/psan", "my-study/table1/sample/mine")
]


def commands() -> Iterator[str]:
    """Yield what pages, the help of commands and the lines after `reproduce` say to type."""
    texts = [page.read_text(encoding="utf-8").replace("\\\n", " ") for page in PAGES]
    below = [get_command(app)]
    for command in below:
        texts.append(command.help or "")
        below += getattr(command, "commands", {}).values()
    for text in [*texts, *("\n".join(line.strip() for line in _next([row])) for row in FINISHED)]:
        yield from COMMAND.findall(text.replace("Example: ", "\n"))


def test_what_is_said_to_type_are_commands_with_such_options():
    found = sorted(set(commands()))
    assert len(found) > 100
    for line in found:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="<>")
        lexer.whitespace_split = True
        command, words = get_command(app), list(takewhile(lambda word: word not in "<>", lexer))[1:]
        while hasattr(command, "commands") and words and not words[0].startswith("-"):
            assert words[0] in command.commands, f"{line}: no command {words[0]}"
            command, words = command.commands[words[0]], words[1:]
        if "--help" in words or hasattr(command, "commands"):
            continue
        try:
            command.make_context(command.name, words)
        except Exception as error:
            if type(error).__name__ != "MissingParameter":
                raise AssertionError(f"{line}: {error}") from error


def test_the_workflows_run_the_two_commands_and_what_the_makefile_has():
    targets = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    commands = set(re.findall(r"^make (\w+) +#", README, re.MULTILINE))
    ci, fire = (
        yaml.safe_load((PROJECT / f".github/workflows/{name}.yml").read_text())["jobs"] for name in ("ci", "fire")
    )
    assert set(ci["commands"]["strategy"]["matrix"]["command"]) == commands == {"reproduce", "test"}
    assert [step["run"] for step in ci["commands"]["steps"] if "run" in step] == ["make ${{ matrix.command }}"]
    called = re.findall(r"\bmake (\w+)", " ".join(step.get("run", "") for step in fire["fire"]["steps"]))
    assert called == ["fire", "audit"] and {*called, *commands} <= targets


def test_the_counts_of_verdicts_are_those_of_the_results():
    lines = verdicts(kept_results())
    text = " ".join(README.split())
    counted, trained = (
        Counter(line["verdict"] for line in lines if line["verdict"] in JUDGED and (line["kind"] == EXACT) == exact)
        for exact in (True, False)
    )
    others = Counter(line["verdict"] for line in lines)
    for name, of in (("counted without training", counted), ("trained at the paper's size", trained)):
        assert f"| {name} | {', '.join(f'{of[verdict]} {verdict}' for verdict in JUDGED)} |" in text
    assert f"or by its data | {others['impossible']} (*impossible*), and {others['suspect']} more under an assumption" in text
    assert "Of the {} contradicted numbers, at least {} must be wrong".format(*least_wrong(lines)) in text
    assert f"or none (*not run*) | {others['not comparable'] + others['not run']} |" in text
    unary = {line["dataset"][-2:]: line["seeds"] for line in lines if line["system"] == "Unary CRF" and line["seeds"] > 3}
    page = (PROJECT / "docs/papers/003.md").read_text()
    assert f"task 3 has {unary.pop('03')}, task 7 {unary.pop('07')} and task 15 {unary.pop('15')}" in page and not unary
    assert not any("," in line["source"] for line in lines)  # a source is one, also of an average
    babi = sum(line["verdict"] in JUDGED and line["dataset"].startswith("bAbI") for line in lines)
    assert f"Of the trained numbers {trained.total() - babi} are of Geo. The other {babi} are of bAbI" in text
    kinds = {line["metric"] for line in lines if line["kind"] == EXACT and line["verdict"] == "reproduced"}
    about = ("n_", "size", "parameter", "tgt_avg_length", "tgt_vocab", "share_of_vocabulary", "vocab_size")
    assert all(kind.startswith(about) for kind in kinds), "the reproduced counts are sizes, lengths and parameters"
    phrases = sum(line["kind"] == EXACT and line["variant"].startswith("layer ") for line in lines)
    assert f"{phrases} counted numbers are phrases in trees" in text
    again = runpy.run_path(str(PROJECT / "benchmarks/audit_verdicts.py"))["audit"]
    anew, wrong = again(lines, [line for line in lines if line["verdict"] in JUDGED])
    assert anew > 90 and not wrong, "by a computation that shares no code with the verdicts"
    fuller = sum(line["table"].startswith(FULLER) for line in lines)
    assert f"The papers print {len(lines) - fuller}. {fuller} more are of a fuller version" in text
    assert len(lines) == len(published_results())
    assert all(line["needs"] for line in lines if line["verdict"] in ("not comparable", "not run")), (
        "what it would take"
    )
