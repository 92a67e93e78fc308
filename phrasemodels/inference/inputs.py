"""Inputs of models and their answers as text.

Inputs are tokens, phrases as positions of words, levels of a tree, heads and relations. Tokens have the names that an
exported model gives to them. Inputs here are of one sentence. Steps of the pipeline call the same functions for
whole corpora.
"""

import json
import random
import re
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.config import at_least, one_of
from phrasemodels.data.formats.trees import Tree, brackets, parse, plain
from phrasemodels.data.formats.trees import heads as rule_heads
from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.layers.phrases import members_of
from phrasemodels.parsing.words import INSIDE
from phrasemodels.parsing.words import words as treebank_words

if TYPE_CHECKING:
    from phrasemodels.parsing.parser import Parse

Tokeniser = Callable[[str, str], list[str]]  # (text, language) -> tokens
Detokeniser = Callable[[list[str], str], str]  # (tokens, language) -> text

UNSPACED = ("ja", "zh", "yue", "th", "lo", "km", "my")  # written without spaces between words
PREDICATES = ("mso:", "r-mso:")  # of MSParS, whose underscores stay
NOTHING = "."  # the only word of an empty sentence
BUCKETS = 128  # vectors that unknown words share
_WORD = re.compile(r"[\w'-]+")


def moses(text: str, language: str) -> list[str]:
    """Return Moses tokens (without HTML escapes)."""
    tokens: list[str] = _moses(language).tokenize(text, escape=False)
    return tokens


def moses_lower(text: str, language: str) -> list[str]:
    """Return the Moses tokens of text in lower case, as scripts of papers on Multi30k do it."""
    return moses(text.lower(), language)


def moses_then_lower(text: str, language: str) -> list[str]:
    """Return Moses tokens, each in lower case.

    Moses needs the capitals: a full stop before a small letter ends no sentence for it, so it leaves "folder." as one token.
    """
    return [token.lower() for token in moses(text, language)]


def spaces(text: str, language: str) -> list[str]:
    """Return the tokens of text that is tokenised already."""
    return text.split()


def as_written(text: str, language: str = "en") -> list[str]:
    """Return the words of a text as they are written."""
    return text.split()


def lower_spaces(text: str, language: str) -> list[str]:
    """Return the words of tokenised text, in lower case."""
    return text.lower().split()


def lower_case(text: str, language: str = "en") -> list[str]:
    """Return the words of a text in lower case."""
    return text.lower().split()


def underscores_as_spaces(text: str, language: str) -> list[str]:
    """Return the tokens of an MSParS form with entities divided into words, as the question has them: `citric_acid`
    becomes two. Predicates stay whole. The ends of adjacent entities are lost."""
    return [piece for token in text.split() for piece in _apart(token) if piece]


def underscores_as_tokens(text: str, language: str) -> list[str]:
    """Return the same tokens with `_` as a token between the words of an entity, so that nothing is lost."""
    return [piece for token in text.split() for piece in " _ ".join(_apart(token)).split()]


def _apart(token: str) -> list[str]:
    return [token] if token.startswith(PREDICATES) else token.split("_")


def characters(text: str, language: str) -> list[str]:
    """Return the characters of Japanese without spaces.

    Text in other languages is tokenised already (paper 003).
    """
    return list("".join(text.split())) if language == "ja" else text.split()


def letters(text: str, language: str) -> list[str]:
    """Return the letters of English: the sample corpus has English in place of Japanese."""
    return list("".join(text.split())) if language == "en" else text.split()


def letters_or_words(text: str, language: str) -> list[str]:
    """Return the characters of a language without spaces between words, and the Moses tokens of any other."""
    return list("".join(text.split())) if language in UNSPACED else moses_lower(text, language)


def penn_treebank(text: str, language: str = "en") -> list[str]:
    """Return the tokens of English text as in treebanks: punctuation and clitics apart, numbers and abbreviations whole.

    Soft hyphens and word joiners are left out. The time is linear in the length of the text.
    """
    return [word.form for word in treebank_words(INSIDE.sub("", text))]


def words(text: str, language: str = "en") -> list[str]:
    """Return the words of a fact or a question in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def detokenise_moses(tokens: list[str], language: str) -> str:
    """Return running text, for metrics that tokenise by themselves."""
    return str(_of_sacremoses("MosesDetokenizer", language).detokenize(tokens))


def join(tokens: list[str], language: str) -> str:
    """Return the text of tokens that were split at spaces."""
    return " ".join(tokens)


def joined_letters_or_words(tokens: list[str], language: str) -> str:
    """Return running text of `letters_or_words`."""
    return "".join(tokens) if language in UNSPACED else detokenise_moses(tokens, language)


@cache
def _of_sacremoses(kind: str, language: str) -> Any:
    try:
        import sacremoses
    except ImportError as error:
        raise ValueError(
            "this model reads Moses tokens: pip install sacremoses, or give each text as a list of tokens"
        ) from error
    return getattr(sacremoses, kind)(language)


@cache
def _moses(language: str) -> Any:
    """Return sacremoses' tokeniser made two to five times as fast with equal results.

    It makes sets of 11,000 characters at each full stop. Here this is done once. It searches every text for commas,
    apostrophes and rows of full stops with classes of as many characters. Here only a text that has one is searched.
    """
    made = _of_sacremoses("MosesTokenizer", language)
    alphabet, small = frozenset(made.IsAlpha), frozenset(made.IsLower)
    made.isanyalpha = lambda text: not alphabet.isdisjoint(text)
    made.islower = small.issuperset
    for name in ("COMMA_SEPARATE_1", "COMMA_SEPARATE_2", "COMMA_SEPARATE_3"):
        setattr(made, name, _rule_with(",", *getattr(made, name)))
    for name in ("ENGLISH_SPECIFIC_APOSTROPHE", "FR_IT_SPECIFIC_APOSTROPHE"):
        setattr(made, name, [_rule_with("'", *rule) for rule in getattr(made, name)])
    made.TRAILING_DOT_APOSTROPHE = _rule_with("'", *made.TRAILING_DOT_APOSTROPHE)
    join_dots, divide_dots = made.replace_multidots, made.restore_multidots
    made.replace_multidots = lambda text: join_dots(text) if ".." in text or "DOTMULTI" in text else text
    made.restore_multidots = lambda text: divide_dots(text) if "DOTMULTI" in text else text
    return made


@dataclass(frozen=True)
class _Substitution:
    """A pattern that matches only texts with a sign. `sub` is the pattern's."""

    sign: str
    pattern: re.Pattern[str]

    def sub(self, replacement: str, text: str) -> str:
        return self.pattern.sub(replacement, text) if self.sign in text else text


def _rule_with(sign: str, pattern: re.Pattern[str], replacement: str) -> tuple[_Substitution, str]:
    """Return a rule of sacremoses, whose pattern contains a sign."""
    return _Substitution(sign, pattern), replacement


TOKENISERS: Mapping[str, Tokeniser] = {
    function.__name__: function
    for function in (
        *(moses, moses_lower, moses_then_lower, spaces, as_written, lower_spaces, lower_case, characters, letters),
        *(letters_or_words, underscores_as_spaces, underscores_as_tokens, penn_treebank, words),
    )
}
DETOKENISERS: Mapping[str, Detokeniser] = {
    "": join,
    **{function.__name__: function for function in (join, detokenise_moses, joined_letters_or_words)},
}
MARKED = "marked "  # before the name of a tokeniser whose tokens stand between <s> and </s>


@dataclass(frozen=True)
class Marked:
    """A tokeniser with <s> before and </s> behind its tokens.

    Args:
        tokeniser: The tokeniser without marks.
    """

    tokeniser: Tokeniser

    def __call__(self, text: str, language: str) -> list[str]:
        return ["<s>", *self.tokeniser(text, language), "</s>"]


def tokeniser(name: str, own: Mapping[str, Any]) -> Tokeniser:
    """Return a tokeniser by name. own: the caller's functions, by "module:name". ValueError: there is none."""
    plain = name.removeprefix(MARKED)
    found = TOKENISERS.get(plain) or own.get(plain)
    if found is None:
        raise ValueError(f"its tokeniser {name} is not of this library; pass the function: load(folder, function)")
    return found if plain == name else Marked(found)


def detokeniser(name: str, own: Mapping[str, Any]) -> Detokeniser:
    """Return a detokeniser by name. own: the caller's functions, by "module:name". ValueError: there is none."""
    if (found := DETOKENISERS.get(name) or own.get(name)) is None:
        raise ValueError(f"its detokeniser {name} is not of this library; pass the function: load(folder, function)")
    return found


MOST_WORDS = 200  # of a text
CHARACTERS = 10  # of a word on average, at most


def too_long(text: str, most_words: int = MOST_WORDS) -> str:
    """Return why a text is too long for a model that answers at most so many words.

    It is an empty string if the text is not.
    """
    words = len(text.split()) if 2 * most_words < len(text) <= CHARACTERS * most_words else 0
    if len(text) <= CHARACTERS * most_words and words <= most_words:
        return ""
    return (
        f"{len(text)} characters: at most {most_words} words of {CHARACTERS} characters are answered; divide the text"
    )


def hashed(tokens: list[str], known: Mapping[str, int]) -> list[int]:
    """Return ids. An unknown word has one of BUCKETS ids after the vocabulary, by a hash of its letters."""
    return [known[token] if token in known else len(known) + zlib.crc32(token.encode()) % BUCKETS for token in tokens]


def left_out(tokens: list[str], known: Container[str]) -> list[str]:
    """Leave out unknown words. At least one word stays."""
    return [token for token in tokens if token in known] or [NOTHING]


def ids_of(tokens: Sequence[str], entries: Mapping[str, int]) -> list[int]:
    """Return the ids of tokens. A token is unknown if the vocabulary lacks it or it spells a special entry."""
    return [UNKNOWN if token in SPECIAL else entries.get(token, UNKNOWN) for token in tokens]


class Pieces:
    """Byte-pair encoding by the merges of an exported model (bpe.json: `vocab` and ordered `merges`). ValueError: the file
    is damaged."""

    END, GOES_ON = "</w>", "@@"

    def __init__(self, file: Path) -> None:
        try:
            learned = json.loads(file.read_text(encoding="utf-8"))
            pairs = [(first, second) for first, second in learned["merges"]]
            texts = [*learned["vocab"], *(text for pair in pairs for text in pair)]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("a piece is no text")
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise ValueError(f"{file}: not the merges of words' pieces ({error}); export the model again") from error
        self.vocabulary = frozenset(learned["vocab"])
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self._divided: dict[str, list[str]] = {}

    def __call__(self, tokens: Sequence[str]) -> list[str]:
        """Return the pieces of words. A piece ends with `@@` if its word goes on."""
        return [piece for token in tokens for piece in self._word(token)]

    def _word(self, word: str) -> list[str]:
        if word not in self._divided:
            parts = self._merged([*word[:-1], word[-1] + self.END])
            self._divided[word] = [*(part + self.GOES_ON for part in parts[:-1]), parts[-1].removesuffix(self.END)]
        return self._divided[word]

    def _merged(self, parts: list[str]) -> list[str]:
        """Merge learned pairs in the order of learning, leftmost first. An unknown letter is a part by itself."""
        while len(parts) > 1:
            ranks = [self.ranks.get(pair, len(self.ranks)) for pair in pairwise(parts)]
            best = min(ranks)
            if best == len(self.ranks):
                break
            place = ranks.index(best)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return parts


def without_pieces(tokens: list[str]) -> str:
    """Return the words of pieces as text. The last piece ends its word in any case."""
    return " ".join(tokens).replace(f"{Pieces.GOES_ON} ", "").removesuffix(Pieces.GOES_ON)


Numbers = NDArray[np.int32]
Span = tuple[int, int]
Parts = Mapping[Span, Sequence[Span]]  # phrases with several parts -> their parts, in order
NEVER = 1 << 20  # deeper than any tree
WHOLE_WORDS = 3  # a phrase of so many words or fewer is not divided further (paper 001, footnote 1)


# (tokens of a sentence, words of the longest phrase, position of each token's head, -1 for none) -> positions of each phrase's words
Enumerate = Callable[[int, int, Sequence[int]], list[Sequence[int]]]


def no_phrases(n: int, longest: int, heads: Sequence[int]) -> list[Sequence[int]]:
    """No phrases, as for a plain Transformer."""
    return []


def adjacent(n: int, longest: int, heads: Sequence[int]) -> list[Sequence[int]]:
    """Spans of 2 to `longest` adjacent tokens by length and then by start.

    See Eq 1 of paper 000. Spans of one token are left out.
    """
    return [range(i, i + size) for size in range(2, longest + 1) for i in range(n - size + 1)]


def subtrees(n: int, longest: int, heads: Sequence[int]) -> list[Sequence[int]]:
    """Connected parts of a tree with 2 to `longest` words (2 or 3). An arc to the root is no edge.

    Edges come first by dependent. Then each word comes with its head and its head's head. Next it comes with its head
    and each later dependent of that head. Positions of a phrase ascend. ValueError: another `longest`.
    """
    if longest not in (2, 3):
        raise ValueError(f"subtrees of up to {longest} words: paper 000 has edges (2) and three connected words (3)")
    found: list[Sequence[int]] = [sorted((word, head)) for word, head in enumerate(heads) if head >= 0]
    if longest > 2:
        for word, head in enumerate(heads):
            if head < 0:
                continue
            found += [sorted((word, head, heads[head]))] * (heads[head] >= 0)
            found += [sorted((word, head, k)) for k in range(word + 1, len(heads)) if heads[k] == head]
    return found


PHRASES: Mapping[str, Enumerate] = {kind.__name__: kind for kind in (no_phrases, adjacent, subtrees)}


def phrases(kind: str | Enumerate, n: int, longest: int, heads: Sequence[int] = ()) -> Numbers:
    """Return the phrases of a sentence of n tokens as positions (m, longest) with -1 after the last one.

    kind: a function, or one of PHRASES. heads: the position of each token's head for subtrees (-1 for none).
    ValueError: another kind.
    """
    if isinstance(kind, str) and kind not in PHRASES:
        raise ValueError(f"no phrases {kind!r}: {' or '.join(PHRASES)}")
    found = (PHRASES[kind] if isinstance(kind, str) else kind)(n, longest, heads)
    rows = [[*phrase, *[-1] * (longest - len(phrase))] for phrase in found]
    return np.array(rows, np.int32).reshape(-1, longest)


def words_and_tree(text: str) -> tuple[str, str]:
    """Return the words of a text, and its tree if the text is one in brackets. ValueError: brackets are no tree."""
    if not text.lstrip().startswith("("):
        return text, ""
    tree = plain(parse(text))
    return " ".join(tree.tokens), brackets(tree)


def positions_of_heads(tree: str, words: int) -> list[int]:
    """Return the position of each word's head with the root in front at 0.

    It is -1 for the root, and for all words if the tree in brackets is empty or has another number of words.
    """
    found = parse(tree) if tree else None
    return [-1, *(rule_heads(found) if found and len(found.tokens) == words else [-1] * words)]


class Structure(Protocol):
    """Integers for each token of a sentence (n, k), from its tokens and its tree in brackets (or an empty text).

    reads_trees: whether it needs trees.
    """

    @property
    def reads_trees(self) -> bool: ...
    def __call__(self, tokens: Sequence[str], tree: str) -> Numbers: ...


@dataclass(frozen=True)
class Levels:
    """The number of each token's phrase on some levels of a tree (n, levels), as in paper 001.

    A level is a partition of the sentence. Its phrases are numbered from 0.

    Args:
        partition: The division: `syntactic` (phrases are constituents), `syntactic_binarised` or `equal_blocks` (as many, of equal sizes).
        levels: The levels as numbers from 1.
        trees: The trees: `given` (those of the corpus), `none` (a sentence is one phrase), `right_branching` or `AtRandom`.
        seed: Seed of random trees.
        stop: The place of a full stop: `apart` (a phrase of its own, as in the tree) or `attached` to the previous phrase.
    """

    partition: str = "syntactic"
    levels: tuple[int, ...] = (1, 2, 3)
    trees: str = "given"
    seed: int = 0
    stop: str = "apart"

    def __post_init__(self) -> None:
        one_of(self, "partition", ("syntactic", "syntactic_binarised", "equal_blocks"))
        one_of(self, "trees", ("given", "none", "right_branching", "AtRandom"))
        one_of(self, "stop", ("apart", "attached"))
        at_least(self, 0, "seed")
        if not self.levels or not min(self.levels) >= 1:
            raise ValueError(f"levels={self.levels}: must be one or more levels, numbered from 1")

    @property
    def reads_trees(self) -> bool:
        """Whether inputs have to come with their trees."""
        return self.trees == "given"

    def __call__(self, tokens: Sequence[str], tree: str) -> Numbers:
        """Return the numbers of one sentence. tree: in brackets, or empty. ValueError: the tree has other words."""
        n = len(tokens)
        spans = self._spans(tokens, tree)
        begins = np.array([0, *[NEVER] * (n - 1)]) if spans is None else self._begins(spans, n)
        begun = np.cumsum(begins[:, None] <= np.array(self.levels), 0, dtype=np.int32)
        numbers: Numbers = begun - begun[:1]
        if self.partition == "equal_blocks":
            numbers = (np.arange(n)[:, None] * (numbers[-1] + 1) // n).astype(np.int32)
        if self.stop == "attached" and n > 1 and not any(letter.isalnum() for letter in tokens[-1]):
            numbers[-1] = numbers[-2]
        return numbers

    def _spans(self, tokens: Sequence[str], tree: str) -> list[Span] | None:
        n = len(tokens)
        if self.trees == "right_branching":
            return [(start, n) for start in range(n - 1)]
        if self.trees == "AtRandom":
            return random_spans(tokens, self.seed)
        if self.trees == "none" or not tree:
            return None
        found = parse(tree)
        if len(found.tokens) != n:
            raise ValueError(f"{tree[:60]!r} is no tree of {n} words: give the tree of the tokens that are read")
        return [(start, end) for _, start, end in found.spans]

    def _begins(self, spans: Iterable[Span], n: int) -> NDArray[np.int64]:
        """Return for each token the first level with a phrase beginning at it, or NEVER.

        Level 1 has the children of the first branching node. Level t+1 has the children of the nodes of level t with more than
        WHOLE_WORDS words.
        """
        parts, begins = parts_of(spans, n), np.full(n, NEVER)
        begins[0] = 0
        divided = binarised if self.partition == "syntactic_binarised" else nary
        waiting = [((0, n), 0)]
        while waiting:
            node, level = waiting.pop()
            for part, own, further in divided(parts.get(node, ()), level, n):
                begins[part[0]] = min(begins[part[0]], own)
                waiting += [(part, own)] * further
        return begins


Divided = Iterator[tuple[Span, int, bool]]  # parts of a node, their levels, and whether they are divided further


def nary(parts: Sequence[Span], level: int, n: int) -> Divided:
    """Yield the parts of a node, unless it is short."""
    size = parts[-1][1] - parts[0][0] if parts else 0
    if size > WHOLE_WORDS or size == n:
        yield from ((part, level + 1, True) for part in parts)


def binarised(parts: Sequence[Span], level: int, n: int) -> Divided:
    """Yield the parts of a node divided into its first part and the rest, again and again."""
    for part in parts[:-1]:
        rest = parts[-1][1] - part[0]
        if rest <= WHOLE_WORDS and rest < n:
            return
        level += 1
        yield part, level, True
        yield (part[1], parts[-1][1]), level, False
    if parts:
        yield parts[-1], level, True


def random_spans(tokens: Sequence[str], seed: int) -> list[Span]:
    """Return the phrases of a random binary tree, a function of the words and the seed. Each split is equally likely."""
    rng, found = random.Random(f"{seed} {' '.join(tokens)}"), []
    waiting = [(0, len(tokens))]
    while waiting:
        start, end = waiting.pop()
        if end - start > 1:
            found.append((start, end))
            middle = start + rng.randrange(1, end - start)
            waiting += [(middle, end), (start, middle)]
    return found


def parts_of(spans: Iterable[Span], n: int) -> Parts:
    """Return the phrases of nested spans over n words, with their parts.

    Spans of equal extent are one phrase. Without spans the sentence is a phrase with its words as parts.
    """
    nodes = sorted({span for span in spans if span[1] - span[0] > 1} | {(0, n)}, key=lambda span: (span[0], -span[1]))
    inside: dict[Span, list[Span]] = {node: [] for node in nodes}
    above: list[Span] = []
    for node in nodes:
        while above and above[-1][1] <= node[0]:
            above.pop()
        if above:
            inside[above[-1]].append(node)
        above.append(node)
    return {node: _with_words(node, parts) for node, parts in inside.items() if node[1] - node[0] > 1}


def _with_words(node: Span, parts: list[Span]) -> list[Span]:
    found, place = [], node[0]
    for start, end in [*parts, (node[1], node[1])]:
        found += [(word, word + 1) for word in range(place, start)]
        found += [(start, end)] if end > start else []
        place = end
    return found


# The head of a phrase, by its label: from which end it is looked for, and which labels are preferred.
HEADS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "S": (True, ("VP", "S")),
    "SQ": (True, ("VP", "VBZ", "VBD", "VBP", "MD")),
    "SBAR": (True, ("S", "SQ", "VP")),
    "VP": (True, ("VP", "VB", "VBD", "VBZ", "VBP", "VBN", "VBG", "MD")),
    "PP": (True, ("IN", "TO")),
    "NP": (False, ("NN", "NNS", "NNP", "NNPS", "NP", "PRP")),
}
RELATIONS = (
    *("ADJP", "ADVP", "NP", "PP", "S", "SBAR", "VP", "DT", "JJ", "NN", "NNS", "NNP", "RB", "VB", "VBD", "VBG", "VBN"),
    *("VBP", "VBZ", "MD", "PRP", "PRP$", "POS", "CC", "CD", "IN", "TO", "WDT", "WP", "WRB", ".", ",", "EX"),
)


@dataclass(frozen=True)
class Dependencies:
    """Head (from 1, 0 for the root) and relation of each token (n, 2) by head rules on constituency trees.

    The relation is the label of the token's largest phrase as head. Labels outside of RELATIONS share the last id. In a
    sentence without a tree the head of each word is the next word.
    """

    reads_trees: ClassVar[bool] = True

    def __call__(self, tokens: Sequence[str], tree: str) -> Numbers:
        """Return heads and relations of one sentence."""
        return heads_and_relations(tokens, tree)


def heads_and_relations(tokens: Sequence[str], tree: str) -> Numbers:
    """Return the numbers of `Dependencies`."""
    n, rare = len(tokens), len(RELATIONS)
    if not tree:
        return np.stack([np.r_[np.arange(2, n + 1), 0], np.full(n, rare)], 1).astype(np.int32)
    heads, labels = dependencies(parse(tree))
    known = {label: number for number, label in enumerate(RELATIONS)}
    return np.array([(head, known.get(label, rare)) for head, label in zip(heads, labels, strict=True)], np.int32)


def dependencies(tree: Tree) -> tuple[list[int], list[str]]:
    """Return heads (n) from 1 (0 for the root) and labels (n) of a tree by HEADS.

    By default the last part is the head.
    """
    n = len(tree.tokens)
    label_of: dict[Span, str] = {(i, i + 1): tag for i, tag in enumerate(tree.tags)}
    for label, start, end in reversed(tree.spans):  # the outermost label of a chain is set last
        label_of[start, end] = label
    inner = {(start, end): label for label, start, end in tree.spans}  # the innermost one decides the head
    parts = parts_of(((start, end) for _, start, end in tree.spans), n)
    heads, labels, head_of = [0] * n, ["ROOT"] * n, {(i, i + 1): i for i in range(n)}
    for node in sorted(parts, key=lambda span: span[1] - span[0]):
        first, wanted = HEADS.get(inner.get(node, ""), (False, ()))
        order = list(parts[node]) if first else list(parts[node])[::-1]
        chosen = next((part for label in wanted for part in order if label_of.get(part) == label), order[0])
        head_of[node] = head_of[chosen]
        for part in parts[node]:
            if part != chosen:
                heads[head_of[part]] = head_of[node] + 1
                labels[head_of[part]] = label_of[part]
    return heads, labels


STRUCTURES: Mapping[str, type[Any]] = {kind.__name__: kind for kind in (Levels, Dependencies)}


def members(parses: "Sequence[Parse]", longest: int = 3, kind: str = "constituents") -> Tensor:
    """Return the phrases of B parses as positions of words (B, m, k), filled up with -1, for sentences without <s> and </s>.

    Encoders over phrases read them (`encoders.hypernode`).

    Args:
        kind: Constituents of 2 to `longest` words, subtrees of the dependencies, or adjacent words.

    Raises:
        ValueError: A parse has no tree, or no heads.
    """
    if kind not in (*PHRASES, "constituents"):
        raise ValueError(f"no phrases {kind!r}: constituents, {' or '.join(PHRASES)}")
    rows: list[list[Sequence[int]]] = []
    for own in _checked(parses):
        n = len(own.tokens)
        if kind == "constituents":
            rows.append([range(start, end) for _, start, end in own.phrases(longest)] if n else [])
            continue
        if kind == "subtrees" and len(own.heads) != n:
            raise ValueError("this parse has no heads: decode jointly or arcs alone")
        found = phrases(kind, n, longest, [head - 1 for head in own.heads])
        rows.append([[k for k in phrase if k >= 0] for phrase in found.tolist()])
    return members_of(rows)


def levels(parses: "Sequence[Parse]", of: Sequence[int] = (1, 2, 3)) -> Tensor:
    """Return the number of each word's phrase on levels of the trees of B parses (B, L, n), padded with 0.

    PSAN reads them (`encoders.psan`). A parse without a tree is one phrase.
    """
    longest = max((len(own.tokens) for own in _checked(parses)), default=0)
    out = torch.zeros(len(parses), len(of), longest, dtype=torch.int64)
    divide = Levels(levels=tuple(of))
    for row, own in zip(out, parses, strict=True):
        if own.tokens:
            row[:, : len(own.tokens)] = torch.from_numpy(divide(own.tokens, own.brackets).T)
    return out


def _checked(parses: "Sequence[Parse]") -> "Sequence[Parse]":
    """Return the parses. TypeError: they are lists of parses."""
    if any(isinstance(own, list) for own in parses):
        raise TypeError("these are the lists of parses of several texts: join them, [parse for own in parses for parse in own]")
    return parses
