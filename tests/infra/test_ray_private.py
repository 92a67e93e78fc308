"""What rests on private parts of Ray is in one file, which was written for the version that is installed."""

import re
from importlib.metadata import version

from conftest import PROJECT

from phrasemodels.infra.ray_private import TESTED

PRIVATE = re.compile(
    r"ray\._private|ray\._raylet|import _raylet|ray\.train\.(v2|_internal)|ray\.train\.torch\.config import _"
)


def test_private_parts_of_ray_are_used_in_one_file_and_at_the_tested_version() -> None:
    using = {
        path.relative_to(PROJECT).as_posix()
        for folder in ("phrasemodels/data", "phrasemodels/tasks", "phrasemodels/flows", "phrasemodels/infra")
        for path in (PROJECT / folder).rglob("*.py")
        if PRIVATE.search(path.read_text(encoding="utf-8"))
    }
    assert using == {"phrasemodels/infra/ray_private.py"}
    assert version("ray").startswith(f"{TESTED}."), "look at each function of ray_private.py again, then change TESTED"
