"""Scores, speed and memory of a saved parser: `python benchmarks/english.py [FOLDER]`, by default the English one of the package.

It parses the test sets of GUM (all genres, and those that it was trained on), of GENTLE and of EWT from their gold words, and
prints a JSON object for the card, and on stderr what the parser is worst at: F1 by label, length and relation, and scores by
genre. The corpora come from PHRASEMODELS_MIRROR or from upstream, the store is PHRASEMODELS_STORE.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from phrasemodels.data.formats.shards import TREES, write_shard
from phrasemodels.data.formats.trees import brackets, wh_phrases
from phrasemodels.data.formats.trees import parse as parse_tree
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.flows.experiments.paper_004 import FREE_GENRES
from phrasemodels.flows.results.records import open_store, sources_of
from phrasemodels.infra.settings import Settings
from phrasemodels.parsing.parser import Parse, Parser
from phrasemodels.parsing.saved import ENGLISH
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards
from phrasemodels.tasks.problems.parsing import PARSES, ParseScoring, score_parses

SHOWN = ("f1", "uas", "las", "tags")
ENOUGH = 50  # gold brackets or arcs: the rate of a rarer label says little


def given(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Write parses as predictions of a test set."""
    return write_shard(job.out / "predictions.arrow", pa.Table.from_pylist(rows, schema=PARSES))


def gold(job: Job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Write rows as a test set."""
    terms = {"licences": [], "redistributable": False, "stand_in": True}
    return {**terms, **write_shards(job.out, pa.Table.from_pylist(rows, schema=TREES))}


def scored(rows: list[dict[str, Any]], parses: list[Parse], folder: Path) -> Artifact:
    """Return the scores of parses against rows of TREES, as a step makes them."""
    store = Store(folder).open()
    found = [
        {"id": row["id"], "group": row["group"], "tokens": row["tokens"], "tags": parse.tags, "tree": parse.brackets}
        | {"heads": parse.heads, "relations": parse.relations}
        for row, parse in zip(rows, parses, strict=True)
    ]
    own = [{**row, "id": k} for k, row in enumerate(rows)]
    inputs = {
        "rows": store.run(Step(gold, "gold", own)),
        "predictions": store.run(Step(given, "p", found)),
    }
    return store.run(Step(score_parses, "scores", ParseScoring(), inputs))


def scores(rows: list[dict[str, Any]], parses: list[Parse], folder: Path) -> dict[str, float]:
    """Return the scores of parses against rows of TREES, and the share of right UPOS tags."""
    made = scored(rows, parses, folder).meta["scores"]
    pairs = [
        p for row, parse in zip(rows, parses, strict=True) for p in zip(row["universal"], parse.universal, strict=False)
    ]
    universal = 100 * sum(a == b for a, b in pairs) / max(1, len(pairs))
    shown = SHOWN if any(row["tree"] for row in rows) else SHOWN[1:]  # a treebank without phrases has no F1
    return {name: round(made[name]["value"], 2) for name in shown} | {
        "upos": round(universal, 2),
        "sentences": len(rows),
    }


def genre(row: dict[str, Any]) -> str:
    """Return the genre of a row of GUM: GUM_academic_art is academic."""
    name: str = row["group"].split("_")[1]
    return name


def print_breakdown(rows: list[dict[str, Any]], parses: list[Parse], folder: Path) -> None:
    """Print F1 by label, length and relation, from the worst, and scores by genre."""
    rates = json.loads((scored(rows, parses, folder).path / "breakdown.json").read_text(encoding="utf-8"))
    for part, of_part in rates.items():
        known = [(own["f1"], name, own["gold"]) for name, own in of_part.items() if own["gold"] >= ENOUGH]
        print(f"{part}: " + ", ".join(f"{name} {f1:.1f} of {n}" for f1, name, n in sorted(known)), file=sys.stderr)
    for name in sorted({genre(row) for row in rows}):
        chosen = [k for k, row in enumerate(rows) if genre(row) == name]
        own = scores([rows[k] for k in chosen], [parses[k] for k in chosen], folder)
        print(f"{name}: " + ", ".join(f"{score} {value:.1f}" for score, value in own.items()), file=sys.stderr)


def main() -> None:
    torch.set_num_threads(1)
    settings = Settings()
    store, executor = open_store(settings), Executor(sources=sources_of(settings))
    parser = Parser.load(sys.argv[1] if len(sys.argv) > 1 else ENGLISH)
    parser.load_kernels()
    made: dict[str, Any] = {}
    for name, corpus, split in (("gum", "gum", "test"), ("gentle", "gum", "test2"), ("ewt", "ud_english_ewt", "test")):
        rows = read_shards(store.run(Corpus(corpus).split(split), executor)).to_pylist()
        for row in rows:  # labels of wh-phrases as in the Penn Treebank, as the parser gives them
            row["tree"] = row["tree"] and brackets(wh_phrases(parse_tree(row["tree"])))
        started = time.process_time()
        parses = list(parser.parse_tokens(row["tokens"] for row in rows))
        seconds = time.process_time() - started
        words = sum(len(row["tokens"]) for row in rows)
        if name != "ewt":
            print_breakdown(rows, parses, Path(settings.store))
        made[name] = scores(rows, parses, Path(settings.store)) | {"words per second": round(words / seconds)}
        if name == "gum":
            free = [k for k, row in enumerate(rows) if genre(row) in FREE_GENRES]
            made["gum, genres it was trained on"] = scores(
                [rows[k] for k in free], [parses[k] for k in free], Path(settings.store)
            )
    made["peak memory, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
