"""What a model is trained for; each problem has its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.tasks.train.batches import Rows


class Objective(ABC):
    """What a model is trained for: its examples, its loss, and the criterion that its weights are chosen by.

    curve: the name of the criterion with its unit, which labels its axis in plots. keeps_last: the last weights are the model, not
    those with the best criterion.
    """

    curve: ClassVar[str]
    keeps_last: ClassVar[bool] = False

    @abstractmethod
    def configure(self, model: Any, vocabulary: Artifact) -> Any:
        """Return the model's configuration with the sizes that the data decides."""

    @abstractmethod
    def examples(self, paths: Sequence[Path]) -> Any:
        """Return the rows of shards, as phrasemodels.tasks.train.batches.Examples."""

    @abstractmethod
    def loss(self, model: Any, batch: Any, smoothing: float) -> Tensor:
        """Return the loss (nats) of a batch, summed over the items that `count` counts."""

    def criterion(self, model: Any, batch: Any) -> Tensor:
        """Return what is to be minimised on dev, for a batch. Here: the loss without smoothing.

        Either a scalar, a sum over the items that `count` counts: the criterion is then their mean over all batches. Or
        pairs (errors, total) (m, 2): the criterion is then the sum of the m shares errors / total over all batches.
        """
        return self.loss(model, batch, 0.0)

    def count(self, data: Any, rows: Rows) -> int:
        """Return over how many items of these rows loss and criterion are summed. Here: the rows."""
        return len(rows)
