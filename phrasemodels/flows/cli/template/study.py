"""My study: does a layer of my own translate commands into actions better than a Transformer?"""

from dataclasses import dataclass

from torch import Tensor, nn

from phrasemodels.study import EncoderConfig, MeanInit, TransformerEncoderConfig, phrase_graph, table


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
    """The layer at a size: d, heads, layers, d_ff and dropout, which the decoder reads too. Add fields of your own."""

    def build(self) -> Mine:
        return Mine(self.d)


def length_ratio(references: list[str], answers: list[str]) -> float:
    """Words of the answers for each word of the references, in percent."""
    return 100 * sum(len(text.split()) for text in answers) / sum(len(text.split()) for text in references)


TABLES = {
    "1": table(
        rows={"Transformer": TransformerEncoderConfig, "Mine": MineConfig},
        printed="printed.csv",
        corpus="commands",
        metrics=[length_ratio],
    )
}
SPACE = {"model.encoder.dropout": (0.0, 0.1, 0.2)}  # what --tune searches beside the learning rate
