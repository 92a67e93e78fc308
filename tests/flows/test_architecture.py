"""The page on the architecture: its picture is that of the imports, and the files and names of its tables exist."""

import re
from itertools import combinations
from pathlib import Path

import grimp
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = Path(__file__).parents[2] / "phrasemodels"
FLOORS = [line.split() for line in re.findall(r"```floors\n(.*?)```", PAGE, re.S)[0].splitlines()]
ROWS = re.findall(r"^\| [^|]* \| `([\w/.]+\.(?:py|toml|jinja))` \| (.*) \|$", PAGE, re.M)


def test_no_package_imports_one_of_a_higher_floor():
    graph = grimp.build_graph("phrasemodels", exclude_type_checking_imports=True)
    wrong = [
        (lower, upper)
        for above, below in combinations(FLOORS, 2)
        for upper in above
        for lower in below
        if graph.find_shortest_chain(f"phrasemodels.{lower}", f"phrasemodels.{upper}", as_packages=True)
    ]
    assert not wrong


def test_the_picture_has_every_package():
    shown = {name.partition(".")[0] for floor in FLOORS for name in floor}
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == shown


@pytest.mark.parametrize(("file", "read"), ROWS, ids=[file for file, _ in ROWS])
def test_each_file_of_a_way_exists_with_its_names(file, read):
    text = (PACKAGE / file).read_text(encoding="utf-8")
    for name in re.findall(r"`(\w+(?:\.\w+)?)`", read):
        kind, _, member = name.rpartition(".")
        assert re.search(rf"(?:class|def|\b)\s*{re.escape(kind or member)}\b", text) and re.search(
            rf"\b{re.escape(member)}\b", text
        ), name


def test_each_way_has_at_most_eight_files():
    ways = re.split(r"^\*\*", PAGE.partition("## Six ways")[2].partition("## Where")[0], flags=re.M)[1:]
    assert len(ways) == 6 and all(1 < len(re.findall(r"^\| \d ", way, re.M)) <= 8 for way in ways)
