"""The Stanford PCFG parser (Klein and Manning 2003) as a back end of the parse step: some 200 words a second of a core.

You put in its jar and its grammar by hand. Both are under the GPL and no part of this project. Java is the system's. The parser of
paper 001 is version 3.5.2.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from phrasemodels.config import at_least
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.formats.trees import brackets, plain, read_brackets
from phrasemodels.data.store.artifacts import sha256_of
from phrasemodels.data.store.store import Job, Step
from phrasemodels.inference.inputs import Tokeniser, spaces
from phrasemodels.tasks.parsers.parse import (
    NO_WORDS,
    AddTrees,
    Analysis,
    Folders,
    add_trees,
    flat,
    sentences,
    trees,
)

NAME = "stanford"  # in commands, and of the folder of its files
GRAMMAR = "englishPCFG.ser.gz"
PROGRAM = "edu.stanford.nlp.parser.lexparser.LexicalizedParser"
UNPARSED = "the parser found no tree"
HOW = (
    f"put stanford-parser.jar and {GRAMMAR} of https://nlp.stanford.edu/software/lex-parser.html (GPL; version 3.5.2 is paper "
    f"001's; the grammar is in its models jar) into a folder {NAME} of the folder that PHRASEMODELS_SUPPLIED names"
)
_BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"})


@dataclass(frozen=True)
class StanfordFiles:
    """The jars and the grammar in the folder `stanford` of the user's files.

    Args:
        digests: Digests of the located files.
    """

    digests: Mapping[str, str] = field(default_factory=dict)

    def locate(self, folders: Sequence[Path]) -> "StanfordFiles":
        """Return the files with their digests, if one of the folders has them."""
        folder = _folder_in(folders)
        names = [] if folder is None else sorted([*(path.name for path in folder.glob("*.jar")), GRAMMAR])
        return replace(self, digests={name: _digest(folder / name) for name in names}) if folder else self

    @property
    def grammar(self) -> str:
        """The beginning of the grammar's digest. It identifies the version."""
        return self.digests.get(GRAMMAR, "")[:8]

    def step(self) -> Step:
        """Return the step for copying the files into the store."""
        return Step(copy_stanford, f"copy parser {NAME}", self)


def _folder_in(folders: Sequence[Path]) -> Path | None:
    """Return the first folder with a grammar and a jar."""
    places = (folder / NAME for folder in folders)
    return next((place for place in places if (place / GRAMMAR).is_file() and any(place.glob("*.jar"))), None)


def _digest(path: Path) -> str:
    return _digest_at(path, path.stat().st_mtime_ns)


@cache
def _digest_at(path: Path, changed: int) -> str:
    return sha256_of(path)


def copy_stanford(job: Job, settings: StanfordFiles) -> dict[str, Any]:
    """Copy jars and grammar into the store. OSError: they are not there. ValueError: they have changed since."""
    folder = _folder_in(job.executor.sources.mirrors if job.executor.sources else ())
    if folder is None or not settings.digests:
        raise OSError(f"the Stanford parser is not here: {HOW}")
    for name, digest in settings.digests.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != digest:
            raise ValueError(f"{folder / name} has changed since the run was planned; start again")
        shutil.copyfile(folder / name, job.out / name)
    terms = {"licences": ["LicenseRef-Stanford-parser"], "redistributable": False, "stand_in": False}
    return {"parser": f"{NAME}, grammar {settings.grammar}", **terms}


@dataclass(frozen=True)
class StanfordParser:
    """One Java process parses all sentences of a shard. memory: of Java, MiB.

    longest: longer sentences are not parsed. Memory grows with the square of the length.
    """

    longest: int = 100
    memory: int = 2048

    def __post_init__(self) -> None:
        at_least(self, 1, "longest", "memory")

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """Return TREES of the sentences in a column, row by row. OSError: there is no Java, or it does not end well."""
        if "models" not in models:
            raise ValueError(f"the Stanford parser needs its files as an input `models`: {HOW}")
        tokens = sentences(table, column)
        wanted = [row for row, words in enumerate(tokens) if 0 < len(words) <= self.longest]
        made = [flat(words, NO_WORDS if not words else f"more than {self.longest} words") for words in tokens]
        found = self._parsed([tokens[row] for row in wanted], models["models"]) if wanted else []
        for row, line in zip(wanted, found, strict=True):
            made[row] = analysis(tokens[row], line)
        return trees(table, made)

    def _parsed(self, tokens: Sequence[Sequence[str]], folder: Path) -> list[str]:
        """Return a line of brackets for each sentence. OSError: as in `analyse`."""
        java = shutil.which("java")
        if java is None:
            raise OSError(
                "the Stanford parser needs Java, and there is no `java` here: install a Java runtime (8 or later)"
            )
        command = [
            *(java, f"-Xmx{self.memory}m", "-Dfile.encoding=UTF-8", "-cp", str(folder / "*"), PROGRAM),
            *("-encoding", "utf-8", "-sentences", "newline", "-tokenized", "-outputFormat", "oneline"),
            *("-escaper", "edu.stanford.nlp.process.PTBEscapingProcessor", str(folder / GRAMMAR), "-"),
        ]
        text = "".join(f"{' '.join(map(_escaped, words))}\n" for words in tokens)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            done = subprocess.run(
                command, input=text, stdout=subprocess.PIPE, stderr=log, encoding="utf-8", check=False
            )
            log.seek(0)
            said = _last_words(log.read())
        lines = [line for line in done.stdout.split("\n") if line.strip()]
        if done.returncode or len(lines) != len(tokens):
            raise OSError(
                f"the Stanford parser ended with status {done.returncode} after {len(lines)} of {len(tokens)} sentences: "
                f"{said}"
            )
        return lines


def _escaped(word: str) -> str:
    """Return a word in the grammar's spelling, without white space."""
    return "_".join(word.translate(_BRACKETS).split()) or "_"


def _last_words(log: str) -> str:
    """Return the first line of a log with an error, or else the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    wrong = [line for line in lines if "Exception" in line or "Error" in line]
    return (wrong or lines[-1:] or ["it said nothing"])[0][:200]


def analysis(tokens: Sequence[str], line: str) -> Analysis:
    """Return a line of the parser's output as analysis of tokens. It is flat if no tree is over them."""
    try:
        ((_, tree),) = read_brackets([Line(1, line)], "the Stanford parser")
    except ValueError:
        return flat(tokens, UNPARSED)
    if len(tree.tokens) != len(tokens):
        return flat(tokens, "the parser divided the words otherwise")
    made = plain(tree._replace(tokens=tuple(tokens)))
    return Analysis(tokens, made.tags, tree=brackets(made))


@dataclass(frozen=True)
class ByStanford:
    """PAIRS or SENTENCES with constituency trees by the Stanford parser, over the words of a tokeniser.

    Args:
        divide: The tokeniser.
    """

    divide: Tokeniser = spaces
    files: StanfordFiles = field(default_factory=StanfordFiles)

    @property
    def card_name(self) -> str:
        """The parser, with the beginning of the digest of its grammar."""
        return f"the Stanford parser, grammar {self.files.grammar}"

    def __call__(self, rows: Step) -> Step:
        """Return the step that gives records the parser's trees."""
        settings = AddTrees(StanfordParser(), self.divide)
        inputs = {"rows": rows, "models": self.files.step()}
        return Step(add_trees, f"trees of {rows.label} by the Stanford parser", settings, inputs)
