"""Words per second of the English parser beside benepar, supar and Stanza: `python benchmarks/english_speed.py [STANZA_MODELS]`.

One sentence a call, as a server answers, and all at once. One thread; medians of CPU time over interleaved rounds in one
process, models loaded, wall time in brackets. Tokenised sentences of GUM's test set, or made-up words where there is no
corpus: names of peers in parser_peers.py.
"""

import random
import statistics
import string
import sys
import time
import warnings
from collections.abc import Iterator

import torch
from parser_peers import Parse, Sentences, peers, size

from phrasemodels.data.store.store import Executor
from phrasemodels.flows.results.records import open_store, sources_of
from phrasemodels.infra.settings import Settings
from phrasemodels.models.parser import Decode, arcs_alone, phrases_alone, separately
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import ENGLISH, load
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.sharded import read_shards

ROUNDS, ALONE, TOGETHER = 5, 30, 200  # sentences that are parsed one by one, and all at once


def sentences() -> Sentences:
    """Return sentences of GUM's test set in a random order, or of random letters if the corpus is not at hand."""
    drawn = random.Random(0)
    settings = Settings()
    try:
        split = open_store(settings).run(Corpus("gum").split("test"), Executor(sources=sources_of(settings)))
        found: list[list[str]] = read_shards(split).column("tokens").to_pylist()
    except (OSError, ValueError) as error:
        print(f"made-up sentences, as GUM is not at hand: {error}")
        words = ["".join(drawn.choices(string.ascii_lowercase, k=drawn.randint(1, 9))) for _ in range(5000)]
        found = [drawn.choices(words, k=1 + int(drawn.expovariate(1 / 17))) for _ in range(TOGETHER)]
    drawn.shuffle(found)
    return found[:TOGETHER]


def decoding(decode: Decode | None) -> Parse:
    """Return the English parser with a decoder; None: joint decoding."""
    parser = Parser.load()
    parser.decode = decode or parser.decode
    return lambda some: list(parser.parse_tokens(some))


def rounds(runs: dict[str, Parse], some: Sentences, together: bool) -> Iterator[tuple[str, float, float]]:
    """Yield name, CPU seconds and wall seconds of each run, all in turn, ROUNDS times."""
    for count in range(ROUNDS + 1):
        for name, run in runs.items():
            wall, start = time.perf_counter(), time.process_time()
            for part in [some] if together else [[own] for own in some]:
                run(part)
            if count:  # the first warms caches
                yield name, time.process_time() - start, time.perf_counter() - wall


def main(stanza: str = "") -> None:
    """Print a table."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found, ours, parameters = sentences(), Parser.load(), size(load(ENGLISH).model)
    made = {
        f"ours, {name}": (decoding(decode), parameters)
        for name, decode in (
            ("jointly", None),
            ("apart", separately),
            ("phrases alone", phrases_alone),
            ("heads alone", arcs_alone),
        )
    }
    made |= peers(ours, found, stanza)
    runs = {name: run for name, (run, _) in made.items()}
    rates: dict[str, list[str]] = {name: [] for name in made}
    for together, some in ((False, found[:ALONE]), (True, found)):
        words, taken = sum(map(len, some)), {name: ([], []) for name in made}  # type: ignore[var-annotated]
        for name, cpu, wall in rounds(runs, some, together):
            taken[name][0].append(cpu)
            taken[name][1].append(wall)
        median = {name: [statistics.median(each) for each in both] for name, both in taken.items()}
        first = next(iter(median.values()))[0]
        for name, (cpu, wall) in median.items():
            rates[name].append(f"{words / cpu:7.0f} ({words / wall:.0f})  {first / cpu:5.2f}")
    print(f"words a second, and as a multiple of ours: {'one sentence a call':>30}{'all at once':>30}")
    for name, (_, parameters) in made.items():
        print(f"{name:31} {parameters / 1e6:6.2f}M" + "".join(f"{rate:>30}" for rate in rates[name]))


if __name__ == "__main__":
    main(*sys.argv[1:])
