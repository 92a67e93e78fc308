"""Tree transduction: translation of prefix formulas to infix ones, with scores of its own."""

from dataclasses import dataclass

from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.problems.transduction.score import score_prefixes
from phrasemodels.tasks.problems.translation.objective import TranslatorConfig
from phrasemodels.tasks.problems.translation.recipe import TranslationRecipe
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class TransductionRecipe(TranslationRecipe):
    """Formulas. The root of a source's tree is BEGIN."""

    @property
    def name(self) -> str:
        return f"transduction-{self.corpus.name}"

    def stages(self, model: TranslatorConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        scores = Stage(score_prefixes, None, {"predictions": "predictions", "rows": "raw"})
        return {**super().stages(model, config, seed), "scores": scores}
