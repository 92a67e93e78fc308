"""Reports: pages of a table and of all papers, plots and figures of attention and of problems.

Here are HTML pages from the templates in `pages/` for all of them.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from phrasemodels.data.store.disk_cache import contents
from phrasemodels.data.store.store import digest_of
from phrasemodels.flows.experiments.published import paper_name, papers, plain_reason, with_names

SURE = 0.05  # largest p of a difference, corrected over the table
UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def readable(text: str) -> str:
    """Make text valid in pages and figures: control characters and lone surrogates are replaced."""
    return UNREADABLE.sub("\ufffd", text)


def templates() -> jinja2.Environment:
    """Return the templates, with our filters. Values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("phrasemodels.flows.report", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value, digits=2: "–" if value is None else f"{value:.{digits}f}"
    environment.filters["chance"] = lambda p: "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
    environment.filters |= {"sure": is_sure, "digits": digits_of}
    environment.filters |= {"paper": paper_name, "titled": with_names, "plain": plain_reason}
    environment.filters |= {"disagreement": disagreement, "short": short}
    environment.globals["papers"] = papers()
    return environment


def render(template: str, **values: Any) -> str:
    """Return a page from a template."""
    return readable(templates().get_template(template).render(**values))


@cache
def templates_digest() -> str:
    """Return the digest of all templates."""
    return digest_of(contents(Path(__file__).with_name("pages")))


def short(commit: str) -> str:
    """Return one or several commits with twelve digits of each hash. A version stays as it is."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", commit)


def row_name(row: dict[str, Any]) -> str:
    """Return a system with its variant."""
    return f"{row['system']} {row['variant']}".strip()


def digits_of(printed: object) -> int:
    """Return the number of shown digits beside a printed number: one more than it has, at least 2."""
    return max(2, len(str(printed).removesuffix("%").strip().partition(".")[2]) + 1)


def is_sure(found: dict[str, Any]) -> bool:
    """Return whether a difference is significant. One seed can't say."""
    return found["p_holm"] is not None and found["p_holm"] < SURE


def disagreement(found: dict[str, Any]) -> str:
    """Return words beside a randomised p on the other side of 0.05 than the test's p.

    They are empty if both agree.
    """
    ours, randomised = found.get("p"), found.get("p_randomisation")
    if ours is None or randomised is None or (randomised < SURE) == (ours < SURE):
        return ""
    return (
        "disagrees: it ignores how other seeds would differ" if randomised < SURE else "disagrees: it resamples no seeds"
    )
