"""A pretrained encoder of pieces of words below any encoder of sentences. The upper one reads a state for each word.

So phrases, levels and trees are over words, whatever pieces the pretrained encoder has. A word's "vector" is the row of its
pieces' ids. `PieceVectors` makes it of a vocabulary.

Shapes: B sentences, n words, p pieces of a word, P pieces of a sentence, d features of a word.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.encoders.inputs import (
    architecture,
    exported_tokeniser,
    load_pretrained,
    most_pieces,
    pretrained_tokeniser,
)
from phrasemodels.layers.blocks import token_mask
from phrasemodels.models.sentence_pair import SentenceEncoderConfig
from phrasemodels.project import StudyFile

NONE = -1  # in place of a piece that a word has not


@dataclass(frozen=True)
class PieceVectors:
    """The pieces of words by the tokeniser of a pretrained encoder, in place of a file of word vectors."""

    folder: StudyFile
    """Folder of the encoder, as transformers saves it."""
    d: int = 8
    """Pieces of a word. A longer word is read as its first pieces."""

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d")

    def read(
        self, words: Container[str], folders: Sequence[Path], most: int = 0
    ) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Yield each of the words with the ids of its pieces, filled up with NONE."""
        divide = pretrained_tokeniser(str(self.folder.path))
        for word in sorted(cast("set[str]", words)):
            yield word, self._row(divide(word, add_special_tokens=False)["input_ids"] or [divide.unk_token_id])

    def of_unknown(self, count: int) -> NDArray[np.float32]:
        """Return the rows that unknown words share: the unknown piece."""
        return np.tile(self._row([pretrained_tokeniser(str(self.folder.path)).unk_token_id]), (count, 1))

    def _row(self, ids: Sequence[int]) -> NDArray[np.float32]:
        return np.array([*ids, *[NONE] * self.d][: self.d], np.float32)  # exact up to 2^24


@dataclass(frozen=True)
class PretrainedWordsConfig:
    """A pretrained encoder, trained further, below an encoder of sentences. A word has the state of its last piece."""

    over: SentenceEncoderConfig
    """Encoder over the states of words, projected to its width."""
    folder: StudyFile
    """Folder of the pretrained encoder, as transformers saves it, with safetensors and a fast tokeniser."""
    pieces: int = 8
    """Pieces of a word. A longer word is read as its first pieces."""

    @property
    def d(self) -> int:
        """Numbers of a word in the input: ids of its pieces."""
        return self.pieces

    @property
    def vectors(self) -> PieceVectors:
        """What a recipe reads words with: give it as `vectors`."""
        return PieceVectors(self.folder, self.pieces)

    def encoder(self) -> Any:
        """Return the encoder with its pretrained weights."""
        return load_pretrained("AutoModel", str(self.folder.path), offline=True, use_safetensors=True)

    def marks(self) -> tuple[int, int]:
        """Return the ids of the marks before and after a sentence."""
        divide = pretrained_tokeniser(str(self.folder.path))
        return divide.cls_token_id, divide.sep_token_id

    def build(self) -> "WordsOfPieces":
        return WordsOfPieces(self)


@dataclass(frozen=True)
class ExportedWordsConfig:
    """The same of an exported model. Its weights include those of the pretrained encoder."""

    over: SentenceEncoderConfig
    """Encoder over the states of words, projected to its width."""
    folder: config.File = ""
    """Folder with the architecture and the tokeniser of the pretrained encoder."""
    pieces: int = 8
    """Pieces of a word. A longer word is read as its first pieces."""

    @property
    def d(self) -> int:
        """Numbers of a word in the input: ids of its pieces."""
        return self.pieces

    def encoder(self) -> Any:
        """Return the encoder with random weights. Loading fills them."""
        return architecture(Path(self.folder))

    def marks(self) -> tuple[int, int]:
        """Return the ids of the marks before and after a sentence."""
        divide = exported_tokeniser(self.folder)
        return divide.cls_token_id, divide.sep_token_id

    def build(self) -> "WordsOfPieces":
        return WordsOfPieces(self)


class WordsOfPieces(nn.Module):
    """The states of words by a pretrained encoder, read by an encoder of sentences."""

    def __init__(self, config: PretrainedWordsConfig | ExportedWordsConfig) -> None:
        super().__init__()
        self.encoder, self.marks = config.encoder(), config.marks()
        self.project = nn.Linear(self.encoder.config.hidden_size, config.over.d, bias=False)
        self.over = config.over.build()
        self.width = cast(int, self.over.width)

    def forward(self, words: Tensor, lengths: Tensor, structure: Tensor) -> Tensor:
        """words (B, n, p) as ids of pieces, lengths (B) -> (B, width). ValueError: a sentence has too many pieces."""
        read, last, counts = aligned(words, lengths, self.marks)
        if 0 < (most := most_pieces(self.encoder)) < read.shape[1]:
            raise ValueError(
                f"a sentence has {read.shape[1]} pieces, but this encoder reads {most}: divide it, or take XLNet"
            )
        mask = token_mask(counts, read.shape[1]).long()
        states = self.encoder(input_ids=read, attention_mask=mask).last_hidden_state
        of_words = states.gather(1, last[..., None].expand(-1, -1, states.shape[-1]))
        return self.over(self.project(of_words), lengths, structure)


def aligned(words: Tensor, lengths: Tensor, marks: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pieces (B, P) of sentences between marks, the place of each word's last piece (B, n), and counts (B)."""
    ids = words.round().long()
    known = (ids != NONE) & token_mask(lengths, ids.shape[1])[..., None]
    ends = known.sum(2).cumsum(1)
    counts = ends[:, -1] + 2
    places = known.flatten(1).cumsum(1)  # the first mark is at 0
    pieces = ids.new_zeros(len(ids), int(counts.max()))
    rows, columns = known.flatten(1).nonzero(as_tuple=True)
    pieces[rows, places[rows, columns]] = ids.flatten(1)[rows, columns]
    pieces[:, 0] = marks[0]
    pieces[torch.arange(len(ids), device=ids.device), counts - 1] = marks[1]
    return pieces, ends, counts
