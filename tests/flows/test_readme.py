"""The README: its numbers are those of the results, and its code gives the output that it shows."""

import contextlib
import io
import json
import re
import runpy
from collections import Counter

import pytest
import yaml
from conftest import PROJECT

from phrasemodels.flows.experiments.published import JUDGED, papers, published_results
from phrasemodels.flows.results.impossible import CONTRADICTION, least_wrong
from phrasemodels.flows.results.results import kept_results, kept_values
from phrasemodels.flows.results.verdicts import EXACT, verdicts
from phrasemodels.verdicts.significance import seed_group

README = (PROJECT / "README.md").read_text(encoding="utf-8")


def tuned(folder: str, row: int) -> str:
    """Return the experiment of a row of a kept table, with the settings that tuning chose."""
    return json.loads((PROJECT / "results" / folder / "result.json").read_text())["rows"][row]["experiment"]


CLAIMS = {
    "000": (("000/table1/laptop/transformer", "bleu"), ("000/table1/laptop/phrase-k2", "bleu")),
    "001": (
        (tuned("001-table2-tuned-laptop", 0), "accuracy"),
        (tuned("001-table4-tuned-laptop", 1), "accuracy"),
        (tuned("001-table4-tuned-laptop", 4), "accuracy"),
    ),
    "002": (
        ("002/table2-geo/laptop/transformer", "logic"),
        ("002/table2-geo/laptop/model-4", "logic"),
        ("002/table2-geo/paper/transformer", "logic"),
        ("002/table2-geo/paper/model-4", "logic"),
    ),
    "003": ((tuned("003-tablenmt-tuned-laptop", 0), "bleu"), (tuned("003-tablenmt-tuned-laptop", 2), "bleu")),
    "004": (("004/table3/laptop/hpsg-3", "f1"), ("004/table3/laptop/3-ff-drop", "f1")),
}


@pytest.mark.parametrize("paper", CLAIMS)
def test_the_numbers_of_each_claim_are_those_of_the_kept_results(paper):
    (line,) = re.findall(rf"^\| \[[^]]* \({paper}\)\].*$", README, re.MULTILINE)
    kept = {name: values for _, name, values in kept_values()}
    groups = [seed_group(kept[name][metric]) for name, metric in CLAIMS[paper]]
    shown = re.findall(r"[\d.]+ ± [\d.]+", line)
    assert shown == [f"{group.mean:.2f} ± {group.half_width:.2f}" for group in groups]
    assert {int(n) for n in re.findall(r"(\d+) seeds", line)} == {group.n for group in groups}


def test_the_code_gives_the_output_that_is_shown():
    code, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.S).groups()
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
    assert (
        f"**{counted['reproduced']}** are reproduced, {counted['higher']} are higher and {counted['lower']} lower"
        in text
    )
    assert (
        f"**{trained['reproduced']}** are reproduced, {trained['higher']} higher, {trained['lower']} lower, and "
        f"{trained['inconclusive']} are inconclusive"
    ) in text
    for verdict in ("impossible", "not comparable", "not run"):
        assert f"**{others[verdict]}** are {verdict}" in text, (verdict, others)
    proved = sum(line["kind"].startswith(CONTRADICTION) for line in lines)
    least, under = least_wrong(lines)[1], others["impossible"] - proved
    assert f"{proved} proved, of which {least} at least must be wrong, and {under} under" in text
    again = runpy.run_path(str(PROJECT / "benchmarks/audit_verdicts.py"))["audit"]
    anew, wrong = again(lines, [line for line in lines if line["verdict"] in JUDGED])
    assert anew > 90 and not wrong, "by a computation that shares no code with the verdicts"
    assert f"print {len(lines)} numbers" in text and len(lines) == len(published_results())
    assert all(line["needs"] for line in lines if line["verdict"] in ("not comparable", "not run")), (
        "what it would take"
    )
