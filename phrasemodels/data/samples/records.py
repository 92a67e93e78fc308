"""The sample corpora as tables, a class for each. The same seed and sizes give the same bytes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from phrasemodels.data.corpora.snli import families
from phrasemodels.data.corpora.treebank import tagged
from phrasemodels.data.formats.shards import BITEXT, PAIRS, SENTENCES, STORIES, TREES, build
from phrasemodels.data.samples.entailment import ClassifiedSentence, SentencePair, classified, pairs
from phrasemodels.data.samples.questions import (
    Formula,
    GeographyQuestion,
    Story,
    formulas,
    infix,
    prefix,
    questions,
    stories,
)
from phrasemodels.data.samples.sentences import Sentence, corpus

T = TypeVar("T")
Tables = dict[str, pa.Table]
Row = dict[str, Any]
WHERE = "the sample grammar"


class Records(Protocol):
    """A sample corpus. `tables` generates a table of a given size for each split. No record is in two splits."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables: ...


@dataclass(frozen=True)
class Translations:
    """BITEXT from English to German. The group is `idiom` or `plain`."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        def row(s: Sentence) -> Row:
            return {"source": " ".join(s.source), "target": " ".join(s.target), "group": _group(s)}

        return _tables(BITEXT, corpus(seed, sizes), row)


@dataclass(frozen=True)
class Treebank:
    """TREES of the same English sentences: gold tags, phrase structure, heads and relations."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        def row(s: Sentence) -> Row:
            analyses = {"tags": s.tags, "tree": _rooted(s), "heads": s.heads, "relations": s.relations}
            return {"tokens": s.source, "group": _group(s), **analyses}

        return _tables(TREES, corpus(seed, sizes), row)


@dataclass(frozen=True)
class Tags:
    """TAGGED of the same English sentences, with Penn tags."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        return {split: tagged(table) for split, table in Treebank().tables(seed, sizes).items()}


@dataclass(frozen=True)
class Entailment:
    """PAIRS with gold labels and the trees of both sentences."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        def row(p: SentencePair) -> Row:
            texts = {"premise": " ".join(p.premise.source), "hypothesis": " ".join(p.hypothesis.source)}
            trees = {"premise_tree": _rooted(p.premise), "hypothesis_tree": _rooted(p.hypothesis)}
            return {**texts, **trees, "label": p.label, "group": _group(p.premise)}

        made = _tables(PAIRS, pairs(seed, sizes), row)
        return {split: _with_families(table) for split, table in made.items()}


@dataclass(frozen=True)
class Polarity:
    """SENTENCES with trees. The label is the polarity of the assertion, positive or negative."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        def row(c: ClassifiedSentence) -> Row:
            s = c.sentence
            return {"text": " ".join(s.source), "label": c.label, "tree": _rooted(s), "group": _group(s)}

        return _tables(SENTENCES, classified(seed, sizes), row)


@dataclass(frozen=True)
class LogicalForms:
    """BITEXT from questions to logical forms."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        def row(q: GeographyQuestion) -> Row:
            return {"source": " ".join(q.source), "target": " ".join(q.logical_form)}

        return _tables(BITEXT, questions(seed, sizes), row)


@dataclass(frozen=True)
class Stories:
    """STORIES with a question about `support` supporting facts (1, 2 or 3). The task is facts1, facts2 or facts3."""

    support: int = 2

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        def row(s: Story) -> Row:
            facts = {"facts": [" ".join(fact) for fact in s.facts], "lines": range(1, len(s.facts) + 1)}
            answer = {"answer": s.answer, "support": [line - 1 for line in s.support]}
            return {"task": f"facts{self.support}", "question": " ".join(s.question), **facts, **answer}

        made = _tables(STORIES, stories(seed, sizes, self.support), row)
        return {split: _replaced(table, "story", table["id"]) for split, table in made.items()}


@dataclass(frozen=True)
class Formulas:
    """BITEXT from formulas in prefix notation to infix. The groups are depth2 to the depth `deepest`."""

    deepest: int = 6

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        def row(f: Formula) -> Row:
            return {"source": " ".join(prefix(f)), "target": " ".join(infix(f)), "group": f"depth{f.depth}"}

        return _tables(BITEXT, formulas(seed, sizes, self.deepest), row)


def _tables(schema: pa.Schema, drawn: Mapping[str, Sequence[T]], row: Callable[[T], Row]) -> Tables:
    """Return the table of each split. `row` gives the values of a record by column, other columns are empty."""
    tables = {}
    for split, records in drawn.items():
        rows = [row(record) for record in records]
        columns = {name: [values[name] for values in rows] for name in (rows[0] if rows else ())}
        tables[split] = build(schema, WHERE, columns, len(rows))
    return tables


def _replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), values)


def _with_families(table: pa.Table) -> pa.Table:
    return _replaced(table, "family", pa.array(families(table["premise"].to_pylist()), pa.int64()))


def _group(sentence: Sentence) -> str:
    return "idiom" if sentence.idiom else "plain"


def _rooted(sentence: Sentence) -> str:
    return f"(ROOT {sentence.tree})"
