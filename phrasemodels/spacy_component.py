"""The component `phrasemodels` of spaCy: `nlp.add_pipe("phrasemodels")`, with phrases as extensions of `Doc` and `Span`.

It parses the tokens of spaCy's tokeniser, and sets heads, relations, tags, lemmas, features and sentences. It finds sentences
itself unless an earlier component has. Extensions: `doc._.phrases`, its phrases as labelled spans, and of a span `constituents`, `labels`,
`parse_string`, `parent` and `children`. `noun_chunks` are found by the relations of Universal Dependencies.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import numpy as np
from spacy.attrs import DEP, HEAD, LEMMA, MORPH, POS, TAG
from spacy.errors import Errors
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from phrasemodels.data.formats.trees import Span as Phrase
from phrasemodels.data.formats.trees import Tree, brackets
from phrasemodels.parsing.parser import Limits, Parse, Parser

# Doc.user_data has the labels of phrases over the same words, outermost first, at ("._.", KEY, first character, end), as spaCy has
# values of spans: so they outlive other tokens, `Doc.from_docs` and `as_doc(copy_user_data=True)`.
KEY = "phrasemodels"
# Relations of words, to the left of a noun or name, that are in its base noun phrase; and of names to the right of one.
_BEFORE = frozenset("det amod nummod compound nmod flat poss predet quantmod".split())
_AFTER = frozenset("flat goeswith".split())
_NO_NOUN = frozenset("expl fixed flat compound goeswith discourse punct".split())
_OTHER_RELATIONS = ("en", "de")  # languages whose iterators of spaCy read relations of their own


class Component:
    """Parses documents of spaCy."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, docs: Iterable[Doc], batch_size: int = 64) -> Iterator[Doc]:
        """Yield documents with their parses."""
        for some in minibatch(docs, batch_size):
            sentences = [list(self._sentences(doc)) for doc in some]
            words = [[token.text for token in own] for one in sentences for own in one]
            parses = self.parser.parse_tokens(words)
            for doc, one in zip(some, sentences, strict=True):
                yield _annotated(doc, [(own, next(parses)) for own in one])

    def _sentences(self, doc: Doc) -> Iterator[list[Any]]:
        """Yield the tokens of each sentence but spaces."""
        if doc.has_annotation("SENT_START"):
            found = [list(own) for own in doc.sents]
        else:
            starts = iter([own[0].start for own in self.parser.split(doc.text) if own][1:])
            found, start = [[]], next(starts, len(doc.text))
            for token in doc:
                while token.idx + len(token) > start:  # a token over a boundary begins the sentence after it
                    found.append([])
                    start = next(starts, len(doc.text))
                found[-1].append(token)
        for tokens in found:
            if own := [token for token in tokens if not token.is_space]:
                yield own

    # A pipeline is saved with the name of its parser alone.
    def to_disk(self, path: Any, exclude: Any = ()) -> None:
        """Write nothing: the configuration of the pipeline names the parser."""

    def from_disk(self, path: Any, exclude: Any = ()) -> "Component":
        """Read nothing."""
        return self


def _annotated(doc: Doc, parses: list[tuple[list[Any], Parse]]) -> Doc:
    heads = np.zeros(len(doc), np.int64)
    strings = doc.vocab.strings
    relations, tags, universal, lemmas, features = ([""] * len(doc) for _ in range(5))
    found: dict[Any, Any] = {key: value for key, value in doc.user_data.items() if not _is_phrase(key)}
    doc.user_data = found
    for tokens, parse in parses:
        for k, token in enumerate(tokens):
            if parse.heads:
                head = parse.heads[k]
                heads[token.i] = tokens[head - 1].i - token.i if head else 0
                relations[token.i] = "ROOT" if head == 0 else parse.relations[k] if parse.relations else "dep"
            tags[token.i] = parse.tags[k] if parse.tags else ""
            universal[token.i] = parse.universal[k] if parse.universal else ""
            if parse.lemmas:
                lemmas[token.i], features[token.i] = parse.lemmas[k], parse.features[k]
        for label, start, end in parse.tree.spans if parse.tree else ():
            key = ("._.", KEY, tokens[start].idx, tokens[end - 1].idx + len(tokens[end - 1]))
            found.setdefault(key, []).append(label)
    owned = {token.i for tokens, _ in parses for token in tokens}
    first = min(owned, default=0)
    for token in doc:
        if token.i not in owned:  # spaces hang on the word before them
            before = next((k for k in range(token.i - 1, -1, -1) if k in owned), first)
            heads[token.i], relations[token.i] = before - token.i, "dep"
            universal[token.i] = tags[token.i] = "SPACE" if token.is_space else ""
            tags[token.i] = "_SP" if token.is_space else ""
    columns: list[tuple[int, Any]] = [(TAG, [strings.add(tag) for tag in tags])]
    columns.append((POS, [strings.add(tag) if tag else 0 for tag in universal]))
    if any(lemmas):
        morphs = [doc.vocab.morphology.add(own) for own in features]
        columns += [(LEMMA, [strings.add(lemma) for lemma in lemmas]), (MORPH, morphs)]
    if all(parse.heads for _, parse in parses):
        columns += [(HEAD, heads), (DEP, [strings.add(relation) for relation in relations])]
    values = np.array([np.asarray(own).astype(np.int64).astype(np.uint64) if name == HEAD else np.array(own, np.uint64)
                       for name, own in columns]).T  # fmt: skip
    doc.from_array([name for name, _ in columns], np.ascontiguousarray(values))  # type: ignore[arg-type]  # of one or two columns
    return doc


def _is_phrase(key: Any) -> bool:
    return isinstance(key, tuple) and key[:2] == ("._.", KEY)


def _phrases(doc: Doc) -> list[Span]:
    """Return the phrases of a document in pre-order, but those that end inside of a token. ValueError: it has none."""
    return _known(doc).copy()


# a document, its values, the numbers of its tokens and values, its phrases: a loop over spans asks for them each time
_last: list[Any] = [None, None, None, []]


def _known(doc: Doc) -> list[Span]:
    """Return the phrases of a document, made once while it has as many tokens and values. They must not be changed."""
    global _last
    known, sizes = _last, (len(doc), len(doc.user_data))
    if known[0] is doc and known[1] is doc.user_data and known[2] == sizes:
        return known[3]
    labels: dict[Any, Any] = {key[2:]: value for key, value in doc.user_data.items() if _is_phrase(key)}
    if not labels and not all(token.is_space for token in doc):
        raise ValueError(
            "this document has no phrases: parse it, by a parser of phrases; as_doc(copy_user_data=True) keeps them"
        )
    starts, ends = {token.idx: token.i for token in doc}, {token.idx + len(token): token.i + 1 for token in doc}
    whole = sorted((starts[a], -ends[b], own) for (a, b), own in labels.items() if a in starts and b in ends)
    found = [Span(doc, start, -end, label=label) for start, end, own in whole for label in own]
    _last = [doc, doc.user_data, sizes, found]
    return found


def _place(found: list[Span], token: int) -> int:
    """Return the place of the first phrase that begins at a token or behind it."""
    return bisect_left(found, token, key=lambda own: own.start)


def noun_chunks(of: Doc | Span) -> Iterator[tuple[int, int, int]]:
    """Yield the base noun phrases of a document or a span by relations of Universal Dependencies: (start, end, label)."""
    if not of.doc.has_annotation("DEP"):
        raise ValueError(Errors.E029)
    label, found = of.doc.vocab.strings.add("NP"), list[tuple[int, int, int]]()
    for word in of:
        if word.pos_ not in ("NOUN", "PROPN", "PRON") or word.dep_.partition(":")[0] in _NO_NOUN:
            continue
        start, end = word.i, word.i + 1
        for left in reversed(list(word.lefts)):
            if left.dep_.partition(":")[0] in _BEFORE and left.right_edge.i < start:
                start = left.left_edge.i
            elif not left.is_punct:
                break
        for right in word.rights:
            if right.dep_.partition(":")[0] not in _AFTER:
                break
            end = right.right_edge.i + 1
        while found and found[-1][0] >= start:
            found.pop()  # it is inside of this one
        if not found or found[-1][1] <= start:
            found.append((start, end, label))
    yield from found


def _constituents(span: Span) -> list[Span]:
    """Return the phrases inside of a span, in pre-order."""
    found = _known(span.doc)
    return [own for own in found[_place(found, span.start) : _place(found, span.end)] if own.end <= span.end]


def _labels(span: Span) -> list[str]:
    """Return the labels of the phrases over exactly these words, outermost first."""
    return [own.label_ for own in _constituents(span) if (own.start, own.end) == (span.start, span.end)]


def _parent(span: Span) -> Span | None:
    """Return the smallest phrase around a span."""
    found, size = _known(span.doc), span.end - span.start
    first = _place(found, span.sent.start) if span.doc.has_annotation("SENT_START") else 0
    before = (found[k] for k in range(_place(found, span.start + 1) - 1, first - 1, -1))
    around = (own for own in before if span.end <= own.end and own.end - own.start > size)
    nearest = next(around, None)
    over = takewhile(lambda own: nearest is not None and (own.start, own.end) == (nearest.start, nearest.end), around)
    return next(reversed([nearest, *over]))  # of several over the same words the outermost


def _children(span: Span) -> list[Span]:
    """Return the largest phrases inside of a span."""
    found: list[Span] = []
    for own in _constituents(span):
        if (own.start, own.end) != (span.start, span.end) and (not found or own.start >= found[-1].end):
            found.append(own)
    return found


def _parse_string(span: Span) -> str:
    """Return the phrases inside of a span as brackets."""
    words = [token for token in span if not token.is_space]
    place = {token.i: k for k, token in enumerate(words)}
    spans = []
    for own in _constituents(span):
        inside = [place[k] for k in range(own.start, own.end) if k in place]
        spans.append(Phrase(own.label_, inside[0], inside[-1] + 1))
    if not spans or not words:
        return ""
    return brackets(
        Tree(tuple(token.text for token in words), tuple(token.tag_ or "XX" for token in words), tuple(spans))
    )


EXTENSIONS = {
    "constituents": _constituents, "labels": _labels, "parent": _parent, "children": _children, "parse_string": _parse_string,
}  # fmt: skip


@Language.factory("phrasemodels", default_config={"model": "", "max_words": 500})
def create(nlp: Language, name: str, model: str, max_words: int) -> Component:
    """Return the component. model: the folder of a parser. Default: the English one of the package."""
    Doc.set_extension("phrases", getter=_phrases, force=True)
    for extension, getter in EXTENSIONS.items():
        Span.set_extension(extension, getter=getter, force=True)
    if nlp.lang in _OTHER_RELATIONS:
        nlp.vocab.get_noun_chunks = noun_chunks  # type: ignore[assignment]  # of spans, as it is declared
    limits = Limits(max_words=max_words)
    return Component(Parser.load(model, limits) if model else Parser.load(limits=limits))
