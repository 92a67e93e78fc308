"""Tree transduction: translation of formulas, with its own score."""

from dataclasses import dataclass

from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.problems.transduction.score import PrefixScoring, score_prefixes
from phrasemodels.tasks.problems.translation.recipe import TranslationRecipe
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class TransductionRecipe(TranslationRecipe):
    """Formulas, scored by average length to failure. BEGIN is the root of a source."""

    @property
    def name(self) -> str:
        return f"transduction-{self.corpus.name}"

    def stages(self, model: TranslationConfig | RecurrentConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        scores = Stage(score_prefixes, PrefixScoring(), {"predictions": "predictions", "rows": "raw"})
        return {**super().stages(model, config, seed), "scores": scores}
