"""The folders of kept results: those of the package, and those that users keep beside their store."""

from pathlib import Path

import phrasemodels
from phrasemodels import project
from phrasemodels.infra.settings import Settings

PACKAGE = Path(phrasemodels.__file__).parent
KEPT = PACKAGE / "kept"  # in the checkout a link to results/
IN_CHECKOUT = KEPT.is_symlink()


def own() -> Path:
    """Return the folder where `keep` writes: results/ of the project folder, or of the checkout, or else beside the store."""
    if (place := project.folder()) is not None:
        return place / "results"
    return KEPT if IN_CHECKOUT else Settings().root.parent / "results"


def folders() -> list[Path]:
    """Return the folders with kept results."""
    return [KEPT] if (mine := own()) == KEPT or not mine.is_dir() else [KEPT, mine]


def kept_files() -> list[Path]:
    """Return result.json of each kept result; folders with a dot are of a `keep` that was killed."""
    return [path for folder in folders() for path in sorted(folder.glob("[!.]*/result.json"))]


def place_of(name: str) -> Path:
    """Return the folder of a kept result by name."""
    return next(path.parent for path in reversed(kept_files()) if path.parent.name == name)
