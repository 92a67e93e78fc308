"""The objective of semantic parsing: that of translation, with weights chosen by wrong words."""

from dataclasses import dataclass

from torch import Tensor

from phrasemodels.layers.ids import PAD
from phrasemodels.tasks.problems.sequences import PhraseBatch
from phrasemodels.tasks.problems.translation.objective import AnyTranslator, TranslationObjective


@dataclass(frozen=True)
class SemanticParsingObjective(TranslationObjective):
    """Questions to logical forms. As in the paper, the best weights have the fewest wrong words on dev."""

    def criterion(self, model: AnyTranslator, batch: PhraseBatch) -> Tensor:
        """Return the number of words that are not the likeliest one, given the gold words before them."""
        gold = batch.target[:, 1:]
        likeliest = model(batch.source, batch.lengths, batch.members, batch.target[:, :-1]).argmax(-1)
        return ((likeliest != gold) & (gold != PAD)).sum()
