"""The layer keeps shapes and sees phrases; every row of the table can be planned."""

import torch
from study import TABLES, MineConfig


def test_the_layer_reads_phrases() -> None:
    layer = MineConfig(d=8, heads=2, layers=1, d_ff=16).build()
    x, lengths, pairs = torch.randn(1, 3, 8), torch.tensor([3]), torch.tensor([[[0, 1], [1, 2]]])
    states = layer(x, lengths, pairs)
    assert states.shape == x.shape
    assert not torch.equal(states, layer(x, lengths, torch.full_like(pairs, -1)))


def test_every_row_has_its_steps() -> None:
    rows = TABLES["1"].experiments("my-study", "1", "sample")
    assert [set(row.steps(0).stages) for row in rows] == 2 * [{"model", "predictions", "scores"}]
