"""A trained model for MLflow. This file is the model's code; its weights are an exported folder."""

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd


class Served(mlflow.pyfunc.PythonModel):  # type: ignore[name-defined]
    """Answers the texts in the column `source`, in the column `answer`. `error` says why a text has no answer."""

    def load_context(self, context: Any) -> None:
        from phrasemodels.flows.results.models import load

        self.model = load(Path(context.artifacts["exported"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        found = self.model.answers(str(text) for text in model_input["source"])
        return pd.DataFrame(found, columns=["answer", "error"], dtype=str)


mlflow.models.set_model(Served())
