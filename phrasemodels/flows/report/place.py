"""The place of a table's page: kept as an artifact, copied to where people look for it."""

from pathlib import Path

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Store

PAGE = "page.html"  # the file of the artifact


def place_page(store: Store, drawn: Artifact, name: str, page: Path | None = None) -> Path:
    """Copy a page from its artifact to reports/NAME.html of the store, and to `page`; return the first path."""
    path = store.root / "reports" / f"{name}.html"
    text = drawn.file(PAGE).read_text(encoding="utf-8")
    for place in (path, page) if page else (path,):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_durably(place, text)
    return path
