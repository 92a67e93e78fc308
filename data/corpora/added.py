"""A corpus of one's own: one file whose rows are divided into train, dev and test, described by a manifest."""

import json
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phrasemodels.data.corpora.readers import read
from phrasemodels.data.download.manifest import Manifest, explain
from phrasemodels.data.download.manifest import read as read_manifest
from phrasemodels.data.store.artifacts import sha256_of, write_durably

SHARE = 10  # dev and test have one row of so many each
PACKED = (".gz", ".xz", ".bz2", ".zip")


@dataclass(frozen=True)
class Added:
    """What a manifest says of a file beside its digest and its rows; languages: source and target of parallel text."""

    name: str
    reader: str = "columns"
    schema: str = "bitext"
    options: Mapping[str, str] = field(default_factory=dict)
    languages: Sequence[str] = ()
    tokeniser: str = "spaces"
    title: str = ""
    licence: str = "LicenseRef-own"
    homepage: str = "https://example.org"


def add(file: Path, about: Added, corpora: Path) -> Path:
    """Copy a file into a folder of corpora and write its manifest beside it; return the manifest's path.

    OSError: there is no such file. ValueError: the reader cannot read it, or its manifest would be wrong.
    """
    if not file.is_file():
        raise OSError(f"{file}: no such file")
    if file.suffix in PACKED:
        raise ValueError(f"{file}: unpack it first: the digest is of its content")
    path, place = corpora / f"{about.name}.toml", corpora / about.name / file.name
    if path.exists():
        raise ValueError(f"{path} exists: change it there, or give another --name")
    whole = _manifest(file, about, {"train": None})
    rows = read(whole, "train", file.parent).num_rows
    part = max(1, rows // SHARE)
    if rows < 3:
        raise ValueError(f"{file}: {rows} rows cannot be divided into train, dev and test")
    parts = {"train": (2 * part, None), "dev": (0, part), "test": (part, 2 * part)}
    divided = _manifest(file, about, parts)
    counts = {split: read(divided, split, file.parent).num_rows for split in parts}
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.resolve() != file.resolve():
        shutil.copyfile(file, place)
    write_durably(path, text_of(file, about, parts, counts))
    read_manifest(path)
    return path


def _manifest(file: Path, about: Added, parts: Mapping[str, Any]) -> Manifest:
    from pydantic import ValidationError

    try:
        return Manifest.model_validate(tomllib.loads(text_of(file, about, parts, {})))
    except ValidationError as error:
        raise ValueError(f"{about.name}: {explain(error)}") from None


def text_of(file: Path, about: Added, parts: Mapping[str, Any], rows: Mapping[str, int]) -> str:
    """Return the manifest as TOML. parts: (start, stop) of the rows of each split, or None; rows: how many they are."""
    line = {
        "name": about.name,
        "title": about.title or about.name,
        "schema": about.schema,
        "reader": about.reader,
        "licence": about.licence,
        "licence_text": "The terms of the corpus in words.",
        "redistributable": False,
        "citation": "none",
        "homepage": about.homepage,
    }
    top = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in line.items()]
    if about.languages:
        source, target = about.languages
        top.append(f'languages = {{ source = "{source}", target = "{target}", tokeniser = "{about.tokeniser}" }}')
    top += ["", "[[files]]", f"name = {json.dumps(file.name)}", f'sha256 = "{sha256_of(file)}"']
    top += [f"bytes = {file.stat().st_size}", f"mirror = {json.dumps(f'{about.name}/{file.name}')}"]
    for split, part in parts.items():
        top += ["", f"[splits.{split}]", f"files = {{ rows = {json.dumps(file.name)} }}"]
        top += [f"rows = {rows[split]}"] if split in rows else []
        if about.options:
            top.append("options = { " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in about.options.items()) + " }")
        if part:
            start, stop = part
            top.append(f"part = {{ start = {start}{'' if stop is None else f', stop = {stop}'} }}")
    return "\n".join(top) + "\n"
