"""HTML pages from the templates in `pages/`."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from phrasemodels.data.store.remembered import contents
from phrasemodels.data.store.step import digest_of

UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


def readable(text: str) -> str:
    """Return text that is valid in pages and figures: control characters and lone surrogates are replaced."""
    return UNREADABLE.sub("\ufffd", text)


def render(template: str, **values: Any) -> str:
    """Return a page from a template; values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("phrasemodels.flows.report", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: "–" if value is None else f"{value:.2f}"
    environment.filters |= {"anchor": anchor, "named": row_name}
    environment.filters["chance"] = lambda p: "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
    return readable(environment.get_template(template).render(**values))


@cache
def templates_digest() -> str:
    """Return the digest of all templates."""
    return digest_of(contents(Path(__file__).with_name("pages")))


def anchor(row: dict[str, Any]) -> str:
    """Return the id of the lines about a row's runs: its experiment; on the page of all tables also its source."""
    return "/".join(row[name] for name in ("source", "experiment") if row.get(name))


def row_name(row: dict[str, Any]) -> str:
    """Return a system with its variant."""
    return f"{row['system']} {row['variant']}".strip()
