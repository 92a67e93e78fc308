"""Parses as text."""

import json
from collections.abc import Callable

from phrasemodels.data.formats.trees import brackets
from phrasemodels.tasks.problems.parsing.predict import Parse

Format = Callable[[Parse], str]


def bracketed(parse: Parse) -> str:
    """Penn brackets on one line."""
    return brackets(parse.tree) if parse.tree else ""


def conllu(parse: Parse) -> str:
    """CoNLL-U, with an empty line at the end; Penn tags in the fifth column."""
    rows = []
    heads = [str(head) for head in parse.heads] or ["_"] * len(parse.tokens)
    relations = parse.relations or ["_"] * len(parse.tokens)
    for place, (token, tag, head, name) in enumerate(zip(parse.tokens, parse.tags, heads, relations, strict=True), 1):
        rows.append(f"{place}\t{token}\t_\t_\t{tag}\t_\t{head}\t{name}\t_\t_\n")
    return f"# text = {' '.join(parse.tokens)}\n" + "".join(rows)


def as_json(parse: Parse) -> str:
    """One object on one line."""
    told = {"tokens": parse.tokens, "tags": parse.tags, "tree": bracketed(parse)}
    return json.dumps(told | {"heads": parse.heads, "relations": parse.relations}, ensure_ascii=False)


FORMATS: dict[str, Format] = {"brackets": bracketed, "conllu": conllu, "json": as_json}
