"""The README: its numbers are those of the results, and its code gives the output that it shows."""

import contextlib
import io
import re
import runpy
from collections import Counter
from typing import Any

import pytest
import yaml
from conftest import PROJECT

from phrasemodels.flows.experiments.published import JUDGED, papers, published_results
from phrasemodels.flows.results.claims import answered_claims
from phrasemodels.flows.results.judged import FULLER
from phrasemodels.flows.results.results import kept_results, kept_values
from phrasemodels.flows.results.verdicts import EXACT, verdicts
from phrasemodels.verdicts.significance import seed_group

README = (PROJECT / "README.md").read_text(encoding="utf-8")


EVIDENCE = [  # a row of README's first table: claim, and where its numbers are from: a reading, a place elsewhere, or kept means
    ("000-1", ["30 epochs"]),
    ("001-1", ["at a small size, on SNLI 1.0 dev and test"]),
    ("002-2", ["", "at a small size"]),
    ("003-5", [""]),
    ("003-4", [""]),
    ("003-1", ["at a small size, on small_parallel_enja"]),
    ("004-2", [("004/table3/laptop/3-ff-drop", "004/table3/laptop/hpsg-3"), ("004/craft/laptop/3-ff-drop", "004/craft/laptop/hpsg-3")]),
]  # fmt: skip


@pytest.fixture(scope="module")
def claims() -> dict[str, dict[str, Any]]:
    """The answers to all claims from the kept results, by id."""
    return {one["id"]: one for one in answered_claims(list(kept_results()))}


def gain(claim: dict[str, Any], where: str | tuple[str, str]) -> float:
    """Return our gain, at the paper's size, in one reading of it, elsewhere, or of one kept mean over another one."""
    if isinstance(where, tuple):
        kept = {name: values for _, name, values in kept_values()}
        better, than = (seed_group(kept[name]["las"]).mean for name in where)
        return better - than
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
    assert re.findall(r"\d+\.\d\d", shown) == found
    if printed := re.findall(r"\d+\.\d+", said):
        assert abs(float(printed[0]) - claim["printed"]) < 0.051


def test_the_claims_are_counted(claims):
    counts = Counter(one["verdict"] for one in claims.values())
    text = " ".join(README.split())
    said = f"{counts['not confirmed']} is not confirmed, {counts['contradicted']} is contradicted and {counts['open']} are open"
    assert f"The papers make {len(claims)}. At the paper's size {said}." in text and counts.total() == len(claims)


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


def test_the_links_lead_to_files():
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    assert len(links) > 15 and all((PROJECT / link).exists() for link in links)


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
    assert f"or by its data | {others['impossible']}, and {others['suspect']} more unless they are means |" in text
    assert f"or not run | {others['not comparable'] + others['not run']} |" in text
    babi = sum(line["verdict"] in JUDGED and line["dataset"].startswith("bAbI") for line in lines)
    assert f"Of the trained numbers {trained.total() - babi} are of Geo. The other {babi} are of bAbI" in text
    phrases = sum(line["kind"] == EXACT and line["variant"].startswith("layer ") for line in lines)
    assert f"Of the counted ones {phrases} are phrases in trees" in text
    again = runpy.run_path(str(PROJECT / "benchmarks/audit_verdicts.py"))["audit"]
    anew, wrong = again(lines, [line for line in lines if line["verdict"] in JUDGED])
    assert anew > 90 and not wrong, "by a computation that shares no code with the verdicts"
    fuller = sum(line["table"].startswith(FULLER) for line in lines)
    assert f"The papers print {len(lines) - fuller}. {fuller} more are of a fuller version" in text
    assert len(lines) == len(published_results())
    assert all(line["needs"] for line in lines if line["verdict"] in ("not comparable", "not run")), (
        "what it would take"
    )
