"""Parses as text."""

import json
from collections.abc import Callable

from phrasemodels.data.formats.conllu import sentence_to_conllu
from phrasemodels.data.formats.trees import brackets
from phrasemodels.tasks.problems.parsing.predict import Parse

Format = Callable[[Parse], str]


def bracketed(parse: Parse) -> str:
    """Penn brackets on one line."""
    return brackets(parse.tree) if parse.tree else ""


def conllu(parse: Parse) -> str:
    """CoNLL-U, with an empty line at the end; Penn tags in the fifth column."""
    lines = sentence_to_conllu(parse.tokens, parse.tags, heads=parse.heads, relations=parse.relations)
    return f"# text = {' '.join(parse.tokens)}\n{lines}"


def as_json(parse: Parse) -> str:
    """One object on one line."""
    told = {"tokens": parse.tokens, "tags": parse.tags, "tree": bracketed(parse)}
    return json.dumps(told | {"heads": parse.heads, "relations": parse.relations}, ensure_ascii=False)


FORMATS: dict[str, Format] = {"brackets": bracketed, "conllu": conllu, "json": as_json}
