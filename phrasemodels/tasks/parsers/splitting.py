"""The raw text of treebanks for scores of parsers and for the training of a splitter.

The splitter is `parsing/splitter.py`. `# text` and the words of each sentence say where words, tokens, multiword tokens
and sentences end. Scores are as in the shared tasks of 2017 and 2018.

A treebank's paragraphs are the examples (`# newpar`, `# newdoc`). Without these marks some sentences each are one. Then
dev is one text. A few examples are changed. So the splitter reads more than clean text: in one case, without marks at
the ends of sentences, with words apart, with line breaks or several paragraphs as one. If a treebank writes every mark
apart from words, half of the examples are as in print.
"""

import logging
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.config import at_least, share
from phrasemodels.data.formats.conllu import FEATURES, HEAD, RELATION, UNIVERSAL, conllu_sentences
from phrasemodels.data.formats.lines import Line
from phrasemodels.layers.blocks import padded
from phrasemodels.parsing.parser import Parse, Parser
from phrasemodels.parsing.splitter import (
    FUSED_END,
    LABELS,
    TOKEN_END,
    WORD_END,
    Characters,
    Splitter,
    SplitterConfig,
)
from phrasemodels.parsing.words import Word

TEXT = re.compile(r"#\s*text\s*=(.*)")  # a few treebanks write no space around the sign


@dataclass(frozen=True)
class Token:
    """A token in the text of its sentence: its characters [start, end) and its words.

    typo: a word is marked as a typing error.
    """

    start: int
    end: int
    words: tuple[str, ...]
    typo: bool = False


Analysis = tuple[str, int, str]


@dataclass(frozen=True)
class RawSentence:
    """A sentence as written. spaced: a space follows it. starts: a paragraph starts with it.

    analysis: universal tag, head and relation of each word.
    """

    text: str
    tokens: tuple[Token, ...]
    spaced: bool
    starts: bool
    analysis: tuple[Analysis, ...] = ()


def raw_sentences(lines: Iterable[Line]) -> Iterator[RawSentence | None]:
    """Yield the sentences of CoNLL-U. None if `# text` is missing or does not consist of the tokens."""
    for own in conllu_sentences(lines):
        comments = [line.text for line in own if line.text.startswith("#")]
        text = next((found[1].strip() for c in comments if (found := TEXT.match(c))), "")
        rows = [line.text.split("\t") for line in own if not line.text.startswith("#")]
        starts = any(f"{c} ".startswith(("# newpar ", "# newdoc ")) for c in comments)
        yield _aligned(text, [row for row in rows if "." not in row[0]], starts)


def _aligned(text: str, rows: Sequence[Sequence[str]], starts: bool) -> RawSentence | None:
    tokens, place, until, spaced = [], 0, 0, True
    for number, row in enumerate(rows):
        first, _, last = row[0].partition("-")
        if not last and int(first) <= until:
            continue
        inside = [row]
        if last:
            until = int(last)
            inside = [own for own in rows[number + 1 :] if "-" not in own[0] and int(own[0]) <= until]
        while text[place : place + 1].isspace():
            place += 1
        if not text.startswith(row[1], place):
            return None
        typo = any("Typo=Yes" in own[FEATURES].split("|") for own in inside)
        tokens.append(Token(place, place + len(row[1]), tuple(own[1] for own in inside), typo))
        place += len(row[1])
        spaced = "SpaceAfter=No" not in row[-1].split("|")
    if not tokens or place < len(text):
        return None
    analysis = tuple(
        (row[UNIVERSAL], int(row[HEAD]) if row[HEAD].isdecimal() else -1, row[RELATION])
        for row in rows
        if "-" not in row[0]
    )
    return RawSentence(text, tuple(tokens), spaced, starts, analysis)


def written(sentences: Sequence[RawSentence], between: str = " ") -> tuple[str, list[tuple[int, RawSentence]]]:
    """Return sentences as a text, and each with its first place."""
    text, placed = "", []
    for one in sentences:
        placed.append((len(text), one))
        text += one.text + (between if one.spaced or between == "\n" else "")
    return text.rstrip(), placed


DIVISION, ANALYSIS = ("sentences", "tokens", "words"), ("UPOS", "UAS", "LAS")
Found = tuple[Sequence[Word], Sequence[Analysis]]  # the words of a sentence, and the analysis of each or nothing


def f1(
    pairs: Iterable[tuple[Sequence[tuple[int, RawSentence]], Iterable[Found]]], kinds: Sequence[str] = DIVISION
) -> dict[str, float]:
    """Return F1 of pairs (sentences with their places, found sentences).

    The rules are of the shared tasks of 2017 and 2018. Units are equal if their characters are. Words of multiword
    tokens also need equal forms. Arcs need the same head. Relations are without subtypes.
    """
    right, given, wanted = Counter[str](), Counter[str](), Counter[str]()
    for placed, found in pairs:
        gold = [
            ([Word(w, start + t.start, start + t.end, k > 0) for t in one.tokens for k, w in enumerate(t.words)], one)
            for start, one in placed
        ]
        own, other = _counted((words, one.analysis) for words, one in gold), _counted(found)
        for kind in kinds:
            right[kind] += len(own[kind] & other[kind])
            given[kind] += len(other[kind])
            wanted[kind] += len(own[kind])
    return {kind: 200 * right[kind] / max(1, given[kind] + wanted[kind]) for kind in kinds}


def _counted(sentences: Iterable[Found]) -> dict[str, set[Hashable]]:
    counted: dict[str, set[Hashable]] = {kind: set() for kind in (*DIVISION, *ANALYSIS)}
    for words, analysis in sentences:
        keys = _keys(words)
        counted["sentences"].add((words[0].start, words[-1].end))
        counted["tokens"].update(key[:2] for key in keys)
        counted["words"].update(keys)
        for key, (tag, head, relation) in zip(keys, analysis, strict=bool(analysis)):
            above = keys[head - 1] if head > 0 else None
            counted["UPOS"].add((key, tag))
            counted["UAS"].add((key, above))
            counted["LAS"].add((key, above, relation.partition(":")[0]))
    return counted


def _keys(words: Sequence[Word]) -> list[tuple[Hashable, ...]]:
    """Return the key of equal words (characters). Multiword tokens have characters, place and form."""
    starts = [k for k, word in enumerate(words) if not word.joined]
    keys: list[tuple[Hashable, ...]] = []
    for first, after in pairwise([*starts, len(words)]):
        place = (words[first].start, words[after - 1].end)
        forms = [word.form.lower() for word in words[first:after]]
        keys += [(*place, k, form) for k, form in enumerate(forms)] if after - first > 1 else [place]
    return keys


def paragraphs(
    sentences: Iterable[RawSentence], starts: Callable[[RawSentence], bool] = lambda one: one.starts
) -> list[list[RawSentence]]:
    """Return the sentences of each paragraph. Without marks of paragraphs there is one."""
    made: list[list[RawSentence]] = []
    for one in sentences:
        if not made or starts(one):
            made.append([])
        made[-1].append(one)
    return made


def raw_scores(parser: Parser, sentences: Iterable[RawSentence]) -> dict[str, float]:
    """Return F1 of sentences, tokens, words, UPOS, UAS and LAS of a parser on the text of a treebank."""
    texts = [written(own) for own in paragraphs(sentences)]
    found = parser.parse([text for text, _ in texts])
    pairs = ((placed, map(_analysed, parses)) for (_, placed), parses in zip(texts, found, strict=True))
    return f1(pairs, (*DIVISION, *ANALYSIS))


def _analysed(parse: Parse) -> Found:
    universal = parse.universal or [""] * len(parse.tokens)
    return parse.words, list(zip(universal, parse.heads, parse.relations, strict=True))


TOGETHER = 20  # sentences of a paragraph on average, where a treebank has no paragraphs
WITH_SPACES = 0.001  # the share of words with spaces from which a splitter finds such words
LONGEST = 512  # characters of an example; longer paragraphs are cut, with what surrounds each part
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of sentence ends
CLOSING, OPENING = (
    frozenset(".,;:!?…)]}»”’%"),
    frozenset("([{«“‘"),
)  # marks that touch the word before them, and behind them
APART = 0.01  # the share of such marks that touch a word, below which a treebank writes them apart
SEEN = 3  # times that a character stands in the training set to be known
log = logging.getLogger(__name__)


Paragraph = tuple[
    str, NDArray[np.int8], NDArray[np.int8]
]  # text, label and sentence end (-1: of no token end) by character


def grouped(sentences: Sequence[RawSentence], draw: random.Random) -> list[list[RawSentence]]:
    """Return the sentences of each paragraph."""
    if any(one.starts for one in sentences):
        return paragraphs(sentences)
    return paragraphs(sentences, lambda _: draw.random() < 1 / TOGETHER)


def example(
    sentences: Sequence[RawSentence], fused: Counter[tuple[str, ...]] | None = None, between: str = " "
) -> Paragraph:
    """Return a paragraph with its labels. fused: counts multiword tokens with other letters than their words."""
    text, placed = written(sentences, between)
    labels, ends = np.zeros(len(text), np.int8), np.full(len(text), -1, np.int8)
    for start, one in placed:
        for token in one.tokens:
            last = start + token.end - 1
            labels[last], ends[last] = TOKEN_END, token is one.tokens[-1]
            if len(token.words) == 1:
                continue
            surface = one.text[token.start : token.end]
            if "".join(token.words) == surface:
                place = start + token.start - 1
                for word in token.words[:-1]:
                    place += len(word)
                    labels[place] = WORD_END
            else:
                labels[last] = FUSED_END
                if fused is not None:
                    fused[(surface.lower(), *(word.lower() for word in token.words))] += 1
    return text, labels, ends


def _apart(one: RawSentence) -> RawSentence:
    """Return a sentence with a space between all words, as in tokenised text."""
    text, tokens = "", []
    for word in (word for token in one.tokens for word in token.words):
        tokens.append(Token(len(text), len(text) + len(word), (word,)))
        text += f"{word} "
    return RawSentence(text[:-1], tuple(tokens), True, one.starts)


def attached(one: RawSentence) -> RawSentence:
    """Attach the marks of a sentence to its words, as in print: `( tôi ) .` becomes `(tôi).`"""
    text, tokens, touches, quoted = "", [], True, False
    for token in one.tokens:
        word = one.text[token.start : token.end]
        closes, opens = set(word) <= CLOSING, set(word) <= OPENING
        if word == '"':
            closes, opens, quoted = quoted, not quoted, not quoted
        text += "" if closes or touches or not one.text[token.start - 1].isspace() else " "
        tokens.append(Token(len(text), len(text) + len(word), token.words))
        text, touches = text + word, opens
    return replace(one, text=text, tokens=tuple(tokens))


def writes_marks_apart(groups: Sequence[Sequence[RawSentence]]) -> bool:
    """Return whether sentences have a space between marks and words that touch in print."""
    touching = marks = 0
    for one in (one for group in groups for one in group):
        for token in one.tokens:
            characters = set(one.text[token.start : token.end])
            if characters <= CLOSING and token.start:
                marks, touching = marks + 1, touching + (not one.text[token.start - 1].isspace())
            elif characters <= OPENING and token.end < len(one.text):
                marks, touching = marks + 1, touching + (not one.text[token.end].isspace())
    return touching < APART * marks


def _unmarked(one: RawSentence) -> RawSentence:
    """Return a sentence without its final mark."""
    if len(one.tokens) < 3 or any(c.isalnum() for c in one.text[one.tokens[-1].start :]):
        return one
    return replace(one, text=one.text[: one.tokens[-2].end], tokens=one.tokens[:-1], spaced=True)


def _abbreviated(one: RawSentence, draw: random.Random) -> RawSentence:
    """Put abbreviations before some numbers of a sentence (Art. 5), since no treebank lists all of them."""
    words = [word for token in one.tokens for word in token.words if word.isalpha() and len(word) > 4]
    before: dict[int, list[tuple[str, str]]] = {}
    for number in after_spaces(one):
        if words and one.text[one.tokens[number].start].isdigit() and draw.random() < 0.5:
            cut = draw.choice(words)[: draw.randint(1, 4)]
            before[number] = [(f"{cut.capitalize() if draw.random() < 0.6 else cut}.", " ")]
    return with_words(one, before)


def after_spaces(one: RawSentence) -> list[int]:
    """Return the numbers of the tokens at the beginning of the sentence or behind a space."""
    return [k for k, token in enumerate(one.tokens) if not token.start or one.text[token.start - 1].isspace()]


def with_words(one: RawSentence, before: Mapping[int, Sequence[tuple[str, str]]], space: str = " ") -> RawSentence:
    """Insert words (word, space behind it) before some tokens by their numbers or behind the last.

    space: before the first of them.
    """
    text, tokens, end = "", [], 0
    for number in range(len(one.tokens) + 1):
        token = one.tokens[number] if number < len(one.tokens) else None
        text += one.text[end : token.start if token else None]
        more = before.get(number, ())
        text += space if more and text and not text[-1].isspace() else ""
        for word, after in more:
            tokens.append(Token(len(text), len(text) + len(word), (word,)))
            text += word + after
        if token:
            word, end = one.text[token.start : token.end], token.end
            tokens.append(Token(len(text), len(text) + len(word), token.words))
            text += word
    return replace(one, text=text.rstrip(), tokens=tuple(tokens))


def without_typing_errors(sentences: Sequence[RawSentence]) -> list[RawSentence]:
    """Undivide tokens with typing errors (its: `it s`), unless one stands SEEN times and never whole (dont: `do nt`)."""
    found = [(one.text[token.start : token.end].lower(), token) for one in sentences for token in one.tokens]
    whole = {surface for surface, token in found if len(token.words) == 1}
    count = Counter(surface for surface, token in found if len(token.words) > 1 and token.typo)

    def undivided(one: RawSentence, token: Token) -> Token:
        surface = one.text[token.start : token.end]
        learned = not token.typo or (count[surface.lower()] >= SEEN and surface.lower() not in whole)
        return token if learned else replace(token, words=(surface,))

    return [replace(one, tokens=tuple(undivided(one, token) for token in one.tokens)) for one in sentences]


Change = Callable[[list[RawSentence], random.Random], list[RawSentence]]


def changed(
    groups: Sequence[list[RawSentence]], draw: random.Random, more: Change, apart: bool = False
) -> Iterator[Paragraph]:
    """Yield the examples of an epoch. Some are changed.

    more: a further change of sentences. apart: whether all marks are written apart.
    """
    order = list(range(len(groups)))
    draw.shuffle(order)
    for number in order:
        group, chance = groups[number], draw.random()
        if chance < 0.07:
            group = [one for near in draw.choices(groups, k=draw.randint(1, 4)) for one in near]
            group = [_apart(one) for one in group]
        elif chance < 0.25:
            group = [one for near in groups[number : number + draw.randint(2, 6)] for one in near]
        if draw.random() < 0.05:
            group = [_unmarked(one) if draw.random() < 0.7 else one for one in group]
        if draw.random() < 0.05:
            group = [_abbreviated(one, draw) for one in group]
        group = more(group, draw)
        if apart and draw.random() < 0.5:
            group = [attached(one) for one in group]
        text, labels, ends = example(group, between="\n" if draw.random() < 0.04 else " ")
        if draw.random() < 0.05:  # lines of a file
            wrapped = [("\n" if c == " " and k % 80 > 70 else c) for k, c in enumerate(text)]
            text = "".join(wrapped)
        cased = draw.random()
        other = text.lower() if cased < 0.05 else text.upper() if cased < 0.07 else text
        yield (other if len(other) == len(text) else text), labels, ends


@dataclass(frozen=True)
class SplitterTraining:
    """Settings of the training of a splitter.

    epochs, seconds: training ends after either. The rate of Adam falls from `rate` to nothing until then. batch:
    characters of an update. decay: of the averaged weights. They are the result. lost: share of letters with a hidden
    word. sentences: weight of sentence ends. They are learned sooner than words.
    """

    epochs: int = 30
    seconds: float = 280.0
    rate: float = 3e-3
    batch: int = 8192
    decay: float = 0.998
    lost: float = 0.3
    sentences: float = 0.5
    seed: int = 0
    model: SplitterConfig = field(default_factory=lambda: SplitterConfig(2))

    def __post_init__(self) -> None:
        at_least(self, 1, "epochs", "batch")
        share(self, "decay", "lost")


def windows(paragraph: Paragraph, characters: Characters, reach: int) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Yield parts of a paragraph with their features. Labels around a part are -1."""
    text, labels, ends = paragraph
    features = characters.features(text)
    for start in range(0, len(text), LONGEST):
        first, last = max(0, start - reach), min(len(text), start + LONGEST + reach)
        own, own_ends = labels[first:last].astype(np.int64), ends[first:last].astype(np.int64)
        for inside in (slice(0, start - first), slice(start - first + LONGEST, None)):
            own[inside], own_ends[inside] = -1, -1
        yield features[first:last], own, own_ends


def batched(
    examples: Sequence[tuple[NDArray[np.int64], ...]], most: int, draw: random.Random
) -> Iterator[list[Tensor]]:
    """Yield padded batches of at most `most` characters and similar lengths in random order."""
    order = sorted(range(len(examples)), key=lambda k: len(examples[k][0]) + draw.random() * 20)
    batches: list[list[int]] = [[]]
    for k in order:
        if batches[-1] and (len(batches[-1]) + 1) * len(examples[k][0]) > most:
            batches.append([])
        batches[-1].append(k)
    draw.shuffle(batches)
    for batch in batches:
        yield [padded([examples[k][part] for k in batch], fill) for part, fill in enumerate((0, -1, -1))]


def train_splitter(
    train: Sequence[Sequence[RawSentence]],
    dev: Sequence[Sequence[RawSentence]],
    settings: SplitterTraining,
    more: Change = lambda group, draw: group,
) -> Splitter:
    """Train a splitter on the sentences of treebanks. Dev chooses its epoch and its threshold of sentence ends.

    more: a change of sentences beside those of `changed`, such as text that treebanks lack.
    """
    draw = random.Random(settings.seed)
    torch.manual_seed(settings.seed)
    groups = [group for own in train for group in grouped(without_typing_errors(own), draw)]
    fused: Counter[tuple[str, ...]] = Counter()
    count: Counter[str] = Counter()
    words = with_spaces = 0
    for group in groups:
        count.update(example(group, fused)[0])
        for token in (token for one in group for token in one.tokens):
            words += 1
            with_spaces += " " in " ".join(token.words) and any(" " in word for word in token.words)
    alphabet = sorted(c for c, n in count.items() if n >= SEEN and ord(c) < 0xD800)
    of: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for (surface, *own), n in fused.items():
        of[surface][tuple(own)] += n
    expansions = {surface: own.most_common(1)[0][0] for surface, own in of.items() if own.total() >= 2}
    config = replace(settings.model, characters=len(alphabet) + 2)
    model = config.build()
    splitter = Splitter(model, config, alphabet, expansions, with_spaces > WITH_SPACES * words)
    characters = Characters(alphabet, config.buckets)
    optimiser = torch.optim.Adam(model.parameters(), settings.rate, betas=(0.9, 0.99))
    averaged = {name: p.detach().clone() for name, p in model.named_parameters()}
    apart = writes_marks_apart(groups)
    as_printed = [[attached(one) for one in own] for own in dev] if apart else []
    dev_groups = [paragraphs(own) for own in [*dev, *as_printed]]
    best, chosen, started, updates = np.inf, splitter, time.process_time(), 0
    for epoch in range(settings.epochs):
        examples = [
            part for own in changed(groups, draw, more, apart) for part in windows(own, characters, config.reach)
        ]
        model.train()
        for features, labels, ends in batched(examples, settings.batch, draw):
            share = max((time.process_time() - started) / settings.seconds, epoch / settings.epochs)
            for options in optimiser.param_groups:
                options["lr"] = settings.rate * min(1, (updates + 1) / 100) * max(0.02, 1 - share)
            features[..., 3] *= torch.rand(features.shape[:2]) >= settings.lost  # words that are not known
            features[..., 0] = torch.where(
                (torch.rand(features.shape[:2]) < 0.01) & (features[..., 0] > 0), 1, features[..., 0]
            )
            scores = model(features)
            loss = F.cross_entropy(scores[..., :LABELS].flatten(0, 1), labels.flatten(), ignore_index=-1)
            at = ends >= 0
            if at.any():
                sentence_ends = F.binary_cross_entropy_with_logits(scores[..., LABELS][at], ends[at].to(scores.dtype))
                loss = loss + settings.sentences * sentence_ends
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            updates += 1
            decay = min(settings.decay, (1 + updates) / (10 + updates))
            with torch.no_grad():
                for name, p in model.named_parameters():
                    averaged[name].lerp_(p, 1 - decay)
        if not loss.isfinite():
            raise ValueError("the splitter's training diverged: its loss is not finite; lower the rate")
        found = deepcopy(model).eval()
        with torch.no_grad():
            for name, p in found.named_parameters():
                p.copy_(averaged[name])
        candidate, score = _with_threshold(replace(splitter, model=found), dev_groups)
        log.info(
            "epoch %d, %d updates, loss %.4f, threshold %.1f, %.0f s: %s",
            epoch + 1,
            updates,
            loss.item(),
            candidate.threshold,
            time.process_time() - started,
            {k: round(v, 2) for k, v in score.items()},
        )
        if _errors(score) < best:
            best, chosen = _errors(score), candidate
        if time.process_time() - started > settings.seconds:
            break
    return chosen


def _with_threshold(
    splitter: Splitter, dev: Sequence[Sequence[list[RawSentence]]]
) -> tuple[Splitter, dict[str, float]]:
    """Return the splitter with the best of some thresholds, and its mean scores over treebanks."""
    texts = [[written(group) for group in own] for own in dev]
    of_characters = [splitter.scores([text for text, _ in own]) for own in texts]
    found = []
    for threshold in THRESHOLDS:
        candidate = replace(splitter, threshold=threshold)
        of = [
            f1(
                (placed, ((words, ()) for words in candidate.divided(text, own)))
                for (text, placed), own in zip(some, scored, strict=True)
            )
            for some, scored in zip(texts, of_characters, strict=True)
        ]
        found.append((candidate, {name: float(np.mean([one[name] for one in of])) for name in of[0]}))
    return min(found, key=lambda pair: _errors(pair[1]))


def _errors(score: Mapping[str, float]) -> float:
    """Return the mean logarithm of the errors. A tenth fewer counts the same for sentences, tokens and words."""
    return float(np.mean([np.log(100.1 - value) for value in score.values()]))
