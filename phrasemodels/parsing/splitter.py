"""A trained division of text into sentences, tokens and words, in any language, from characters.

A model labels each character of a paragraph: whether a word, a token, a multiword token or a sentence ends after it. It is a
stack of dilated convolutions, so a label depends on REACH characters to each side alone. Time is linear in the text, memory
is bounded by CHUNK, and labels are the same however a text is cut. `tasks/parsers/splitting.py` trains it.
"""

import html
import re
import unicodedata
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from threading import local
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels import config
from phrasemodels.parsing.words import INVISIBLE, Word, composed, moved, paragraphs, plain, shown

INSIDE_WORD, WORD_END, TOKEN_END, FUSED_END = range(4)  # labels: WORD_END is followed by a word of the same token
LABELS = 4
UNKNOWN_CHARACTER = 1  # id 0 pads
CHUNK = 4096  # characters that are labelled at once
LONGEST_CHUNK = 64  # characters of a run without spaces whose hash is a feature
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
)  # of Unicode
_LETTERS = frozenset(("Lu", "Ll", "Lt", "Lo"))
NON_JOINER, JOINER = "\u200c", "\u200d"
_MARKS = "".join(
    f"{chr(first)}-{chr(last)}"
    for first, last in ((0x300, 0x36F), (0x20D0, 0x20FF), (0xFE00, 0xFE0F), (0x1F3FB, 0x1F3FF), (0xE0020, 0xE007F))
)  # combining accents and keycaps, variation selectors, skin tones, tags
_EMOJI = "".join(
    f"{chr(first)}-{chr(last)}"
    for first, last in (
        *((0x1F000, 0x1FAFF), (0x231A, 0x231B), (0x23E9, 0x23EC), (0x23F0, 0x23F0), (0x23F3, 0x23F3), (0x2614, 0x2615)),
        *((0x2648, 0x2653), (0x267F, 0x267F), (0x2693, 0x2693), (0x26A1, 0x26A1), (0x26AA, 0x26AB), (0x26BD, 0x26BE)),
        *((0x26C4, 0x26C5), (0x26CE, 0x26CE), (0x26D4, 0x26D4), (0x26EA, 0x26EA), (0x26F2, 0x26F5), (0x26FA, 0x26FD)),
        *((0x2705, 0x2705), (0x270A, 0x270B), (0x2728, 0x2728), (0x274C, 0x274E), (0x2753, 0x2757), (0x2795, 0x2797)),
        *((0x27B0, 0x27BF), (0x2B1B, 0x2B1C), (0x2B50, 0x2B55)),
    )
)  # that are pictures without a variation selector
_REST = f"(?:[{_MARKS}]|[{NON_JOINER}{JOINER}]+\\S)"
_LAST = r"[^\s<>\".,;:!?)\]}'”’»]"  # of an address
_NAME = r"[\w.+-]"  # a character of a file's name
_ADDRESS = rf"""
    \b[a-zA-Z]{{2,9}}://[^\s<>"]*{_LAST}                                        # https://x.org/a_(b)
  | (?<![^\s(\[{{<"'“‘«,;])(?:
      www\.[^\s<>"]*{_LAST} | [\w-]++(?:\.[\w-]++)++(?<=[.a-z][a-z][a-z])/[^\s<>"]*{_LAST}    # x.org/a
    | [\w.+%-]++@\w[\w-]*+(?:\.\w[\w-]*+)++(?::\w[\w.-]*+(?:/{_NAME}*\w)+)?           # me@x.org, git@x.org:a/b
    | (?:[A-Za-z]:[\\/]|\\\\|~/|\.\.?/|/{_NAME}++/)(?:{_NAME}|[\\/~@%#=])*[\w\\/]    # C:\a, ~/a, ./a, /usr/local
    | \w{_NAME}*(?:[\\/]{_NAME}+)*?[\\/](?:\w[\w+-]+\.[a-z]|{_NAME}+\.[a-z]\w{{1,4}})(?!\w)    # a/b.txt, but: a.m./p.m.
  )"""
_FILES = "pdf|txt|[ct]sv|jsonl?|xml|html?|php|py|js|css|docx?|xlsx?|pptx?|zip|gz|tar|png|jpe?g|gif|mp[34]|exe|md|tex|log|cfg|ya?ml|toml|sh"
ONE_CHARACTER = re.compile(
    rf"""(?P<address>{_ADDRESS})
  | (?P<alone>[\U0001F1E6-\U0001F1FF]{{2}} | [{_EMOJI}]{_REST}* | \S\ufe0f{_REST}* | (?<![=*:;~-])[{{}}](?![=*~-])
      | &(?:\#\d{{1,7}}|\#[xX][\dA-Fa-f]{{1,6}}|\w{{2,31}});
      | (?<![\w.,:])\d{{1,3}}(?:,\d{{3}})++(?:\.\d++)?(?![\w:]|,\d)                    # 1,234.5
      | (?<![\w.,/-])(?:\d{{4}}-\d\d-\d\d|\d\d:\d\d:\d\d[,.]\d{{3}})(?![\w/-])    # 2026-11-29 00:50:39,339
      | (?<![^\s(\["“‘])\#[^\W\d]\w*+(?!-))    # #AI
  | -[LR][RSC]B- | \S{_REST}+
  | (?<![\w.@/-])\w[\w-]*+(?:\.\w+)*?\.(?:{_FILES})(?![\w/]|\.\w)""",
    re.VERBOSE,
)  # addresses, paths; a word each: flags, emoji, braces, characters of HTML, numbers with thousands, dates, hashtags; brackets as treebanks
# write them, a letter with its marks, names of files

# A path or an address, but of no mail, and the word after it on its line, which begins no sentence in lower case.
GOES_ON = re.compile(r"(?<!\S)(?=[^\s@]*?\w[./\\]\w)[^\s@]++(?<=\w)(?= (?P<after>[^\W\d_]++)(?![/:@\\]|\.\w))")


@dataclass(frozen=True)
class SplitterConfig:
    """Sizes of a splitter.

    characters: entries of the vocabulary, padding and the unknown one included. buckets: of hashed trigrams, and of hashed
    runs of letters or of marks. width: of each convolution. dilations: of the convolutions, one after another.
    """

    characters: int
    d: int = 64
    buckets: int = 8192
    width: int = 5
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16)
    dropout: float = 0.2

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "buckets", "width")
        config.at_least(self, 2, "characters")
        config.share(self, "dropout")
        if (
            not 1 <= len(self.dilations) <= 16
            or not all(1 <= own <= 64 for own in self.dilations)
            or self.width % 2 == 0
        ):
            raise ValueError("a splitter has 1 to 16 convolutions of odd width, with dilations of 1 to 64")
        if self.d > 1024 or self.buckets > 1 << 20 or self.width > 33 or self.characters > 1 << 17:
            raise ValueError("a splitter has at most 1,024 channels, 2^20 buckets, a width of 33 and 2^17 characters")

    @property
    def reach(self) -> int:
        """Number of characters to each side behind a label."""
        return self.width // 2 * sum(self.dilations) + 1

    def build(self) -> "SplitterNetwork":
        """Return the model, with random weights."""
        return SplitterNetwork(self)


class SplitterNetwork(nn.Module):
    """Four scores of labels and one of a sentence end for each character.

    x = C[character] + K[category] + T[trigram] + R[run of letters or of marks]; x += relu(conv(x)) for each dilation.
    """

    def __init__(self, config: SplitterConfig) -> None:
        super().__init__()
        sizes = (config.characters, len(CATEGORIES) + 1, config.buckets, config.buckets)
        tables = [nn.Embedding(size, config.d, padding_idx=0) for size in sizes]
        for table in tables:
            nn.init.normal_(table.weight, std=0.1)
        self.tables = nn.ModuleList(tables)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.d, config.d, config.width, padding=own * (config.width // 2), dilation=own)
            for own in config.dilations
        )
        self.dropout = nn.Dropout(config.dropout)
        self.labels = nn.Linear(config.d, LABELS + 1)

    def forward(self, features: Tensor) -> Tensor:
        """features (B, N, 4), ids of each table -> scores (B, N, 5). The last is of a sentence end."""
        x = torch.stack([table(features[..., k]) for k, table in enumerate(self.tables)]).sum(0)
        valid = (features[:, :, :1] > 0).to(x.dtype)  # zeros outside, as beyond the ends of a text
        x = self.dropout(x) * valid
        for convolution in self.convolutions:
            x = (x + self.dropout(F.relu(_convolved(convolution, x)))) * valid
        return self.labels(x)


def _convolved(layer: Any, x: Tensor) -> Tensor:
    """Return Conv1d of x (B, N, d) by one product. It is as fast as torch's, but keeps no program of oneDNN for each shape."""
    width, (step,), n = layer.weight.shape[2], layer.dilation, x.shape[1]
    padded = F.pad(x, (0, 0, *2 * (width // 2 * step,)))
    windows = torch.cat([padded[:, k * step : k * step + n] for k in range(width)], -1)
    return F.linear(windows, layer.weight.transpose(1, 2).flatten(1), layer.bias)


class Characters:
    """Features of the characters of a text. alphabet: known characters. Their ids begin at 2."""

    def __init__(self, alphabet: Sequence[str], buckets: int) -> None:
        self.ids = {character: number for number, character in enumerate(alphabet, 2)}
        self.plain, self.buckets = plain(self.ids), buckets

    def features(self, text: str) -> NDArray[np.int64]:
        """Return ids of characters, categories, trigrams and runs of letters or of marks (n, 4), all above 0."""
        text = text.translate(self.plain)
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        different, places = np.unique(codes, return_inverse=True)
        own = np.array([self.ids.get(chr(code), UNKNOWN_CHARACTER) for code in different], np.int64)
        kinds = np.array([_category(chr(code)) for code in different], np.int64)
        lower = np.array([ord(chr(code).lower()[0]) for code in different], np.uint32)[places]
        around = np.concatenate([[0], lower, [0]]).astype(np.uint64)
        mixed = around[:-2] * 1_000_003 + around[1:-1] * 8_191 + around[2:] * 131
        mixed ^= mixed >> np.uint64(15)
        grams = (mixed * np.uint64(2_654_435_761) >> np.uint64(7)) % np.uint64(self.buckets - 1) + np.uint64(1)
        runs = np.ones(len(codes), np.int64)
        for found in re.finditer(r"\w+|[^\w\s]+", text):
            runs[found.start() : found.end()] = self._run(found[0])
        return np.stack([own[places], kinds[places], grams.astype(np.int64), runs], 1)

    def _run(self, run: str) -> int:
        return zlib.crc32(run[:LONGEST_CHUNK].lower().encode("utf-8", "surrogatepass")) % (self.buckets - 2) + 2


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Use a number of threads of torch in this context."""
    before = torch.get_num_threads()
    if _found and not hasattr(_thread, "known"):  # a new thread begins with the number that another one has just set
        before = _found[0]
    _thread.known = True
    _found.append(before)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _found.remove(before)


_found: list[int] = []  # numbers of threads that the contexts in progress, of any thread, set again at their end
_thread = local()


@cache
def _category(character: str) -> int:
    return CATEGORIES.index(unicodedata.category(character)) + 1


@dataclass(frozen=True)
class Splitter:
    """A function from a text to the words of its sentences. Empty lines end sentences.

    alphabet: known characters. fused: words of tokens with other letters (du: de le), by token in lower case. spaces: whether
    a word may contain spaces. threshold: the least probability of a sentence end.
    """

    model: SplitterNetwork
    config: SplitterConfig
    alphabet: Sequence[str]
    fused: Mapping[str, Sequence[str]]
    spaces: bool = False
    threshold: float = 0.5

    def __call__(self, text: str) -> list[list[Word]]:
        """Return the words of each sentence of a text."""
        return self.each([text])[0]

    def each(self, texts: Sequence[str]) -> list[list[list[Word]]]:
        """Return the words of each sentence of each text."""
        visible = [shown(text) for text in texts]
        owners = [(number, start, part) for number, (text, _) in enumerate(visible) for start, part in paragraphs(text)]
        scores = self.scores([part for _, _, part in owners])
        found: list[list[list[Word]]] = [[] for _ in texts]
        for (number, start, part), own in zip(owners, scores, strict=True):
            found[number] += self.divided(part, own, start)
        return [moved(own, places) for own, (_, places) in zip(found, visible, strict=True)]

    @torch.inference_mode()
    def scores(self, paragraphs: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return the scores of the characters of each paragraph (n, 5)."""
        characters, reach = Characters(self.alphabet, self.config.buckets), self.config.reach
        paragraphs, places = zip(*map(composed, paragraphs), strict=True) if paragraphs else ((), ())
        out = [np.empty((len(text), LABELS + 1), np.float32) for text in paragraphs]
        windows = [
            (number, start, features[max(0, start - reach) : start + CHUNK + reach])
            for number, text in enumerate(paragraphs)
            for features in [characters.features(text)]
            for start in range(0, len(text), CHUNK)
        ]
        windows.sort(key=lambda window: len(window[2]))
        place = 0
        while place < len(windows):
            count = 1
            while place + count < len(windows) and (count + 1) * len(windows[place + count][2]) <= 2 * CHUNK:
                count += 1
            batch = windows[place : place + count]
            padded = np.zeros((count, len(batch[-1][2]), 4), np.int64)
            for row, (_, _, features) in zip(padded, batch, strict=True):
                row[: len(features)] = features
            with on_threads(1), torch.autocast("cpu", enabled=False):  # as a parse; of several a forked process would wait for ever
                found = self.model(torch.from_numpy(padded)).numpy()
            for own, (number, start, _) in zip(found, batch, strict=True):
                end, first = min(start + CHUNK, len(out[number])), min(start, reach)
                out[number][start:end] = own[first : first + end - start]
            place += count
        return [own if isinstance(at, range) else own[at] for own, at in zip(out, places, strict=True)]

    def divided(self, text: str, scores: NDArray[np.float32], first: int = 0) -> Iterator[list[Word]]:
        """Yield the words of each sentence of a paragraph by the scores of its characters. first: where it begins."""
        gap, (glued, alone) = _gaps(text), _glued(text, self._letters)
        letters = np.flatnonzero(~gap)
        if not len(letters):
            return
        labels = scores[:, :LABELS].argmax(1)
        labels[glued | gap] = INSIDE_WORD
        before_gap = np.append(gap[1:], True) & ~gap
        must_end = alone & ~gap & ~glued | before_gap & (labels == WORD_END)  # a token has no space between its words
        if not self.spaces:
            must_end |= before_gap
        for found in re.finditer(r"(?<=\w)/(?=\w)", text):  # a slash is a word, or inside of one
            around = [found.start() - 1, found.start()]
            must_end[around] |= not glued[around].any() and labels[around].any()
        must_end[letters[-1]] = True
        ends = np.where(scores[:, FUSED_END] > scores[:, TOKEN_END], FUSED_END, TOKEN_END)
        labels = np.where(must_end & (labels < TOKEN_END), ends, labels)
        is_end = scores[:, LABELS] > np.log(self.threshold / (1 - self.threshold))
        for found in GOES_ON.finditer(text):
            is_end[found.end() - 1] &= not found["after"].islower()
        sentence: list[Word] = []
        after, joined = 0, False
        for end in (np.flatnonzero(labels) + 1).tolist():
            start = int(letters[np.searchsorted(letters, after)])
            form, label = " ".join(text[start:end].split()), int(labels[end - 1])
            for number, own in enumerate(self._unfused(form) if label == FUSED_END and not joined else [form]):
                sentence.append(Word(own, first + start, first + end, joined or number > 0))
            after, joined = end, label == WORD_END
            if not joined and is_end[end - 1]:
                yield sentence
                sentence = []
        if sentence:
            yield sentence

    @cached_property
    def _letters(self) -> frozenset[str]:
        return frozenset(self.alphabet)

    def _unfused(self, form: str) -> list[str]:
        words = list(self.fused.get(form.lower(), [form]))
        if len(form) > 1 and form.isupper():
            return [word.upper() for word in words]
        return [words[0][:1].upper() + words[0][1:], *words[1:]] if form[:1].isupper() and len(words) > 1 else words


def _gaps(text: str) -> NDArray[np.bool_]:
    """Return which characters belong to no word: spaces, and invisible ones that do not join two letters."""
    gap = np.fromiter((c.isspace() or c in INVISIBLE for c in text), np.bool_, len(text))
    for found in re.finditer(f"(?<=\\S)[{NON_JOINER}{JOINER}]+(?=\\S)", text):
        if not gap[found.start() - 1] and not gap[found.end()]:
            gap[found.start() : found.end()] = False
    return gap


def _glued(text: str, known: Container[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return after which characters no word ends, and after which one does.

    They are inside of and around what Unicode or HTML defines as one character, inside of -LRB- and of an address. No word
    ends before a combining mark, nor between two letters that are not known: nothing is learned about their script.
    """
    glued, alone = np.zeros(len(text), np.bool_), np.zeros(len(text), np.bool_)
    if not text.isascii():
        strange = [False]
        for place, character in enumerate(text):
            kind = unicodedata.category(character)
            is_mark = kind[0] == "M"
            strange.append(strange[-1] if is_mark else kind in _LETTERS and character not in known)
            glued[max(0, place - 1)] = is_mark or (strange[-2] and strange[-1])
    for found in ONE_CHARACTER.finditer(text):
        if found["alone"] and found[0][0] == "&" and html.unescape(found[0]) == found[0]:
            continue
        glued[found.start() : found.end() - 1] = True
        if found["alone"] or found["address"]:
            alone[[max(0, found.start() - 1), found.end() - 1]] = True
    return glued, alone
