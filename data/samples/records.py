"""The sample corpora as tables, a class for each. The same seed and sizes give the same bytes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from phrasemodels.data.corpora.snli import families
from phrasemodels.data.corpora.treebank import tagged
from phrasemodels.data.formats.schemas import BITEXT, PAIRS, SENTENCES, STORIES, TREES, build, columns
from phrasemodels.data.samples.entailment import pairs
from phrasemodels.data.samples.formulas import formulas, infix, prefix
from phrasemodels.data.samples.geography import questions
from phrasemodels.data.samples.polarity import classified
from phrasemodels.data.samples.sentences import Sentence, corpus
from phrasemodels.data.samples.stories import stories

T = TypeVar("T")
Tables = dict[str, pa.Table]
WHERE = "the sample grammar"


class Records(Protocol):
    """A sample corpus: `tables` generates a table for each split, of these sizes; no record is in two splits."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables: ...


@dataclass(frozen=True)
class Translations:
    """BITEXT from English to German; the group is `idiom` or `plain`."""

    idiom_share: float = 0.3

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        names = ("source", "target", "group")
        return _tables(
            BITEXT,
            names,
            corpus(seed, sizes, self.idiom_share),
            lambda s: (" ".join(s.source), " ".join(s.target), _group(s)),
        )


@dataclass(frozen=True)
class Treebank:
    """TREES of the same English sentences: gold tags, phrase structure, heads and relations."""

    idiom_share: float = 0.3

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        names = ("tokens", "tags", "tree", "heads", "relations", "group")
        return _tables(
            TREES,
            names,
            corpus(seed, sizes, self.idiom_share),
            lambda s: (s.source, s.tags, _rooted(s), s.heads, s.relations, _group(s)),
        )


@dataclass(frozen=True)
class Tags:
    """TAGGED of the same English sentences, with Penn tags."""

    idiom_share: float = 0.3

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        return {split: tagged(table) for split, table in Treebank(self.idiom_share).tables(seed, sizes).items()}


@dataclass(frozen=True)
class Entailment:
    """PAIRS with gold labels and the trees of both sentences."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        names = ("premise", "hypothesis", "label", "premise_tree", "hypothesis_tree", "group")
        made = _tables(
            PAIRS,
            names,
            pairs(seed, sizes),
            lambda p: (
                " ".join(p.premise.source),
                " ".join(p.hypothesis.source),
                p.label,
                _rooted(p.premise),
                _rooted(p.hypothesis),
                _group(p.premise),
            ),
        )
        return {split: _with_families(table) for split, table in made.items()}


@dataclass(frozen=True)
class Polarity:
    """SENTENCES with trees: is what a sentence asserts good or bad?"""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        names = ("text", "label", "tree", "group")
        return _tables(
            SENTENCES,
            names,
            classified(seed, sizes),
            lambda c: (" ".join(c.sentence.source), c.label, _rooted(c.sentence), _group(c.sentence)),
        )


@dataclass(frozen=True)
class LogicalForms:
    """BITEXT from questions to logical forms."""

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        return _tables(
            BITEXT,
            ("source", "target"),
            questions(seed, sizes),
            lambda q: (" ".join(q.source), " ".join(q.logical_form)),
        )


@dataclass(frozen=True)
class Stories:
    """STORIES whose question has `support` supporting facts (1, 2 or 3); the task is facts1, facts2 or facts3."""

    support: int = 2

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        names = ("task", "facts", "lines", "question", "answer", "support")
        made = _tables(
            STORIES,
            names,
            stories(seed, sizes, self.support),
            lambda s: (
                f"facts{self.support}",
                [" ".join(fact) for fact in s.facts],
                range(1, len(s.facts) + 1),
                " ".join(s.question),
                s.answer,
                [line - 1 for line in s.support],
            ),
        )
        return {split: _replaced(table, "story", table["id"]) for split, table in made.items()}


@dataclass(frozen=True)
class Formulas:
    """BITEXT from formulas in prefix notation to infix; the groups are depth2 to the depth `deepest`."""

    deepest: int = 6

    def tables(self, seed: int, sizes: Mapping[str, int]) -> Tables:
        return _tables(
            BITEXT,
            ("source", "target", "group"),
            formulas(seed, sizes, self.deepest),
            lambda f: (" ".join(prefix(f)), " ".join(infix(f)), f"depth{f.depth}"),
        )


def _tables(
    schema: pa.Schema, names: Sequence[str], drawn: Mapping[str, Sequence[T]], row: Callable[[T], tuple[Any, ...]]
) -> Tables:
    """Return the table of each split: `row` gives a record's values of the columns `names`; other columns are empty."""
    return {
        split: build(schema, WHERE, columns(names, map(row, records)), len(records)) for split, records in drawn.items()
    }


def _replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), values)


def _with_families(table: pa.Table) -> pa.Table:
    return _replaced(table, "family", pa.array(families(table["premise"].to_pylist()), pa.int64()))


def _group(sentence: Sentence) -> str:
    return "idiom" if sentence.idiom else "plain"


def _rooted(sentence: Sentence) -> str:
    return f"(ROOT {sentence.tree})"
