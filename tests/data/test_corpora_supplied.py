"""User files, archives that harm or are not whole, and files that are built from upstream files."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from serving import serving

from phrasemodels.data.corpora.readers import read
from phrasemodels.data.download import archives
from phrasemodels.data.download.fetch import fetch, obtain
from phrasemodels.data.download.manifest import File, Manifest, Sources, UserFiles, digests, load, locate


def put(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def smaller(manifest: Manifest, **splits: dict[str, Any]) -> Manifest:
    """Return the manifest with only these splits, with changes such as another number of rows."""
    made = {name: manifest.split(name).model_copy(update=changes) for name, changes in splits.items()}
    return manifest.model_copy(update={"splits": made})


def test_penn_treebank_by_sections(tmp_path: Path) -> None:
    for section in (0, 2, 21, 22, 23, 24):
        name = f"LDC99T42/PARSED/MRG/WSJ/{section:02d}/WSJ_{section:02d}01.MRG"
        put(tmp_path / "penn_treebank" / name, f"\n( (S (NP-SBJ (NN a{section}) ) (VP (VBZ is) )) )\n( (X (NN b)) )\n")
    put(tmp_path / "penn_treebank/LDC99T42/RAW/WSJ/00/WSJ_0001", "raw")
    found = smaller(load("penn_treebank"), train={"rows": 4}, dev={"rows": 2}, **{"tagging.train": {"rows": 4}})
    sources = Sources((tmp_path,))
    origins = obtain(found, tmp_path / "out", sources)
    assert (
        sorted(origins)
        == sorted(digests(found, sources))
        == [f"wsj/{s:02d}/wsj_{s:02d}01.mrg" for s in (0, 2, 21, 22, 23, 24)]
    )
    train = read(found, "train", tmp_path / "out")
    assert train["tokens"].to_pylist() == [["a2", "is"], ["b"], ["a21", "is"], ["b"]]
    assert train["tree"][0].as_py() == "(ROOT (S (NP (NN a2)) (VP (VBZ is))))"
    assert train["group"].to_pylist() == ["wsj_0201", "wsj_0201", "wsj_2101", "wsj_2101"]
    assert read(found, "dev", tmp_path / "out")["group"].to_pylist() == ["wsj_2201"] * 2
    assert read(found, "tagging.train", tmp_path / "out")["tags"].to_pylist()[:2] == [["NN", "VBZ"], ["NN"]]


def test_an_archive_in_the_folder_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "snli_official").mkdir()
    with zipfile.ZipFile(tmp_path / "snli_official" / "snli_1.0.zip", "w") as archive:
        for part in ("train", "dev", "test"):
            archive.writestr(f"snli_1.0/snli_1.0_{part}.jsonl", "")
    assert len(obtain(load("snli_official"), tmp_path / "out", Sources((tmp_path,)))) == 3
    assert len(digests(load("snli_official"), Sources((tmp_path,)))) == 3


def test_missing_user_files_are_reported_with_instructions(tmp_path: Path) -> None:
    with pytest.raises(
        OSError,
        match=r"penn_treebank: wsj must be supplied by the user: Copy parsed/mrg/wsj .* a folder penn_treebank ",
    ):
        obtain(load("penn_treebank"), tmp_path / "out", Sources((tmp_path,)))
    with pytest.raises(ValueError, match=r"MSParS\.train must be supplied by the user: Take"):
        read(load("mspars"), "official.train", tmp_path)


def test_user_files_are_checked(tmp_path: Path) -> None:
    wanted = UserFiles(name="a", pattern="a.txt", instructions="", git_blob=hashlib.sha1(b"blob 2\0hi").hexdigest())
    put(tmp_path / "x/A.txt", "hi")
    assert locate(wanted, tmp_path) == {"a": tmp_path / "x/A.txt"}
    put(tmp_path / "x/A.txt", "ho")
    with pytest.raises(ValueError, match="git blob"):
        locate(wanted, tmp_path)
    put(tmp_path / "y/a.txt", "hi")
    with pytest.raises(ValueError, match="are both a; remove one"):
        locate(wanted, tmp_path)
    with pytest.raises(ValueError, match="has 2 files"):
        locate(UserFiles(name="a", pattern="?/a.txt", count=3, instructions=""), tmp_path)


def tar(path: Path, *members: tuple[str, bytes, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, *members: str, mode: int = 0o100644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"x")
    return path


def encrypted(path: Path) -> Path:
    zipped(path, "x")
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(mark) + place] |= 1
    path.write_bytes(content)
    return path


def with_header(path: Path, kind: bytes, content: bytes, times: int = 1) -> Path:
    """Write a tar archive whose file has extra headers of this kind before it."""
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, len(content)
    padded = header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)
    with tar(path, ("x", b"x", FILE)).open("rb") as packed:
        path.write_bytes(gzip.compress(padded * times + gzip.decompress(packed.read()), mtime=0))
    return path


FILE = tarfile.REGTYPE
HARMFUL: list[tuple[Callable[[Path], Path], str]] = [
    (lambda p: tar(p, ("../x", b"x", FILE)), "would leave the folder"),
    (lambda p: tar(p, ("/x", b"x", FILE)), "would leave the folder"),
    (lambda p: zipped(p, "a/../../x"), "would leave the folder"),
    (lambda p: zipped(p, "C:\\x"), "would leave the folder"),
    (lambda p: tar(p, ("x", b"", tarfile.SYMTYPE)), "link or a device"),
    (lambda p: tar(p, ("x", b"", tarfile.LNKTYPE)), "link or a device"),
    (lambda p: tar(p, ("x", b"", tarfile.CHRTYPE)), "link or a device"),
    (lambda p: zipped(p, "x", mode=0o120777), "link or a device"),
    (lambda p: zipped(p, "Read", "read"), "differ only in case"),
    (lambda p: tar(p, ("a", b"x", FILE), ("a", b"y", FILE)), "differ only in case, or not at all"),
    (lambda p: zipped(p, "a", "a/b"), "is a file and a folder"),
    (lambda p: tar(p, ("x", bytes(10_000_000), FILE)), "takes more than"),
    (lambda p: put(p, "no archive"), "not a whole zip or tar archive"),
    (lambda p: zipped(p, "/x"), "would leave the folder"),
    (lambda p: zipped(p, "..\\x"), "would leave the folder"),
    (lambda p: zipped(p, "a/./x"), "would leave the folder"),
    (lambda p: tar(p, ("d", b"", tarfile.SYMTYPE), ("d/x", b"x", FILE)), "link or a device"),
    (lambda p: tar(p, ("x", b"", tarfile.FIFOTYPE)), "link or a device"),
    (lambda p: tar(p, ("x", b"", tarfile.BLKTYPE)), "link or a device"),
    (lambda p: tar(p, ("x", b"", tarfile.GNUTYPE_SPARSE)), "link or a device"),
    (lambda p: with_header(p, tarfile.XHDTYPE, b"22 GNU.sparse.map=0,1\n"), "link or a device"),
    (lambda p: zipped(p, "\u00e9", "e\u0301"), "differ only in case"),
    (lambda p: zipped(p, *map(str, range(101))), "more than 100 entries"),
    (encrypted, "is encrypted"),
    (lambda p: tar(p, *((str(i), b"", tarfile.DIRTYPE) for i in range(101))), "more than 100 entries"),
    (lambda p: zipped(p, *(f"{i}/" for i in range(101))), "more than 100 entries"),
    (lambda p: zipped(p, "a/" * 1000 + "x"), "more than 500 characters"),
    (lambda p: with_header(p, tarfile.GNUTYPE_LONGNAME, b"x" * 10**7), "headers of more than"),
    (lambda p: with_header(p, tarfile.XHDTYPE, b"10000014 path=" + b"x" * 10**7), "headers of more than"),
    (lambda p: with_header(p, tarfile.XHDTYPE, b"", 10_000), "headers of more than"),
    (lambda p: with_header(p, tarfile.XHDTYPE, b"19 GNU.sparse.map=x\n"), "not a whole zip or tar archive"),
    (lambda p: with_header(p, tarfile.XHDTYPE, b"9" * 5000 + b" size=1\n"), "not a whole zip or tar archive"),
]


@pytest.mark.parametrize(("make", "words"), HARMFUL)
def test_harmful_archives_are_refused_and_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path], words: str
) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 100)
    archive = make(tmp_path / "archive")
    with pytest.raises(ValueError, match=f"archive: .*{words}"):
        archives.unpack(archive, tmp_path / "out", 1 << 30)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["archive"]


class Read(gzip.GzipFile):
    """A gzip file that may be read in order, but in which no member may be skipped."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        assert whence == os.SEEK_CUR, "a member is decompressed to find the next one"
        return super().seek(offset, whence)


def test_a_tar_with_a_member_that_is_too_large_is_not_decompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "OPENERS", {b"\x1f\x8b": Read})
    archive = tar(tmp_path / "archive", ("x", bytes(1_000_000), FILE), ("y", b"y", FILE))
    with pytest.raises(ValueError, match="'x' takes more than"):
        archives.unpack(archive, tmp_path / "out", 1 << 30)
    with pytest.raises(ValueError, match="'x' takes more than"):
        archives.extract(archive, "y", tmp_path / "y", 1)
    assert os.listdir(tmp_path) == ["archive"]


def test_archives_are_unpacked(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tgz", ("./a/b", os.urandom(100), FILE), ("c", b"", FILE))
    assert archives.unpack(archive, tmp_path / "out", 1000) == ["a/b", "c"]
    assert (tmp_path / "out/a/b").stat().st_size == 100
    archives.extract(archive, "a/b", tmp_path / "b", 1000)
    with pytest.raises(ValueError, match="more than 99 bytes"):
        archives.extract(archive, "a/b", tmp_path / "d", 99)
    with pytest.raises(ValueError, match="holds no 'e'"):
        archives.extract(archive, "e", tmp_path / "e", 99)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as made:
        made.writestr("z", "z")
    assert archives.unpack(tar(tmp_path / "b.tar", ("z.zip", inner.getvalue(), FILE)), tmp_path / "zip", 1000) == [
        "z.zip"
    ]
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"a\.tgz: "):
        archives.unpack(archive, tmp_path / "other", 1000)
    assert not (tmp_path / "other").exists()


COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def plain_tar(folder: Path) -> bytes:
    return gzip.decompress(tar(folder / "plain", *((name, name.encode() * 1000, FILE) for name in "ab")).read_bytes())


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_compressed_archive_is_whole_to_its_last_byte(kind: str, tmp_path: Path) -> None:
    whole, file = COMPRESS[kind](plain_tar(tmp_path)), tmp_path / "it"
    file.write_bytes(whole)
    assert sorted(archives.unpack(file, tmp_path / "whole", 10_000)) == ["a", "b"]
    last = range(len(whole) - 8, len(whole) - 1)
    changed = [*(whole[:-cut] for cut in (1, 4, 8)), *(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :] for k in last)]
    for number, damaged in enumerate(changed):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"download it again|is damaged"):
            archives.unpack(file, tmp_path / str(number), 10_000)
        assert not (tmp_path / str(number)).exists()


def test_bytes_behind_the_last_entry_are_bounded(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(gzip.compress(plain_tar(tmp_path) + bytes(50 << 20)))
    with pytest.raises(ValueError, match="too many bytes after its last entry"):
        archives.unpack(bomb, tmp_path / "out", 10_000)


def test_as_many_bytes_as_are_allowed_may_be_behind_the_last_entry() -> None:
    archives._read_to_end(Path("it"), io.BytesIO(bytes(9)), 9)
    with pytest.raises(ValueError, match="it: too many bytes"):
        archives._read_to_end(Path("it"), io.BytesIO(bytes(9)), 8)


class Upstream(BaseHTTPRequestHandler):
    """A server with two parts of a file, and an archive that holds one of them."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            archive.writestr("in/one", "1\n2\n")
        body = {"/one": b"1\n2\n", "/two": b"3\n", "/zip": held.getvalue()}.get(self.path)
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body or b"")


@pytest.fixture
def upstream() -> Iterator[str]:
    with serving(HTTPServer(("127.0.0.1", 0), Upstream)) as url:
        yield url


def test_concatenated_parts_are_bounded_by_the_bytes_of_the_manifest(upstream: str, tmp_path: Path) -> None:
    build = {"transform": "concatenate", "url": upstream + "/{}", "parts": ("one",) * 50}
    file = File(name="a", sha256="0" * 64, bytes=6, mirror="x/a", build=build)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="more than 2 bytes, the manifest states fewer"):
        fetch(file, tmp_path / "a", Sources(private=True, wait=0.01))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("build", "content"),
    [
        ({"transform": "concatenate", "url": "/{}", "parts": ("one", "two")}, b"1\n2\n3\n"),
        ({"transform": "first_lines", "url": "/one", "lines": 1}, b"1\n"),
        ({"transform": "member", "url": "/zip", "member": "in/one"}, b"1\n2\n"),
    ],
)
def test_a_built_file_must_have_its_digest(
    upstream: str, tmp_path: Path, build: dict[str, Any], content: bytes
) -> None:
    recipe = build | {"url": upstream + build["url"]}
    digest = hashlib.sha256(content).hexdigest()
    file = File(name="a", sha256=digest, bytes=len(content), mirror="x/a", build=recipe)  # type: ignore[arg-type]
    fetch(file, tmp_path / "a", Sources(private=True, wait=0.01))
    assert (tmp_path / "a").read_bytes() == content
    with pytest.raises(OSError, match="the manifest states 000"):
        fetch(file.model_copy(update={"sha256": "0" * 64}), tmp_path / "b", Sources(private=True, wait=0.01))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
