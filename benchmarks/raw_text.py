"""Raw text to words and parses: `python benchmarks/raw_text.py PARSER|rules FILE.conllu...`, where english is that of the package.

The raw text has a paragraph for each `# newpar` or `# newdoc`. F1 by the rules of the shared tasks of 2017 and 2018.
"""

import sys
import time
from pathlib import Path

import torch

from phrasemodels.data.formats.lines import lines
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import ENGLISH
from phrasemodels.parsing.words import universal_sentences
from phrasemodels.tasks.parsers.raw_text import f1, paragraphs, raw_scores, raw_sentences, written


def main() -> None:
    torch.set_num_threads(1)
    name = sys.argv[1]
    parser = None if name == "rules" else Parser.load(ENGLISH if name == "english" else name)
    for file in sys.argv[2:]:
        found = list(raw_sentences(lines(Path(file))))
        sentences = [one for one in found if one is not None]
        if len(sentences) < len(found):
            raise SystemExit(f"{file}: a text that is not that of its tokens")
        start = time.process_time()
        if parser:
            scores = raw_scores(parser, sentences)
        else:
            texts = [written(own) for own in paragraphs(sentences)]
            scores = f1((placed, ((words, ()) for words in universal_sentences(text))) for text, placed in texts)
        seconds = time.process_time() - start
        print(f"{file}: {seconds:.1f} CPU seconds, " + ", ".join(f"{k} {v:.2f}" for k, v in scores.items()), flush=True)


if __name__ == "__main__":
    main()
