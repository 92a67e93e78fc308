"""Reader of parallel text: two files, one sentence a line, line N of one belongs to line N of the other."""

from pathlib import Path

import pyarrow as pa

from data.schemas import BITEXT, check


def read_bitext(source: Path, target: Path, rows: int, max_words: int) -> pa.Table:
    """BITEXT of two files. A ValueError names file and line of what is wrong; nothing is dropped."""
    sides = [read_lines(path, max_words) for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{source} has {len(sides[0])} lines and {target} has {len(sides[1])}: line N of both must belong together"
        )
    if len(sides[0]) != rows:
        raise ValueError(f"{source} has {len(sides[0])} lines, the manifest says {rows}: another version of the corpus?")
    columns = [pa.array(range(rows), pa.int64()), pa.array(sides[0]), pa.array(sides[1]), pa.array([""] * rows)]
    return check(pa.Table.from_arrays(columns, schema=BITEXT), BITEXT, str(source))


def read_lines(path: Path, max_words: int) -> list[str]:
    """Lines of a UTF-8 file. Refuses malformed bytes, empty lines and lines of more than max_words words."""
    lines = []
    for number, raw in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            line = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: byte {error.start + 1} is not UTF-8; convert the file") from error
        words = len(line.split())
        if not words:
            raise ValueError(f"{path}, line {number}: empty; remove the line from both sides")
        if words > max_words:
            raise ValueError(f"{path}, line {number}: {words} words, at most {max_words}; split it, or raise max_words")
        lines.append(line)
    return lines
