"""Completion in the shell: papers, tables, rows, experiments, corpora and settings. `phrasemodels --install-completion` sets it up."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import typer

MOST = 200  # words that are offered at once


def papers(incomplete: str) -> list[str]:
    """Return the papers that begin with a text."""
    return _beginning(incomplete, (row["of"] for row in listed()))


def tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of the paper that is named."""
    return _beginning(incomplete, (row["number"] for row in _chosen(ctx, "paper")))


def rows(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the rows of the table that is named."""
    found = _chosen(ctx, "paper", "table", "profile")
    return _beginning(incomplete, (row["experiment"].rpartition("/")[2] for row in found))


def experiments(incomplete: str) -> list[str]:
    """Return the experiments that begin with a text."""
    return _beginning(incomplete, (row["experiment"] for row in listed()))


def corpora(incomplete: str) -> list[str]:
    """Return the corpora that begin with a text, also from the project folder."""
    from phrasemodels.data.download.manifest import names
    from phrasemodels.project import manifests

    return _beginning(incomplete, [*names(), *manifests()])


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the settings of the experiment or table that is named, as FIELD=VALUE with the present value."""
    from phrasemodels.flows.experiments.catalogue import experiment

    name = ctx.params.get("experiment") or next(
        (row["experiment"] for row in _chosen(ctx, "paper", "table", "profile")), ""
    )
    if not name:
        return []
    chosen = experiment(name)
    found = (line for part in ("train", "model", "recipe") for line in _settings(getattr(chosen, part), part))
    return _beginning(incomplete, found)


def _settings(value: Any, path: str) -> Iterator[str]:
    """Yield the fields below a value as PATH=VALUE."""
    from phrasemodels.flows.experiments.overrides import as_text

    for field in fields(value) if is_dataclass(value) else ():
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from _settings(inner, f"{path}.{field.name}")
        else:
            yield f"{path}.{field.name}={as_text(inner)}"


def listed() -> list[dict[str, Any]]:
    """Return a row for each answer of each experiment, as `phrasemodels experiments` lists them."""
    from phrasemodels.data.store.disk_cache import cached_on_disk

    found: list[dict[str, Any]] = cached_on_disk("experiments", None, _rows)
    return found


def _rows() -> list[dict[str, Any]]:
    """Return a row for each answer of each experiment."""
    from phrasemodels.flows.experiments.catalogue import about
    from phrasemodels.flows.experiments.catalogue import experiments as all_experiments

    return [
        {
            "experiment": e.name,
            "paper": e.paper,
            "table": answer.cell.table if answer.cell else None,
            "system": e.system,
            "variant": e.variant,
            "problem": e.recipe.problem_name,
            "corpus": getattr(e.recipe.corpus, "name", None),
            "dataset": answer.cell.dataset if answer.cell else None,
            "metric": answer.metric,
            "published": answer.cell.published if answer.cell else None,
            "comparable": e.comparable,
            "of": e.table.paper,
            "number": e.table.number,
            "profile": e.profile,
            "about": about(e.table.paper, e.table.number),
        }
        for e in all_experiments()
        for answer in e.answers
    ]


def _chosen(ctx: typer.Context, *names: str) -> list[dict[str, Any]]:
    """Return the rows of experiments that have the values of these options, by default the values of the command."""
    columns = {"paper": "of", "table": "number", "profile": "profile"}
    asked = {columns[name]: value for name in names if (value := _given(ctx, name))}
    return [row for row in listed() if all(row[name] == value for name, value in asked.items())]


def _given(ctx: typer.Context, name: str) -> str:
    """Return the value of an option, as it was typed or by default."""
    if value := ctx.params.get(name):
        return str(value)
    return next((str(p.default) for p in ctx.command.params if p.name == name and p.default), "")


def _beginning(incomplete: str, words: Any) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)][:MOST]
