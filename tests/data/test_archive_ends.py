"""Compressed archives are read to their end: what is cut off there, or changed without a trace in any file, is noticed."""

import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from phrasemodels.data.download.archives import _read_to_end, unpack

COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def tar() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name in ("a", "b"):
            info = tarfile.TarInfo(name)
            info.size = 1000
            archive.addfile(info, io.BytesIO(name.encode() * 1000))
    return held.getvalue()


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_compressed_archive_is_whole_to_its_last_byte(kind: str, tmp_path: Path) -> None:
    whole, file = COMPRESS[kind](tar()), tmp_path / "it"
    file.write_bytes(whole)
    assert sorted(unpack(file, tmp_path / "whole", 10_000)) == ["a", "b"]
    changed = [whole[:-cut] for cut in (1, 4, 8)]
    changed += [
        whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for place in range(len(whole) - 8, len(whole) - 1)
    ]
    for number, damaged in enumerate(changed):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"download it again|is damaged"):
            unpack(file, tmp_path / str(number), 10_000)
        assert not (tmp_path / str(number)).exists()


def test_bytes_behind_the_last_entry_are_bounded(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(gzip.compress(tar() + bytes(50 << 20)))
    with pytest.raises(ValueError, match="too many bytes after its last entry"):
        unpack(bomb, tmp_path / "out", 10_000)


def test_as_many_bytes_as_are_allowed_may_be_behind_the_last_entry() -> None:
    _read_to_end(Path("it"), io.BytesIO(bytes(9)), 9)
    with pytest.raises(ValueError, match="it: too many bytes"):
        _read_to_end(Path("it"), io.BytesIO(bytes(9)), 8)
