"""Words and sentences of raw text: `python benchmarks/raw_text.py PARSER|rules FILE.conllu...`, where english is that of the package.

The raw text has a paragraph for each `# newpar` or `# newdoc`. F1 by the rules of the shared tasks of 2017 and 2018.
"""

import sys
from pathlib import Path

import torch

from phrasemodels.data.formats.lines import lines
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import ENGLISH
from phrasemodels.parsing.words import universal_sentences
from phrasemodels.tasks.parsers.splitting import f1, raw_sentences, written


def main() -> None:
    torch.set_num_threads(1)
    name = sys.argv[1]
    split = universal_sentences if name == "rules" else Parser.load(ENGLISH if name == "english" else name).split
    for file in sys.argv[2:]:
        sentences = list(raw_sentences(lines(Path(file))))
        paragraphs: list[list] = []
        for one in sentences:
            if one is None:
                raise SystemExit(f"{file}: a text that is not that of its tokens")
            if one.starts or not paragraphs:
                paragraphs.append([])
            paragraphs[-1].append(one)
        texts = [written(own) for own in paragraphs]
        found = f1((placed, split(text)) for text, placed in texts)
        print(f"{file}: " + ", ".join(f"{kind} {value:.2f}" for kind, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
