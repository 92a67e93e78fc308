"""Paper 001: the systems of its tables, their ablations, and phrases from other sources."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from phrasemodels.encoders.adasent import AdaSentConfig
from phrasemodels.encoders.bilstm import BiLSTMMaxConfig
from phrasemodels.encoders.disan import DisanConfig
from phrasemodels.encoders.hconvnet import HConvNetConfig
from phrasemodels.encoders.multihead import MultiHeadConfig
from phrasemodels.encoders.psan import Concatenated, HighwayMemory, PsanConfig, Stacked, SteadyMemory, as_numbered
from phrasemodels.encoders.tbcnn import TbcnnConfig
from phrasemodels.flows.experiments.table import Row, Size
from phrasemodels.layers.multidim import itself
from phrasemodels.models.sentence_pair import LinearClassifier, SentencePairConfig, signed_difference
from phrasemodels.tasks.prepare.constituents import equal_blocks, syntactic_binarised
from phrasemodels.tasks.prepare.levels import AtRandom, Dependencies, Levels, Structure, none, right_branching

DIVISION = Levels()


def system(slug: str, name: str, variant: str, model: Callable[[Size], Any], structure: Structure) -> Row:
    """A row with a model and what its encoder reads of each token."""
    return Row(slug, name, variant, model, {"structure": structure})


def pair(encoder: Callable[[Size], Any]) -> Callable[[Size], SentencePairConfig]:
    """The classifier of paper 001 on an encoder."""
    return lambda size: SentencePairConfig(encoder(size), hidden=size.hidden, dropout=size.dropout)


def psan(size: Size) -> PsanConfig:
    return PsanConfig(size.d, dropout=size.dropout)


def bilstm_max(size: Size) -> SentencePairConfig:
    encoder = BiLSTMMaxConfig(size.d, size.lstm)
    return SentencePairConfig(encoder, hidden=min(512, 2 * size.lstm), dropout=0.0, classifier=LinearClassifier)


def disan(size: Size) -> SentencePairConfig:
    dropout = size.dropout / 2  # its authors keep 0.75
    return SentencePairConfig(
        DisanConfig(size.d, dropout), hidden=size.hidden, dropout=dropout, compare=signed_difference
    )


PSAN = system("psan", "PSAN", "", pair(psan), DIVISION)
DISAN = system("disan", "DiSAN", "", disan, Levels(trees=none))
SYSTEMS = (
    system("bilstm-max", "BiLSTM-Max", "", bilstm_max, Levels(trees=none)),
    system("adasent", "AdaSent", "", pair(lambda s: AdaSentConfig(s.d, s.adasent)), Levels(trees=none)),
    system("hconvnet", "HConvNet", "", pair(lambda s: HConvNetConfig(s.d, s.channels)), Levels(trees=none)),
    system("tbcnn", "TBCNN", "", pair(lambda s: TbcnnConfig(s.d, dropout=s.dropout)), Dependencies()),
    DISAN,
    PSAN,
)
# Table 5 has sentence vectors of d numbers: half of them for each direction of DiSAN.
NARROW_DISAN = system(
    "disan",
    "DiSAN",
    "",
    lambda size: replace(disan(size), encoder=DisanConfig(size.d, size.dropout / 2, size.d // 2)),
    Levels(trees=none),
)
MULTI_HEAD = system(
    "multi-head", "Multi-head", "", pair(lambda s: MultiHeadConfig(s.d, s.heads, s.dropout)), Levels(trees=none)
)


def varied(slug: str, variant: str, structure: Structure = DIVISION, **parts: Any) -> Row:
    """PSAN with other parts, or with phrases from another source."""
    return system(slug, "PSAN", variant, pair(lambda size: replace(psan(size), **parts)), structure)


ABLATIONS = (
    varied("psa-1", "(1) PSA on the first layer only", Levels(levels=(1,)), levels=1),
    varied("psa-2", "(2) PSA on the second layer only", Levels(levels=(2,)), levels=1),
    varied("psa-3", "(3) PSA on the third layer only", Levels(levels=(3,)), levels=1),
    varied("no-psa", "(4) w/o PSA", Levels(trees=none)),
    varied("no-syntax", "(5) w/o syntactic division", Levels(equal_blocks)),
    varied("no-gate", "(6) w/o gated memory updating", memory=Concatenated),
    varied("neither", "(7) w/o both", Levels(levels=(1,), trees=none), levels=1, memory=Stacked),
    replace(PSAN, slug="full", variant="(8) Full Model"),
)

# The other reading of the gate, by the prose of section 2.3 ("highway"), and Eq 4 with a start that keeps variance.
CARRIED, LARGER = "what the gate keeps out stays as it was", "as printed, from a start that keeps variance"
HIGHWAY = varied("highway", CARRIED, memory=HighwayMemory)
STEADY = varied("steady", LARGER, memory=SteadyMemory)
READINGS = (HIGHWAY, STEADY)
GATED_ABLATIONS = (
    varied("psa-1-highway", f"(1), {CARRIED}", Levels(levels=(1,)), levels=1, memory=HighwayMemory),
    varied("psa-2-highway", f"(2), {CARRIED}", Levels(levels=(2,)), levels=1, memory=HighwayMemory),
    varied("psa-3-highway", f"(3), {CARRIED}", Levels(levels=(3,)), levels=1, memory=HighwayMemory),
    varied("no-psa-highway", f"(4), {CARRIED}", Levels(trees=none), memory=HighwayMemory),
    varied("no-syntax-highway", f"(5), {CARRIED}", Levels(equal_blocks), memory=HighwayMemory),
    varied("full-highway", f"(8), {CARRIED}", memory=HighwayMemory),
    varied("full-steady", f"(8), {LARGER}", memory=SteadyMemory),
)
SWITCHES = (
    varied("as-printed", "as printed"),
    *READINGS,
    varied("alone", "a phrase of one word attends to itself", alone=itself),
    varied("coarse-first", "large phrases first", order=as_numbered),
)

# The same encoder with phrases from elsewhere; the first is what the others are tested against.
SOURCES = (
    varied("given", "trees of the corpus"),
    varied("binarised", "trees of the corpus, binarised", Levels(syntactic_binarised)),
    varied("blocks", "equal blocks", Levels(equal_blocks)),
    varied("random", "random trees", Levels(trees=AtRandom())),
    varied("right-branching", "right-branching trees", Levels(trees=right_branching)),
    varied("whole", "the sentence as one phrase", Levels(trees=none)),
)
OF_CORPUS = ("given", "binarised")
