"""MLflow's model registry: register the best model of an experiment, as code and safetensors."""

import tempfile
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phrasemodels.infra.tracking import KEY, Tracker, quoted

ALIAS = "champion"
ARTIFACT = "served"
EXAMPLE = "The red house has a door ."  # an input of a served model
REQUIREMENTS = ("mlflow", "pandas", "torch", "numpy", "numba", "safetensors", "pyarrow", "scipy")  # of a served model
SETTING, DEV_LOSS = "phrasemodels.setting", "phrasemodels.dev_loss"  # tags of a version


def register(tracker: Tracker, name: str, exported: Path, code: Path, run_id: str, tags: Mapping[str, str]) -> str:
    """Register an exported model as a version of model `name` and return the version.

    It becomes the champion, unless the champion has the same setting and a lower loss on dev. tags: among them KEY, the
    key of the weights, SETTING and DEV_LOSS; a version with the same key is used again. Nothing is pickled: the code is a
    file.
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
    if not _better(client, name, tags):
        client.set_registered_model_alias(name, ALIAS, version.version)
    return str(version.version)


def _better(client: Any, name: str, tags: Mapping[str, str]) -> bool:
    """Return whether the champion has the same setting as these tags, and a lower loss on dev."""
    from mlflow.exceptions import MlflowException

    try:
        champion = client.get_model_version_by_alias(name, ALIAS).tags
    except MlflowException:  # there is none yet
        return False
    if champion.get(SETTING) != tags[SETTING] or DEV_LOSS not in champion:
        return False
    return float(champion[DEV_LOSS]) < float(tags[DEV_LOSS])


def _served(exported: Path, code: Path, to: Path) -> Path:
    """Write an MLflow model folder, whose model maps sentences to answers."""
    import pandas as pd
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    source, answer = (Schema([ColSpec("string", c) for c in columns]) for columns in (["source"], ["answer", "error"]))
    with warnings.catch_warnings():  # MLflow warns of requirements that it would infer otherwise
        warnings.simplefilter("ignore")
        pyfunc.save_model(
            str(to),
            python_model=str(code),
            artifacts={"exported": str(exported)},
            signature=ModelSignature(inputs=source, outputs=answer),
            input_example=pd.DataFrame({"source": [EXAMPLE]}),
            # Not the project, which is installed where it is served: an index may hold another package of its name.
            pip_requirements=[f"{name}=={version(name).split('+')[0]}" for name in REQUIREMENTS],
        )
    return to
