"""Hooks of MkDocs: pages that are files of the project, and links between them.

A page whose front matter says `include: phrasemodels/infra/README.md` is that file; a notebook is run. A link to a file of the
project leads to its page in the site; one to a file without a page becomes its name.
"""

import html
import json
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

HERE = Path(__file__).parent
PROJECT = HERE.parent
WORK = PROJECT / "build" / "browser"  # what npm installs
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "phrasemodels/infra/README.md": "operating.md",
    "benchmarks/README.md": "benchmarks.md",
}
SCRIPT = re.compile(r'<script src="https?://[^"]*"></script>')
TABLE = re.compile(r"<table>.*?</table>", re.S)
CODE = re.compile(r"<code>([^<]*)</code>")
PART = re.compile(r"(?<=[/._=,(\[])(?=[^<&;])")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Let the blocks that are executed import `pages`, and install what pages have from npm."""
    os.environ.setdefault("PHRASEMODELS_STORE", str(PROJECT / "build" / "docs-store"))  # of what pages run
    sys.path.insert(0, str(HERE))
    from browser.build import install

    if reason := install(WORK):
        config.extra["without_npm"] = reason
        logging.getLogger("mkdocs.hooks").info(reason)
        print(reason, file=sys.stderr)
    else:
        config.extra_css.append("katex/katex.min.css")
        config.extra["polyfills"] = [
            "browser/iframe-worker.js"
        ]  # with it, the search works in files that no server has
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return the text of a page: an included file, with its links as those of the site."""
    where = page.file.src_uri
    source = page.meta.get("include", f"docs/{where}")
    text = markdown
    if "include" in page.meta:
        text = (PROJECT / source).read_text(encoding="utf-8")
        text = notebook(text, source, config.repo_url or "") if source.endswith(".ipynb") else text
    known = {file.src_uri for file in files}

    def moved(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        path = normpath(f"{Path(source).parent.as_posix()}/{target}")
        place = PAGES.get(path, path.removeprefix("docs/"))
        if place not in known:
            return words if words.startswith("`") else f"`{path}`" if words == path else f"{words} (`{path}`)"
        anchor = "" if path in ("README.md",) else anchor  # the README has other headings than the first page
        return f"[{words}]({relpath(place, Path(where).parent.as_posix())}{anchor})"

    if found := re.fullmatch(r"papers/(\d{3})\.md", where):
        text = cited(text, found[1])
    parts = re.split(r"(^```.*?^```)", text, flags=re.S | re.M)  # code is left as it is
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def cited(text: str, number: str) -> str:
    """Return a chapter with the name and source of its paper at its head, and the entry for a bibliography at its end."""
    from phrasemodels.flows.experiments.published import papers

    paper = papers()[number]
    body = text.partition("\n")[2]
    return f"# {paper.name}\n\n{source_of(number)}\n{body}\n## Cite\n\n```bibtex\n{paper.bibtex}\n```\n"


def source_of(number: str) -> str:
    """Return authors, title, venue and link of a paper, and of its code."""
    from phrasemodels.flows.experiments.published import papers

    paper = papers()[number]
    about = f"*{paper.by}: [{paper.title}]({paper.url}).* {paper.venue}."
    about += f" {paper.text}." if paper.text and paper.authors else ""
    about += re.sub(r"https?://\S+", r"<\g<0>>", f" Since then: {paper.later}") + "." if paper.later else ""
    return about + (f" [The authors' code]({paper.code})." if paper.code else "")


def notebook(text: str, source: str, repository: str = "") -> str:
    """Return a notebook as Markdown whose code is executed, in one session, when the page is built, with its figures, and with
    links that open it elsewhere. repository: the address of the project on GitHub, if mkdocs.yml has one (repo_url)."""
    parts = []
    for cell in json.loads(text)["cells"]:
        own = "".join(cell["source"])
        if cell["cell_type"] == "code":
            printed = ' result="text"' * ("print(" in own)
            parts.append(f'```python exec="on" source="above"{printed} session="{source}"\n{own}\n```')
            if "plt." in own:
                show = "from pages import open_figures\n\nprint(open_figures())"
                parts.append(f'```python exec="on" session="{source}"\n{show}\n```')
        else:
            parts.append(own)
    parts.insert(1, opened_elsewhere(source, repository))
    parts.append(f"*This page is the notebook `{source}`, as it ran when the page was built.*")
    return "\n\n".join(parts) + "\n"


def opened_elsewhere(source: str, repository: str) -> str:
    """Return links to a notebook, and how it is opened on this machine and elsewhere. repository: as in `notebook`."""
    links = [f'<a href="{Path(source).name}" download>Download this notebook</a>']
    colab = "Colab takes it as an upload, with the wheel that `pip wheel --no-deps .` makes in the clone."
    if repository.startswith("https://github.com/"):
        path = repository.removeprefix("https://github.com/").strip("/")
        links.append(f"[Open in Colab](https://colab.research.google.com/github/{path}/blob/main/{source})")
        links.append(f"[Open in Binder](https://mybinder.org/v2/gh/{path}/main?labpath={source})")
        colab = f"Its first cell on Colab or Binder is `!pip install git+{repository.rstrip('/')}`."
    here = "In the clone, `pip install '.[pipeline]' jupyterlab && jupyter lab examples` opens it."
    return f"{' · '.join(links)}. {here} {colab}"


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return a page that loads nothing from other places, with its equations typeset and the names of columns in the cells of
    its wide tables."""
    from browser.build import typeset

    output = TABLE.sub(named_cells, SCRIPT.sub("", output))
    return output if "without_npm" in config.extra else typeset(output, WORK)


def named_cells(table: re.Match[str]) -> str:
    """Return a table whose cells name their columns, for screens that are too narrow for four of them, or for three with
    code. Its code is broken only between its parts, and no line ends with ±."""
    whole = re.sub(
        r"<td([^>]*)>(.*?)</td>", lambda cell: f"<td{cell[1]}>{CODE.sub(parted, cell[2])}</td>", table[0], flags=re.S
    )
    whole = whole.replace(" ± ", " ±\u00a0")
    names = [re.sub("<.*?>", "", name) for name in re.findall(r"<th[^>]*>(.*?)</th>", whole, re.S)]
    if len(names) < (3 if "<code" in whole else 4):
        return whole

    def row(found: re.Match[str]) -> str:
        column = iter(names)
        return re.sub(r"<td", lambda _: f'<td data-name="{html.escape(html.unescape(next(column)))}"', found[0])

    head, body, rest = whole.partition("<tbody>")
    return head.replace("<table", '<table data-wide="1"', 1) + body + re.sub(r"<tr>.*?</tr>", row, rest, flags=re.S)


def parted(code: re.Match[str]) -> str:
    """Return code of a cell that is one line, if it is short, or else may be broken after / . _ = , and brackets."""
    if len(html.unescape(code[1])) <= 24:
        return f'<code class="short">{code[1]}</code>'
    return f"<code>{PART.sub('<wbr>', code[1])}</code>"


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Return a page that has no text of its own, such as 404.html, without scripts of other places."""
    return SCRIPT.sub("", output)


def on_post_build(config: Any) -> None:
    """Add the notebooks, the parser that runs in the browser, and the fonts of equations."""
    from browser.build import add

    picture = Path("results", "000-attention.svg")  # of the README
    Path(config.site_dir, picture.parent).mkdir(exist_ok=True)
    shutil.copy(PROJECT / picture, Path(config.site_dir) / picture)
    for file in (PROJECT / "examples").glob("*.ipynb"):
        shutil.copy(file, Path(config.site_dir) / "examples" / file.name)

    if "without_npm" not in config.extra:
        add(Path(config.site_dir), WORK)
