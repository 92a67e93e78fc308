"""Enumeration of phrases beside a loop in Python and beside writing the phrases: `python benchmarks/phrases.py`.

Shards of 10,000 sentences of 19.6 words on average, as in a million sentences of news, with random trees. Millions of
phrases per second of CPU time on one thread, medians over interleaved rounds. The loop is timed on part of the sentences.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.shards import SHARD_ROWS, write_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.tasks.prepare.constituents import nodes, syntactic
from phrasemodels.tasks.prepare.phrases import LengthsAndHeads, adjacent, lists, subtrees

ROUNDS = 15
LOOPED = 1000  # sentences
SHARDS = 5  # per round
LEVELS = (1, 2, 3)


def plain_adjacent(lengths: list[int], longest: int) -> list[list[tuple[int, ...]]]:
    """Return all spans of 2 to `longest` tokens, sentence by sentence."""
    return [
        [tuple(range(first, first + size)) for size in range(2, longest + 1) for first in range(n - size + 1)]
        for n in lengths
    ]


def plain_subtrees(trees: list[list[int]], longest: int) -> list[list[tuple[int, ...]]]:
    """Return all edges, and for longest > 2 all connected subtrees of three words, sentence by sentence."""
    sentences = []
    for head in trees:
        phrases = [(word, up) for word, up in enumerate(head) if up >= 0]
        if longest > 2:
            for word, up in enumerate(head):
                if up >= 0:
                    phrases += [(word, up, head[up])] if head[up] >= 0 else []
                    phrases += [(word, up, other) for other in range(word + 1, len(head)) if head[other] == up]
        sentences.append(phrases)
    return sentences


def plain_levels(trees: list[str]) -> list[list[list[tuple[int, int]]]]:
    """Return the levels of parsed trees, by dividing phrase after phrase."""
    sentences = []
    for text in trees:
        tree = parse(text)
        n = len(tree.tokens)
        spans = sorted({(s.start, s.end) for s in tree.spans} | {(i, i + 1) for i in range(n)},
                       key=lambda s: (s[0], -s[1]))  # fmt: skip
        below: dict[tuple[int, int], list[tuple[int, int]]] = {}
        stack: list[tuple[int, int]] = []
        for span in spans:
            while stack and stack[-1][1] <= span[0]:
                stack.pop()
            if stack:
                below.setdefault(stack[-1], []).append(span)
            stack.append(span)
        level, levels = [(0, n)], []
        for depth in range(len(LEVELS)):
            level = [p for s in level for p in (below.get(s, [s]) if not depth or s[1] - s[0] > 3 else [s])]
            levels.append(level)
        sentences.append(levels)
    return sentences


def random_tree(rng: np.random.Generator, n: int) -> tuple[str, list[int]]:
    """Return a random bracketing and a random dependency tree of n words."""

    def brackets(size: int) -> str:
        if size == 1:
            return "(NN word)"
        cut = int(rng.integers(1, size))
        return f"(NP {brackets(cut)} {brackets(size - cut)})" if size > 2 else "(NP (NN word) (NN word))"

    return f"(ROOT {brackets(n)})", [int(rng.integers(max(0, i - 4), i)) if i else -1 for i in range(n)]


def rate(run: Callable[[], int], seconds: list[float]) -> int:
    """Time one run; return the number of its phrases."""
    start = time.process_time()
    count = run()
    seconds.append(time.process_time() - start)
    return count


def compare(title: str, runs: dict[str, Callable[[], int]]) -> None:
    """Print the millions of phrases per second of each run, and their ratio to the loop."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    counts = {name: run() for name, run in runs.items()}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            for _ in range(SHARDS):
                rate(run, seconds[name])
    rates = {name: counts[name] / statistics.median(seconds[name]) / 1e6 for name in runs}
    loop = rates["plain loop"]
    print(title + "".join(f"\n  {name:22} {value:7.1f} M/s  {value / loop:6.1f}x" for name, value in rates.items()))


def main() -> None:
    """Compare adjacent spans, subtrees and levels."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(19.6, SHARD_ROWS), 1, None).astype(np.int64)
    made = [random_tree(rng, n) for n in lengths.tolist()]
    trees, heads = pa.chunked_array([[tree for tree, _ in made]]), np.array([h for _, tree in made for h in tree])
    sentences = LengthsAndHeads(lengths, heads)
    with tempfile.TemporaryDirectory() as folder:
        for title, enumerate_, plain, some in (
            ("adjacent spans", adjacent, plain_adjacent, lengths[:LOOPED].tolist()),
            ("subtrees", subtrees, plain_subtrees, [tree for _, tree in made[:LOOPED]]),
        ):
            for longest in (2, 3):
                counts, members = enumerate_(sentences, longest)
                table = pa.table({"phrases": lists(counts, members)})

                def write(table: pa.Table = table, count: int = len(members)) -> int:
                    write_shard(Path(folder) / "shard.arrow", table)
                    return count

                compare(f"{title} of up to {longest} words", {
                    "plain loop": lambda p=plain, s=some, k=longest: sum(map(len, p(s, k))),
                    "ours": lambda e=enumerate_, k=longest: len(e(sentences, k)[1]),
                    "writing and hashing": write,
                })  # fmt: skip
    compare("levels of constituency trees (phrases of three levels)", {
        "plain loop": lambda: sum(len(level) for tree in plain_levels(trees[:LOOPED].to_pylist()) for level in tree),
        "ours": lambda: int((np.diff(syntactic(trees, lengths, LEVELS), axis=0) != 0).sum()),
        "of that, brackets": lambda: len(nodes(trees, lengths).start),
    })  # fmt: skip


if __name__ == "__main__":
    main()
