"""Readers of treebanks: brackets, CoNLL-U or columns of words, tags and heads.

Brackets may stand beside one of the others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from phrasemodels.data.formats.conllu import Analysed, read_arcs, read_conllu
from phrasemodels.data.formats.lines import lines
from phrasemodels.data.formats.shards import TAGGED, TAGGED_TREES, TREES, build, columns
from phrasemodels.data.formats.trees import Tree, alike, brackets, plain, read_brackets

OTHER_WORDS = "the tree has other words"
NO_WORDS = "no words"
_SECTION = re.compile(r"wsj_(\d\d)\d\d\.", re.IGNORECASE)


class _Row(NamedTuple):
    tokens: Sequence[str]
    tags: Sequence[str]
    universal: Sequence[str]
    tree: str
    heads: Sequence[int]
    relations: Sequence[str]
    group: str
    reason: str


def read(files: Mapping[str, Path], max_words: int, sections: Sequence[int] = ()) -> pa.Table:
    """Return TREES of the files `brackets`, `conllu` or `arcs` or of `brackets` and one of the others.

    With two files tree N and sentence N belong together. Words and tags come from the sentence. The group of a sentence
    is its document. `brackets` and `arcs` may be folders of Penn Treebank files. sections: the first and the last to
    read (default: all).
    """
    where = str(next(iter(files.values())))
    heads = next((role for role in ("conllu", "arcs") if role in files), "")
    if "brackets" not in files:
        rows = [_row(None, sentence, max_words, where) for sentence in _sentences(files)]
    elif not heads:
        rows = [
            _row(tree, Analysed(line, document, list(tree.tokens), list(tree.tags), [], [], [], ""), max_words, where)
            for document, line, tree in _trees(files["brackets"], sections)
        ]
    else:
        trees, sentences = list(_trees(files["brackets"], sections)), list(_sentences(files))
        if len(trees) != len(sentences):
            raise ValueError(
                f"{where} has {len(trees)} trees and {files[heads]} {len(sentences)} sentences: tree N and sentence N "
                "must belong together"
            )
        rows = [_row(tree, own, max_words, where) for (_, _, tree), own in zip(trees, sentences, strict=True)]
    return build(TREES, where, columns(_Row._fields, rows), len(rows))


def read_tagged(files: Mapping[str, Path], max_words: int, sections: Sequence[int] = ()) -> pa.Table:
    """Return TAGGED of the same files."""
    return tagged(read(files, max_words, sections))


def read_with_predicted_tags(files: Mapping[str, Path], max_words: int, sections: Sequence[int] = ()) -> pa.Table:
    """Return TAGGED_TREES: TREES of the same files and the tags of the file `tags`.

    The file has a line for each sentence with its tags separated by spaces. ValueError: a line has another number of
    tags than the sentence has words.
    """
    trees = read({role: path for role, path in files.items() if role != "tags"}, max_words, sections)
    predicted = [line.text.split() for line in lines(files["tags"])]
    _aligned(trees, predicted, files["tags"], "tags")
    found = {name: trees[name].combine_chunks() for name in trees.column_names} | {"predicted": predicted}
    return build(TAGGED_TREES, str(files["tags"]), found, trees.num_rows)


def read_with_arcs(files: Mapping[str, Path], max_words: int, sections: Sequence[int] = ()) -> pa.Table:
    """Return TREES of `brackets` (file or folder) with heads and relations of the CoNLL-U file `arcs`.

    Both have the same words. A sentence is left out with a reason if its arcs are no tree or its words differ.
    ValueError: a sentence there has another number of words.
    """
    trees = read({"brackets": files["brackets"]}, max_words, sections)
    sentences = list(_sentences({"conllu": files["arcs"]}))
    _aligned(trees, [sentence.tokens for sentence in sentences], files["arcs"], "words")
    found = {name: trees[name].combine_chunks() for name in trees.column_names}
    found |= {name: [getattr(sentence, name) for sentence in sentences] for name in ("heads", "relations")}
    found["reason"] = [
        "; ".join(filter(None, (reason, own.reason, "" if all(map(alike, words, own.tokens)) else OTHER_WORDS)))
        for reason, words, own in zip(trees["reason"].to_pylist(), trees["tokens"].to_pylist(), sentences, strict=True)
    ]
    return build(TREES, str(files["arcs"]), found, trees.num_rows)


def _aligned(trees: pa.Table, others: Sequence[Sequence[str]], path: Path, what: str) -> None:
    """ValueError: the other lists are not as many and as long as the sentences."""
    if len(others) != trees.num_rows:
        raise ValueError(f"{path}: {len(others)} sentences, the treebank has {trees.num_rows}; give one for each tree")
    for row, (words, other) in enumerate(zip(trees["tokens"].to_pylist(), others, strict=True)):
        if len(words) != len(other):
            raise ValueError(f"{path}, sentence {row + 1}: {len(other)} {what} for {len(words)} words of the treebank")


def tagged(trees: pa.Table) -> pa.Table:
    """Return TREES as TAGGED, with Penn tags. Rows with a wrong tree or wrong heads are usable here."""
    found: dict[str, Any] = {name: trees[name].combine_chunks() for name in ("id", "tokens", "tags", "group")}
    found["reason"] = [NO_WORDS if reason == NO_WORDS else "" for reason in trees["reason"].to_pylist()]
    return build(TAGGED, "a treebank", found, trees.num_rows)


def _sentences(files: Mapping[str, Path]) -> Iterator[Analysed]:
    if "conllu" in files:
        yield from read_conllu(lines(files["conllu"]), str(files["conllu"]))
    else:
        path = files["arcs"]
        for file in sorted(path.rglob("*.dp")) if path.is_dir() else [path]:
            yield from read_arcs(lines(file), str(file), file.stem if path.is_dir() else "")


def _trees(path: Path, sections: Sequence[int]) -> Iterator[tuple[str, int, Tree]]:
    """Yield (document, line, tree) of a file or of all files of a folder in order."""
    for file in sorted(path.rglob("*.mrg")) if path.is_dir() else [path]:
        found = _SECTION.match(file.name)
        if sections and not (found and sections[0] <= int(found[1]) <= sections[-1]):
            continue
        document = file.stem if path.is_dir() else ""
        for line, tree in read_brackets(lines(file), str(file)):
            yield document, line, plain(tree)


def _row(tree: Tree | None, own: Analysed, max_words: int, where: str) -> _Row:
    """Return the row of a tree and of the same sentence in CoNLL-U. A tree with other words is left out, with a reason."""
    if len(own.tokens) > max_words:
        raise ValueError(
            f"{where}, the sentence on line {own.line}: {len(own.tokens)} words, at most {max_words}; raise max_words"
        )
    reasons = [own.reason] if own.reason else []
    text = ""
    if not own.tokens:
        reasons.append(NO_WORDS)
    elif tree and len(tree.tokens) == len(own.tokens) and all(map(alike, tree.tokens, own.tokens)):
        text = brackets(tree._replace(tokens=tuple(own.tokens)))
    elif tree:
        reasons.append(OTHER_WORDS)
    return _Row(own.tokens, own.tags, own.universal, text, own.heads, own.relations, own.document, "; ".join(reasons))
