"""How often arcs are right whose probability is such: `python benchmarks/parser_confidence.py FILE.conllu... [--temperatures ...]`.

Prints for each temperature the mean difference between probability and share of right arcs over ten bins (in points), on every
tenth sentence of at most 60 words. The card of a parser holds the best of dev sets as `temperature`.
"""

import argparse
from pathlib import Path

import numpy as np

from phrasemodels.data.formats.conllu import read_conllu
from phrasemodels.data.formats.lines import lines
from phrasemodels.parsing.parser import Parser


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("files", nargs="+", type=Path)
    asked.add_argument("--temperatures", nargs="+", type=float, default=[0.7, 1.0, 1.3, 1.6, 2.0])
    given = asked.parse_args()
    parser = Parser.load()
    sentences = [own for file in given.files for own in list(read_conllu(lines(file), str(file)))[::10]]
    sentences = [own for own in sentences if 0 < len(own.tokens) <= 60 and own.heads]
    for temperature in given.temperatures:
        parser.card = {**parser.card, "temperature": temperature}
        found = [parser.confidence(own.tokens) for own in sentences]
        p = np.concatenate([arcs for _, _, arcs in found])
        right = np.concatenate(
            [np.equal(parse.heads, own.heads) for (parse, _, _), own in zip(found, sentences, strict=True)]
        )
        bins = np.minimum((p * 10).astype(int), 9)
        gaps = [abs(p[bins == k].mean() - right[bins == k].mean()) * (bins == k).mean() for k in set(bins.tolist())]
        print(f"temperature {temperature}: {100 * sum(gaps):.1f} points; {len(p)} arcs, {100 * right.mean():.1f} right")


if __name__ == "__main__":
    main()
