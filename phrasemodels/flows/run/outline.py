"""The outline of a plan: the names and keys of its steps, which are enough to look the steps up in the store.

It follows from the request, the project's files and the files that users supply. So it is cached on disk, and a command that
only looks steps up imports neither torch nor the code of the steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phrasemodels.data.store.disk_cache import cached_on_disk, states
from phrasemodels.flows.results.records import OutlinedStep, sources_of
from phrasemodels.infra.settings import Settings

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Step
    from phrasemodels.flows.experiments.catalogue import Table


@dataclass(frozen=True)
class Outline:
    """The steps of a plan, inputs first; the last one is the comparison with the paper. slug: the name of its page."""

    title: str
    slug: str
    steps: tuple[OutlinedStep, ...]


def outlined(asked: Mapping[str, Any], settings: Settings) -> Outline:
    """Return the outline of the plan of a request; asked: the fields of `Request`. ValueError: the request is wrong."""

    def outline(table: "Table") -> dict[str, Any]:
        from phrasemodels.flows.run.plan import Plan

        return {"title": table.title, "slug": table.slug, "steps": [_line(step) for step in Plan(table).steps]}

    made = _of_table("plan", asked, settings, outline)
    return Outline(made["title"], made["slug"], tuple(OutlinedStep(**step) for step in made["steps"]))


def outlined_page(asked: Mapping[str, Any], settings: Settings) -> OutlinedStep:
    """Return the step that draws the page of a request."""

    def page(table: "Table") -> dict[str, Any]:
        from phrasemodels.flows.report.page import page_step
        from phrasemodels.flows.run.plan import Plan

        return _line(page_step(table, Plan(table).comparison))

    return OutlinedStep(**_of_table("page", asked, settings, page))


def _line(step: "Step") -> dict[str, Any]:
    return {"name": step.name, "label": step.label, "key": step.key, "parts": step.parts}


def _of_table(
    name: str, asked: Mapping[str, Any], settings: Settings, make: Callable[["Table"], dict[str, Any]]
) -> dict[str, Any]:
    """Return what `make` says of the table of a request, cached on disk unless the table reads pretrained encoders: these may be
    in any folder below the one in which the command runs."""
    sources = sources_of(settings)

    def made() -> dict[str, Any]:
        from phrasemodels.flows.experiments.catalogue import Request, reads_encoders, with_user_files

        table = Request(**asked).resolve()
        settled = not any(map(reads_encoders, table.experiments))
        return {"settled": settled, "answer": make(with_user_files(table, sources))}

    # `states`: the digests of files that users supplied are in keys, and change with the files
    known = cached_on_disk(name, [asked, sources, states(sources.mirrors)], made)
    return dict((known if known["settled"] else made())["answer"])
