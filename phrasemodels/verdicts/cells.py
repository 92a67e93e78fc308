"""Files to cells: text of tables (divided by commas, semicolons or tabs; Markdown; LaTeX; Excel), and the values of cells.

Files are untrusted. A mistake is a ValueError of one line with the file's name.
"""

import csv
import gzip
import io
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

MOST_BYTES = 1 << 30  # of one file, unpacked
LONGEST = 2000  # characters of a cell
MOST_BYTES_OF_EXCEL = 1 << 24  # unpacked: XML takes many times as much memory
MOST_CELLS_OF_EXCEL = 1_000_000  # of a sheet: openpyxl makes each of them, also empty ones
MARK = re.compile(
    r"\[\^(\w+)\](?!\()|<sup>\s*([^\s<>\d.±+−-]{1,3}|(?<![RrχmkK]<sup>)\d)\s*</sup>|"
    r"\\(?:textsuperscript|tnote)\s*\{\s*\\?([^{}\d.]{1,8}|\d)\s*\}|"
    r"\$?(?:\{\})?\^\s*\{?\s*\\?(d?dagger|ast|star|[a-z*∗†‡§¶⋆](?![\w.]))\s*\}?\$?|\$?\\(d?dagger|ast|star)\b\$?|"
    r"((?<=[\w.)}%])[ᵃᵇᶜ]|[†‡§¶⋆★☆♠♣♥♦]|\\?[*∗⁎]+)|\b((?:double )?dagger|asterisk)s?\b"
)
MARK_SIGNS = {**dict.fromkeys(("ast", "star", "∗", "⁎", "asterisk"), "*"), "dagger": "†", "ddagger": "‡", "double dagger": "‡"}
MARKED = re.compile(r"⟦([^⟦⟧]+)⟧")
MOST_MERGED = 100_000  # merged cells, each of which takes openpyxl 25 µs
DIVIDERS = ",;\t"
TABULAR = re.compile(r"\\begin\{(tabular[xy*]?|longtable|tabu|array)\}(?:\{[^{}]*\})?(?=\{)")


class Line(NamedTuple):
    """A line of a table with its number in the file. over: places of cells that stand over several columns or rows. marks: by place."""

    number: int
    cells: list[str]
    over: frozenset[int] = frozenset()
    marks: Mapping[int, frozenset[str]] = {}


@dataclass
class Grid:
    """A table as text. where: its file. title: the heading above it, its caption or its sheet's name. notes: what isn't read of it.

    beside: all text that stands beside it, such as a caption below or a footnote.
    """

    where: str
    lines: list[Line]
    divider: str = ""
    notes: list[str] = field(default_factory=list)
    title: str = ""
    beside: list[str] = field(default_factory=list)


def marked(text: str) -> str:
    """Return text with its footnote marks as ⟦mark⟧, which `plain` keeps."""
    bare = re.sub(r"(\*\*\*|\*\*|\*)(?=[^\s*])([^*]+?)(?<=[^\s*])\1(?![\w*])", r"\2", text)

    def sign(found: re.Match[str]) -> str:
        name = next(filter(None, found.groups()))
        return f"⟦{MARK_SIGNS.get(name) or re.sub(r'[*∗⁎]+', '*', name.removeprefix(chr(92)))}⟧"

    return MARK.sub(sign, bare)


def marks_of(text: str) -> frozenset[str]:
    """Return the footnote marks of a cell."""
    return frozenset(MARKED.findall(marked(text)))


def content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked. ValueError: there is none, or it is too large or damaged."""
    if not path.is_file():
        why = "a folder; name a file" if path.is_dir() else "no regular file" if path.exists() else "no such file"
        raise ValueError(f"{path}: {why}")
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: no gzip ({error})") from error
    if len(found) > MOST_BYTES:
        raise ValueError(f"{path}: more than {MOST_BYTES} bytes; divide it")
    return found


def text_of(path: Path) -> str:
    """Return the text of a file in UTF-8, UTF-16 or the cp1252 of old spreadsheets. ValueError: it is no text."""
    found = content(path)
    utf16 = found[:2] in (b"\xff\xfe", b"\xfe\xff")
    for encoding in ("utf-16",) if utf16 else ("utf-8-sig", "cp1252"):
        try:
            text = found.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text.replace("\r\n", "\n").replace("\r", "\n")
    raise ValueError(f"{path}: no text in UTF-8, UTF-16 or cp1252")


def suffix(path: Path) -> str:
    """Return the ending of a file's name in lower case, of a packed one the ending before .gz."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def grids(path: Path, exact: bool = False) -> list[Grid]:
    """Return the tables of a file. exact: with all digits of Excel's cells, not those shown. ValueError: it cannot be read."""
    if suffix(path) in (".xlsx", ".xlsm"):
        return _sheets(path, exact)
    text = text_of(path)
    if TABULAR.search(text) or re.search(r"&[^\n]*\\\\[ \t]*(\n|$)", text) or (suffix(path) == ".tex" and "&" in text):
        return _latex(str(path), text)
    lines = text.split("\n")
    if any("|" in line and "-" in line and set(line) <= set("|:- \t") for line in lines):
        return _markdown(str(path), lines)
    if suffix(path) in (".md", ".markdown", ".tex", ".rst"):
        return []
    return [_divided(str(path), text)]


def _bounded(cell: str) -> str:
    """Return the text of a cell. A very long one is cut, so that it is no number."""
    cell = cell.strip()
    return cell if len(cell) <= LONGEST else f"{cell[:LONGEST]} …"


def _divided(where: str, text: str) -> Grid:
    """Return a table. Its divider divides most of its lines alike."""
    first, _, rest = text.partition("\n")
    stated = re.fullmatch(r"sep=(.)\s*", first)
    if stated:
        text = "\n" + rest  # which keeps the numbers of lines
    divider = stated[1] if stated else max(DIVIDERS, key=lambda one: _even(text, one))
    reader, lines, before = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=divider), [], 0
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                cells = [_bounded(cell) for cell in cells]
                lines.append(Line(before + 1, cells, marks=dict(enumerate(map(marks_of, cells)))))
            before = reader.line_num
    except csv.Error as error:
        raise ValueError(f"{where}, line {before + 1}: no CSV ({error})") from error
    return Grid(where, lines, divider)


def _even(text: str, divider: str) -> tuple[int, int]:
    """Return the most common number of cells of a divider, and how many of the first lines have it."""
    try:
        sample = list(csv.reader(io.StringIO(text[:20000], newline=""), delimiter=divider))[:50]
    except csv.Error:
        return 0, 0
    widths = [len(cells) for cells in sample if len(cells) > 1]
    return (0, 0) if not widths else max((widths.count(width), width) for width in set(widths))


HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*)|\s*(\*\*|__)(.+)\2[\s:.]*|\W{0,4}Tab(?:le|elle)?\.?\s*[\w.]{1,5}[:.)]\s*(\S.*)", re.I)


def _markdown(where: str, lines: Sequence[str]) -> list[Grid]:
    found: list[Grid] = []
    inside, title, captions, captioned = False, "", [""], list[Grid]()  # captions: the last one before each table, and after the last
    texts = [list[str]()]  # paragraphs before each table, and after the last
    for number, line in enumerate(lines, 1):
        if "|" not in line:
            texts[-1][-1:] = [f"{' '.join(texts[-1][-1:])} {line}".strip()[-LONGEST:]] if line.strip() else [*texts[-1][-1:], ""]
            inside, heading = False, HEADING.fullmatch(line[:LONGEST])
            if heading:
                title = re.sub(r"^Tab(?:le|elle)?\.?\s*[\w.]{1,5}[:.)]\s*", "", heading[1] or heading[3] or heading[4], flags=re.I)
                title = plain(title.strip(" #*_:."))
                captions[-1] = "" if heading[1] else title
            elif line.strip() and found and title == found[-1].title and not captions[-1]:
                title = ""  # a heading does not go on behind text
            continue
        if re.fullmatch(r"[\s|:-]+", line) and "-" in line:
            continue
        if not inside:
            found.append(Grid(where, [], title=title))
            captioned += found[-1:] if captions[-1] else []
            captions.append("")
            texts.append([])
        inside = True
        cells = [_bounded(cell.replace(r"\|", "|")) for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]
        found[-1].lines.append(Line(number, [plain(cell) for cell in cells], marks=dict(enumerate(map(marks_of, cells)))))
    for grid in captioned if captions[-1] and not captions[0] else ():
        grid.title = ""  # captions may be below their tables, or above
    above, below = ([list(filter(None, part)) for part in parts] for parts in (texts, texts[1:]))
    if len(found) == 1 and sum(map(len, above[0] + below[0])) < LONGEST:  # a table that was copied, with what stood around it
        above, below = [[". ".join(above[0])]], [[". ".join(below[0])]]
    for place, grid in enumerate(found):
        after = below[place][:1] if place + 1 == len(found) or not above[0] or len(below[place]) > 1 else []
        grid.beside = [plain(marked(text).strip(" #*_")) for text in above[place][-1:] + after]
    return [grid for grid in found if len(grid.lines) > 1]


RULES = re.compile(
    r"\\(hline|toprule|midrule|bottomrule|addlinespace|centering|small|noalign)\b(\[[^\]]*\])?|\\(cmidrule|cline|rowcolor|specialrule|"
    r"vspace\*?)(\([^()]*\))?(\[[^\]]*\])?(\{[^{}]*\})*"
)


PAST = re.compile(rf"\\end\{{(?:\w*table|figure)\*?\}}|\\begin\{{\w*(?:table|figure)\*?\}}|{TABULAR.pattern}|\\end\{{tab\w+\*?\}}(?!notes)|"
                  r"\\(?:sub)?caption|\\(?:sub)*section")  # fmt: skip
COMMANDS = re.compile(
    r"\\(?:begin|end)\s*\{[^{}]*\}(?:\[[^\]]*\]|\{[^{}]*\})*|"
    r"\\(?:item|par|\w*size|small|centering|hfill|label\{[^{}]*\}|vspace|subfloat)\b"
)


def _latex(where: str, text: str) -> list[Grid]:
    text = re.sub(r"(?<!\\)%[^\n]*", "", text)
    found, captions = [], _captions(text)
    for begin in TABULAR.finditer(text):
        start = _closing(text, begin.end())
        end = text.find("\\end{" + begin[1], start)
        found.append(_tabular(where, text, start, len(text) if end < 0 else end))
        found[-1].title, found[-1].beside = captions.get(begin.start(), ("", []))
        left = PAST.split(text[end : end + LONGEST].partition("}")[2])[0] if end > 0 else ""
        right = re.split(r"\n\s*\n", [*PAST.split(text[max(0, begin.start() - LONGEST) : begin.start()])][-1])[-1]
        headed = re.findall(r"\\(?:sub)*section\*?\{([^{}]*)\}", text[: begin.start()])[-1:]
        footnotes = re.findall(r"\\(?:table)?footnote\s*\{([^{}]*)\}", text[start:end])
        for said in (*headed, right, left, *footnotes):
            found[-1].beside.append(plain(marked(COMMANDS.sub(" ", said))))
    return found or [_tabular(where, text, 0, len(text))]


FLOATS = r"\{((?:sideways|sub|wrap|long|super)?table\*?|figure\*?|minipage|center|threeparttable|landscape)\}"
CAPTIONED = re.compile(
    rf"\\(begin|end){FLOATS}|{TABULAR.pattern}|\\(?:sub|top)?caption(?:of\s*\{{table\}})?\*?\s*(?:\[[^\]]*\])?\s*(?=\{{)|"
    r"\\(?:subfloat|subtable)\s*\[([^\]]*)\]"
)


def _captions(text: str) -> dict[int, tuple[str, list[str]]]:
    """Return the caption of each LaTeX table by its place, and all captions around it.

    It is that of the innermost part that has captions, and empty if it isn't clear which.
    """
    top = _Float(None)
    inside, tables, before = top, dict[int, tuple[_Float, str]](), ""
    for found in CAPTIONED.finditer(text):
        if found[1] == "begin":
            inside = _Float(inside)
        if found[1] == "end":
            inside = inside.outer or top
        elif TABULAR.match(text, found.start()):
            tables[found.start()], before = (inside, before), ""
            inside.tables.append(found.start())
        elif found[0].startswith(("\\subfloat", "\\subtable")):
            before = plain(marked(found[4]))
        elif not found[1]:
            said = text[found.end() : found.end() + LONGEST]
            inside.captions.append(plain(marked(said[: _closing(said, 0)])))
    return {
        place: (MARKED.sub("", said or part.title(place)).strip(" .:"), [said, *part.around()]) for place, (part, said) in tables.items()
    }


@dataclass
class _Float:
    """A part of LaTeX with captions and tables of its own, and what it is in."""

    outer: "_Float | None"
    captions: list[str] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)

    def around(self) -> list[str]:
        """Return its captions, and those of all that it is in."""
        return [*self.captions, *(self.outer.around() if self.outer else ())]

    def title(self, place: int) -> str:
        """Return the caption of one of its tables, or that of what it is in."""
        part: _Float | None = self
        while part and not part.captions:
            part = part.outer
        if not part or len(part.captions) == 1:
            return part.captions[0] if part else ""
        return part.captions[part.tables.index(place)] if len(part.captions) == len(part.tables) and place in part.tables else ""


def _tabular(where: str, text: str, start: int, end: int) -> Grid:
    grid, above = Grid(where, []), dict[tuple[int, int], str]()
    number = text.count("\n", 0, start) + 1
    for row in text[start:end].split("\\\\"):
        first, number = number + row[: len(row) - len(row.lstrip())].count("\n"), number + row.count("\n")
        body = RULES.sub(" ", row)
        if not body.strip():
            continue
        cells, over, marks = list[str](), set[int](), dict[int, frozenset[str]]()
        for cell in re.split(r"(?<!\\)&", body):
            if rows := re.search(r"\\multirow\*?(?:\[[^\]]*\])?\s*\{-(\d{1,3})\}", cell):  # it holds for the rows above
                above |= {(len(grid.lines) - row, len(cells)): _spanned(_bounded(cell))[0] for row in range(1, int(rows[1]))}
            made = _spanned(_bounded(cell))
            over |= {*range(len(cells), len(cells) + len(made))} if len(made) > 1 or MULTIROW.search(cell) else set()
            marks |= dict.fromkeys(range(len(cells), len(cells) + len(made)), marks_of(_bounded(cell)))
            cells += made
        grid.lines.append(Line(first, cells, frozenset(over), marks))
    for (line, place), name in above.items():
        if line >= 0 and place < len(grid.lines[line].cells):
            grid.lines[line].cells[place] = grid.lines[line].cells[place] or name
    return grid


MULTIROW = re.compile(r"\\multirow\*?(?:\[[^\]]*\])?\s*\{-?(?!1\})[^{}]*\}")


def _spanned(cell: str) -> list[str]:
    r"""Return the cells of a LaTeX cell: \multicolumn{n} is n of them, \multirow one."""
    if found := re.search(r"\\multicolumn\s*\{(\d{1,3})\}", cell):
        start = _closing(cell, found.end())
        return [plain(cell[start : _closing(cell, start)])] * int(found[1])
    if found := re.search(r"\\multirow\*?(\[[^\]]*\])?\s*\{[^{}]*\}(\[[^\]]*\])?\s*\{[^{}]*\}(\[[^\]]*\])?", cell):
        return [plain(cell[found.end() :])]
    return [plain(cell)]


def _closing(text: str, start: int) -> int:
    """Return the place after the group in braces at a place, or after blanks there."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0 and not text[place].isspace():
            return place + 1
    return len(text)


def _sheets(path: Path, exact: bool) -> list[Grid]:
    """Return the sheets of an Excel file. ValueError: it is none, or openpyxl is missing."""
    try:
        import openpyxl
    except ImportError:
        raise ValueError(f"{path}: Excel's own files need openpyxl: pip install openpyxl, or save it as CSV") from None
    packed = io.BytesIO(content(path))
    try:
        with zipfile.ZipFile(packed) as archive:
            size = sum(part.file_size for part in archive.infolist())  # no part can be read beyond its size
            far = "" if size > MOST_BYTES_OF_EXCEL else _merged_too_far(archive)
        book = openpyxl.load_workbook(packed, data_only=True) if size <= MOST_BYTES_OF_EXCEL and not far else None
        sheets = book.worksheets if book else []
        far = far or next((one.dimensions for one in sheets if one.max_row * one.max_column > MOST_CELLS_OF_EXCEL), "")
        found = [_sheet(f"{path}, sheet {sheet.title}", sheet, exact) for sheet in sheets if not far]
    except Exception as error:  # of openpyxl, zipfile or the parser of XML
        raise ValueError(f"{path}: no Excel file ({' '.join(str(error).split())[:100]})") from error
    if far:
        raise ValueError(
            f"{path}: cells as far as {far.rpartition(':')[2]}: delete or unmerge what is far from the tables"
        )
    if book is None:
        raise ValueError(f"{path}: unpacked it has more than {MOST_BYTES_OF_EXCEL} bytes; divide it")
    return found


MERGED = re.compile(rb"""<(?:\w+:)?mergeCell\s[^>]*?ref\s*=\s*["']([^"']*)""")


def _merged_too_far(archive: zipfile.ZipFile) -> str:
    """Return the range of merged cells with which they are too many; empty if they aren't."""
    from openpyxl.utils import range_boundaries

    cells = 0
    for part in archive.infolist():
        for found in MERGED.findall(archive.read(part)):
            left, top, right, bottom = (int(place or 0) for place in range_boundaries(found.decode()))
            cells += (right - left + 1) * (bottom - top + 1)
            if cells > MOST_MERGED:
                return found.decode()
    return ""


def _sheet(where: str, sheet: Any, exact: bool) -> Grid:
    """Return what is seen of a sheet of Excel; notes: what is hidden."""
    if sheet.sheet_state != "visible":
        return Grid(where, [], notes=[f"{where}: not read: it is hidden; unhide it if it counts"])
    spans = [one for one in sheet.column_dimensions.values() if one.hidden]
    columns = {number for one in spans for number in range(one.min, one.max + 1)}
    rows = [number for number, one in sheet.row_dimensions.items() if one.hidden]
    notes = [f"{where}: not read: hidden {kind} {', '.join(map(str, sorted(found)))[:80]}"
             for kind, found in (("rows", rows), ("columns", columns)) if found]  # fmt: skip
    merged = {(part.min_row, part.min_col) for part in sheet.merged_cells.ranges}
    lines = []
    for number, row in enumerate(sheet.iter_rows(), 1):
        if number not in rows and any(cell.value is not None for cell in row):
            seen = [cell for cell in row if cell.column not in columns]
            over = frozenset(place for place, cell in enumerate(seen) if (number, cell.column) in merged)
            marks = {place: marks_of(cell.value) for place, cell in enumerate(seen) if isinstance(cell.value, str)}
            lines.append(Line(number, [_shown(cell, exact) for cell in seen], over, marks))
    return Grid(where, lines, notes=notes, title=re.sub(r"^(Sheet|Table|Tabelle|Feuil)\s*\d*$", "", sheet.title))


def _shown(cell: Any, exact: bool) -> str:
    """Return the value of a cell of Excel with the digits of its format, or with all of them."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(_bounded(str(value)))
    found = re.fullmatch(r"[#,]*0(?:\.(0+))?(%?)(?:_\)|;.*)?", str(cell.number_format))
    if not found:
        return f"{value:.12g}"
    shown = ".12g" if exact else f".{len(found[1] or '')}f"
    return f"{100 * value if found[2] else value:{shown}}{found[2]}"


KEPT = r"textbf|textit|textsc|texttt|textrm|textsf|underline|uline|emph|mathbf|mathit|mathrm|bm|boldsymbol|text|mbox|makecell"
KEPT += "|shortstack|num"
DROPPED = r"cite[a-z]*|footnote|footnotemark|footnotetext|tablefootnote|ref|label|cellcolor|textcolor|color|tnote|h?phantom"
SIGNS = {"pm": "±", "times": "×", "cdot": "·", "uparrow": "↑", "downarrow": "↓", "geq": "≥", "ge": "≥", "leq": "≤", "le": "≤",
         "sim": "~", "approx": "~", "Delta": "Δ", "alpha": "α", "beta": "β", "rho": "ρ", "tau": "τ", "infty": "inf",
         "prime": "′"}  # fmt: skip
NO_MARKS = re.compile(r"(?<!⟦)[†‡§¶∗⋆★☆✓✔♠♣♥♦♢♡⁎∘°ªº◦•]|(?<=[\w)\]])(?<![rRχ])[⁰¹²³⁴⁵⁶⁷⁸⁹]+|(?<=\d)[ᵃᵇᶜ]+|(?<=\S)\*+$|^\*+(?=\S)")

MARKS = r"(?:[\d.,*∗⋆★☆†‡§¶\[\]\s]|\\(?:[*,]|dagger|ddagger|ast|star|circ|bullet|diamond|[a-z]+suit)\b|\\\*)+"  # of no name


def plain(text: str) -> str:
    """Return the text of a cell without markup of LaTeX, Markdown or HTML, and without footnote marks.

    Raised or lowered text stays part of a name.
    """
    raw, text = text, re.sub(r"<!--.*?-->", "", text)
    text = re.sub(r"\[([^\[\]]+)\]\((?:https?:|[.#/])[^()\s]*\)", r"\1", text)
    text = re.sub(r"(?<![\d.,])10\s*(?:<sup>\s*([-−+]?\d+)\s*</sup>|([⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))", _exponent, text)
    text = re.sub(r"<br\s*/?>", " ", text)
    text = re.sub(r"^(\W*\d+)\s*<sup>\s*([-−+]?\d+)\s*</sup>", r"\1^\2", text)  # a power or a footnote, which is asked
    text = re.sub(r"^(\s*\d+)(?=[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+\s*$)", r"\1^", text)
    text = re.sub(r"(?<=[\d*%])\s*<(sub|sup)>\s*([±+−-]\s*[\d.]+%?|\d*\.\d+%?)\s*</\1>", r" (\2)", text)
    text = re.sub(r"^(\W*\d+\.?\d*)\s*<sub>\s*(\d+)\s*</sub>", r"\1 (\2)", text)
    bare = re.sub(r"\\[a-z]+|</?(?!su[bp]>)\w+>", "", text)
    number = bool(re.match(r"\W*[\d.,]+[\s%)}*]*(?=[<^_${]|$)", bare))  # marks beside it may be letters
    text = re.sub(rf"<(sup)>(?:{'[^<>]*' if number else MARKS})</\1>|\[\^\w+\]", "", text)
    text = re.sub(r"<sub>\s*([\d.]+|)\s*</sub>", "" if number else r"\1", text)
    text = re.sub(r"<(su[bp])>([^<>]*)</\1>", lambda found: "" if number else "_^"[found[1] == "sup"] + found[2].strip(), text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>", "", text)
    if "\\" in text or "$" in text or "{" in text:
        text = re.sub(r"\\([%&#_])", r"\1", text).replace("\\,", " ").replace("~", " ")
        text = re.sub(r"\\(?:SI|qty)\s*\{([^{}]*)\}\s*\{\s*\\?(?:percent|%)\s*\}", r"\1%", text)
        text = re.sub(r"\$([^$]*)\$", r"\1", text)
        text = re.sub(rf"\\textsuperscript\s*\{{{MARKS}\}}", "", text).replace(r"\textsuperscript", "^")
        text = re.sub(r"\\([a-zA-Z]+)(?![a-zA-Z{])", _sign, text)
        for _ in range(5):
            text = re.sub(rf"\\({DROPPED})\*?(\[[^\]]*\])?\{{[^{{}}]*\}}", "", text)
            text = re.sub(rf"\\({KEPT})\s*\{{([^{{}}]*)\}}", r"\2", text)
            text = re.sub(
                r"\{\s*\\(bf|it|em|sc|tt|bfseries|itshape|small|tiny|scriptsize|footnotesize)\b\s*([^{}]*)\}",
                r"\2",
                text,
            )
        marks = r"\{[^{}\d]*\}|\\[a-zA-Z]+|[^\d{\\\s-]" if number else rf"\{{(?!\s*\d){MARKS}\}}|(?!\d){MARKS[:-1]}"
        text = re.sub(rf"\^\s*({marks})", "", text)
        text = re.sub(r"\{([^{}]*)\}", r"\1", text)
        text = re.sub(
            r"\\(dagger|ddagger|ast|star|bf|it|bfseries|itshape|small|tiny|phantom|quad|qquad)\b|\\[;:! ]", "", text
        )
    text = re.sub(r"(?<=[^\W\d])\^(?=[+′']+\W*$)", "", text)
    text = re.sub(r"(\*\*|__)(.+?)\1", r"\2", text)
    text = re.sub(r"^([*_])(.+)\1(?=\W|$)", r"\2", text.strip())
    text = re.sub(r"\s+", " ", NO_MARKS.sub("", unicodedata.normalize("NFC", text))).strip()
    joined = text != raw and {*re.findall(r"\d+", text)} - {*re.findall(r"\d+", f"{raw} {unicodedata.normalize('NFKC', raw)}")}
    return raw.strip() if joined else text  # digits with a mark between them are no one number


def _sign(found: re.Match[str]) -> str:
    """Return the character of a LaTeX macro, or an unknown macro itself."""
    greek = (
        f"GREEK {'CAPITAL' if found[1][0].isupper() else 'SMALL'} LETTER {found[1].upper().replace('LAMBDA', 'LAMDA')}"
    )
    try:
        return SIGNS.get(found[1]) or unicodedata.lookup(greek)
    except KeyError:
        return found[0]


def _exponent(found: re.Match[str]) -> str:
    """Return a power of ten without raised digits."""
    return f"10^{found[1] or unicodedata.normalize('NFKC', found[2])}"


MISSING = frozenset(("", *"- -- --- – — − n/a n.a. na n.r. nr none null / ? ... … . \\ x ✗".split()))
DIVERGED = frozenset(("nan", "inf", "+inf", "-inf", "infinity", "-infinity", "∞", "diverged"))
NUMBER = r"[+-]?(?:\d{1,15}(?:\.\d{0,40})?|\.\d{1,40})(?:e[+-]?\d{1,3})?"
VALUE = re.compile(rf"([<>]?)\s*({NUMBER})\s*(%?)(.*)", re.I)
SPREAD = re.compile(rf"(?:\^?\s*±|\+/?-|_\s*±?|\(\s*±?|\[\s*±)\s*({NUMBER})\s*(%?)\s*[)\]]?\s*%?", re.I)


class Value(NamedTuple):
    """A number as a cell has it. text: the number alone, with a percent sign if it has one, or empty where nothing was measured."""

    text: str
    deviation: float | None = None
    bound: str = ""
    note: str = ""

    @property
    def number(self) -> float:
        """The number. NaN for a diverged run."""
        return float(self.text.removesuffix("%"))


def value_of(cell: str, decimal_comma: bool | None = False) -> Value:
    """Return the value of a cell: a number, its deviation, a bound. ValueError: it is no number, with what to write.

    decimal_comma: commas stand before decimals (False: between thousands; None: unknown).
    """
    if len(cell.strip()) > LONGEST:
        raise ValueError(f"{cell.strip()[:40]!r}: a cell of more than {LONGEST} characters is no number")
    text = re.sub(r",\s+", "; ", plain(cell))  # a comma before a blank is in no number
    text = re.sub(r"(?:\s*[×x·]\s*|(?<![\d.,]))10\s*\^\s*([-−+]?\d+)", _power, text)
    if text.casefold() in MISSING:
        return Value("")
    if text.casefold() in DIVERGED:
        return Value("nan")
    if len(pairs_of(cell)) > 1:
        raise ValueError(
            f"{cell[:40]!r} has several numbers: name as many metrics, as in --metric COLUMN=precision/recall"
        )
    clean = re.sub(r"(?<=\d)[   '](?=\d{3}(?!\d))", "", re.sub(r"[−–‐](?=[\d.])", "-", text))
    if decimal_comma is not False:
        if re.search(r"(?<![\d.])[1-9]\d{0,2}(\.\d{3})+(?![\d.,])", clean):
            otherwise = "" if decimal_comma else ", or the table without commas"
            raise ValueError(f"{cell[:40]!r}: dots between thousands or before decimals? write it without dots{otherwise}")
        clean = re.sub(r"(?<=\d)\.(?=\d{3}[.,])", "", clean)
    for sign, arrows in ("+", "[↑▲]"), ("-", "[↓▼]"):  # of a difference
        clean = re.sub(rf"([(\[])\s*([\d.]+\s*%?)\s*{arrows}\s*([)\]])", rf"\1{sign}\2\3", clean)
        clean = re.sub(rf"([(\[_^])\s*{arrows}\s*[+-]?\s*(?=[\d.])", rf"\1{sign}", clean)
    clean = re.sub(r"[↑↓▲▼]", "", clean.replace("≥", ">").replace("≤", "<").replace(",", _comma(clean, decimal_comma)))
    found = VALUE.fullmatch(clean.strip())
    if not found:
        raise ValueError(f"{cell[:40]!r} is no number: write it alone, such as 47.1; leave it out if there is none")
    bound, number, percent, rest = found.groups()
    deviation, note = _rest(cell, number, re.sub(r"^[x×]$", "", rest.strip()), percent)  # 2.3× is a ratio
    return Value(_decimal(number) + percent, deviation, bound, note)


def _power(found: re.Match[str]) -> str:
    """Return a power of ten as Python writes it."""
    return f"{'1' * found[0].startswith('10')}e{found[1].replace('−', '-')}"


def _comma(text: str, decimal_comma: bool | None) -> str:
    """Return the meaning of the commas of a cell. ValueError: it isn't clear."""
    if "," not in text or decimal_comma:
        return "."
    thousands = all(
        re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", word) for word in re.findall(r"[+-]?[\d.,]*,[\d.,]*", text)
    )
    if not thousands or decimal_comma is None:
        wanted = f"{text.replace(',', '.')} or {text.replace(',', '')}" if thousands else text.replace(",", ".")
        raise ValueError(f"{text[:40]!r}: a comma before decimals or thousands? write {wanted[:40]}")
    return ""


def _rest(cell: str, number: str, rest: str, percent: str) -> tuple[float | None, str]:
    """Return the deviation, and a note, after a number. ValueError: the text is unknown."""
    if not rest:
        return None, ""
    if re.fullmatch(r"([(\[]|_\{?|\^(?=.*\.))\s*[+-]\s*[\d.]+\s*%?\s*[)\]}]?", rest):
        return None, f"{cell[:40]!r}: {rest} is taken as a difference, and isn't read"
    if re.fullmatch(rf"[\[(]\s*{NUMBER}\s*%?\s*(,|-|–|to|;)\s*{NUMBER}\s*%?\s*[\])]", rest):
        return None, f"{cell[:40]!r}: {rest} is taken as an interval, and isn't read"
    found = SPREAD.fullmatch(rest)
    if found and found[2] and not percent and abs(float(number)) <= 1:
        raise ValueError(f"{cell[:40]!r}: write the number and its deviation in one unit")
    bare = rest[0] in "([_" and "±" not in rest  # which may hold something else than a deviation
    if found and not (bare and ("." not in found[1] or abs(float(found[1])) > abs(float(number)) / 2)):
        return abs(float(found[1])), ""
    several = f"{rest[:20]!r} may be a deviation or another number: write {number} ± …, or"
    said = several if "(" in rest or "[" in rest else "write"
    raise ValueError(f"{cell[:40]!r}: {said} the number alone, with its unit in the name of the column")


def _decimal(number: str) -> str:
    """Return a number as Python prints it, with its digits: .841 is 0.841, 1.2e-3 is 0.0012."""
    found = f"{Decimal(number):f}"
    return found.removesuffix(".")


def uses_decimal_commas(cells: Sequence[str], divider: str = "") -> bool | None:
    """Return whether the numbers of a table have decimal commas. None: it has none of a clear kind, or has both kinds.

    Only cells that begin with a number count, so not a name such as GPT 3.5. A semicolon divides where commas are decimals, so dots
    beside it tell nothing.
    """
    numbers = [cell for cell in cells if re.match(r"[^\w\\]*(?:\\\w+\W+)?\d", cell)]
    words = [word for cell in numbers for word in re.findall(r"(?<![\w.,\[])\d+(?:[.,]\d+)+(?![\w])", cell)]
    if not any("," in word for word in words):
        return False
    dots = any(re.fullmatch(r"\d+\.\d{1,2}|\d+\.\d{4,}|0\.\d+|\d{4,}\.\d+", word) for word in words)
    thousands = any(re.fullmatch(r"[1-9]\d{0,2}((,\d{3})+\.\d+|(,\d{3}){2,})", word) for word in words)
    decimal = r"\d+,\d{1,2}|\d+,\d{4,}|0,\d+|\d{4,},\d+|\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}"
    if any(re.fullmatch(decimal, word) for word in words):
        return None if dots or thousands else True
    return False if thousands or divider == "," or (dots and divider != ";") else None


def pairs_of(cell: str) -> list[str]:
    """Return the numbers of a cell divided by a slash or a bar, or its one number."""
    if "/" not in cell and "|" not in cell:
        return [cell]
    parts = re.split(r"\s*(?<!\+)[/|]\s*", plain(cell))
    return parts if len(parts) > 1 and all(re.search(r"\d", part) or part in MISSING for part in parts) else [cell]
