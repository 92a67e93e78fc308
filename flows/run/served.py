"""Serve a trained model with MLflow: this file is the model's code, its weights are an exported folder."""

from typing import Any

import mlflow
import pandas as pd


class Served(mlflow.pyfunc.PythonModel):  # type: ignore[name-defined]
    """Answers the texts in the column `source`, in the column `answer`."""

    def load_context(self, context: Any) -> None:
        from pathlib import Path

        from phrasemodels.flows.results.models import load

        self.model = load(Path(context.artifacts["exported"]))

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        return pd.DataFrame({"answer": self.model.predict(model_input["source"].tolist())})


mlflow.models.set_model(Served())
