"""Inputs of the parser: one vector per word from its form, its characters, its tag, or a pretrained encoder.

Shapes: B batch, n words, N = n + 2 positions (START, words, STOP), U different forms, c characters of the longest form,
P word pieces, d width.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.layers.blocks import UNKNOWN, given_vectors, on_device
from phrasemodels.layers.partitioned import SharedDropout

READ = (".json", ".txt", ".model", ".safetensors", ".bin")  # of the folder of a pretrained encoder


@dataclass(frozen=True)
class ParserInput:
    """The sentences of a batch as ids, START at position 0 and STOP after the last word. Unread fields may be empty."""

    words: Tensor  # (B, N)
    forms: Tensor  # (B, N) rows of `characters`
    characters: Tensor  # (U, c), 0 for padding
    tags: Tensor  # (B, N), UNKNOWN for a word without a tag
    lengths: Tensor  # (B,) words, without START and STOP
    pieces: Tensor  # (B, P) word pieces of a pretrained encoder, 0 for padding
    piece_lengths: Tensor  # (B,) pieces
    last: Tensor  # (B, N) the position of each word's last piece

    def to(self, device: torch.device) -> "ParserInput":
        """Return the batch on a device."""
        return ParserInput(*on_device(device, *(getattr(self, f.name) for f in fields(self))))


class InputConfig(Protocol):
    """A configuration of one input of the parser."""

    def sized(self, sizes: Mapping[str, int]) -> "InputConfig":
        """Return the configuration with the sizes of vocabularies, by side."""

    def build(self, d: int) -> nn.Module:
        """Build the input: a `ParserInput` -> vectors of all positions (B, N, d)."""


@dataclass(frozen=True)
class WordsConfig:
    """A vector for each word.

    Args:
        size: Number of words, 0 until it is set from the data.
        dropout: Share of words replaced by UNKNOWN in training (paper 004: 0.4).
        std: Standard deviation of the initial vectors. With small learning rates, vectors of rare words stay near it.
        width: Size of a further fixed vector of each word, for example of GloVe; 0: none. It is projected and added, and
            never replaced in training.
        learned: Number of words with a learned vector, the first ones. The rest share UNKNOWN's. 0: all.
        vectors: A safetensors file of fixed vectors for a new model. All three are set from the data.
    """

    size: int = 0
    dropout: float = 0.4
    std: float = 1.0
    width: int = 0
    learned: int = 0
    vectors: config.File = field(default="", compare=False)

    def __post_init__(self) -> None:
        config.at_least(self, 0, "size", "width", "learned")
        config.share(self, "dropout")
        config.positive(self, "std")
        if self.learned and not (self.width and self.learned > UNKNOWN):
            raise ValueError(
                f"learned={self.learned}: must be 0, or more than {UNKNOWN} words that have fixed vectors, too"
            )

    def sized(self, sizes: Mapping[str, int]) -> "WordsConfig":
        """Return the configuration with the size of its vocabulary."""
        return replace(self, size=sizes["words"])

    def build(self, d: int) -> nn.Module:
        """Build the input: a `ParserInput` -> vectors of all positions (B, N, d)."""
        return WordInput(self, d)


class WordInput(nn.Module):
    """The vectors of words: learned ones, and projections of fixed ones."""

    def __init__(self, config: WordsConfig, d: int) -> None:
        super().__init__()
        self.learned = config.learned or config.size
        self.table = nn.Embedding(self.learned, d)
        if config.std != 1.0:  # nn.Embedding has drawn N(0, 1) already
            nn.init.normal_(self.table.weight, std=config.std)
        self.dropout = config.dropout
        self.fixed: nn.Embedding | None = None
        if config.width:
            self.fixed = nn.Embedding(config.size, config.width)
            self.fixed.weight.requires_grad_(False)
            self.project = nn.Linear(config.width, d, bias=False)
        if config.vectors and self.fixed is not None:
            self.fixed.weight.data.copy_(given_vectors(config.vectors, *self.fixed.weight.shape))

    def forward(self, sentences: ParserInput) -> Tensor:
        words = _replace_by_unknown(sentences.words, self.dropout if self.training else 0.0)
        if self.fixed is None:
            return self.table(words)
        learned: Tensor = self.table(torch.where(words < self.learned, words, UNKNOWN))
        return learned + self.project(self.fixed(sentences.words))


@dataclass(frozen=True)
class TagsConfig:
    """A vector for each part-of-speech tag.

    Args:
        size: Number of tags, 0 until it is set from the data.
        dropout: Share of sentences read without tags in training. So the parser can read untagged text.
        vector_dropout: Dropout of the vectors, one mask for a sentence (paper 004, released code: 0.2).
    """

    size: int = 0
    dropout: float = 0.0
    vector_dropout: float = 0.0

    def __post_init__(self) -> None:
        config.at_least(self, 0, "size")
        config.share(self, "dropout", "vector_dropout")

    def sized(self, sizes: Mapping[str, int]) -> "TagsConfig":
        """Return the configuration with the size of its vocabulary."""
        return replace(self, size=sizes["tags"])

    def build(self, d: int) -> nn.Module:
        """Build the input: a `ParserInput` -> vectors of all positions (B, N, d)."""
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
    """A convolution over the characters of each form, and the maximum of each filter.

    Args:
        size: Number of characters, 0 until it is set from the data.
        d: Features of a character.
        filters: Number of filters.
        width: Characters of a filter's window.
    """

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
        """Return the configuration with the size of its vocabulary."""
        return replace(self, size=sizes["characters"])

    def build(self, d: int) -> nn.Module:
        """Build the input: a `ParserInput` -> vectors of all positions (B, N, d)."""
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


class _EncoderConfig:
    def sized(self, sizes: Mapping[str, int]) -> Self:
        """Return the configuration itself: its vocabulary is the encoder's."""
        return self

    def build(self, d: int) -> nn.Module:
        """Build the input: a `ParserInput` -> vectors of all positions (B, N, d)."""
        return PretrainedInput(self, d)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PretrainedConfig(_EncoderConfig):
    """An encoder of the transformers library, trained further. A word is its last piece (paper 004, section 4.2).

    Args:
        name: A folder, or the name of a model on the Hugging Face hub.
        folder: Where the files of a named encoder are, if not on the hub.
        offline: Don't ask the hub. Neither is part of the identity of a model. A file cannot name this class, since it
            may ask the hub. `export` writes an ExportedEncoderConfig in its place.
    """

    name: str = "xlnet-large-cased"
    folder: str = field(default="", compare=False)
    offline: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name=: must be a folder, or the name of a model on the Hugging Face hub")

    @property
    def family(self) -> str:
        """The name without the digest of a folder's content, for a comparison with published settings."""
        return self.name.partition("@")[0]

    def encoder(self) -> Any:
        """Return the encoder with its pretrained weights. ValueError: as of `load_pretrained`."""
        # use_safetensors: weights in a pickle could run code
        return load_pretrained("AutoModel", self.name, self.folder, self.offline, use_safetensors=True)


@dataclass(frozen=True)
class ExportedEncoderConfig(_EncoderConfig):
    """The pretrained encoder of an exported model. Its weights are among the model's.

    Args:
        folder: Folder of its architecture.
    """

    folder: config.File = ""

    def encoder(self) -> Any:
        """Return the encoder with random weights. ValueError: as of `architecture`."""
        return architecture(Path(self.folder))


class PretrainedInput(nn.Module):
    """The states of a pretrained encoder at the last pieces of words, projected to d."""

    def __init__(self, config: PretrainedConfig | ExportedEncoderConfig, d: int) -> None:
        super().__init__()
        self.encoder = config.encoder()
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
    """Return how many pieces an encoder of transformers can read; -1: any number.

    RoBERTa and its relatives count positions from the one after padding.
    """
    most = getattr(encoder.config, "max_position_embeddings", -1)
    positions = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    before = getattr(positions, "padding_idx", None)
    return most if before is None else most - before - 1


def load_pretrained(part: str, name: str, folder: str = "", offline: bool = False, **options: Any) -> Any:
    """Load the AutoModel, AutoTokenizer or AutoConfig of an encoder, without running its own code.

    name, folder, offline: as in PretrainedConfig; with a folder nothing else is read. options: of transformers, chosen by code
    and never by a file.

    Raises:
        ValueError: transformers is not installed, the encoder cannot be found or read, its settings ask for code, or its folder
            has another content than its name says.
    """
    local = offline or bool(folder) or Path(name).is_dir()
    if not local and _is_path(name):
        raise ValueError(f"{name}: there is no such folder, and a path is never asked for at the hub")
    try:
        if (place := Path(folder or name)).is_dir():
            encoder_settings(place)
        load = getattr(_transformers(), part).from_pretrained
        loaded = load(folder or name, trust_remote_code=False, local_files_only=local, **options)
    except Exception as error:  # transformers has no common type for files that are missing, damaged or code
        reason = (str(error).splitlines() or [repr(error)])[0]
        raise ValueError(
            f"{name}: {reason.rstrip('.')}; put its folder, as transformers saves it, with safetensors and without code of "
            "its own, into the folder that PHRASEMODELS_SUPPLIED names"
        ) from error
    if folder and "@" in name and content_of(Path(folder)) != name.rpartition("@")[2]:
        raise ValueError(f"{folder}: its files differ from {name}'s; put those there again, or start a new run")
    return loaded


def _is_path(name: str) -> bool:
    """Return whether a name can only be a path, or begins with a folder that is here."""
    first, *others = Path(name).parts
    own = Path(name).is_absolute() or name.startswith((".", "~")) or len(others) > 1
    return own or bool(others and Path(first).is_dir())


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            "pretrained encoders need the transformers library: in a clone of PhraseModels, pip install '.[pretrained]'"
        ) from error
    return transformers


CONFIG, TOKENISER, SPECIAL_PIECES = "config.json", "tokenizer.json", "special_pieces.json"
MOST_BYTES = 1 << 20  # of config.json
LARGEST = 10_000_000  # whole number in config.json: entries, positions, widths
OWN_CODE = ("auto_map", "quantization_config", "custom_pipelines")  # settings that name code, or need it
ATTENTION = (None, "eager", "sdpa")  # implementations in torch and transformers; others are downloaded
# Architectures that a file may name: encoders of text.
ARCHITECTURES = (
    "albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie", "mpnet", "modernbert",
    "roberta", "roberta-prelayernorm", "roformer", "xlm-roberta", "xlm-roberta-xl", "xlnet",
)  # fmt: skip


def encoder_settings(folder: Path) -> dict[str, Any]:
    """Return config.json of an encoder's folder. ValueError: it is missing or damaged, or asks for code."""
    file = folder / CONFIG
    if not file.is_file() or file.stat().st_size > MOST_BYTES:
        raise ValueError(f"{file}: no settings of an encoder of at most {MOST_BYTES} bytes")
    settings = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(settings, dict):
        raise ValueError(f"{file}: no JSON object")
    for name, value in settings.items():
        if name in OWN_CODE and value:
            raise ValueError(f"{file}: {name} asks for custom code, which is never run: remove it")
        if name.strip("_").endswith(("_implementation", "_implementation_internal")) and value not in ATTENTION:
            raise ValueError(f"{file}: {name} must be eager or sdpa; others are downloaded")
    return settings


def architecture(folder: Path) -> Any:
    """Return the encoder described by config.json in a folder, with random weights. Nothing else is read.

    ValueError: its architecture is none of ARCHITECTURES, or a setting is no number, truth value or text, or too large.
    """
    settings = encoder_settings(folder)
    kind = settings.pop("model_type", None)
    if kind not in ARCHITECTURES:
        raise ValueError(f"{folder / CONFIG}: model_type {kind!r} is none of {', '.join(ARCHITECTURES)}")
    for name, value in settings.items():
        if not all(map(_is_small, _leaves(value))):
            raise ValueError(f"{folder / CONFIG}: {name} is no number of at most {LARGEST}, truth value or short text")
    library = _transformers()
    try:
        made = library.AutoConfig.for_model(kind, **settings)
        return library.AutoModel.from_config(made, trust_remote_code=False)
    except Exception as error:  # as above
        raise ValueError(f"{folder / CONFIG}: {(str(error).splitlines() or [repr(error)])[0]}") from error


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_small(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 500
    return value is None or (isinstance(value, int | float) and abs(value) <= LARGEST)


def export_encoder(config: PretrainedConfig, to: Path) -> None:
    """Write the architecture of an encoder and its tokeniser to a folder, for ExportedEncoderConfig and ExportedTokeniser.

    ValueError: the encoder cannot be read, or its tokeniser can't be read without code of transformers.
    """
    load_pretrained("AutoConfig", config.name, config.folder, config.offline).save_pretrained(to)
    # add_prefix_space: byte-level tokenisers mark the beginning of a word by the space before it, and get single words
    # here
    tokeniser = load_pretrained("AutoTokenizer", config.name, config.folder, config.offline, add_prefix_space=True)
    if not getattr(tokeniser, "is_fast", False):
        raise ValueError(f"{config.name}: only encoders with a fast tokeniser can be exported")
    tokeniser.backend_tokenizer.save(str(to / TOKENISER))
    special = {name: getattr(tokeniser, name) for name in ("cls_token_id", "sep_token_id", "unk_token_id")}
    (to / SPECIAL_PIECES).write_text(json.dumps(special), encoding="utf-8")


class ExportedTokeniser:
    """The tokeniser of an exported encoder, called as one of transformers. ValueError: its folder has none, or a damaged one."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        try:
            special = json.loads((folder / SPECIAL_PIECES).read_text(encoding="utf-8"))
            self.cls_token_id, self.sep_token_id, self.unk_token_id = (
                special[name] for name in ("cls_token_id", "sep_token_id", "unk_token_id")
            )
            self._inner = Tokenizer.from_file(str(folder / TOKENISER))
        except Exception as error:  # tokenizers raises Exception itself
            raise ValueError(f"{folder}: its tokeniser cannot be read ({error}); export the model again") from error
        entries = self._inner.get_vocab_size()
        # not isinstance: True is an int
        if not all(type(piece) is int and 0 <= piece < entries for piece in special.values()):
            raise ValueError(f"{folder / SPECIAL_PIECES}: no ids of the {entries} pieces; export the model again")
        self._inner.no_truncation()
        self._inner.no_padding()

    def __call__(self, word: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        return {"input_ids": self._inner.encode(word, add_special_tokens=add_special_tokens).ids}


@cache
def exported_tokeniser(folder: str) -> ExportedTokeniser:
    """Return the tokeniser of an exported encoder."""
    return ExportedTokeniser(Path(folder))


@cache
def pretrained_tokeniser(name: str, folder: str = "", offline: bool = True) -> Any:
    """Return the tokeniser of an encoder, for single words. ValueError: as of `load_pretrained`, or a special piece is missing."""
    found = load_pretrained("AutoTokenizer", name, folder, offline, add_prefix_space=True)  # each word begins a piece
    if None in (found.cls_token_id, found.sep_token_id, found.unk_token_id):
        raise ValueError(
            f"{name}: its tokeniser lacks a CLS, SEP or unknown piece; take an encoder such as BERT or XLNet"
        )
    return found


def content_of(folder: Path) -> str:
    """Return the digest of the names and contents of the files that transformers reads from an encoder's folder."""
    files = sorted(file for file in folder.iterdir() if file.suffix in READ)
    return _digest(tuple((file, file.stat().st_mtime_ns) for file in files))


@cache
def _digest(files: tuple[tuple[Path, int], ...]) -> str:
    """Digest of names and contents of files. They are read again after a change."""
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
