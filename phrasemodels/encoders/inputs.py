"""What is known of words before they are read together: their form, letters and tag, or a pretrained encoder's view.

Shapes: B batch, n words, N = n + 2 positions with START and STOP, U different forms, c characters of the longest,
P word pieces, d width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from phrasemodels.layers.ids import UNKNOWN


@dataclass(frozen=True)
class Sentences:
    """Sentences as ids. START is at 0, STOP after the last word; what a model does not read may be empty.

    words (B, N); forms (B, N) rows of characters (U, c), 0 for padding; tags (B, N), UNKNOWN where there are none;
    lengths (B,) words; pieces (B, P) ids of a pretrained encoder's word pieces, 0 after the last, and last (B, N) the
    place of each word's last piece, where a model reads them.
    """

    words: Tensor
    forms: Tensor
    characters: Tensor
    tags: Tensor
    lengths: Tensor
    pieces: Tensor
    piece_lengths: Tensor
    last: Tensor

    def to(self, device: torch.device, non_blocking: bool = False) -> "Sentences":
        return Sentences(*(getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)))


class InputConfig(Protocol):
    """One view of the words, built as a module (Sentences) -> (B, N, d). `sized` takes sizes from a vocabulary."""

    def sized(self, sizes: Mapping[str, int]) -> "InputConfig": ...
    def build(self, d: int) -> nn.Module: ...


@dataclass(frozen=True)
class WordsConfig:
    """A vector for each word. dropout: the share of words that are unknown in training (paper 004: 0.4). std: of the normal
    distribution that vectors begin with; from the default, and small rates, a rare word stays what it began as: noise."""

    size: int = 0
    dropout: float = 0.4
    std: float = 1.0

    def sized(self, sizes: Mapping[str, int]) -> "WordsConfig":
        return replace(self, size=sizes["words"])

    def build(self, d: int) -> nn.Module:
        return Words(self, d)


class Words(nn.Module):
    def __init__(self, config: WordsConfig, d: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.size, d)
        if config.std != 1.0:  # which is drawn already
            nn.init.normal_(self.table.weight, std=config.std)
        self.dropout = config.dropout

    def forward(self, sentences: Sentences) -> Tensor:
        return self.table(_forget(sentences.words, self.dropout if self.training else 0.0))


@dataclass(frozen=True)
class TagsConfig:
    """A vector for each part of speech. dropout: the share of sentences that are read without tags in training; such
    a parser reads text without tags too."""

    size: int = 0
    dropout: float = 0.0

    def sized(self, sizes: Mapping[str, int]) -> "TagsConfig":
        return replace(self, size=sizes["tags"])

    def build(self, d: int) -> nn.Module:
        return Tags(self, d)


class Tags(nn.Module):
    def __init__(self, config: TagsConfig, d: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.size, d)
        self.dropout = config.dropout

    def forward(self, sentences: Sentences) -> Tensor:
        tags = sentences.tags
        if self.training and self.dropout:
            tags = torch.where(torch.rand(len(tags), 1, device=tags.device) < self.dropout, UNKNOWN, tags)
        return self.table(tags)


@dataclass(frozen=True)
class CharactersConfig:
    """A convolution over the characters of each form, each of `width` letters, and the largest value of each filter."""

    size: int = 0
    d: int = 64
    filters: int = 128
    width: int = 3

    def sized(self, sizes: Mapping[str, int]) -> "CharactersConfig":
        return replace(self, size=sizes["characters"])

    def build(self, d: int) -> nn.Module:
        return Characters(self, d)


class Characters(nn.Module):
    def __init__(self, config: CharactersConfig, d: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.size, config.d, padding_idx=0)
        self.filters = nn.Conv1d(config.d, config.filters, config.width, padding=config.width // 2)
        self.project = nn.Linear(config.filters, d)

    def forward(self, sentences: Sentences) -> Tensor:
        """Each form is read once, however often it occurs in the batch."""
        found = self.filters(self.table(sentences.characters).transpose(1, 2)).relu()
        found = found.masked_fill((sentences.characters == 0)[:, None], 0.0)
        return self.project(found.amax(-1))[sentences.forms]


@dataclass(frozen=True)
class PretrainedConfig:
    """An encoder of the transformers library, by the name of a folder or of the hub; it is trained further.

    A word is its last piece (paper 004, section 4.2). layer_dropout is the encoder's own.
    """

    name: str = "xlnet-large-cased"

    def sized(self, sizes: Mapping[str, int]) -> "PretrainedConfig":
        return self

    def build(self, d: int) -> nn.Module:
        return Pretrained(self, d)


class Pretrained(nn.Module):
    def __init__(self, config: PretrainedConfig, d: int) -> None:
        super().__init__()
        self.encoder = pretrained("AutoModel", config.name)
        self.project = nn.Linear(self.encoder.config.hidden_size, d, bias=False)

    def forward(self, sentences: Sentences) -> Tensor:
        longest, most = sentences.pieces.shape[1], getattr(self.encoder.config, "max_position_embeddings", -1)
        if 0 < most < longest:
            raise ValueError(f"a sentence of {longest} pieces, and this encoder reads {most}: divide it, or take XLNet")
        places = torch.arange(longest, device=sentences.pieces.device)
        mask = (places < sentences.piece_lengths[:, None]).long()
        states = self.encoder(input_ids=sentences.pieces, attention_mask=mask).last_hidden_state
        last = sentences.last[..., None].expand(-1, -1, states.shape[-1])
        return self.project(states.gather(1, last))


class Found(str):
    """A pretrained encoder by what keys are made of: its name, and the digest of its folder if it has one. Beside it:
    where it is, a folder or a name of the hub, and whether the hub may not be asked."""

    where: str
    offline: bool


def pretrained(part: str, name: str, **options: Any) -> Any:
    """The AutoModel or AutoTokenizer of an encoder. No code that comes with it is run. ValueError: it cannot be had."""
    try:
        import transformers
    except ImportError as error:
        raise ValueError("pretrained encoders need transformers: pip install 'phrasemodels[pretrained]'") from error
    try:
        known = {"local_files_only": name.offline} if isinstance(name, Found) else {}
        load = getattr(transformers, part).from_pretrained
        return load(getattr(name, "where", name), trust_remote_code=False, **known, **options)
    except Exception as error:  # the library has no type of its own for files that are missing, damaged or code
        said = (str(error).splitlines() or [repr(error)])[0]
        raise ValueError(
            f"{name}: {said.rstrip('.')}; put its folder, as transformers saves it and without code of its own, into the "
            "one that PHRASEMODELS_SUPPLIED names"
        ) from error


def _forget(ids: Tensor, share: float) -> Tensor:
    """Ids of which a share is UNKNOWN."""
    return torch.where(torch.rand(ids.shape, device=ids.device) < share, UNKNOWN, ids) if share else ids
