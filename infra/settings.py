"""Where things are: from environment variables (PHRASEMODELS_...), each with an embedded default."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """PHRASEMODELS_STORE, _MIRROR, _PARSERS, _OFFLINE, _PREFECT_API_URL, _RAY_ADDRESS, _MLFLOW_URI, _CPUS, _CLUSTER."""

    model_config = SettingsConfigDict(env_prefix="PHRASEMODELS_")

    store: Path = Field(Path(".phrasemodels"), description="folder that keeps everything that is made")
    mirror: Path | None = Field(None, description="folder to fetch corpora from, before their URLs")
    parsers: Path | None = Field(None, description="folder to fetch parsers' models from, after the mirror")
    offline: bool = Field(False, description="never fetch from a URL")
    prefect_api_url: str | None = Field(None, description="a Prefect server; default: one is started for the run")
    ray_address: str | None = Field(None, description="a Ray cluster; default: one is started for the run, on loopback")
    mlflow_uri: str | None = Field(None, description="an MLflow server; default: SQLite in the store")
    cpus: int | None = Field(None, ge=1, description="processors of the embedded Ray; default: all")
    cluster: bool = Field(False, description="refuse to run on a Ray cluster of one node")

    @property
    def mirrors(self) -> tuple[Path, ...]:
        """Folders that files are looked for in, before any URL."""
        return tuple(folder.expanduser().absolute() for folder in (self.mirror, self.parsers) if folder)

    @property
    def root(self) -> Path:
        return self.store.expanduser().absolute()

    @property
    def tracking_uri(self) -> str:
        return self.mlflow_uri or f"sqlite:///{self.root / 'mlflow' / 'mlflow.db'}"

    @property
    def artifact_location(self) -> str | None:
        """Where a new MLflow experiment keeps artifacts; a server decides for itself."""
        return None if self.mlflow_uri else (self.root / "mlflow" / "artifacts").as_uri()
