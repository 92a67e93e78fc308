"""The page on layers in models of other libraries runs, and its parts compute what it says."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = (Path(__file__).parents[2] / "docs/examples/other-models.md").read_text()


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), found)
    return found


def test_the_tagger_learns_tags_that_its_constraints_allow(names: dict[str, Any]) -> None:
    assert names["tags"] == [[1, 2, 0], [3]] and names["loss"] < 0.1
    assert all(x.isfinite().all() for x in names["tagger"].parameters())


def test_a_word_attends_to_the_phrases_that_hold_it(names: dict[str, Any]) -> None:
    encoder, ids, mask = names["encoder"].eval(), names["input_ids"], names["attention_mask"]
    layer = encoder.encoder.layer[0]
    x = torch.randn(2, 6, 16)
    whole = layer(x, graph=names["graph"])
    whole = whole[0] if isinstance(whole, tuple) else whole
    changed = x.clone()
    changed[0, 2:] += 1  # the other phrase of the first sentence
    other = layer(changed, graph=names["graph"])
    other = other[0] if isinstance(other, tuple) else other
    torch.testing.assert_close(whole[0, :2], other[0, :2])
    assert not torch.allclose(whole[0, 2:], other[0, 2:])
    assert encoder(ids, mask, graph=names["graph"]).last_hidden_state.isfinite().all()


def test_padding_changes_no_state_of_the_structured_layer(names: dict[str, Any]) -> None:
    model = names["structured"].eval()
    x = torch.randn(1, 6, 16)
    padded = model(x, src_key_padding_mask=torch.tensor([[False] * 4 + [True] * 2]))
    torch.testing.assert_close(padded[:, :4], model(x[:, :4]), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="no attn_mask"):
        model(x, mask=torch.nn.Transformer.generate_square_subsequent_mask(6), is_causal=True)
    with pytest.raises(ValueError, match="true from the first word"):
        model(x, src_key_padding_mask=torch.tensor([[True] * 2 + [False] * 4]))
