"""The places from which a run may fetch files, by the settings."""

from phrasemodels.data.download.mirrors import Sources
from phrasemodels.infra.settings import Settings


def sources_of(settings: Settings) -> Sources:
    """Return where files may come from, by the settings."""
    return Sources(settings.mirrors, settings.offline, settings.private)
