"""The examples: notebooks run from top to bottom, and scripts learn what they are about. Each checks its own results."""

import contextlib
import io
import json
import runpy
from pathlib import Path

import pytest
from conftest import PROJECT

EXAMPLES = PROJECT / "examples"


def run(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom_and_holds_no_outputs(notebook: Path, tmp_path, monkeypatch):
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    names = {"__name__": "__main__"}
    for place, cell in enumerate(cells):
        assert not cell["outputs"], "outputs are made when the site is built"
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), f"{notebook.name}[{place}]", "exec"), names)
    assert printed.getvalue().strip(), "the last cell shows something"


def test_the_page_of_a_notebook_opens_it_elsewhere_if_the_address_is_known(monkeypatch):
    monkeypatch.syspath_prepend(PROJECT / "docs")
    from hooks import opened_elsewhere

    known = opened_elsewhere("examples/a.ipynb", "https://github.com/us/phrases/")
    assert "colab.research.google.com/github/us/phrases/blob/main/examples/a.ipynb" in known
    assert "http" not in opened_elsewhere("examples/a.ipynb", "") and "jupyter lab" in known


def test_the_unsupervised_hmm_comes_near_the_true_model():
    losses = run("unsupervised_hmm")
    assert losses["last"] < losses["truth"] + 0.05 < losses["first"]


def test_the_tree_parser_learns_how_operators_bind():
    share = run("tree_parser")
    assert share["before"] < 0.2 < 0.9 < share["after"]
