"""Paper 001: the systems of its tables, their ablations, and phrases from elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from phrasemodels.encoders.adasent import AdaSentConfig
from phrasemodels.encoders.bilstm import BiLSTMMaxConfig
from phrasemodels.encoders.disan import DisanConfig
from phrasemodels.encoders.hconvnet import HConvNetConfig
from phrasemodels.encoders.multihead import MultiHeadConfig
from phrasemodels.encoders.psan import Concatenated, HighwayMemory, PsanConfig, Stacked, as_numbered
from phrasemodels.encoders.tbcnn import TbcnnConfig
from phrasemodels.layers.multidim import itself
from phrasemodels.models.sentence_pair import LinearClassifier, SentencePairConfig, signed_difference
from phrasemodels.tasks.prepare.constituents import equal_blocks, syntactic_binarised
from phrasemodels.tasks.prepare.levels import AtRandom, Dependencies, Levels, Structure, none, right_branching


@dataclass(frozen=True)
class Size:
    """Widths shared by all systems: of word vectors and PSAN, of an LSTM, of AdaSent, of convolutions, and dropout."""

    d: int = 300
    lstm: int = 2048
    adasent: int = 4096
    channels: int = 1024
    hidden: int = 300
    dropout: float = 0.5
    heads: int = 6


def pair(encoder: Callable[[Size], object]) -> Callable[[Size], SentencePairConfig]:
    """The classifier of paper 001 over an encoder."""
    return lambda size: SentencePairConfig(encoder(size), hidden=size.hidden, dropout=size.dropout)  # type: ignore[arg-type]


def psan(size: Size) -> PsanConfig:
    return PsanConfig(size.d, dropout=size.dropout)


def bilstm_max(size: Size) -> SentencePairConfig:
    return SentencePairConfig(
        BiLSTMMaxConfig(size.d, size.lstm), hidden=min(512, 2 * size.lstm), dropout=0.0, classifier=LinearClassifier
    )


def disan(size: Size) -> SentencePairConfig:
    dropout = size.dropout / 2  # its authors keep 0.75
    return SentencePairConfig(
        DisanConfig(size.d, dropout), hidden=size.hidden, dropout=dropout, compare=signed_difference
    )


@dataclass(frozen=True)
class System:
    """A system by its name and variant in the paper: its model, and what it is told of each token."""

    slug: str
    name: str
    variant: str
    model: Callable[[Size], SentencePairConfig]
    structure: Structure


DIVISION = Levels()
PSAN = System("psan", "PSAN", "", pair(psan), DIVISION)
DISAN = System("disan", "DiSAN", "", disan, Levels(trees=none))
SYSTEMS = (
    System("bilstm-max", "BiLSTM-Max", "", bilstm_max, Levels(trees=none)),
    System("adasent", "AdaSent", "", pair(lambda s: AdaSentConfig(s.d, s.adasent)), Levels(trees=none)),
    System("hconvnet", "HConvNet", "", pair(lambda s: HConvNetConfig(s.d, s.channels)), Levels(trees=none)),
    System("tbcnn", "TBCNN", "", pair(lambda s: TbcnnConfig(s.d, dropout=s.dropout)), Dependencies()),
    DISAN,
    PSAN,
)
MULTI_HEAD = System(
    "multi-head", "Multi-head", "", pair(lambda s: MultiHeadConfig(s.d, s.heads, s.dropout)), Levels(trees=none)
)


def one_level(level: int) -> tuple[Callable[[Size], SentencePairConfig], Structure]:
    """Attention on one level alone."""
    return pair(lambda size: replace(psan(size), levels=1)), Levels(levels=(level,))


ABLATIONS = (
    System("psa-1", "PSAN", "(1) PSA on the first layer only", *one_level(1)),
    System("psa-2", "PSAN", "(2) PSA on the second layer only", *one_level(2)),
    System("psa-3", "PSAN", "(3) PSA on the third layer only", *one_level(3)),
    System("no-psa", "PSAN", "(4) w/o PSA", pair(psan), Levels(trees=none)),
    System("no-syntax", "PSAN", "(5) w/o syntactic division", pair(psan), Levels(equal_blocks)),
    System("no-gate", "PSAN", "(6) w/o gated memory updating", pair(lambda s: replace(psan(s), memory=Concatenated)), DIVISION),
    System(
        "neither",
        "PSAN",
        "(7) w/o both",
        pair(lambda s: replace(psan(s), levels=1, memory=Stacked)),
        Levels(levels=(1,), trees=none),
    ),
    replace(PSAN, slug="full", variant="(8) Full Model"),
)  # fmt: skip


def switched(slug: str, variant: str, **parts: Any) -> System:
    """The full model with a switch of the specification turned."""
    return System(slug, PSAN.name, variant, pair(lambda size: replace(psan(size), **parts)), DIVISION)


HIGHWAY = switched("highway", "what the gate keeps out stays as it was", memory=HighwayMemory)
SWITCHES = (
    switched("as-printed", "as printed"),
    HIGHWAY,
    switched("alone", "a phrase of one word attends to itself", alone=itself),
    switched("coarse-first", "large phrases first", order=as_numbered),
)

# The same encoder with phrases from elsewhere; the first is what the others are tested against.
SOURCES = (
    replace(PSAN, slug="given", variant="trees of the corpus"),
    replace(PSAN, slug="binarised", variant="trees of the corpus, binarised", structure=Levels(syntactic_binarised)),
    replace(PSAN, slug="blocks", variant="equal blocks", structure=Levels(equal_blocks)),
    replace(PSAN, slug="random", variant="random trees", structure=Levels(trees=AtRandom())),
    replace(PSAN, slug="right-branching", variant="right-branching trees", structure=Levels(trees=right_branching)),
    replace(PSAN, slug="whole", variant="the sentence as one phrase", structure=Levels(trees=none)),
)
OF_CORPUS = ("given", "binarised")
