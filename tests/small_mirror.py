"""A small mirror: every corpus that can be downloaded, with a few made-up records in the format of each reader."""

import gzip
import hashlib
import lzma
import re
from pathlib import Path

import pytest

from phrasemodels.data.corpora import releases
from phrasemodels.data.download import manifest as manifests
from phrasemodels.data.download.manifest import Manifest

ROWS = 12
FIRST = {"train": 0, "dev": 20, "test": 6}  # half of the test records stand in train, none of dev
SHRINK = 300  # parts of a corpus begin and stop at so many times smaller rows
PACK = {".xz": lzma.compress, ".gz": gzip.compress}


def record(reader: str, role: str, i: int) -> str:
    """The i-th record of a file in the format of its reader; the role tells the files of one split apart."""
    words = f"who saw cat {i}"
    match reader.split(".")[0], role:
        case "babi", _:
            return f"1 Ann took cup {i}.\n2 Who took cup {i}?\tAnn\t1\n"
        case "mspars" | "questions", "blocks":
            tags = ("question", "logical form", "parameters", "question type")
            values = (words, f"( lambda ?x ( mso:saw cat_{i} ?x ) )", "p", "cvt")
            return "".join(f"<{t} id={i}>\t{v}\n" for t, v in zip(tags, values, strict=True)) + "=" * 50 + "\n"
        case "snli", "label":
            return f"{releases.LABELS[i % 3]}\n"
        case "senteval", "trees":
            return f"({i % 5} (2 cat) (2 {i}))\n"
        case "senteval", "questions":
            return f"HUM:ind {words} ?\n"
        case "treebank", "brackets":
            return f"(ROOT (S (NP (NN cat)) (VP (VBD saw) (NP (CD {i})))))\n"
        case "treebank", _:
            rows = [("cat", "NOUN", "NN", 2), ("saw", "VERB", "VBD", 0), (str(i), "NUM", "CD", 2)]
            lines = (f"{n}\t{w}\t_\t{u}\t{t}\t_\t{h}\tdep\t_\t_\n" for n, (w, u, t, h) in enumerate(rows, 1))
            return "# newdoc id = one\n" + "".join(lines) + "\n"
    match reader:
        case "senteval.polarity":
            return f"{words}\t{i % 2}\n"
        case "senteval.sick":
            return f"{i}\t{words}\tno one\t2.5\tNEUTRAL\n"
        case "senteval.similarity":
            return f"3.2\t{words}\tno one\n"
        case "senteval.paraphrases":
            return f"{i % 2}\t{i}\t{i}\t{words}\tno one\n"
    return f"{words} {role}\n"


HEADERS = {"senteval.sick": releases.SICK, "senteval.paraphrases": releases.MRPC}


def content(manifest: Manifest, file: str) -> bytes:
    """A file of ROWS records, as the reader of its first split expects them."""
    for name, split in manifest.splits.items():
        for role, played in split.files.items():
            if played == file:
                reader = split.reader or manifest.reader
                kind = next((kind for kind in ("test", "dev") if kind in f"{name} {file}"), "train")
                rows = range(FIRST[kind], FIRST[kind] + ROWS)
                header = "\t".join(HEADERS[reader]) + "\n" if reader in HEADERS else ""
                return (header + "".join(record(reader, role, i) for i in rows)).encode()
    return f"{file} of {manifest.name}\n".encode()


def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the mirror, and its manifests in place of the project's; return the folder of the mirror.

    Manifests pin the made-up files. They promise no numbers of rows and no unusable rows.
    """
    (folder / "manifests").mkdir()
    for path in manifests.MANIFESTS.glob("*.toml"):
        text, manifest = path.read_text(), manifests.read(path)
        for file in manifest.files:
            made = content(manifest, file.name)
            place = folder / "mirror" / file.mirror
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(PACK.get(place.suffix, bytes)(made))
            text = text.replace(file.sha256, hashlib.sha256(made).hexdigest())
            text = re.sub(rf'(name = "{re.escape(file.name)}"\nsha256 = .*\nbytes = )\d+', rf"\g<1>{len(made)}", text)
        text = re.sub(r"^(rows = \d+|reasons = .*)$", "", text, flags=re.M)
        text = re.sub(r"\b(start|stop) = (\d+)", lambda m: f"{m[1]} = {int(m[2]) // SHRINK}", text)
        (folder / "manifests" / path.name).write_text(text)
    monkeypatch.setattr(manifests, "MANIFESTS", folder / "manifests")
    return folder / "mirror"
