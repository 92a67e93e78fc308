"""Your own corpus as a manifest: a divided file or a treebank of Universal Dependencies.

A file is divided into train, dev and test.
"""

import filecmp
import json
import os
import re
import shutil
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from phrasemodels.data.corpora.bitext import BadLine, divided
from phrasemodels.data.corpora.readers import Counts, blocks, counts, in_part, merged, part_keys, read, reasons
from phrasemodels.data.download.manifest import Manifest, Part, explain, names
from phrasemodels.data.download.manifest import read as read_manifest
from phrasemodels.data.formats.conllu import conllu_sentences, has_other_text
from phrasemodels.data.formats.lines import lines
from phrasemodels.data.store.artifacts import atomic_replace, locked, sha256_of, write_durably

SHARE = 10  # dev and test have one row of so many each,
MOST_ROWS = 5_000  # but not more than these: each evaluation reads all of dev
BAD_LINES = ".bad.tsv"  # ends the name of the file with the lines that are left out of a corpus
PACKED = (".gz", ".xz", ".bz2", ".zip")
ANY_LENGTH = 1_000_000  # words of a sentence
LONGEST_NAME = 200  # bytes of a file's name, which gets endings
# names of columns in a first line that is no row
NAMES = frozenset(
    "id sentence text review source target src tgt label labels class category sentiment polarity rating".split()
)
UNIVERSAL_TAGS = frozenset("_ ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split())
UNKNOWN, HOMEPAGE = "LicenseRef-own", "https://example.org"


@dataclass(frozen=True)
class Added:
    """The lines of a manifest on a file beside its digest and its rows.

    languages: source and target of parallel text. by: rows with an equal value of this column are in the same split.
    """

    name: str
    reader: str = "columns"
    schema: str = "bitext"
    options: Mapping[str, str | float] = field(default_factory=dict)
    languages: Sequence[str] = ()
    tokeniser: str = "spaces"
    by: str = "id"
    title: str = ""
    note: str = ""
    licence: str = UNKNOWN
    homepage: str = HOMEPAGE
    max_words: int | None = None


@dataclass(frozen=True)
class Split:
    """A split of a manifest: a file, its role for the reader and its rows.

    It also has the first row and the one after the last. reasons: numbers of unusable rows. None: any.
    """

    file: str
    role: str
    rows: int = -1
    part: tuple[int, int | None] | None = None
    reasons: Mapping[str, int] | None = field(default_factory=dict)


class Written(NamedTuple):
    """A new corpus: the path of its manifest, counts of its splits and the rows of each label in each."""

    path: Path
    splits: dict[str, Counts]
    labels: Mapping[str, Mapping[str, int]] = {}
    groups: Mapping[str, Mapping[str, int]] = {}  # the same of the last column, if a row has it


def add(
    file: Path, about: Added, corpora: Path, overwrite: bool = False, dev: int | None = None, test: int | None = None
) -> Written:
    """Copy a file into a folder of corpora and write its manifest beside it.

    Left-out lines are listed in a file beside the copy. The manifest names it.

    Args:
        overwrite: Also over the manifest of a corpus of this name.
        dev, test: Their rows. None: one of SHARE, but at most MOST_ROWS.

    Raises:
        OSError: The file is missing.
        ValueError: The reader cannot read it, or its manifest would be wrong.
    """
    if not file.is_file():
        raise OSError(f"{file}: no such file")
    if not file.stat().st_size:
        raise ValueError(f"{file} is empty: it needs rows")
    if file.suffix in PACKED:
        raise ValueError(f"{file}: unpack it first: the digest is of its content")
    _check_new(about, corpora, overwrite)
    _check_replaceable(about, [file], corpora, overwrite)
    _check_first_line(file, about)
    split = Split(file.name, "rows")
    manifest = _manifest(about, [file], {"train": split})
    every = blocks(manifest, "train", file.parent)
    order = Part(by=about.by, alike=_alike(about))
    keys = np.concatenate([part_keys(rows, order, f"{about.name} train") for rows in every])
    usual = min(max(1, len(keys) // SHARE), MOST_ROWS)
    dev, test = (usual if rows is None else rows for rows in (dev, test))
    if len(keys) < dev + test + 1:
        raise ValueError(f"{file}: {len(keys)} rows cannot be divided into train, {dev} rows of dev and {test} of test")
    parts = {"train": (dev + test, None), "dev": (0, dev), "test": (dev, dev + test)}
    chosen = {name: in_part(keys, *part) for name, part in parts.items()}
    for name, rows in chosen.items():
        if not rows.any():
            raise ValueError(f"{about.name} {name}: no rows, as too many are kept together by {about.by!r}")
    labels = _by_split(blocks(manifest, "train", file.parent), chosen, "label") if about.reader == "labelled" else {}
    _check_labels(labels)
    groups = _by_split(blocks(manifest, "train", file.parent), chosen, "group")
    by_split = _counts_by_part(blocks(manifest, "train", file.parent), chosen)
    splits = {name: replace(split, part=own, reasons=by_split[name].reasons) for name, own in parts.items()}
    kinds = Counter(line.kind for line in _bad_lines(file, about))
    aside = f"{file.name}{BAD_LINES}"
    if kinds:
        counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        about = replace(about, note=f"{kinds.total()} lines are left out, which {aside} lists: {counted}")
    path = _put(about, [file], splits, corpora, by_split, overwrite)
    if kinds:
        with atomic_replace(path.with_suffix("") / aside) as part, part.open("w", encoding="utf-8") as written:
            for line in _bad_lines(file, about):
                row = f"{line.number}\t{line.kind}\t{line.text}\n"
                written.write(row.encode(errors="surrogateescape").decode(errors="replace"))
    return Written(path, by_split, labels, groups if set(groups) != {""} else {})


def _alike(about: Added) -> str:
    """Return the column to balance over dev and test."""
    return "label" if about.reader == "labelled" else ""


def _check_first_line(file: Path, about: Added) -> None:
    """ValueError: the first line has names of columns."""
    first = next(lines(file, errors="replace")).text.split(str(about.options.get("separator", "\t")))
    if len(first) > 1 and {name.strip().lower() for name in first} <= NAMES:
        raise ValueError(f"{file}, line 1: names of columns ({', '.join(first)}), and no row: remove the line")


def _by_split(tables: Iterable[pa.Table], chosen: Mapping[str, np.ndarray], column: str) -> dict[str, Counter[str]]:
    """Count the rows of each value of a column in each split."""
    found: dict[str, Counter[str]] = {}
    at = 0
    for table in tables:
        for split, rows in chosen.items():
            for value in table[column].filter(pa.array(rows[at : at + table.num_rows])).to_pylist():
                found.setdefault(value, Counter())[split] += 1
        at += table.num_rows
    return found


def _check_labels(found: Mapping[str, Counter[str]]) -> None:
    """ValueError: labels differ in case, Unicode form or invisible characters alone, or train lacks one."""
    alike: dict[str, list[str]] = {}
    for label in found:
        seen = "".join(x for x in unicodedata.normalize("NFKC", label) if unicodedata.category(x) != "Cf")
        alike.setdefault(seen.casefold().strip(), []).append(label)
    for several in (each for each in alike.values() if len(each) > 1):
        counted = ", ".join(f"{ascii(label)[1:-1]} ({found[label].total()} rows)" for label in several)
        raise ValueError(f"labels that differ in case, spaces or Unicode form alone: {counted}; write each in one way")
    if lacking := [label for label, own in found.items() if not own["train"]]:
        counted = ", ".join(
            f"{label!r} ({', '.join(f'{n} in {split}' for split, n in found[label].items())})" for label in lacking
        )
        raise ValueError(
            f"train has no row of a label, which no model can learn then: {counted}; add rows of it, or remove them"
        )


def _counts_by_part(tables: Iterable[pa.Table], chosen: Mapping[str, np.ndarray]) -> dict[str, Counts]:
    """Count the rows of each part, one table at a time. `chosen` says which rows are in it."""
    found: dict[str, list[Counts]] = {name: [] for name in chosen}
    at = 0
    for table in tables:
        for name, rows in chosen.items():
            found[name].append(counts([table.filter(pa.array(rows[at : at + table.num_rows]))]))
        at += table.num_rows
    return {name: merged(each) for name, each in found.items()}


def _bad_lines(file: Path, about: Added) -> Iterator[BadLine]:
    """Yield the lines of a file left out by the readers `columns` and `labelled`."""
    if about.options.get("bad_lines") != "skip":
        return
    own = {name: str(value) for name, value in about.options.items() if name in ("separator", "prefix")}
    found = divided(file, Manifest.model_fields["max_words"].default, **own)
    yield from (line for line in found if isinstance(line, BadLine))


def add_treebank(
    folder: Path, corpora: Path, name: str = "", overwrite: bool = False, max_words: int | None = None
) -> Written:
    """Copy a treebank of Universal Dependencies into a folder of corpora and write its manifest.

    The manifest is beside the treebank. Without a name UD_German-GSD becomes the corpus ud_german_gsd. A treebank may
    have no train or dev set. If heads are no tree (two roots or a cycle) the sentence stays in it without heads. The
    manifest counts these sentences.

    Args:
        max_words: A longer sentence is an error. None: none is. Then the manifest names the longest.

    Raises:
        OSError: The folder has no file *-ud-SPLIT.conllu or two of a split.
        ValueError: A file cannot be read.
    """
    files = {}
    for split in ("train", "dev", "test"):
        found = sorted(path for path in folder.glob(f"*-ud-{split}.conllu") if path.is_file())
        if len(found) > 1:
            raise OSError(f"{folder}: {len(found)} files *-ud-{split}.conllu; a treebank has one")
        if found:
            files[split] = found[0]
    if not files:
        raise OSError(f"{folder}: no file *-ud-SPLIT.conllu, with train, dev or test as SPLIT")
    title = folder.resolve().name
    name = name or re.sub(r"\W+", "_", title.lower())
    text = "".join(
        path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("README*")) if path.is_file()
    )
    licence = re.search(r"^License: *([A-Z]+(?:[- ][A-Z0-9.]+)*) *$", text, re.MULTILINE)
    page = f"https://github.com/UniversalDependencies/{title}" if title.startswith("UD_") else HOMEPAGE
    known = licence[1].replace(" ", "-") if licence else UNKNOWN
    about = Added(name, "treebank", "trees", title=title.replace("_", " "), licence=known, homepage=page)
    splits = {split: Split(file.name, "conllu", reasons=None) for split, file in files.items()}
    _check_new(about, corpora, overwrite)
    _check_replaceable(about, list(files.values()), corpora, overwrite)
    tables = _tables(replace(about, max_words=max_words or ANY_LENGTH), list(files.values()), splits)
    if headless := [name for name, table in tables.items() if table.num_rows and not any(table["heads"].to_pylist())]:
        raise ValueError(
            f"{files[headless[0]]}: no sentence has heads that are a tree; a treebank of dependencies has them"
        )
    longest = max(max(map(len, table["tokens"].to_pylist()), default=1) for table in tables.values())
    usual = Manifest.model_fields["max_words"].default
    about = replace(
        about,
        note="; ".join([*_flaws(tables, usual), *_odd(tables, files)]),
        max_words=max(usual, longest) if max_words is None else max_words,
    )
    counted = {name: counts([table]) for name, table in tables.items()}
    splits = {name: replace(split, reasons=counted[name].reasons) for name, split in splits.items()}
    return Written(_put(about, list(files.values()), splits, corpora, counted, overwrite), counted)


def _odd(tables: Mapping[str, pa.Table], files: Mapping[str, Path]) -> Iterator[str]:
    """Yield what no treebank of Universal Dependencies has but a parser learns: words by kind, and sentences with another `# text`."""
    for split, table in tables.items():
        columns = (table[name].to_pylist() for name in ("universal", "heads", "relations"))
        found = Counter[str]()
        if any("\0" in token for tokens in table["tokens"].to_pylist() for token in tokens):
            raise ValueError(f"{files[split]}: a word has a NUL byte, which is no text")
        for universal, heads, relations in zip(*columns, strict=True):
            found.update(f"words with the universal tag {tag}" for tag in universal if tag not in UNIVERSAL_TAGS)
            wrong = (
                (head == 0) != (own.partition(":")[0] == "root") for head, own in zip(heads, relations, strict=False)
            )
            found["words with the relation root and another head, or with head 0 and another relation"] += sum(wrong)
        own = sum(map(has_other_text, conllu_sentences(lines(files[split]))))
        found["sentences whose # text has other words: how they are written is not learned"] = own
        yield from (f"{split}: {count} {kind}" for kind, count in found.items() if count)


def _flaws(tables: Mapping[str, pa.Table], usual: int) -> list[str]:
    """Return the flaws of a treebank: missing splits, heads by the reason and very long sentences."""
    missing = [split for split in ("train", "dev", "test") if split not in tables]
    said = [f"no {' and no '.join(missing)} set"] if missing else []
    for split, table in tables.items():
        found = Counter(reasons(table)).most_common()
        said += [f"{split}: {count} sentences without heads, {reason}" for reason, count in found]
        without = sum(not own for own in table["heads"].to_pylist()) - sum(count for _, count in found)
        said += [f"{split}: {without} sentences without heads, which are all _"] if without else []
        if long := sum(len(tokens) > usual for tokens in table["tokens"].to_pylist()):
            said.append(f"{split}: {long} sentences of more than {usual} words")
    return said


def _check_new(about: Added, corpora: Path, overwrite: bool) -> None:
    """ValueError: there is a corpus of this name already."""
    path = corpora / f"{about.name}.toml"
    if about.name in names():
        raise ValueError(f"there is a corpus {about.name!r} already: give another --name")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists: change it there, give another --name, or --replace it")


def _check_replaceable(about: Added, files: Sequence[Path], corpora: Path, overwrite: bool) -> None:
    """ValueError: a name is too long for a file, or a file of a user is where a copy would be written."""
    for name in (about.name, *(file.name for file in files)):
        if len(name.encode(errors="surrogateescape")) > LONGEST_NAME:
            raise ValueError(f"{name[:20]}...: a name of more than {LONGEST_NAME} bytes: give a shorter one")
    for file in files:
        copy = corpora / about.name / file.name
        if overwrite or not os.path.lexists(copy) or copy.resolve() == file.resolve():
            continue
        if not (copy.is_file() and filecmp.cmp(copy, file, shallow=False)):
            raise ValueError(f"{copy} exists: move it, give another --name, or --replace it")


def _put(
    about: Added,
    files: Sequence[Path],
    splits: Mapping[str, Split],
    corpora: Path,
    by_split: Mapping[str, Counts],
    overwrite: bool,
) -> Path:
    """Copy files into corpora/NAME and write corpora/NAME.toml. Return its path."""
    path, place = corpora / f"{about.name}.toml", corpora / about.name
    place.mkdir(parents=True, exist_ok=True)
    with_rows = {name: replace(split, rows=by_split[name].rows) for name, split in splits.items()}
    with locked(path):
        _check_new(about, corpora, overwrite)  # another command may have added one meanwhile
        for file in files:
            if (copy := place / file.name).resolve() != file.resolve():
                with atomic_replace(copy) as part:  # a link is replaced, and not what it leads to
                    shutil.copyfile(file, part)
        write_durably(path, text_of(about, files, with_rows))
    read_manifest(path)
    return path


def _tables(about: Added, files: Sequence[Path], splits: Mapping[str, Split]) -> dict[str, pa.Table]:
    """Return each split as its reader reads it. ValueError: it cannot, or the manifest would be wrong."""
    manifest = _manifest(about, files, splits)
    return {name: read(manifest, name, files[0].parent) for name in splits}


def _manifest(about: Added, files: Sequence[Path], splits: Mapping[str, Split]) -> Manifest:
    """Return the manifest of files. ValueError: it would be wrong."""
    from pydantic import ValidationError

    try:
        return Manifest.model_validate(tomllib.loads(text_of(about, files, splits)))
    except ValidationError as error:
        raise ValueError(f"{about.name}: {explain(error)}") from None


def text_of(about: Added, files: Sequence[Path], splits: Mapping[str, Split]) -> str:
    """Return a manifest as TOML."""
    line = {
        "name": about.name,
        "title": about.title or about.name,
        "schema": about.schema,
        "reader": about.reader,
        "licence": about.licence,
        "licence_text": "The terms of the corpus in words.",
        "redistributable": False,
        **({"note": about.note} if about.note else {}),
        "citation": "none",
        "homepage": about.homepage,
    }
    top = [f"{name} = {_quoted(value)}" for name, value in line.items()]
    if about.max_words is not None:
        top.append(f"max_words = {about.max_words}")
    if about.languages:
        source, target = about.languages
        pair = f"source = {_quoted(source)}, target = {_quoted(target)}, tokeniser = {_quoted(about.tokeniser)}"
        top.append(f"languages = {{ {pair} }}")
    for file in files:
        top += ["", "[[files]]", f"name = {_quoted(file.name)}", f'sha256 = "{sha256_of(file)}"']
        top += [f"bytes = {file.stat().st_size}", f"mirror = {_quoted(f'{about.name}/{file.name}')}"]
    for name, split in splits.items():
        top += ["", f"[splits.{name}]", f"files = {{ {split.role} = {_quoted(split.file)} }}"]
        top += [f"rows = {split.rows}"] if split.rows >= 0 else []
        if split.reasons is None:
            top.append('reasons = "unknown"')
        elif split.reasons:
            top.append("reasons = { " + ", ".join(f"{_quoted(why)} = {n}" for why, n in split.reasons.items()) + " }")
        if about.options:
            top.append(
                "options = { " + ", ".join(f"{_quoted(k)} = {_quoted(v)}" for k, v in about.options.items()) + " }"
            )
        if split.part:
            start, stop = split.part
            alike = {"alike": _quoted(_alike(about))} if _alike(about) else {}
            own = {"by": _quoted(about.by), **alike, "start": start} | ({} if stop is None else {"stop": stop})
            top.append("part = { " + ", ".join(f"{key} = {value}" for key, value in own.items()) + " }")
    return "\n".join(top) + "\n"


def _quoted(value: object) -> str:
    """Return a text or a truth value as TOML. TOML has no pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False)
