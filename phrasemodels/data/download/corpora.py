"""All corpora by name: those of data/manifests, and those that users add in a project folder or a package."""

from phrasemodels import project
from phrasemodels.data.download import manifest as ours
from phrasemodels.data.download.manifest import Manifest, closest, read


def names() -> list[str]:
    """Return the names of all corpora. ValueError: one that a user adds has the name of one of ours."""
    added = project.manifests()
    if taken := sorted(set(added) & set(ours.names())):
        raise ValueError(f"{added[taken[0]]}: there is a corpus {taken[0]!r} already; choose another name")
    return sorted({*added, *ours.names()})


def find(name: str) -> Manifest:
    """Load the manifest of a corpus by name. ValueError: there is none, or it is wrong."""
    if name not in (known := names()):
        raise ValueError(f"no corpus {name!r}: {closest(name, known)}")
    if not is_added(name):
        return ours.load(name)
    manifest = read(path := project.manifests()[name])
    if manifest.name != name:
        raise ValueError(f"{path}: name is {manifest.name!r}, but the file is called {name!r}; make them the same")
    return manifest


def is_added(name: str) -> bool:
    """Return whether a user adds the corpus."""
    return name in project.manifests()
