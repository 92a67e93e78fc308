"""The reference is made of docstrings: every public name of the library has one, and every field of a configuration."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
from conftest import PROJECT
from typer.main import get_command

import phrasemodels
from phrasemodels.flows.cli.main import app
from phrasemodels.flows.experiments.overrides import meanings

sys.path.append(str(PROJECT / "docs"))
from hooks import TABLE, named_cells
from pages import configuration, configurations

LIBRARY = ("structs", "layers", "encoders", "models", "parsing", "inference", "verdicts", "config", "saved")
KINDS = list(
    configurations(
        "phrasemodels.encoders", "phrasemodels.layers", "phrasemodels.models", "phrasemodels.tasks.train.config"
    )
)


def test_links_that_blocks_print_name_files_of_the_site():
    """MkDocs leaves these links as they are."""
    docs = PROJECT / "docs"
    blocks = [(docs / "pages.py").read_text(encoding="utf-8")]
    for page in docs.rglob("*.md"):
        blocks += re.findall(r"^ *```python exec.*?^ *```$", page.read_text(encoding="utf-8"), re.S | re.M)
    links = [link for text in blocks for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    assert links and not [link for link in links if link.partition("#")[0].endswith(".md")]


def names():
    """Yield every public class, function and method of the library: its name and docstring."""
    for part in LIBRARY:
        package = importlib.import_module(f"phrasemodels.{part}")
        below = pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}.")
        for module in (package, *(importlib.import_module(n) for _, n, _ in below if ".kernels" not in n)):
            for name, value in vars(module).items():
                if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
                    continue
                if inspect.isclass(value):
                    # a dataclass or named tuple without a docstring gets its signature as one
                    yield f"{module.__name__}:{name}", re.sub(rf"^{name}\(.*\)$", "", vars(value)["__doc__"] or "")
                    yield from methods(value, f"{module.__name__}:{name}")
                elif isinstance(value, FunctionType):
                    yield f"{module.__name__}:{name}", value.__doc__


def methods(kind, name):
    """Yield the public methods that a class adds: those it overrides, and `build` of a configuration, are described there."""
    if getattr(kind, "_is_protocol", False):
        return
    for member, value in vars(kind).items():
        function = getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", value)
        overrides = any(member in vars(base) for base in kind.__mro__[1:])
        if isinstance(function, FunctionType) and not member.startswith("_") and not overrides and member != "build":
            yield f"{name}.{member}", function.__doc__


def summaries(command: Any, name: str = "phrasemodels") -> Iterator[tuple[str, str]]:
    """Yield each command and the first paragraph of its help."""
    for one in getattr(command, "commands", {}).values():
        if not hasattr(one, "commands"):
            yield f"{name} {one.name}", " ".join((one.help or "").strip().split("\n\n")[0].split())
        yield from summaries(one, f"{name} {one.name}")


def test_the_summary_of_each_command_is_one_short_line():
    found = dict(summaries(get_command(app)))
    assert 30 < len(found) < 50
    assert not {name: said for name, said in found.items() if not 0 < len(said) <= 70}


def test_every_public_name_has_a_docstring():
    found = dict(names())
    assert len(found) > 700 and not [name for name, docstring in found.items() if not docstring]
    assert phrasemodels.load.__doc__ and phrasemodels.results.__doc__


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_reference_of_a_configuration_has_each_field_and_shapes(kind):
    said = meanings(kind)
    assert said.keys() == {field.name for field in dataclasses.fields(kind)}
    text = configuration(kind)
    assert all(f"| `{field.name}` | `" in text for field in dataclasses.fields(kind))
    assert kind.__name__ == "TrainConfig" or re.search(r"\(B\b|\(\.\.\.|PAD", text), "shapes of what it builds"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("--first-seed", '<code class="short">--first-seed</code>'),
        ("phrasemodels/flows/cli/main.py", "<code>phrasemodels/<wbr>flows/<wbr>cli/<wbr>main.<wbr>py</code>"),
    ],
)
def test_code_of_a_cell_is_broken_only_between_its_parts(code, shown):
    head = "<thead><tr><th>name</th><th>mean</th><th>n</th></tr></thead>"
    row = f"<tr><td><code>{code}</code></td><td>1 ± 2</td><td>3</td></tr>"
    page = TABLE.sub(named_cells, f"<table>{head}<tbody>{row}</tbody></table>")
    assert f'<td data-name="name">{shown}</td><td data-name="mean">1 ±\u00a02</td>' in page
