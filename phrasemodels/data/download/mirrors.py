"""The places from which files may be fetched."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sources:
    """The places from which files may be fetched: mirror folders and then, unless offline, the URLs of the manifest.

    private: URLs may have addresses that are not on the internet.
    """

    mirrors: tuple[Path, ...] = ()
    offline: bool = False
    private: bool = False
    wait: float = 1.0  # seconds before the second attempt, doubled for each further one, with jitter
