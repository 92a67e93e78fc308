"""Every settings class of the steps refuses values that it cannot work with, in one line that begins with the field."""

import math
import re

import pytest

from phrasemodels.tasks.train.config import TrainConfig

WRONG = [
    *((TrainConfig, name, value) for name in ("steps", "batch_tokens", "warmup", "threads") for value in (0, -1)),
    *((TrainConfig, name, 0) for name in ("evaluate_every", "checkpoint_every")),
    *((TrainConfig, name, -1) for name in ("batch_rows", "patience", "workers", "gpus")),
    *((TrainConfig, "learning_rate", value) for value in (0.0, -1.0, math.inf, math.nan)),
    *((TrainConfig, "epsilon", value) for value in (0.0, math.inf, math.nan)),
    *((TrainConfig, "smoothing", value) for value in (-0.1, 1.0, 7.0, math.nan)),
    *((TrainConfig, "clip", value) for value in (0.0, -1.0, math.nan)),
    *((TrainConfig, "betas", value) for value in ((0.9,), (3.0, 4.0), (0.9, 1.0), (0.9, math.nan))),
    *((TrainConfig, "gpus", value) for value in (1.5, math.nan, math.inf)),
    *((TrainConfig, "precision", value) for value in ("foo", "Tensor", "float64")),
    *((TrainConfig, name, "cosine") for name in ("schedule", "decay", "optimiser")),
]


@pytest.mark.parametrize(("config", "name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_name(config, name, value):
    with pytest.raises(ValueError, match=rf"^{name}={re.escape(str(value))}: must be [^\n]+$"):
        config(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("clip", math.inf), ("gpus", 0.25), ("gpus", 2), ("smoothing", 0.0)])
def test_a_value_at_the_edge_is_taken(name, value):
    assert getattr(TrainConfig(**{name: value}), name) == value
