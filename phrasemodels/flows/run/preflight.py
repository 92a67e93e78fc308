"""Preparation of a run: read the request once, and report every mistake in it before anything starts."""

from phrasemodels.data.download.corpora import find
from phrasemodels.data.download.fetch import missing
from phrasemodels.data.download.parser_manifest import load as load_parser
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.flows.experiments.user_files import missing_encoders, with_user_files
from phrasemodels.flows.results.stores import open_store
from phrasemodels.flows.run.plan import Plan
from phrasemodels.flows.run.sources import sources_of
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.parsers.stanza_models import fetch_parser
from phrasemodels.tasks.prepare.corpora import fetch_added_corpus, fetch_corpus


def planned(request: Request, settings: Settings) -> tuple[Plan, Store]:
    """Return the plan of a request, and the store that it runs on.

    ValueError: the request is wrong. OSError: the store cannot be written to, or files are missing and may not be fetched.
    """
    sources = sources_of(settings)
    table = request.resolve()
    plan = Plan(with_user_files(table, sources))
    store = open_store(settings)
    if absent := missing_files(plan, store, settings):
        raise OSError("offline, and these files are missing; put each at the place named:\n  " + "\n  ".join(absent))
    return plan, store


def missing_files(plan: Plan, store: Store, settings: Settings) -> list[str]:
    """Return the files that no mirror has and that may not be downloaded, each with the place where it can be put."""
    if not settings.offline:
        return []
    absent = [
        step
        for step in plan.steps
        if step.make in (fetch_corpus, fetch_added_corpus, fetch_parser) and not store.find(step)
    ]
    sources = sources_of(settings)
    mirror = settings.mirror or "<the folder that PHRASEMODELS_MIRROR names>"
    models = settings.parsers or "<the folder that PHRASEMODELS_PARSERS names>"
    supplied = settings.supplied or "<the folder that PHRASEMODELS_SUPPLIED names>"
    corpora = [file for step in absent if step.make is not fetch_parser for file in find(step.settings.corpus).files]
    parsers = [file for step in absent if step.make is fetch_parser for file in load_parser(step.settings.name).files]
    files = [(mirror, file) for file in missing(corpora, sources)] + [
        (models, file) for file in missing(parsers, sources)
    ]
    untrained = [p.experiment for p in plan.pipelines if p.trains and not store.find(p.trained, verify=False)]
    encoders = sorted({name for experiment in untrained for name in missing_encoders(experiment)})
    return [f"{folder}/{file.mirror}  ({', '.join(file.urls) or 'no URL'})" for folder, file in files] + [
        f"{supplied}/{name}  (a folder of the transformers library)" for name in encoders
    ]
