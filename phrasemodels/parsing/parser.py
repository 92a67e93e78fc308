"""The parser of paper 004 for use: text, or words, to parses, with bounded memory for long sentences.

A parse of a sentence, and a parse as text: brackets, CoNLL-U, JSON, a tree of NLTK.
"""

import copy
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice, pairwise, repeat
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from phrasemodels.config import at_least
from phrasemodels.data.formats.conllu import BOTH_TAGS, analysed_again, predicted, sentence_to_conllu
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.formats.trees import ROOT, Span, Tree, brackets, restore, wh_phrases
from phrasemodels.encoders.inputs import ParserInput
from phrasemodels.folders import check_replaceable
from phrasemodels.layers.blocks import SPECIAL
from phrasemodels.models.fused_parser import fused
from phrasemodels.models.parser import (
    Decode,
    Jointly,
    JointParser,
    ParsedTrees,
    ParserConfig,
    separately,
)
from phrasemodels.parsing.constituents import Node, arcs_svg, nodes, svg
from phrasemodels.parsing.ids import Divide, Ids, no_pieces
from phrasemodels.parsing.lexicon import Lexicon
from phrasemodels.parsing.saved import ENGLISH, Saved, load, save
from phrasemodels.parsing.splitter import on_threads
from phrasemodels.parsing.words import (
    Sentences,
    Word,
    divided_texts,
    sentences,
    shown,
    spaced,
    undivided,
)
from phrasemodels.saved import Pretrained, readme
from phrasemodels.structs.kernels import reference_only

NO_SPACE = "SpaceAfter=No"
NO_PHRASES = "this parse has no phrases: decode jointly or phrases alone"


@dataclass(frozen=True)
class Parse:
    """A parse of n tokens. tree, or heads (n) from 1 with 0 for the root and relations (n), is empty if it was not decoded.

    Args:
        tags: Penn tags.
        universal: Tags of Universal Dependencies, if the parser knows them.
        text: The sentence as written. Empty for given words.
        words: Its tokens with their places in the given text. Empty for given words.
        note: Deviations from the request, for example for a long sentence.
        lemmas: Of each word, if the parser knows them.
        features: Likewise.
    """

    tokens: list[str]
    tags: list[str]
    tree: Tree | None
    heads: list[int]
    relations: list[str]
    universal: Sequence[str] = ()
    text: str = ""
    words: Sequence[Word] = ()
    note: str = ""
    lemmas: Sequence[str] = ()
    features: Sequence[str] = ()

    @property
    def brackets(self) -> str:
        """The tree in Penn brackets on one line, or an empty string."""
        return brackets(self.tree) if self.tree else ""

    @property
    def root(self) -> Node:
        """The root of the tree, a node with `children`, `parent`, `leaves` and `find(label)`.

        Raises:
            ValueError: There is no tree.
        """
        if self.tree is None:
            raise ValueError(NO_PHRASES)
        return nodes(self.tree)

    def phrases(self, longest: int | None = None, *labels: str) -> list[Span]:
        """Return the phrases of 2 to `longest` words, each place once, shorter first, for attention over phrases.

        `inference.inputs.members` makes a tensor of them.

        Args:
            labels: Of the phrases. Default: all but the sentence.

        Raises:
            ValueError: There is no tree.
        """
        most = len(self.tokens) if longest is None else longest
        found = {
            (node.end - node.start, node.start): Span(node.label, node.start, node.end)
            for node in self.root.find(*labels)
            if 2 <= node.end - node.start <= most and (labels or node.end - node.start < len(self.tokens))
        }
        return [found[key] for key in sorted(found)]

    def svg(self, kind: str = "tree") -> str:
        """Return a drawing as SVG.

        Args:
            kind: "tree" or "arcs".

        Raises:
            ValueError: The parse has none.
        """
        if kind == "tree":
            return svg(self.root)
        if kind != "arcs":
            raise ValueError(f"no drawing {kind!r}: tree or arcs")
        if not self.heads:
            raise ValueError("this parse has no heads: decode jointly or arcs alone")
        return arcs_svg(self.tokens, self.tags, self.heads, self.relations)

    def _repr_html_(self) -> str:
        """The drawings of tree and arcs, for notebooks."""
        kinds = ["tree"] * (self.tree is not None) + ["arcs"] * bool(self.heads)
        return "".join(f'<div style="overflow-x:auto">{self.svg(kind)}</div>' for kind in kinds if self.tokens)

    def __str__(self) -> str:
        """The tree in brackets, or CoNLL-U for heads alone."""
        return self.brackets or self.conllu().rstrip("\n")

    def conllu(self, sent_id: str = "1", read: Sequence[Line] = ()) -> str:
        """Return the sentence as CoNLL-U, without the empty line after it.

        It has sent_id, the text as its tokens and blanks, multiword tokens, SpaceAfter=No, UPOS and XPOS.

        Args:
            read: Original lines of CoNLL-U with these words. Unpredicted columns stay as they were there.
        """
        if not self.tokens:
            return ""
        if read:
            columns = predicted(self.tags, self.universal, self.heads, self.relations)
            return analysed_again(read, columns, {"note": self.note} if self.note else {})
        spaces, joined = spaced(self.words, self.text) if self.words else (), self.multiword()
        surfaces = list(self.tokens)
        for (first, last), surface in joined.items():
            surfaces[first - 1 : last] = [surface, *[""] * (last - first)]
        text = "".join(f"{own}{' ' * space}" for own, space in zip(surfaces, spaces or repeat(True), strict=False))
        comments = {"sent_id": sent_id, "text": text.rstrip(), "note": self.note}
        misc = ["_" if space else NO_SPACE for space in spaces]
        lines = sentence_to_conllu(
            self.tokens,
            self.tags,
            self.universal,
            self.heads,
            self.relations,
            misc,
            joined,
            self.lemmas,
            self.features,
        )
        return "".join(f"# {name} = {value}\n" for name, value in comments.items() if value) + lines

    def multiword(self) -> dict[tuple[int, int], str]:
        """Return the multiword tokens as written, by their first and last word: (2, 3) -> don't."""
        found = {}
        starts = [k for k, word in enumerate(self.words) if not word.joined]
        for first, after in pairwise([*starts, len(self.words)]):
            if after - first > 1:
                place = self.words[0].start
                surface = self.text[self.words[first].start - place : self.words[after - 1].end - place]
                found[first + 1, after] = " ".join(shown(surface)[0].split())
        return found

    def record(self) -> dict[str, Any]:
        """Return all of the parse by name, as in tables (`parsing/files.py`): places of words, and phrases with their labels."""
        places = [[word.start for word in self.words], [word.end for word in self.words]]
        spans = [span for span in self.tree.spans if span.label != ROOT] if self.tree else []
        return {
            "start": places[0][0] if self.words else None,
            "end": places[1][-1] if self.words else None,
            "text": self.text,
            "tokens": self.tokens,
            "starts": places[0],
            "ends": places[1],
            "lemmas": list(self.lemmas),
            "tags": self.tags,
            "universal": list(self.universal),
            "features": list(self.features),
            "heads": self.heads,
            "relations": self.relations,
            "phrases": [{"label": label, "start": start, "end": end} for label, start, end in spans],
            "tree": self.brackets,
            "note": self.note,
        }

    def json(self) -> str:
        """Return the record as a JSON object on one line."""
        return json.dumps(self.record(), ensure_ascii=False)

    def nltk(self) -> Any:
        """Return the tree as nltk.Tree.

        Raises:
            ImportError: nltk is not installed.
            ValueError: There is no tree.
        """
        from nltk import Tree as NltkTree

        if self.tree is None:
            raise ValueError(NO_PHRASES)
        return NltkTree.fromstring(self.brackets)


NOTHING = Parse([], [], None, [], [])  # the parse of a text without words


NO_TAG = "XX"  # of a word whose tag is unknown, as the Penn Treebank writes it
APART = "more than {} words: phrases and heads were decoded apart, and may contradict each other"
IN_PARTS = "more than {} words: parsed in {} parts"


@dataclass(frozen=True)
class Limits:
    """Bounds of memory and time, in words. The memory of a batch is then linear in `max_words` and in `max_joint_words`².

    Args:
        max_joint_words: Longer sentences are not decoded jointly. Joint decoding takes 8·n³ bytes.
        max_words: Longer sentences are parsed in parts of at most `chunk_words` words. So time is linear in any text.
        max_batch_words: Padded words of a batch. 400 fit a processor's cache; 900 take 1.2 times as long for each word.
        threads: Of torch during a parse. A sentence needs little, so several threads wait for one another. Beside other
            programs they take ten times as long as one.
    """

    max_joint_words: int = 150
    max_words: int = 500
    max_batch_words: int = 400
    threads: int = 1
    chunk_words: int = 100

    def __post_init__(self) -> None:
        at_least(self, 1, "max_joint_words", "max_words", "max_batch_words", "threads", "chunk_words")


def bounded(decode: Decode, longest: int, limits: Limits) -> Decode:
    """Return the decoder for a batch with `longest` words in its longest sentence."""
    return separately if isinstance(decode, Jointly) and longest > limits.max_joint_words else decode


@dataclass(frozen=True)
class Names:
    """The predicted entries of a parser's vocabularies, by id."""

    labels: Sequence[str]
    relations: Sequence[str]
    tags: Sequence[str]

    def parse(self, tokens: list[str], row: int, found: ParsedTrees) -> Parse:
        """Return one row of predicted ids as a parse. If the treebank had no tags, it has none, and NO_TAG in its tree."""
        n = len(tokens)
        tagged = len(self.tags) > len(SPECIAL)  # the treebank had tags
        pairs = [self.tags[tag].partition(BOTH_TAGS) for tag in found.tags[row, 1 : n + 1].tolist() if tagged]
        tags, universal = [tag for tag, _, _ in pairs], [other for _, mark, other in pairs if mark]
        if not any(tags):  # the treebank had universal tags alone
            tags = []
        spans = [Span(self.labels[k], i, j + 1) for i, j, k in found.cells[row].tolist() if k > 0]
        heads, relations = (x[row, 1 : n + 1].tolist() for x in (found.heads, found.relations))
        tree = (
            restore(tokens, [tag or NO_TAG for tag in tags] or [NO_TAG] * n, spans)
            if int(found.cells[row, 0, 0]) >= 0
            else None
        )
        if heads[0] < 0:
            heads, relations = [], []
        return Parse(
            tokens,
            tags,
            tree,
            heads,
            [self.relations[k] for k in relations if k >= 0],
            universal if len(universal) == n else (),
        )


Turn = Callable[[], AbstractContextManager[None]]
WITHOUT_KERNELS, SHORT = 500, 60  # words: of all sentences that are decoded without kernels, and of one


class Parser(Pretrained):
    """A trained parser. Parses do not depend on the other sentences of a batch.

    Args:
        model: A model. Its weights are read once; of a model in training a copy is taken.
        entries: Its vocabularies by side.
        decode: How trees are found.
        divide: Words into pieces of a pretrained encoder.
        limits: Of memory.
        card: Notes for users.
        split: Text into sentences and words.
        config: Of the model, for `save_pretrained`.
        lexicon: Lemmas and features of tagged words.

    Attributes:
        original: The given model.
        fused: The same model in fewer operations.
    """

    def __init__(
        self,
        model: JointParser,
        entries: Mapping[str, Sequence[str]],
        decode: Decode | None = None,
        divide: Divide = no_pieces,
        limits: Limits | None = None,
        card: Mapping[str, Any] | None = None,
        split: Sentences = sentences,
        config: ParserConfig | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        training = any(module.training for module in model.modules())
        evaluated = copy.deepcopy(model).eval() if training else model
        self.original, self.fused, self.ids = model, fused(evaluated), Ids(entries, plainly=True)
        self.names = Names(entries["labels"], entries["relations"], entries["tags"])
        self.decode, self.divide = decode or Jointly(), divide
        self.entries, self.config, self.lexicon = entries, config, lexicon
        self.limits, self.card, self.split = limits or Limits(), card or {}, split
        self.device, self.words_decoded = next(model.parameters()).device, 0

    def __repr__(self) -> str:
        name, labels = self.card.get("name", "a parser"), len(self.names.labels)
        return f"<Parser: {name}; {labels} labels, {len(self.names.relations)} relations, {len(self.names.tags)} tags>"

    @classmethod
    def load(cls, folder: str | Path = ENGLISH, limits: Limits | None = None) -> "Parser":
        """Load a saved parser. Default: the English one of this package.

        Raises:
            ValueError: It cannot be read.
        """
        saved = load(Path(folder))
        return cls(
            *(saved.model, saved.entries, saved.decode),
            limits=limits,
            card=saved.card,
            split=saved.split,
            config=saved.config,
            lexicon=saved.lexicon,
        )

    def save_pretrained(self, folder: str | Path, precision: torch.dtype = torch.float32, force: bool = False) -> Path:
        """Write the parser to a folder for `load` and `from_pretrained`. float16 halves it, and rounds the weights.

        Raises:
            ValueError: A part of its configuration cannot be saved, it was not made from a saved parser, or something
                else is in the folder, and `force` does not say to replace it.
        """
        if self.config is None:
            raise ValueError("this parser was made from a model alone: pass its configuration, Parser(..., config=...)")
        saved = Saved(self.original, self.config, self.entries, self.decode, self.card, self.split, self.lexicon)
        to = save(saved, Path(folder), precision, force)
        loading = 'from phrasemodels import Parser\n\nparser = Parser.from_pretrained("FOLDER OR NAME")\n'
        use = 'print(parser.parse("The red house doesn\'t sleep.")[0])'
        check_replaceable(to / "README.md", force)
        (to / "README.md").write_text(readme(self.card, loading + use, "parsing"), encoding="utf-8")
        return to

    @classmethod
    def _from_folder(cls, folder: Path, *parts: Any) -> "Parser":
        return cls.load(folder)

    @overload
    def parse(self, text: str, split: Sentences | None = None) -> list[Parse]: ...

    @overload
    def parse(self, text: list[str] | tuple[str, ...], split: Sentences | None = None) -> list[list[Parse]]: ...

    def parse(
        self, text: str | list[str] | tuple[str, ...], split: Sentences | None = None
    ) -> list[Parse] | list[list[Parse]]:
        """Return the parses of the sentences of a text, or for a list of texts a list of these. Empty lines end paragraphs.

        Args:
            split: Division of a text into sentences. Default: `self.split`.
        """
        if isinstance(text, str):
            return next(self.parse_each([text], split))
        return list(self.parse_each(text, split))

    def parse_in_turns(self, text: str, turn: Turn | None = None) -> list[Parse]:
        """Return the parses of a text, as `parse` does.

        Args:
            text: Of one or more sentences.
            turn: Waits for the text's turn. The division into sentences takes one, and so does each batch of `limits`.
        """
        turn = turn or nullcontext
        with turn():
            divided = [own for own in self.split(text) if own]
        parses = self._parsed([[word.form for word in own] for own in divided], turn)
        return [_placed(parse, text, own) for parse, own in zip(parses, divided, strict=True)]

    def parse_each(
        self, texts: Iterable[str], split: Sentences | None = None, batch: int = 256
    ) -> Iterator[list[Parse]]:
        """Yield the parses of the sentences of each text, in order, an empty list for a text without words.

        Texts are read as they are needed: `batch` of them are parsed together.

        Raises:
            ValueError: `batch` is below 1.
            TypeError: A text is no string.
        """
        _check_batch(batch)
        if isinstance(texts, str):
            raise TypeError(f"one text: give a list of texts, or parse({texts[:20]!r})")
        texts = iter(texts)
        while chunk := list(islice(texts, batch)):
            if wrong := [text for text in chunk if not isinstance(text, str)]:
                missing = wrong[0] is None or wrong[0] != wrong[0]
                instead = "parse_table reads columns with missing texts" if missing else "see parse_tokens for tokens"
                raise TypeError(f"{str(wrong[0])[:20]!r} is no text but {type(wrong[0]).__name__}: {instead}")
            divided = [[own for own in one if own] for one in divided_texts(split or self.split, chunk)]
            parses = self._parsed([[word.form for word in own] for one in divided for own in one])
            for text, one in zip(chunk, divided, strict=True):
                yield [_placed(next(parses), text, own) for own in one]

    def parse_table(self, table: Any, column: str = "text", keep: Sequence[str] = (), batch: int = 256) -> Any:
        """Return a table with a row for each sentence of the texts of a table.

        Args:
            table: Of Arrow, or a data frame of pandas. The result is of the same kind.
            column: The column of texts. A missing text gives a row with the sentence 0.
            keep: Columns to keep in the rows of sentences, for example ids.
            batch: Texts of one batch.

        Raises:
            ValueError: The column is missing, a text is something else or has a NUL byte, or a kept column has the name of a
                column of the parses.
        """
        from phrasemodels.parsing.files import parse_table

        return parse_table(self, table, column, keep, batch)

    def predict(self, inputs: Iterable[str | Sequence[str]]) -> list[Parse]:
        """Return the parse of each input. An input is one sentence: a text, or a list of tokens."""
        if isinstance(inputs, str):
            raise TypeError(f"one text: give a list of texts, or parse({inputs[:20]!r})")
        given, split = list(inputs), undivided(self.split)
        words = [[word.form for own in split(one) for word in own] if isinstance(one, str) else one for one in given]
        return list(self.parse_tokens(words))

    def parse_tokens(self, sentences: Iterable[Sequence[str]], batch: int = 256) -> Iterator[Parse]:
        """Yield the parse of each tokenised sentence. A sentence without words gets an empty parse.

        Raises:
            ValueError: A token is empty or has a tab or a line break, or batch is below 1.
        """
        _check_batch(batch)
        waiting = map(_tokens, [sentences] if isinstance(sentences, str) else sentences)
        while chunk := list(islice(waiting, batch)):
            parses = self._parsed([tokens for tokens in chunk if tokens])
            for tokens in chunk:
                yield next(parses) if tokens else NOTHING

    @torch.no_grad()
    def attention(self, tokens: Sequence[str]) -> tuple[list[str], NDArray[np.float32]]:
        """Return the labels, and the attention of each to START, the n words and STOP (labels, n + 2).

        Raises:
            ValueError: The parser has no label attention layer, or one with another number of labels than it predicts.
        """
        batch = self._batch([_tokens(tokens)])
        if self.fused.encoder.top is None:
            raise ValueError("this parser has no label attention layer: load one that has")
        with torch.autocast(self.device.type, enabled=False):
            x, valid = self.fused.encoder.below(self.fused.embed(batch), batch.lengths + 2)
            weights = self.fused.encoder.top.weights(x, valid)[0].mean(1)
        if len(weights) != len(self.names.labels):
            raise ValueError(
                f"its layer has {len(weights)} labels, its vocabulary {len(self.names.labels)}: they have no names"
            )
        return ["(none)", *self.names.labels[1:]], weights.float().cpu().numpy()

    def _with_lemmas(self, parse: Parse, looked_up: dict[tuple[str, str, str], tuple[str, str]]) -> Parse:
        """Return a parse with lemmas and features. looked_up: those of earlier words."""
        if self.lexicon is None or not parse.universal:
            return parse
        words = list(zip(parse.tokens, parse.universal, parse.tags or [""] * len(parse.tokens), strict=True))
        for word in set(words) - looked_up.keys():
            token, universal, tag = word
            form = self.ids.form(token) if len(token) > 1 else token
            looked_up[word] = self.lexicon.lemma(form, universal), self.lexicon.features_of(form, universal, tag)
        lemmas, features = ([looked_up[word][side] for word in words] for side in (0, 1))
        return replace(parse, lemmas=lemmas, features=features)

    def _batch(self, sentences: Sequence[list[str]]) -> ParserInput:
        return self.ids.batch(sentences, self.divide).to(self.device)

    def load_kernels(self) -> None:
        """Load the decoder's kernels, or compile them, now rather than at the first long text: for servers and timings."""
        self.words_decoded = WITHOUT_KERNELS
        long = ["."] * (self.limits.max_joint_words + 1)  # decoded otherwise than a short sentence
        list(self.parse_tokens([["Kernels", "."], long]))

    def _decoding(self, sentences: Sequence[list[str]]) -> AbstractContextManager[None]:
        """Return a context to decode in. Decoders run their kernels, since without them they take memory in n⁴.

        A process without numba decodes its first short sentences without kernels: the import takes as long as 70 of them, and 130
        MB.
        """
        self.words_decoded += sum(map(len, sentences))
        short = self.words_decoded <= WITHOUT_KERNELS and max(map(len, sentences)) <= SHORT
        return reference_only() if short and "numba" not in sys.modules else nullcontext()

    def _parsed(self, sentences: Sequence[list[str]], turn: Turn = nullcontext) -> Iterator[Parse]:
        """Yield the parses of sentences, none of them empty, in order. turn: as of `parse_in_turns`, of each batch."""
        limits = self.limits
        pieces = [
            parts(tokens, limits.chunk_words) if len(tokens) > limits.max_words else [tokens] for tokens in sentences
        ]
        short = [part for own in pieces for part in own]
        found: dict[int, Parse] = {}
        for rows in batches([len(part) for part in short], limits):
            some = [short[row] for row in rows]
            decode = bounded(self.decode, max(map(len, some)), limits)
            with (
                turn(),
                self._decoding(some),
                on_threads(self.limits.threads),
                torch.inference_mode(),
                torch.autocast(self.device.type, enabled=False),
            ):
                trees = self.fused.parse(self._batch(some), decode)
            cpu = trees.cpu()
            note = "" if decode is self.decode else APART.format(limits.max_joint_words)
            for k, row in enumerate(rows):
                parse = self.names.parse(some[k], k, cpu)
                found[row] = replace(parse, note=note, tree=wh_phrases(parse.tree) if parse.tree else None)
        place, looked_up = 0, {}  # type: ignore[var-annotated]
        for own in pieces:
            yield self._with_lemmas(joined([found[place + k] for k in range(len(own))], limits), looked_up)
            place += len(own)


def _tokens(sentence: Sequence[str]) -> list[str]:
    """Return a tokenised sentence as a list. TypeError: it is no list. ValueError: a token is empty or has a tab or a line
    break."""
    if isinstance(sentence, str):
        raise TypeError(f"{sentence[:20]!r} is not tokenised: give a list of words for each sentence, or use parse")
    tokens = list(sentence)
    if not all(isinstance(token, str) and token.strip() for token in tokens):
        raise ValueError(f"{tokens[:8]}: a token is empty or no text")
    if any(mark in token for token in tokens for mark in "\t\r\n"):
        raise ValueError(f"{tokens[:8]}: a token has a tab or a line break")
    return tokens


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise ValueError(f"batch={batch}: at least one text has to be parsed at a time")


def _placed(parse: Parse, text: str, words: Sequence[Word]) -> Parse:
    return replace(parse, text=text[words[0].start : words[-1].end], words=words)


def batches(lengths: Sequence[int], limits: Limits) -> Iterator[list[int]]:
    """Yield the places of sentences in batches: similar lengths, at most `max_batch_words` padded words.

    A batch is decoded jointly or apart as a whole.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        n = lengths[place]
        crossing = batch and n > limits.max_joint_words >= lengths[batch[0]]
        if batch and ((len(batch) + 1) * n > limits.max_batch_words or crossing):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def parts(tokens: list[str], longest: int) -> list[list[str]]:
    """Return tokens in parts of at most `longest`. A part ends after punctuation if there is any in its second half."""
    made, start = [], 0
    while len(tokens) - start > longest:
        ends = (k for k in range(longest, longest // 2, -1) if not any(map(str.isalnum, tokens[start + k - 1])))
        cut = start + next(ends, longest)
        made.append(tokens[start:cut])
        start = cut
    return [*made, tokens[start:]]


def joined(parses: Sequence[Parse], limits: Limits) -> Parse:
    """Return the parse of a sentence from the parses of its parts.

    Phrases stand side by side. The roots of later parts depend on the first root by `parataxis`.
    """
    if len(parses) == 1:
        return parses[0]
    tokens, tags, universal, heads, relations, spans = [], [], [], [], [], []  # type: ignore[var-annotated]
    root = 0
    for part in parses:
        first = len(tokens)
        heads += [head + first if head else root for head in part.heads]
        if part.relations:
            relations += [r if h or not root else "parataxis" for h, r in zip(part.heads, part.relations, strict=True)]
        root = root or (part.heads.index(0) + 1 if part.heads else 0)
        spans += [Span(label, i + first, j + first) for label, i, j in (part.tree.spans[1:] if part.tree else ())]
        tokens += part.tokens
        tags += part.tags
        universal += part.universal
    tree = (
        Tree(tuple(tokens), tuple(tags or [NO_TAG] * len(tokens)), (Span(ROOT, 0, len(tokens)), *spans))
        if parses[0].tree
        else None
    )
    note = IN_PARTS.format(limits.max_words, len(parses))
    notes = dict.fromkeys([note, *(part.note for part in parses)])
    return Parse(tokens, tags, tree, heads, relations, universal, note="; ".join(filter(None, notes)))
