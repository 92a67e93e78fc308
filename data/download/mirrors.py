"""Where files may come from."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sources:
    """Where files may come from: mirror folders first, then, unless offline, the URLs of the manifest; private: also
    those with addresses that are not on the internet."""

    mirrors: tuple[Path, ...] = ()
    offline: bool = False
    private: bool = False
    wait: float = 1.0  # seconds before the second attempt; doubled, with jitter, each time
