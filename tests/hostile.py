"""Valid hostile input: well-formed files that say something else, or much; for the readers of `outside.py`.

A changed file is refused, or read; one that is only written in another way is read as before; of one that has a digest of itself
every change is noticed. The work of a reader grows with the bytes that it reads, not with their square.
"""

import io
import json
import random
import string
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
from outside import CONLLU, GIVEN, OUTSIDE, PARSER, attempt

Chance = random.Random
EDGES: tuple[Any, ...] = (None, True, False, 0, -1, 1, 2**31, 2**63, 1e308, -0.0, 1.5, "", ".", "..", "../../x", "/etc/passwd", "\0", "é",
                          "\u202e", "a" * 3000, "os:system", "NaN", [], {}, [[]], [None], {"": {}}, {"type": "os:system"})  # fmt: skip


def rewritten(text: bytes, chance: Chance) -> bytes:
    """Return JSON that says the same: other order of names, other spaces, other escapes."""

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: turned(value[name]) for name in chance.sample(list(value), len(value))}
        return [turned(one) for one in value] if isinstance(value, list) else value

    indent = chance.choice((None, 0, 3))
    made = json.dumps(turned(json.loads(text)), ensure_ascii=chance.random() < 0.5, indent=indent)
    return made.encode() + chance.choice((b"", b"\n", b"  "))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return (container, name) of everything in a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for name, own in pairs for place in ((value, name), *places(own))]


def changed(text: bytes, chance: Chance) -> bytes:
    """Return JSON in which one to three values are others, of the same or of another type, are missing, doubled or exchanged."""
    value = json.loads(text)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if not (found := places(value)):
            return json.dumps(chance.choice(EDGES)).encode()
        (within, name), (other, its) = chance.choice(found), chance.choice(found)
        how = chance.randrange(6)
        if how == 0:
            within[name] = deepcopy(chance.choice(EDGES))  # the next change may be inside of it
        elif how == 1:
            old = within[name]
            alike = [edge for edge in EDGES if type(edge) is type(old)]
            within[name] = deepcopy(chance.choice(alike or list(EDGES)))
        elif how == 2:
            del within[name]
        elif how == 3:
            within[name], other[its] = json.loads(json.dumps([other[its], within[name]]))
        elif isinstance(within, list):
            within.insert(name, within[name])
        else:
            within[str(chance.choice(EDGES))[:20]] = within[name]
    return json.dumps(value).encode()


def other_toml(text: bytes, chance: Chance) -> bytes:
    """Return TOML in which a value is another one, or a table or a line is there twice under another name."""
    lines = text.decode().split("\n")
    place = chance.choice([k for k, line in enumerate(lines) if " = " in line])
    name = lines[place].split(" = ")[0]
    edges = ("-1", "0", "9223372036854775807", "1e308", "nan", "inf", "true", '""', '"../x"', '"/etc/passwd"', '"\\u0000"', '"\\u202e"',
             "[]", "[1]", "{}", '["a", ["b"]]', "1979-05-27", '"' + "a" * 3000 + '"', '"os:system"', "{a = {b = {}}}")  # fmt: skip
    if chance.random() < 0.7:
        lines[place] = f"{name} = {chance.choice(edges)}"
    else:
        lines.insert(place, f"{chance.choice(('extra', 'x.y', chr(34) + '../x' + chr(34)))} = {chance.choice(edges)}")
    return "\n".join(lines).encode()


def word(chance: Chance) -> str:
    return "".join(chance.choices(string.ascii_letters + "-'.,\u00e9\u4e2d\u0301", k=chance.choice((1, 2, 5, 40))))


def trees(text: bytes, chance: Chance) -> bytes:
    """Return well-formed brackets: deep, wide, unary, of odd labels, with traces alone, without a root."""

    def tree(depth: int) -> str:
        label = chance.choice(("NP", "S|A", "NP-SBJ=2", "-NONE-", "", "X" * 200, "NP^VP", "\u00e9", "ROOT", "."))
        if depth == 0:
            return f"({label} {word(chance)})"
        return f"({label} {' '.join(tree(depth - 1 if chance.random() < 0.7 else 0) for _ in range(chance.choice((1, 1, 2, 9))))})"

    deep = chance.choice((1, 3, 5))
    made = tree(deep) if chance.random() < 0.9 else "(X " * 3000 + "(A a)" + ")" * 3000
    return f"(ROOT {made})\n".encode() if chance.random() < 0.7 else f"({made})\n".encode()


def conllu(text: bytes, chance: Chance) -> bytes:
    """Return CoNLL-U of ten columns: heads anywhere, also in circles, ranges and empty nodes, odd values."""
    n, lines = chance.choice((1, 2, 5, 60)), []
    for k in range(1, n + 1):
        if chance.random() < 0.1:
            lines.append(f"{k}-{min(n, k + chance.randrange(3))}\t{word(chance)}" + "\t_" * 8)
        head = chance.choice((0, k, k - 1, min(n, k + 1), chance.randrange(n + 1), n + 1, -1))
        relation = chance.choice(("nsubj", "root", "_", "acl:relcl"))
        lines.append(f"{k}\t{word(chance)}\t_\tNOUN\t{word(chance)}\t_\t{head}\t{relation}\t_\t_")
        if chance.random() < 0.05:
            lines.append(f"{k}.1\t{word(chance)}" + "\t_" * 8)
    return ("\n".join(lines) + "\n\n").encode()


NAMES = (
    "a",
    "a/b",
    "a",
    "../x",
    "/x",
    "a/../../x",
    "./a",
    "a/",
    "",
    ".",
    "A",
    "a\\b",
    "c:x",
    "é",
    "e\u0301",
    "x" * 300,
    "a\n",
    "con",
    "~/x",
)


def zip_archive(text: bytes, chance: Chance) -> bytes:
    """Return a zip archive with names that leave the folder, stand there twice or are file and folder, and with links."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", chance.choice((0, 8, 12, 14))) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for _ in range(chance.choice((0, 1, 3))):
            info = zipfile.ZipInfo(chance.choice(NAMES) or "x")
            info.external_attr = chance.choice((0o100644, 0o120777, 0o040755, 0o104755, 0o020644)) << 16
            archive.writestr(info, chance.choice((b"", b"text", b"/etc/passwd", bytes(9000), bytes(12_000))))
    return out.getvalue()


def tar_archive(text: bytes, chance: Chance) -> bytes:
    """Return a tar archive with such names, links, devices and sparse files."""
    out = io.BytesIO()
    form = chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    with tarfile.open(fileobj=out, mode=chance.choice(("w", "w:gz", "w:bz2", "w:xz")), format=form) as archive:
        for _ in range(chance.choice((0, 1, 3))):
            info = tarfile.TarInfo(chance.choice(NAMES))
            info.type = chance.choice((b"0", b"0", b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S"))
            info.linkname, info.mode = (
                chance.choice(("", "/etc/passwd", "../x", "a")),
                chance.choice((0, 0o644, 0o4755)),
            )
            content = chance.choice((b"", b"text", bytes(12_000))) if info.type == b"0" else b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def other_shard(text: bytes, chance: Chance) -> bytes:
    """Return a shard of other columns and types."""
    kinds = (pa.int8(), pa.uint64(), pa.float16(), pa.string(), pa.binary(), pa.list_(pa.list_(pa.int32())), pa.null(), pa.bool_(),
             pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.int32())]), pa.timestamp("ns"), pa.decimal128(38, 3))  # fmt: skip
    rows = chance.choice((0, 1, 7))
    columns = {
        chance.choice(("id", "source", "", "é", "x" * 500)): pa.nulls(rows, chance.choice(kinds)) for _ in range(3)
    }
    table, out = pa.table(columns), io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table, max_chunksize=chance.choice((1, 5)))
    return out.getvalue()


def other_database(text: bytes, chance: Chance) -> bytes:
    """Return a database of SQLite in which a table is missing, a view, or has values of other types."""
    import sqlite3

    with tempfile.TemporaryDirectory() as folder:
        (place := Path(folder, "db")).write_bytes(text)
        with closing(sqlite3.connect(place)) as database:
            table = chance.choice(("tags", "runs", "experiments"))
            database.execute(
                chance.choice(
                    (
                        f"drop table {table}",
                        f"delete from {table}",
                        f"insert into {table} select * from {table}",
                        "update tags set value = null",
                        "update tags set value = x'ff00'",
                        "update runs set run_uuid = 7",
                        "update runs set start_time = 'x'",
                        "update runs set start_time = 1e308",
                        f"alter table {table} rename to other",
                        "pragma user_version = 99",
                        "create table more (x)",
                    )
                )
            )
            database.commit()
        return place.read_bytes()


Change = Callable[[bytes, Chance], bytes]
JSON = ("exported model", "vocabulary of an exported model", "card of an exported model", "configuration of an exported model",
        "answers of an exported model",
        "record of a run", "lease", "lease in object storage", "manifest in the store", "manifest in object storage",
        "state of a checkpoint", "merges of an exported model", "kept result", "packed parser",
        "log of inspect_ai", "samples of lm-evaluation-harness")  # fmt: skip
DIGEST = ("manifest in the store", "kept result")  # that have a digest of themselves
CHANGES: dict[str, Change] = {
    **dict.fromkeys(JSON, changed),
    **dict.fromkeys(("manifest of a corpus", "manifest of a parser", "file of a project"), other_toml),
    "brackets": trees,
    "conllu": conllu,
    "zip": zip_archive,
    "tar": tar_archive,
    "shard": other_shard,
    "database of MLflow": other_database,
}


def attacked(name: str, folder: Path, chance: Chance) -> None:
    """Give one valid hostile file to a reader: refused in one line, or read; AssertionError: neither, or another result."""
    seed = OUTSIDE[name].seeds[0]
    content = CHANGES[name](seed, chance)
    attempt(name, content, folder / "changed")
    if name in DIGEST and says(name, content, folder / "says") not in (None, says(name, seed, folder / "good")):
        assert json.loads(content) == json.loads(seed), f"a change of {name} was not noticed: {content[:2000]!r}"
    if name in JSON:
        same = rewritten(seed, chance)
        if name == "samples of lm-evaluation-harness":
            same = b" ".join(same.split(b"\n")) + b"\n"  # a line is an object
        assert says(name, same, folder / "again") == says(name, seed, folder / "seed"), f"{name}: {same[:2000]!r}"


def says(name: str, content: bytes, folder: Path) -> str | None:
    """Return the result of a reader as text; None: it refuses the content."""
    folder.mkdir()
    (folder / GIVEN).write_bytes(content)
    try:
        found = json.dumps(OUTSIDE[name].read(folder), sort_keys=True, default=repr)
        return found.replace(str(folder), "")
    except (ValueError, OSError):
        return None


def vectors(n: int) -> bytes:
    return b"".join(b"w%d 1 2\n" % k for k in range(n))


def archive_of(n: int) -> bytes:
    """Return an archive that is read whole, and refused for its last entry: the time is not of the disk."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for k in range(n):
            archive.writestr(f"{k}" if k < n - 1 else "../x", b"")
    return out.getvalue()


def long_conllu(n: int) -> bytes:
    return b"".join(b"%d\tw\t_\tNOUN\tNN\t_\t%d\tx\t_\t_\n" % (k, k - 1) for k in range(1, n + 1)) + b"\n"


# Readers, and inputs that grow in one way: (bytes or entries, content of this size).
GROWING: dict[str, tuple[str, int, Callable[[int], bytes]]] = {
    "many trees": ("brackets", 2000, lambda n: OUTSIDE["brackets"].seeds[0] * n),
    "a deep tree": ("brackets", 4000, lambda n: b"(X " * n + b"(A a)" + b")" * n + b"\n"),
    "a wide tree": ("brackets", 20_000, lambda n: b"(S " + b"(A a) " * n + b")\n"),
    "open brackets": ("brackets", 50_000, lambda n: b"(" * n),
    "many sentences": ("conllu", 1000, lambda n: CONLLU * n),
    "a long sentence": ("conllu", 4000, long_conllu),
    "many lines": ("bitext", 20_000, lambda n: b"a cat\n" * n),
    "a long line": ("bitext", 200_000, lambda n: b"a " * n),
    "many stories": ("babi", 2000, lambda n: OUTSIDE["babi"].seeds[0] * n),
    "many pairs": ("snli.official", 300, lambda n: OUTSIDE["snli.official"].seeds[0] * n),
    "many entries": ("zip", 1000, archive_of),
    "many vectors": ("word vectors", 10_000, vectors),
    "many scores": ("scores", 5000, lambda n: b"seed,item,score\n" + b"".join(b"0,%d,1\n" % k for k in range(n))),
    "many printed": ("printed numbers", 300, lambda n: b"paper,table,row,dataset,metric,value\n" + b"".join(
        b"p,1,r%d,d,m,87.1\n" % k for k in range(n))),
    "many files": ("manifest of a parser", 300, lambda n: PARSER + b"".join(
        PARSER[PARSER.index(b"[[files]]"):].replace(b"x.pt", b"x%d.pt" % k) for k in range(n))),
    "many merges": ("merges of an exported model", 20_000, lambda n: json.dumps(
        {"vocab": [], "merges": [[f"a{k}", "b"] for k in range(n)]}).encode()),
    "many leases": ("lease", 50_000, lambda n: json.dumps([str(k) for k in range(n)]).encode()),
    "nested lists": ("card of an exported model", 50_000, lambda n: b"[" * n),
    "much text": ("text", 50_000, lambda n: b"It rains.\xff\n" * n),
}  # fmt: skip
