"""Pages from the templates of `pages/`."""

import re
from typing import Any

import jinja2

UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")


def readable(text: str) -> str:
    """Text as any page and figure can hold it: control characters and halves of characters are replaced."""
    return UNREADABLE.sub("\ufffd", text)


def render(template: str, **values: Any) -> str:
    """A page of `pages/`; corpus text and names are escaped."""
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


def anchor(row: dict[str, Any]) -> str:
    """Where a page says what a row rests on: by its experiment, on the page of many tables by the table too."""
    return "/".join(row[name] for name in ("source", "experiment") if row.get(name))


def row_name(row: dict[str, Any]) -> str:
    """A system with its variant."""
    return f"{row['system']} {row['variant']}".strip()
