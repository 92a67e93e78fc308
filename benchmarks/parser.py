"""The English parser: `python benchmarks/parser.py scores|speed|memory|raw ...`, each with --help.

    scores      of the test sets of GUM, GENTLE and EWT from gold words, as JSON for the card; on stderr what is worst, by label,
                length, relation and genre
    speed       words a CPU second, one sentence a call and all at once, beside Stanza and spaCy's small model where they are
    memory      the resident set as `parse_each` goes on
    raw         F1 of words, sentences and parses of raw text by the rules of the shared tasks of 2017 and 2018; a paragraph for each
                `# newpar` or `# newdoc`. With --spaces for each kind of white space between the sentences

One thread of torch. The corpora come from PHRASEMODELS_MIRROR or from upstream, the store is PHRASEMODELS_STORE.
"""

import argparse
import importlib
import json
import random
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from phrasemodels.data.formats.lines import lines
from phrasemodels.data.formats.shards import TREES, write_shard
from phrasemodels.data.formats.trees import brackets, wh_phrases
from phrasemodels.data.formats.trees import parse as parse_tree
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.flows.experiments.paper_004 import FREE_GENRES
from phrasemodels.flows.results.records import open_store, sources_of
from phrasemodels.infra.settings import Settings
from phrasemodels.models.parser import DECODES, Decode
from phrasemodels.parsing.parser import Parse, Parser
from phrasemodels.parsing.saved import ENGLISH
from phrasemodels.parsing.words import Sentences, divided_texts, universal_sentences
from phrasemodels.tasks.parsers.splitting import RawSentence, f1, paragraphs, raw_scores, raw_sentences, written
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards
from phrasemodels.tasks.problems.parsing import PARSES, ParseScoring, score_parses

Tokens = Sequence[list[str]]
Run = Callable[[Tokens], object]

SHOWN = ("f1", "uas", "las", "tags")


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
    """Print scores by genre."""
    for name in sorted({genre(row) for row in rows}):
        chosen = [k for k, row in enumerate(rows) if genre(row) == name]
        own = scores([rows[k] for k in chosen], [parses[k] for k in chosen], folder)
        print(f"{name}: " + ", ".join(f"{score} {value:.1f}" for score, value in own.items()), file=sys.stderr)


def scores_section(folder: str) -> None:
    """Print the scores, for the card of a parser."""
    settings = Settings()
    store, executor = open_store(settings), Executor(sources=sources_of(settings))
    parser = Parser.load(folder)
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


ROUNDS, ALONE, TOGETHER = 5, 30, 200  # sentences that are parsed one by one, and all at once


def sentences(count: int) -> Tokens:
    """Return sentences of GUM's test set in a random order."""
    settings = Settings()
    split = open_store(settings).run(Corpus("gum").split("test"), Executor(sources=sources_of(settings)))
    found: list[list[str]] = read_shards(split).column("tokens").to_pylist()
    random.Random(0).shuffle(found)
    return found[:count]


def decoding(decode: Decode | None) -> Run:
    """Return the English parser with a decoder; None: joint decoding."""
    parser = Parser.load()
    parser.decode = decode or parser.decode
    parser.load_kernels()
    return lambda some: list(parser.parse_tokens(some))


def stanza_pipeline(models: str) -> dict[str, Run]:
    """Return Stanza's tagger, lemmatiser, dependency and constituency parsers from a folder of models; {} without one."""
    if not models:
        return {}
    library = importlib.import_module("stanza")
    pipeline = library.Pipeline(
        "en",
        dir=models,
        processors="tokenize,pos,lemma,depparse,constituency",
        tokenize_pretokenized=True,
        download_method=None,
        use_gpu=False,
        verbose=False,
    )
    return {"Stanza": lambda some: pipeline([list(own) for own in some])}


def spacy_pipeline() -> dict[str, Run]:
    """Return spaCy's small English pipeline without names and lemmas: tags and greedy heads."""
    spacy = importlib.import_module("spacy")
    try:
        pipeline = spacy.load("en_core_web_sm", exclude=["ner", "lemmatizer"])
    except OSError as error:
        raise ImportError(str(error)) from error
    return {
        "spaCy small": lambda some: list(pipeline.pipe([spacy.tokens.Doc(pipeline.vocab, words=own) for own in some]))
    }


def rounds(runs: dict[str, Run], some: Tokens, together: bool) -> Iterator[tuple[str, float, float]]:
    """Yield name, CPU seconds and wall seconds of each run, all in turn, ROUNDS times."""
    for count in range(ROUNDS + 1):
        for name, run in runs.items():
            wall, start = time.perf_counter(), time.process_time()
            for part in [some] if together else [[own] for own in some]:
                run(part)
            if count:  # the first warms caches
                yield name, time.process_time() - start, time.perf_counter() - wall


def speed_section(stanza: str) -> None:
    """Print words a CPU second, by the clock in brackets: medians over interleaved rounds in one process."""
    warnings.simplefilter("ignore")
    found = sentences(TOGETHER)
    ways = {
        "jointly": None,
        "apart": DECODES["apart"],
        "phrases alone": DECODES["phrases"],
        "heads alone": DECODES["arcs"],
    }
    runs: dict[str, Run] = {f"ours, {name}": decoding(decode) for name, decode in ways.items()}
    for make in (partial(stanza_pipeline, stanza), spacy_pipeline):
        try:
            runs |= make()
        except ImportError as missing:
            print(f"without a peer: {missing}")
    rates: dict[str, list[str]] = {name: [] for name in runs}
    for together, some in ((False, found[:ALONE]), (True, found)):
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for name, cpu, wall in rounds(runs, some, together):
            taken[name].append((cpu, wall))
        for name, each in taken.items():
            cpu, wall = (sum(map(len, some)) / statistics.median(times) for times in zip(*each, strict=True))
            rates[name].append(f"{cpu:7.0f} ({wall:.0f})")
    print(f"{'words a second':20}{'one sentence a call':>24}{'all at once':>24}")
    for name, both in rates.items():
        print(f"{name:20}" + "".join(f"{rate:>24}" for rate in both))


def memory_section(count: int) -> None:
    """Print the resident set, MiB, as so many sentences of GUM's test set are parsed, each in an order of its own."""
    parser, texts = Parser.load(), [" ".join(own) for own in sentences(10**6)]
    drawn = random.Random(1)
    every = parser.parse_each(drawn.choice(texts) for _ in range(count))
    for number, _ in enumerate(every):
        if number % 2000 == 0:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            print(f"{number:8} sentences: {pages * resource.getpagesize() >> 20} MiB", flush=True)


PAIRS = 500
SPACES = {
    "one blank": " ", "two blanks": "  ", "three blanks": "   ", "tab": "\t", "line feed": "\n", "CRLF": "\r\n",
    "carriage return": "\r", "blank, line feed": " \n", "line feed, four blanks": "\n    ", "NBSP": "\xa0",
    "NBSP, blank": "\xa0 ", "form feed": "\f", "line feed, form feed": "\n\f", "vertical tab": "\v", "next line": "\x85",
    "em space": "\u2003", "ideographic space": "\u3000", "line separator": "\u2028", "byte order mark, blank": "\ufeff ",
    "quoted mail": "\n> ", "quoted twice": "\r\n> > ", "empty line": "\n\n", "paragraph separator": "\u2029",
}  # fmt: skip


def divided_by_spaces(split: Sentences, sentences: Sequence[RawSentence]) -> None:
    """Print for each kind of white space F1 of sentences and words, and the share of pairs of sentences that it divides."""
    pairs = [(one, other) for one, other in pairwise(sentences) if one.spaced and not other.starts]
    pairs = pairs[:: max(1, len(pairs) // PAIRS)][:PAIRS]
    for name, space in SPACES.items():
        found = divided_texts(split, [one.text + space + other.text for one, other in pairs])
        right = sum(
            any(own[-1].end == len(one.text) for own in each) for (one, _), each in zip(pairs, found, strict=True)
        )
        texts = [written(own, space) for own in paragraphs(sentences)]
        every = divided_texts(split, [text for text, _ in texts])
        scores = f1((placed, ((words, ()) for words in each)) for (_, placed), each in zip(texts, every, strict=True))
        share = f"{100 * right / len(pairs):.1f} % of {len(pairs)}"
        print(f"{name}: {share}, F1 {scores['sentences']:.1f}, words {scores['words']:.2f}", flush=True)


def raw_section(name: str, files: Sequence[Path], spaces: bool) -> None:
    """Print F1 of each file by a parser: english is the package's, rules divide without one."""
    parser = None if name == "rules" else Parser.load(ENGLISH if name == "english" else name)
    split = parser.split if parser else universal_sentences
    for file in files:
        found = list(raw_sentences(lines(file)))
        sentences = [one for one in found if one is not None]
        if len(sentences) < len(found):
            raise SystemExit(f"{file}: a text that is not that of its tokens")
        if spaces:
            divided_by_spaces(split, sentences)
            continue
        start = time.process_time()
        if parser:
            scores = raw_scores(parser, sentences)
        else:
            texts = [written(own) for own in paragraphs(sentences)]
            scores = f1((placed, ((words, ()) for words in split(text))) for text, placed in texts)
        seconds = time.process_time() - start
        print(f"{file}: {seconds:.1f} CPU seconds, " + ", ".join(f"{k} {v:.2f}" for k, v in scores.items()), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = asked.add_subparsers(dest="section", required=True)
    sections.add_parser("scores").add_argument("folder", nargs="?", default=str(ENGLISH))
    sections.add_parser("speed").add_argument("stanza", nargs="?", default="", help="the folder of Stanza's models")
    sections.add_parser("memory").add_argument("count", nargs="?", type=int, default=20_000)
    own = sections.add_parser("raw")
    own.add_argument("name", metavar="PARSER", help="english, rules, or a folder")
    own.add_argument("files", nargs="+", type=Path, help="CoNLL-U")
    own.add_argument("--spaces", action="store_true")
    given = vars(asked.parse_args())
    globals()[f"{given.pop('section')}_section"](**given)


if __name__ == "__main__":
    main()
