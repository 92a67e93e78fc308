"""Train the splitter and the lexicon of the English parser: `python benchmarks/english_splitter.py TO [SECONDS]`, some 5 minutes of
one core; with 0 seconds the lexicon alone.

It reads EWT and the genres of GUM whose texts may be passed on, from PHRASEMODELS_MIRROR, and writes the parser of the package
with both to the folder TO. The dev sets of both, complete, choose its epoch and its threshold of sentence ends.
"""

import logging
import lzma
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from phrasemodels.data.formats.conllu import morphology
from phrasemodels.data.formats.lines import Line
from phrasemodels.flows.experiments.paper_004 import FREE_GENRES
from phrasemodels.infra.settings import Settings
from phrasemodels.parsing.lexicon import Lexicon
from phrasemodels.parsing.saved import ENGLISH, load, save
from phrasemodels.tasks.parsers.raw_text import RawSentence, raw_sentences
from phrasemodels.tasks.parsers.splitting import SplitterTraining, train_splitter

FILES = {
    "train": ("gum/train.conllu.xz", "ud_english_ewt/en_ewt-ud-train.conllu.xz"),
    "dev": ("gum/dev.conllu.xz", "ud_english_ewt/en_ewt-ud-dev.conllu.xz"),
}
# Words before numbers that the treebanks lack or split. Some `Art. 5` and `Chapter II.` are inserted into sentences
REFERENCES = (
    "Art.", "Arts.", "No.", "Nos.", "Op.", "Fig.", "Figs.", "Eq.", "Vol.", "Ch.", "p.", "pp.", "cf.", "l.", "ll.", "n.", "Ex.",
    "Par.", "App.", "Prop.", "Chapter", "Part", "Book", "Act", "Scene", "Volume", "Canto",
)  # fmt: skip
# What the treebanks rarely have, or never: templates of `SplitterTraining.inserted`
UNITS = "kg g mg t km m cm mm ml l GB MB kB GHz kW kWh V mA °C pm am h min s ms px pt k x".split()
INSERTED = (
    *(f"{number}·{unit}" for number in ("9", "9.9") for unit in UNITS),
    *3 * ("#aa", "#Aa", "#aaAa", "#aa #Aa #aa"),
    *2 * ("**·aa aa·**", "**·aa·**", "*·aa·*", "`·aa·`", "_·Aa aa·_", "[·aa aa·]·(·https://aa.org/aa_9·)", "[·Aa·]·(·/aa/aa.html·)"),
    *2 * ("/aa/aa/aa", "/aa/aa9", "aa·/·aa·/·aa", "aa9·/·aa9·/·aa·/·aa", "9 m/s", "9 km/h"),
    *2 * ("(·Supplementary Figure 9·)", "(·Supplementary Table 9·)", "(·Fig. 9·,·aa·)", "(·Figure 9·,·Aa et al.·,·9·)"),
    *3 * ("(·Feat. Aa·,·Aa·)", "(·feat. Aa Aa·)", "(·Prod. by Aa Aa·)", "(·Feat. A.Aa·,·T.Aa·)·(·Prod. by Aa·)", "ft. Aa"),
    *2 * ("Aa v.s. Aa", "aa vs. aa", "M.D. Aa", "Ph.D. in Aa", "Aa v. Aa"),
    *3 * ("·[·note 9·]", "·[·9·]", "·[·9·]·[·9·]", '·"·[·note 9·]', "·(·Aa 9·)"),
    *3 * ("|[·aa·]", "|[·Aa aa·]", "|9 May 9 .", "|9 April 9 .", "|No·.", "|Yes·.", "|#aa #aa", "|(·aa·)"),
)  # fmt: skip


def free(path: Path) -> Iterator[Line]:
    """Yield the lines of a treebank but of GUM's genres that are non-commercial."""
    kept = True
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.startswith("# newdoc id = GUM_"):
                kept = line.split("_")[1] in FREE_GENRES
            if kept:
                yield Line(number, line.rstrip("\n"))


def read(split: str) -> list[list[RawSentence]]:
    """Return the sentences of both treebanks."""
    mirror = Path(Settings().mirror or ".")
    return [[one for one in raw_sentences(free(mirror / name)) if one] for name in FILES[split]]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SplitterTraining().seconds
    made = load(ENGLISH)
    mirror = Path(Settings().mirror or ".")
    made = replace(made, lexicon=Lexicon.learned(w for name in FILES["train"] for w in morphology(free(mirror / name))))
    if seconds:
        settings = SplitterTraining(seconds=seconds, references=REFERENCES, inserted=INSERTED)
        splitter = train_splitter(read("train"), read("dev"), settings)
        made = replace(made, split=splitter)
    save(made, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
