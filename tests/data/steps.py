"""Steps of a module that imports little: their manifests are small, as the key of a step names all code that its module can reach."""

import json
import os
import time
from dataclasses import dataclass
from typing import Any

from phrasemodels.data.store.artifacts import with_digest
from phrasemodels.data.store.store import Job, Step, Store

ROWS = [{"system": "a", "ours": 17.14, "printed": 47.1, "verdict": "lower"}]
OLD = 30 * 86400
CALLS: list[str] = []  # the texts that were written


@dataclass(frozen=True)
class Text:
    text: str


def compared(job: Job, settings: None) -> dict[str, Any]:
    (job.out / "verdicts.json").write_text(json.dumps({"rows": ROWS}))
    return {"rows": ROWS}


def write(job: Job, settings: Text) -> dict:
    CALLS.append(settings.text)
    before = "".join(job.inputs[name].file("text").read_text() for name in sorted(job.inputs))
    (job.out / "text").write_text(before + settings.text)
    return {}


def compare(job: Job, settings: Text) -> dict:
    return write(job, settings)


def chain(store: Store, title: str, text: str) -> list[Step]:
    """Make three steps, each the input of the next; the last is a comparison, a root."""
    first = Step(write, f"first {text}", Text(text))
    second = Step(write, f"second {text}", Text("b"), {"before": first})
    last = Step(compare, title, Text(title), {"row": second}, root=True)
    store.run(last)
    return [first, second, last]


def age(store: Store, year: int = 2020) -> None:
    """Make everything in the store look old: last used a month ago and, if it is recent, made in this year."""
    then = time.time() - OLD
    for path in store.root.rglob("*"):
        if path.name == "manifest.json":
            manifest = json.loads(path.read_text())
            if manifest["finished"] > "2022":
                path.write_text(json.dumps(with_digest(manifest | {"finished": f"{year}-01-01T00:00:00+00:00"})))
        os.utime(path, (then, then))
