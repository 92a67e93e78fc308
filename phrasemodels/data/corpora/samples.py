"""The sample corpora as tables with a class for each.

Sentences are checked in with their analyses. Formulas are made on the spot. The sentences were drawn once from a
synchronous grammar of English and German. A known share of them has an idiom. Each corpus has two sizes at most. A
training set in `large` was drawn beside larger dev and test sets. So no record is in two splits.
"""

import csv
import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from phrasemodels.data.corpora.releases import families
from phrasemodels.data.formats.shards import BITEXT, PAIRS, SENTENCES, STORIES, TREES, build
from phrasemodels.data.formats.trees import parse

T = TypeVar("T")
Tables = dict[str, pa.Table]
Row = dict[str, Any]
WHERE = "the sample corpora"
SMALL = {"train": 1500, "dev": 150, "test": 300}  # up to these sizes, splits are those drawn as `small`


class Records(Protocol):
    """A sample corpus. `tables` gives a table of a given size for each split. No record is in two splits."""

    def tables(self, sizes: Mapping[str, int]) -> Tables: ...


@dataclass(frozen=True)
class Translations:
    """BITEXT from English to German. The group is `idiom` or `plain`."""

    def tables(self, sizes: Mapping[str, int]) -> Tables:
        def row(found: dict[str, str]) -> Row:
            source = " ".join(parse(found["tree"]).tokens)
            return {"source": source, "target": found["target"], "group": found["group"]}

        return _tables(BITEXT, _checked_in("sentences", sizes), row)


@dataclass(frozen=True)
class Treebank:
    """TREES of the same English sentences: gold tags, phrase structure, heads and relations."""

    def tables(self, sizes: Mapping[str, int]) -> Tables:
        def row(found: dict[str, str]) -> Row:
            tree = parse(found["tree"])
            words = {"tokens": tree.tokens, "tags": tree.tags, "tree": found["tree"]}
            arcs = {"heads": [*map(int, found["heads"].split())], "relations": found["relations"].split()}
            return {"group": found["group"], **words, **arcs}

        return _tables(TREES, _checked_in("sentences", sizes), row)


@dataclass(frozen=True)
class Entailment:
    """PAIRS with gold labels and the trees of both sentences."""

    def tables(self, sizes: Mapping[str, int]) -> Tables:
        def row(found: dict[str, str]) -> Row:
            return found | {side: " ".join(parse(found[f"{side}_tree"]).tokens) for side in ("premise", "hypothesis")}

        made = _tables(PAIRS, _checked_in("pairs", sizes), row)
        return {
            split: _replaced(table, "family", families(table["premise"].to_pylist())) for split, table in made.items()
        }


@dataclass(frozen=True)
class Polarity:
    """SENTENCES with trees. The label is the polarity of the assertion, positive or negative."""

    def tables(self, sizes: Mapping[str, int]) -> Tables:
        def row(found: dict[str, str]) -> Row:
            return found | {"text": " ".join(parse(found["tree"]).tokens)}

        return _tables(SENTENCES, _checked_in("polarity", sizes), row)


@dataclass(frozen=True)
class LogicalForms:
    """BITEXT from questions about an invented geography to logical forms in the typed λ-calculus of GeoQuery."""

    def tables(self, sizes: Mapping[str, int]) -> Tables:
        return _tables(BITEXT, _checked_in("questions", sizes), dict)


@dataclass(frozen=True)
class Stories:
    """STORIES with a question about two supporting facts, as those of bAbI's second task."""

    def tables(self, sizes: Mapping[str, int]) -> Tables:
        def row(found: dict[str, str]) -> Row:
            facts = [f"{fact} ." for fact in found["facts"].removesuffix(" .").split(" . ")]
            support = [*map(int, found["support"].split())]
            return found | {"task": "facts2", "facts": facts, "lines": range(1, len(facts) + 1), "support": support}

        made = _tables(STORIES, _checked_in("stories", sizes), row)
        return {split: _replaced(table, "story", table["id"]) for split, table in made.items()}


def _digests() -> dict[str, str]:
    """Return the sha256 of each file: as code of the step, so that its key changes with the data and no other step's does."""
    return {
        "pairs": "a2336ea767d991f6b1c8688323309189cd9162d71a9467c3d93cf89ecc39626b",
        "polarity": "94487ddc8052e974691fa2a5f8882f8063b797906128945883490c8ec789f614",
        "questions": "77f4ecbbc53f2862b5a95ff7edc4bc8d0d71282f42eca28373021cdb696289c1",
        "sentences": "6a2f0c392949bb420becc83465abc3783bd815bcf46823d23ac0d2bb19b04714",
        "stories": "190df129e170fa511180d64d670d8603eb6c161926711ca60a3b7edf1cdc5cea",
    }


def _checked_in(name: str, sizes: Mapping[str, int]) -> dict[str, list[dict[str, str]]]:
    """Return the first rows of each split of a file. ValueError: it has fewer, or it was edited."""
    content = (files("phrasemodels.data") / "samples" / f"{name}.tsv").read_bytes()
    if hashlib.sha256(content).hexdigest() != _digests()[name]:
        raise ValueError(f"data/samples/{name}.tsv: its sha256 isn't that in {__name__}; change it there, too")
    drawn = "small" if all(size <= SMALL.get(split, 0) for split, size in sizes.items()) else "large"
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader(content.decode().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        split, _, only = row.pop("split").partition(" ")
        if only in ("", drawn):
            rows[split].append(row)
    for split, size in sizes.items():
        if size > len(rows[split]):
            raise ValueError(f"{WHERE}, {name}: {split} has {len(rows[split])} records, not {size}: ask for fewer")
    return {split: rows[split][:size] for split, size in sizes.items()}


OPERATORS = ("+", "*")
NUMBERS = range(21)
ARITIES = (2, 3)
SUBTREES = 0.3  # probability that an argument is a formula, apart from the one that has the required depth
ATTEMPTS = 2_000  # draws for one new formula before an error


@dataclass(frozen=True, slots=True)
class Formula:
    """An operator and its arguments, numbers or formulas."""

    operator: str
    arguments: "tuple[Formula | int, ...]"

    @property
    def depth(self) -> int:
        """The number of nested operators."""
        return 1 + max(a.depth if isinstance(a, Formula) else 0 for a in self.arguments)


@dataclass(frozen=True)
class Formulas:
    """BITEXT from formulas in prefix notation to infix (paper 003).

    ( * ( + ( + 15 7 ) 1 8 ) ( + 19 0 11 ) )  becomes  ( ( 15 + 7 ) + 1 + 8 ) * ( 19 + 0 + 11 ), three levels deep.

    Args:
        deepest: Levels of the deepest formula. The groups are depth2 to this depth.
    """

    deepest: int = 6

    def tables(self, sizes: Mapping[str, int]) -> Tables:
        def row(f: Formula) -> Row:
            return {"source": " ".join(prefix(f)), "target": " ".join(infix(f)), "group": f"depth{f.depth}"}

        return _tables(BITEXT, formulas(sizes, self.deepest), row)


def prefix(formula: Formula | int) -> list[str]:
    """Return the tokens with each operator before its arguments."""
    if isinstance(formula, int):
        return [str(formula)]
    return ["(", formula.operator, *(token for a in formula.arguments for token in prefix(a)), ")"]


def infix(formula: Formula | int) -> list[str]:
    """Return the tokens with each operator between its arguments. Formulas as arguments are in brackets."""
    if isinstance(formula, int):
        return [str(formula)]
    tokens: list[str] = []
    for argument in formula.arguments:
        inner = infix(argument)
        tokens += [formula.operator, *(["(", *inner, ")"] if isinstance(argument, Formula) else inner)]
    return tokens[1:]


def formulas(sizes: Mapping[str, int], deepest: int) -> dict[str, list[Formula]]:
    """Draw disjoint splits of formulas of the depths 2 to `deepest` in turn.

    Smaller splits are drawn first. So if the largest split grows, the others stay the same. It begins with its former
    formulas. ValueError: there are too few formulas.
    """
    if deepest < 2:
        raise ValueError(f"deepest is {deepest}: give 2 or more")
    seen: set[Formula] = set()
    drawn: dict[str, list[Formula]] = {}
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        rng = random.Random(f"0/{name}")
        drawn[name] = []
        for i in range(sizes[name]):
            found = (_draw_formula(rng, 2 + i % (deepest - 1)) for _ in range(ATTEMPTS))
            formula = next((one for one in found if one not in seen), None)
            if formula is None:
                raise ValueError(
                    f"{name} needs {sizes[name]} formulas, but only {i} new ones were found: ask for fewer"
                )
            seen.add(formula)
            drawn[name].append(formula)
    return {name: drawn[name] for name in sizes}


def _draw_formula(rng: random.Random, depth: int) -> Formula:
    arity = _pick(rng, ARITIES)
    deep = int(rng.random() * arity)
    arguments = (_argument(rng, depth - 1, place == deep) for place in range(arity))
    return Formula(_pick(rng, OPERATORS), tuple(arguments))


def _argument(rng: random.Random, depth: int, deep: bool) -> Formula | int:
    """Draw an argument of exactly this depth if it is to be deep, else of at most this depth."""
    if depth == 0 or not (deep or rng.random() < SUBTREES):
        return _pick(rng, NUMBERS)
    return _draw_formula(rng, depth if deep else 1 + int(rng.random() * depth))


def _pick(rng: random.Random, options: Sequence[T]) -> T:
    return options[int(rng.random() * len(options))]


def _tables(schema: pa.Schema, drawn: Mapping[str, Sequence[T]], row: Callable[[T], Row]) -> Tables:
    """Return the table of each split. `row` gives the values of a record by column, other columns are empty."""
    tables = {}
    for split, records in drawn.items():
        rows = [row(record) for record in records]
        columns = {name: [values[name] for values in rows] for name in (rows[0] if rows else ())}
        tables[split] = build(schema, WHERE, columns, len(rows))
    return tables


def _replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    field = table.schema.field(name)
    return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
