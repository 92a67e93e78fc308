"""The base of recipes that count: they train nothing, and one run is as good as several."""

from typing import ClassVar

from phrasemodels.tasks.problems.recipe import Recipe


class CountingRecipe(Recipe):
    """A recipe whose only stage is `scores`, which reads data and no model's weights."""

    trains: ClassVar[bool] = False
