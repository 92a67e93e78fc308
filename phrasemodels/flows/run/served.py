"""Serve a trained model with MLflow: this file is the model's code, its weights are an exported folder."""

import threading
from typing import Any

import mlflow
import pandas as pd

CHUNK = 32  # texts that are answered at a turn


class Served(mlflow.pyfunc.PythonModel):  # type: ignore[name-defined]
    """Answers the texts in the column `source`, in the column `answer`; `error` says why a text is not answered.

    Requests of several clients take turns, a chunk of texts each, so that memory is bounded and a small request need not
    wait for the whole of a large one.
    """

    def load_context(self, context: Any) -> None:
        from pathlib import Path

        from phrasemodels.flows.results.models import load

        self.model, self.turn = load(Path(context.artifacts["exported"])), threading.Lock()

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        texts = [str(text) for text in model_input["source"]]
        found: list[tuple[str, str]] = []
        for first in range(0, len(texts), CHUNK):
            with self.turn:
                found += self.model.answers(texts[first : first + CHUNK])
        return pd.DataFrame(found, columns=["answer", "error"], dtype=str)


mlflow.models.set_model(Served())
