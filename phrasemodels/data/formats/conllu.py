"""Sentences in CoNLL-U: words, tags, heads, relations.

New analyses of a sentence keep all other columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from phrasemodels.data.formats.lines import Line, is_name
from phrasemodels.data.formats.trees import unescape

COLUMNS = 10
FORM, UNIVERSAL, TAG, FEATURES, HEAD, RELATION = 1, 3, 4, 5, 6, 7


BOTH_TAGS = "/"  # a Penn tag and a universal tag as one tag: VBZ/AUX


class Analysed(NamedTuple):
    """A sentence of n tokens. Heads count from 1. The root is 0.

    Columns of underscores are empty. Heads that make no tree are left out with the relations. `reason` says why. line:
    the number of its first line.
    """

    line: int
    document: str
    tokens: list[str]
    tags: list[str]
    universal: list[str]
    heads: list[int]
    relations: list[str]
    reason: str


def read_conllu(lines: Iterable[Line], where: str) -> Iterator[Analysed]:
    """Yield every sentence. Lines of multiword tokens (1-2) and of empty nodes (1.1) are skipped.

    ValueError: a line is not CoNLL-U. The message has `where` and the line.
    """
    rows: list[tuple[int, list[str]]] = []
    document, comments = "", 0
    for number, text in lines:
        if text.startswith("#"):
            if rows:
                raise ValueError(f"{where}, line {number}: a comment inside a sentence; put an empty line before it")
            comments = comments or number
            if f"{text} ".startswith("# newdoc "):
                document = text.partition("id = ")[2].strip()
        elif text.strip():
            fields = text.split("\t")
            if len(fields) != COLUMNS:
                raise ValueError(f"{where}, line {number}: {len(fields)} columns between tabs, CoNLL-U has {COLUMNS}")
            rows.append((number, fields))
        elif rows:
            yield _sentence(rows, document, where)
            rows, comments = [], 0
        elif comments:
            raise ValueError(f"{where}, line {comments}: comments on a sentence without words")
    if rows:
        yield _sentence(rows, document, where)
    elif comments:
        raise ValueError(f"{where}, line {comments}: comments on a sentence without words")


def read_arcs(lines: Iterable[Line], where: str, document: str = "") -> Iterator[Analysed]:
    """Yield sentences of three columns between tabs: word, Penn tag, head. An empty line ends a sentence.

    Words are as in brackets (-LRB-). This is the format of NLTK's dependency_treebank. Its arcs have no relations.

    ValueError: a line has other columns. The message has `where` and the line.
    """
    rows: list[tuple[int, list[str]]] = []
    for number, text in [*lines, Line(0, "")]:
        if text.strip():
            fields = text.split("\t")
            if len(fields) != 3:
                raise ValueError(f"{where}, line {number}: {len(fields)} columns between tabs, not word, tag and head")
            row = [str(len(rows) + 1), unescape(fields[0]), "_", "_", fields[1], "_", fields[2], "_", "_", "_"]
            rows.append((number, row))
        elif rows:
            yield _sentence(rows, document, where)
            rows = []


def sentence_to_conllu(
    tokens: Sequence[str],
    tags: Sequence[str] = (),
    universal: Sequence[str] = (),
    heads: Sequence[int] = (),
    relations: Sequence[str] = (),
    misc: Sequence[str] = (),
    multiword: Mapping[tuple[int, int], str] | None = None,
    lemmas: Sequence[str] = (),
    features: Sequence[str] = (),
) -> str:
    """Return a line for each token. Empty columns are written as underscores.

    The caller adds the comments before the lines and the empty line after them.

    Args:
        multiword: Tokens of several words, by their first and last word. The MISC of the last word is then the token's.
    """
    given = (lemmas, universal, tags, features, heads, relations, misc)
    columns = [column or ["_"] * len(tokens) for column in given]
    rows = list(zip(tokens, *columns, strict=True))
    lines = [
        f"{number}\t{token}\t{lemma}\t{upos}\t{xpos}\t{feats}\t{head}\t{relation}\t_\t{other}\n"
        for number, (token, lemma, upos, xpos, feats, head, relation, other) in enumerate(rows, 1)
    ]
    for (first, last), form in (multiword or {}).items():
        whole = "\t".join([f"{first}-{last}", form, *["_"] * 7, rows[last - 1][-1]])
        for place in range(first - 1, last):
            lines[place] = lines[place].rpartition("\t")[0] + "\t_\n"
        lines[first - 1] = f"{whole}\n{lines[first - 1]}"
    return "".join(lines)


def _sentence(rows: list[tuple[int, list[str]]], document: str, where: str) -> Analysed:
    words: list[tuple[int, list[str]]] = []
    count = sum(fields[0].isdecimal() for _, fields in rows)
    until = 0  # the last word of the multiword tokens before
    for number, fields in rows:
        if fields[0].isdecimal() and fields[0].isascii():
            if fields[0] != str(len(words) + 1):
                raise ValueError(f"{where}, line {number}: token {fields[0]} where {len(words) + 1} should be")
            if not fields[FORM].strip():
                raise ValueError(f"{where}, line {number}: token {fields[0]} has no form")
            if not fields[RELATION]:
                raise ValueError(f"{where}, line {number}: token {fields[0]} has an empty relation; write _ for none")
            words.append((number, fields))
        elif not _is_skipped(fields[0]):
            raise ValueError(f"{where}, line {number}: {fields[0]!r} is no token number; write 1, 1-2 or 1.1")
        elif "-" in fields[0]:
            first, last = map(int, fields[0].split("-"))
            if first != len(words) + 1 or last <= first or first <= until or last > count:
                raise ValueError(
                    f"{where}, line {number}: {fields[0]} is no multiword token here: it stands before its words, from the "
                    f"first to the last, each in one of them; the sentence has {count}"
                )
            until = last
    first = rows[0][0]
    if not words:
        raise ValueError(f"{where}, line {first}: a sentence without tokens")
    for number, fields in words:
        wrong = [fields[place] for place in (UNIVERSAL, TAG) if not is_name(fields[place])]
        # a parser is packed with its relations: what it refuses there must not be found after a training
        if wrong := [*wrong, *([fields[RELATION]] if not is_name(fields[RELATION], " ()[]") else [])]:
            raise ValueError(
                f"{where}, line {number}: {wrong[0][:20]!a} is no tag or relation: it is long, or has blanks or codes, or it "
                "is a relation with brackets"
            )
    heads = _heads(words, where) if any(fields[HEAD] != "_" for _, fields in words) else []
    reason = flaw(heads)
    universal, tags, relations = (_column(words, place) for place in (UNIVERSAL, TAG, RELATION))
    if reason or not heads:
        heads, relations = [], []
    return Analysed(first, document, [fields[FORM] for _, fields in words], tags, universal, heads, relations, reason)


def _column(words: list[tuple[int, list[str]]], place: int) -> list[str]:
    """Return a column. It is an empty list if it has only underscores."""
    column = [fields[place] for _, fields in words]
    return column if any(value != "_" for value in column) else []


def _is_skipped(identity: str) -> bool:
    """Whether a line's first column numbers a multiword token (1-2) or an empty node (1.1)."""
    for mark in "-.":
        first, separator, second = identity.partition(mark)
        if separator:
            return (first + second).isdecimal() and (first + second).isascii() and bool(first and second)
    return False


def _heads(words: list[tuple[int, list[str]]], where: str) -> list[int]:
    heads = []
    for number, fields in words:
        head = fields[HEAD]
        if not (head.isdecimal() and head.isascii() and len(head) < 8):
            raise ValueError(f"{where}, line {number}: head {head!r} is not one number; a token has one head")
        if int(head) > len(words):
            raise ValueError(f"{where}, line {number}: head {head} in a sentence of {len(words)} tokens")
        heads.append(int(head))
    return heads


def flaw(heads: list[int]) -> str:
    """Return why heads make no tree: not one root, or a cycle. Empty: they make a tree."""
    roots = heads.count(0)
    if heads and roots != 1:
        return f"{roots} roots" if roots else "cyclic dependencies"
    settled = [True] + [False] * len(heads)
    for token in range(1, len(heads) + 1):
        path = set()
        while not settled[token]:
            settled[token] = True
            path.add(token)
            token = heads[token - 1]
            if token in path:
                return "cyclic dependencies"
    return ""


DEPENDENCIES = 8  # the column of enhanced dependencies


def conllu_sentences(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each sentence, without the empty lines between them."""
    own: list[Line] = []
    for line in lines:
        if line.text.strip():
            own.append(line)
        elif own:
            yield own
            own = []
    if own:
        yield own


def has_other_text(lines: Sequence[Line]) -> bool:
    """Return whether `# text` of a sentence has other characters, but spaces, than its tokens."""
    text = next((own.text.partition("=")[2] for own in lines if own.text.startswith("# text =")), "")
    rows, forms, until = [own.text.split("\t") for own in lines if not own.text.startswith("#")], "", 0
    for identity, form, *_ in (row for row in rows if "." not in row[0]):
        first, _, last = identity.partition("-")
        if last or int(first) > until:
            forms, until = forms + form, int(last or first)
    return bool(text) and "".join(text.split()) != "".join(forms.split())


def morphology(lines: Iterable[Line]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield form, lemma, universal tag, tag and features of each word of CoNLL-U.

    An underscore stands for none.
    """
    for line in lines:
        fields = line.text.split("\t")
        if len(fields) == COLUMNS and fields[0].isdecimal():
            yield fields[1], fields[2], fields[3], fields[4], fields[5]


def analysed_again(
    lines: Sequence[Line], columns: dict[int, Sequence[object]], comments: dict[str, str] | None = None
) -> str:
    """Return the lines of a sentence with new columns (place of a column -> a value for each of its n words).

    Comments, forms, lemmas, features, MISC and lines of multiword tokens stay. Enhanced dependencies and empty nodes
    (1.1) belong to the old tree and are left out. comments: further ones before the words. They replace comments of the
    same name.
    """
    replaced = tuple(f"# {name} = " for name in comments or ())
    made = [line.text for line in lines if line.text.startswith("#") and not line.text.startswith(replaced)]
    made += [f"# {name} = {value}" for name, value in (comments or {}).items()]
    word = 0
    for line in lines:
        fields = line.text.split("\t")
        if line.text.startswith("#") or "." in fields[0]:
            continue
        if "-" not in fields[0]:
            for place, values in columns.items():
                fields[place] = str(values[word]) if values else "_"
            word += 1
        fields[DEPENDENCIES] = "_"
        made.append("\t".join(fields))
    return "\n".join(made) + "\n"


def predicted(
    tags: Sequence[str], universal: Sequence[str], heads: Sequence[int], relations: Sequence[str]
) -> dict[int, Sequence[object]]:
    """Return the columns predicted by a parser. Tags unknown to it stay as they were."""
    known: dict[int, Sequence[object]] = {TAG: tags, UNIVERSAL: universal}
    return {place: values for place, values in known.items() if values} | {HEAD: heads, RELATION: relations}
