"""Raw text to words and parses: `python benchmarks/raw_text.py PARSER|rules [--spaces] FILE.conllu...`; english is the package's.

The raw text has a paragraph for each `# newpar` or `# newdoc`. F1 by the rules of the shared tasks of 2017 and 2018. --spaces: for
each kind of white space, F1 of the text with it between all sentences, and how many of 500 pairs of sentences are divided there.
"""

import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch

from phrasemodels.data.formats.lines import lines
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import ENGLISH
from phrasemodels.parsing.words import Sentences, divided_texts, universal_sentences
from phrasemodels.tasks.parsers.raw_text import RawSentence, f1, paragraphs, raw_scores, raw_sentences, written

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


def main() -> None:
    torch.set_num_threads(1)
    name, spaces = sys.argv[1], "--spaces" in sys.argv
    parser = None if name == "rules" else Parser.load(ENGLISH if name == "english" else name)
    split = parser.split if parser else universal_sentences
    for file in [file for file in sys.argv[2:] if file != "--spaces"]:
        found = list(raw_sentences(lines(Path(file))))
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


if __name__ == "__main__":
    main()
