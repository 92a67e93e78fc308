"""MLflow's registry of models: the champion of an experiment, as code and safetensors."""

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

from phrasemodels.infra.tracking import KEY, Tracker, quoted

ALIAS = "champion"
ARTIFACT = "served"


def register(tracker: Tracker, name: str, exported: Path, code: Path, run_id: str, tags: Mapping[str, str]) -> str:
    """The version of model `name` that holds an exported folder, made champion; tags name the KEY of its weights.

    A version with these weights that is there already is taken. Nothing is pickled: the code is a file.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

    client = tracker.client()
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
            raise
    known = client.search_model_versions(f"name = {quoted(name)}")
    version = next((v for v in known if v.tags.get(KEY) == tags[KEY]), None)
    if version is None:
        with tempfile.TemporaryDirectory() as folder:
            client.log_artifacts(run_id, str(_served(exported, code, Path(folder) / ARTIFACT)), ARTIFACT)
        source = f"{client.get_run(run_id).info.artifact_uri}/{ARTIFACT}"
        version = client.create_model_version(name, source, run_id, tags=dict(tags))
    client.set_registered_model_alias(name, ALIAS, version.version)
    return str(version.version)


def _served(exported: Path, code: Path, to: Path) -> Path:
    """An MLflow model folder: sentences to answers."""
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    source, answer = (Schema([ColSpec("string", column)]) for column in ("source", "answer"))
    with warnings.catch_warnings():  # it would like an example to run the signature on
        warnings.simplefilter("ignore")
        pyfunc.save_model(
            str(to),
            python_model=str(code),
            artifacts={"exported": str(exported)},
            signature=ModelSignature(inputs=source, outputs=answer),
            pip_requirements=[],  # it is served where the project is; an index may have another one's of its name
        )
    return to
