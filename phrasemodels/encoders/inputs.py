"""Inputs of the parser: one vector per word from its form, its characters, its tag, or a pretrained encoder.

Shapes: B batch, n words, N = n + 2 positions (START, words, STOP), U different forms, c characters of the longest form,
P word pieces, d width.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.layers.blocks import UNKNOWN
from phrasemodels.layers.partitioned import SharedDropout

READ = (".json", ".txt", ".model", ".safetensors", ".bin")  # of the folder of a pretrained encoder


@dataclass(frozen=True)
class ParserInput:
    """The sentences of a batch as ids, START at position 0 and STOP after the last word; unread fields may be empty."""

    words: Tensor  # (B, N)
    forms: Tensor  # (B, N) rows of `characters`
    characters: Tensor  # (U, c), 0 for padding
    tags: Tensor  # (B, N), UNKNOWN for a word without a tag
    lengths: Tensor  # (B,) words, without START and STOP
    pieces: Tensor  # (B, P) word pieces of a pretrained encoder, 0 for padding
    piece_lengths: Tensor  # (B,) pieces
    last: Tensor  # (B, N) the position of each word's last piece

    def to(self, device: torch.device, non_blocking: bool = False) -> "ParserInput":
        return ParserInput(*(getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)))


class InputConfig(Protocol):
    """A configuration of one input, built as a module: ParserInput -> (B, N, d). `sized` sets the vocabulary's sizes."""

    def sized(self, sizes: Mapping[str, int]) -> "InputConfig": ...
    def build(self, d: int) -> nn.Module: ...


@dataclass(frozen=True)
class WordsConfig:
    """A vector for each word.

    dropout: the share of words that training replaces by UNKNOWN (paper 004: 0.4). std: standard deviation of the initial
    vectors; with the default and small learning rates, the vectors of rare words stay close to their initial noise.
    """

    size: int = 0
    dropout: float = 0.4
    std: float = 1.0

    def __post_init__(self) -> None:
        config.at_least(self, 0, "size")
        config.share(self, "dropout")
        config.positive(self, "std")

    def sized(self, sizes: Mapping[str, int]) -> "WordsConfig":
        return replace(self, size=sizes["words"])

    def build(self, d: int) -> nn.Module:
        return WordInput(self, d)


class WordInput(nn.Module):
    """The vectors of words."""

    def __init__(self, config: WordsConfig, d: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.size, d)
        if config.std != 1.0:  # nn.Embedding has drawn N(0, 1) already
            nn.init.normal_(self.table.weight, std=config.std)
        self.dropout = config.dropout

    def forward(self, sentences: ParserInput) -> Tensor:
        return self.table(_replace_by_unknown(sentences.words, self.dropout if self.training else 0.0))


@dataclass(frozen=True)
class TagsConfig:
    """A vector for each part-of-speech tag.

    dropout: the share of sentences that training reads without tags, so that the parser can read untagged text.
    vector_dropout: of features of the vectors, one mask for a sentence (paper 004, released code: 0.2).
    """

    size: int = 0
    dropout: float = 0.0
    vector_dropout: float = 0.0

    def __post_init__(self) -> None:
        config.at_least(self, 0, "size")
        config.share(self, "dropout", "vector_dropout")

    def sized(self, sizes: Mapping[str, int]) -> "TagsConfig":
        return replace(self, size=sizes["tags"])

    def build(self, d: int) -> nn.Module:
        return TagInput(self, d)


class TagInput(nn.Module):
    """The vectors of tags."""

    def __init__(self, config: TagsConfig, d: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.size, d)
        self.dropout, self.drop_features = config.dropout, SharedDropout(config.vector_dropout)

    def forward(self, sentences: ParserInput) -> Tensor:
        tags = sentences.tags
        if self.training and self.dropout:
            tags = torch.where(torch.rand(len(tags), 1, device=tags.device) < self.dropout, UNKNOWN, tags)
        vectors: Tensor = self.drop_features(self.table(tags))
        return vectors


@dataclass(frozen=True)
class CharactersConfig:
    """A convolution of `filters` filters over `width` characters of each form, and the maximum of each filter."""

    size: int = 0
    d: int = 64
    filters: int = 128
    width: int = 3

    def __post_init__(self) -> None:
        config.at_least(self, 0, "size")
        config.at_least(self, 1, "d", "filters", "width")
        if self.width % 2 == 0:
            raise ValueError(f"width={self.width}: must be odd, so that a window has a middle character")

    def sized(self, sizes: Mapping[str, int]) -> "CharactersConfig":
        return replace(self, size=sizes["characters"])

    def build(self, d: int) -> nn.Module:
        return CharacterInput(self, d)


class CharacterInput(nn.Module):
    """The pooled characters of forms."""

    def __init__(self, config: CharactersConfig, d: int) -> None:
        super().__init__()
        self.table = nn.Embedding(config.size, config.d, padding_idx=0)
        self.filters = nn.Conv1d(config.d, config.filters, config.width, padding=config.width // 2)
        self.project = nn.Linear(config.filters, d)

    def forward(self, sentences: ParserInput) -> Tensor:
        """Read each form of the batch once, however often it occurs."""
        filtered = self.filters(self.table(sentences.characters).transpose(1, 2)).relu()
        filtered = filtered.masked_fill((sentences.characters == 0)[:, None], 0.0)
        return self.project(filtered.amax(-1))[sentences.forms]


@dataclass(frozen=True)
class PretrainedConfig:
    """An encoder of the transformers library, which is trained further. A word is its last piece (paper 004, section 4.2).

    name: a folder, or the name of a model on the Hugging Face hub. folder: where the files of a named encoder are, if not
    on the hub. offline: the hub must not be asked. Neither is part of the identity of a model.
    """

    name: str = "xlnet-large-cased"
    folder: str = field(default="", compare=False)
    offline: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name=: must be a folder, or the name of a model on the Hugging Face hub")

    @property
    def family(self) -> str:
        """The name without the digest that a folder's content adds to it."""
        return self.name.partition("@")[0]

    def sized(self, sizes: Mapping[str, int]) -> "PretrainedConfig":
        return self

    def build(self, d: int) -> nn.Module:
        return PretrainedInput(self, d)


class PretrainedInput(nn.Module):
    """The states of a pretrained encoder at the last pieces of words, projected to d."""

    def __init__(self, config: PretrainedConfig, d: int) -> None:
        super().__init__()
        self.encoder = load_pretrained("AutoModel", config.name, config.folder, config.offline)
        self.project = nn.Linear(self.encoder.config.hidden_size, d, bias=False)

    def forward(self, sentences: ParserInput) -> Tensor:
        longest, most = sentences.pieces.shape[1], most_pieces(self.encoder)
        if 0 < most < longest:
            raise ValueError(
                f"a sentence has {longest} pieces, but this encoder reads {most}: divide it, or take XLNet"
            )
        places = torch.arange(longest, device=sentences.pieces.device)
        mask = (places < sentences.piece_lengths[:, None]).long()
        states = self.encoder(input_ids=sentences.pieces, attention_mask=mask).last_hidden_state
        last = sentences.last[..., None].expand(-1, -1, states.shape[-1])
        return self.project(states.gather(1, last))


def most_pieces(encoder: Any) -> int:
    """Return how many pieces an encoder of transformers can read; -1: any number. RoBERTa and its relatives count positions
    from the one behind that of padding."""
    most = getattr(encoder.config, "max_position_embeddings", -1)
    positions = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    before = getattr(positions, "padding_idx", None)
    return most if before is None else most - before - 1


def load_pretrained(part: str, name: str, folder: str = "", offline: bool = False, **options: Any) -> Any:
    """Load the AutoModel, AutoTokenizer or AutoConfig of an encoder, without running code that comes with it.

    name, folder, offline: as in PretrainedConfig. ValueError: transformers is not installed, the encoder cannot be found or
    read, or its folder has another content than its name says.
    """
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            "pretrained encoders need the transformers library: pip install 'phrasemodels[pretrained]'"
        ) from error
    try:
        load = getattr(transformers, part).from_pretrained
        loaded = load(folder or name, trust_remote_code=False, local_files_only=offline, **options)
    except Exception as error:  # transformers has no common type for files that are missing, damaged or code
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise ValueError(
            f"{name}: {reason.rstrip('.')}; put its folder, as transformers saves it and without code of its own, into the "
            "folder that PHRASEMODELS_SUPPLIED names"
        ) from error
    if folder and "@" in name and content_of(Path(folder)) != name.rpartition("@")[2]:
        raise ValueError(f"{folder}: its files are not those of {name}; put those there again, or start a new run")
    return loaded


def content_of(folder: Path) -> str:
    """Return the digest of the names and contents of the files that transformers reads from the folder of an encoder."""
    files = sorted(file for file in folder.iterdir() if file.suffix in READ)
    return _digest(tuple((file, file.stat().st_mtime_ns) for file in files))


@cache
def _digest(files: tuple[tuple[Path, int], ...]) -> str:
    """Digest of names and contents of files; read again when one of them changes."""
    contents = {}
    for path, _ in files:
        with path.open("rb") as file:
            contents[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(
        json.dumps(contents, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    ).hexdigest()


def _replace_by_unknown(ids: Tensor, share: float) -> Tensor:
    """Replace a random share of the ids by UNKNOWN."""
    return torch.where(torch.rand(ids.shape, device=ids.device) < share, UNKNOWN, ids) if share else ids
