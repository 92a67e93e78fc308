"""The command that makes a project folder: init."""

import re
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

TEMPLATE = Path(__file__).with_name("template")
NAME = "my-study"  # in the template, for that of the folder
EXAMPLE = "commands"  # its corpus: commands and their actions


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="The folder to make; its name is that of the study.")]) -> None:
    """Make a project folder: a corpus, a layer, a metric, a table and printed numbers of one's own, with a test.

    Example: phrasemodels init my-study && cd my-study && phrasemodels reproduce --paper my-study
    """
    from phrasemodels.data.corpora.added import Added, add
    from phrasemodels.data.store.artifacts import write_durably
    from phrasemodels.flows.experiments.names import TAKEN
    from phrasemodels.project import CORPORA

    name = folder.absolute().name
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ValueError(f"{name}: a study is named in small letters, digits and hyphens, like my-study")
    if name in TAKEN:
        raise ValueError(f"{name}: this name is taken; choose another one")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(TEMPLATE.glob("[!_.]*.*")):
        if file.stem != EXAMPLE:
            write_durably(folder / file.name, file.read_text(encoding="utf-8").replace(NAME, name))
    languages = ("en", "zxx")  # zxx: no language
    add(TEMPLATE / f"{EXAMPLE}.txt", Added(EXAMPLE, languages=languages, licence="Apache-2.0"), folder / CORPORA)
    for path in sorted(folder.rglob("*.*")):
        print(path)
