"""My study: does a layer of my own translate commands into actions better than a Transformer?"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from phrasemodels.study import (
    CORPUS_BLEU,
    Answer,
    BitextCorpus,
    Cell,
    EncoderConfig,
    Experiment,
    MeanInit,
    Phrases,
    Profile,
    Row,
    Size,
    TableName,
    TrainConfig,
    TransformerEncoderConfig,
    TranslationConfig,
    TranslationRecipe,
    TranslationText,
    adjacent,
    experiments,
    join,
    phrase_graph,
    spaces,
)

PAPER = "my-study"  # as in phrasemodels.toml


class Mine(nn.Module):
    """Adds to each word a linear map of the sum of the means of its phrases."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.mean, self.mix = MeanInit(d, 2), nn.Linear(d, d)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """x (B, n, d), lengths (B), members (B, m, k): positions of each phrase's words, -1 for none -> (B, n, d)."""
        graph = phrase_graph(members, lengths, x.shape[1])
        return x + self.mix(graph.incidence.transpose(1, 2) @ self.mean(x, graph))


@dataclass(frozen=True)
class MineConfig(EncoderConfig):
    """The layer at a size: d, heads, layers, d_ff and dropout, which the decoder reads too."""

    def build(self) -> Mine:
        return Mine(self.d)


def length_ratio(references: Sequence[str], answers: Sequence[str]) -> float:
    """Words of the answers for each word of the references, in percent."""
    return 100 * sum(len(text.split()) for text in answers) / sum(len(text.split()) for text in references)


PROFILES = {
    "sample": Profile(
        Size(d=64, heads=2, layers=2, d_ff=128),
        TrainConfig(steps=300, batch_tokens=1500, learning_rate=3e-3, evaluate_every=100, checkpoint_every=100),
        TranslationRecipe(
            BitextCorpus("commands"),
            Phrases(adjacent, 2),
            TranslationText(tokeniser=spaces, detokenise=join),
            metrics=(length_ratio,),
        ),
    )
}


def translator(encoder: EncoderConfig) -> TranslationConfig:
    """An encoder with a Transformer decoder of its sizes; numbers of words are set from the data."""
    return TranslationConfig(encoder, 0, 0, encoder.layers, encoder.d_ff)


ROWS = (
    Row("transformer", "Transformer", "baseline", lambda size: translator(TransformerEncoderConfig(**size.encoder))),
    Row("mine", "Mine", "k=2", lambda size: translator(MineConfig(**size.encoder))),
)


def answers(row: Row) -> tuple[Answer, ...]:
    """BLEU beside the number that printed.csv has for the row; its Statistic tests the row against the baseline."""
    return (
        Answer("bleu", Cell(PAPER, "Table 1", row.system, row.variant, "BLEU"), CORPUS_BLEU),
        Answer("length_ratio"),
    )


def table_1(profile: str) -> list[Experiment]:
    """Table 1: a Transformer with and without my layer. `experiments` lists this sentence; PROFILES has the sizes."""
    if profile not in PROFILES:
        return []
    return experiments(TableName(PAPER, "1", "table1"), profile, PROFILES[profile], ROWS, answers)


TABLES = {"1": table_1}
