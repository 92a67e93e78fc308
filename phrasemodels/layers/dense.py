"""Linear maps of sentence encoders: Glorot normal initialisation, dropout on the input."""

from torch import Tensor, nn

from phrasemodels.layers.dropout import dropout


class Dense(nn.Linear):
    """W Drop(x) + b: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias)
        self.dropout = dropout
        nn.init.xavier_normal_(self.weight)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(dropout(x, self.dropout, self.training))
