"""Linear maps as papers on sentence encoders have them: Glorot normal, dropout on the input."""

from torch import Tensor, nn
from torch.nn import functional as F


class Dense(nn.Linear):
    """W drop(x) + b: (..., inputs) -> (..., outputs)."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias)
        self.dropout = dropout
        nn.init.xavier_normal_(self.weight)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, self.dropout, self.training))
