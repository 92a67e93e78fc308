"""Settings: folders and addresses from environment variables. All have defaults.

The variables begin with PHRASEMODELS_. Credentials are not settings. So nothing here can print them. Each library reads
its own variables: AWS_..., PREFECT_API_AUTH_STRING, MLFLOW_TRACKING_USERNAME and _PASSWORD, RAY_AUTH_TOKEN.
"""

import contextlib
import difflib
import ipaddress
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from phrasemodels import project

PREFIX = "PHRASEMODELS_"
OTHERS = {f"{PREFIX}DEBUG", f"{PREFIX}KERNELS", project.VARIABLE}  # variables that are not settings
SCHEMES = {
    "prefect_api_url": ("http", "https"),
    "mlflow_uri": ("http", "https", "sqlite", "postgresql"),
    "ray_address": ("", "ray"),
    "store": ("", "file", "s3"),
}
CREDENTIALS = {
    "prefect_api_url": "PREFECT_API_AUTH_STRING",
    "mlflow_uri": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "ray_address": "RAY_AUTH_TOKEN",
    "store": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
}
PASSWORDS = {  # a service on another machine needs one of these
    "prefect_api_url": ("PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"),
    "mlflow_uri": ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
    "ray_address": ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"),
}
POSTGRES = "PGPASSWORD"
MISTYPED = re.compile(r"[a-z][a-z0-9+.-]*:/(?!/)|(s3|file)//", re.I)  # as a folder it would be made in silence


class Settings(BaseSettings):
    """PHRASEMODELS_STORE and so on."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", hide_input_in_errors=True, env_ignore_empty=True
    )

    store: str = Field(
        default_factory=lambda: str(_own_folder()), description="folder or URL (file://, s3://) of the store"
    )
    cache: Path = Field(default_factory=lambda: _own_folder(), description="this node's folder, if the store is a URL")
    cache_gib: float = Field(50.0, gt=0, le=1e9, description="size limit of `cache`")
    mirror: Path | None = Field(None, description="folder of corpora, which is searched before their URLs")
    supplied: Path | None = Field(None, description="folder of user files: a folder for each corpus, and glove")
    parsers: Path | None = Field(
        None, description="folder of parser models: a folder stanza, or the folder that holds it"
    )
    offline: bool = Field(False, description="fetch nothing from URLs")
    private: bool = Field(False, description="also fetch from URLs whose addresses are not on the internet")
    prefect_api_url: str | None = Field(None, description="URL of a Prefect server; default: start one for the run")
    ray_address: str | None = Field(
        None, description="address of a Ray cluster; default: start one for the run, on loopback"
    )
    mlflow_uri: str | None = Field(None, description="URL of an MLflow server; default: SQLite in the store")
    cpus: int | None = Field(None, ge=1, description="processors of the embedded Ray; default: all")
    cluster: bool = Field(False, description="refuse a Ray cluster of one node")
    autoscaling: bool = Field(
        False,
        description="the Ray cluster adds nodes when they are asked for: refuse nothing that it has no room for yet",
    )
    wait_minutes: float = Field(
        30.0, gt=0, le=1e6, description="how long a training waits for room in the cluster after it has lost a node"
    )
    keep_states: bool = Field(
        False,
        description="keep the last checkpoint of finished trainings, four times a model's size: one with more updates goes on from it",
    )
    workers: int | None = Field(
        None, ge=1, description="workers of each training, in place of the experiment's number; runs are marked"
    )

    def __init__(self, **values: Any) -> None:
        """Read all settings. ValueError: one line with the names of the wrong settings, without their values."""
        _refuse_unknown()
        try:
            super().__init__(**values)
        except ValidationError as error:
            said = ((".".join(map(str, e["loc"])), e["msg"].removeprefix("Value error, ")) for e in error.errors())
            raise ValueError("settings: " + "; ".join(f"{name}: {message}" for name, message in said)) from None

    @model_validator(mode="before")
    @classmethod
    def _paths(cls, values: Any) -> Any:
        return (
            {k: str(v) if k == "store" and isinstance(v, Path) else v for k, v in values.items()}
            if isinstance(values, dict)
            else values
        )

    @field_validator("mirror", "supplied", "parsers", mode="before")
    @classmethod
    def _folder(cls, value: Any) -> Any:
        if "://" in str(value):
            raise ValueError("is a folder, not an address; URLs of files are in the manifests of corpora")
        return value

    @field_validator("store", "cache", "mirror", "supplied", "parsers")
    @classmethod
    def _usable(cls, value: str | Path | None) -> str | Path | None:
        """Check a folder: a known home, no NUL byte, no mistyped URL. A URL must name a bucket or a folder."""
        if "\0" in str(value):
            raise ValueError("has a NUL byte, which no folder has")
        if str(value).startswith("~"):
            try:
                Path(str(value)).expanduser()
            except RuntimeError:
                raise ValueError("no home folder of such a user is known; write the whole path") from None
        if isinstance(value, str) and not value.partition("://")[2].strip("/") and "://" in value:
            raise ValueError("names no bucket or folder")
        if MISTYPED.match(str(value)):
            urls = "s3://bucket/prefix, file:///folder or " * isinstance(value, str)
            raise ValueError(f"is no address and no usual folder; write {urls}the whole path of a folder")
        return value

    @field_validator(*SCHEMES)
    @classmethod
    def _address(cls, value: str | None, info: Any) -> str | None:
        """Check an address: a known scheme and no password in it. Another machine needs a password in the environment."""
        if value is None or (info.field_name == "store" and "://" not in value):  # a folder may have any name
            return value
        has_scheme = "://" in value
        try:
            found = urlparse(value if has_scheme else f"//{value}")
        except ValueError:  # its message shows the value
            raise ValueError("is not an address: no host has such brackets or letters") from None
        if (scheme := found.scheme.split("+")[0]) not in SCHEMES[info.field_name] and has_scheme:
            raise ValueError(f"must be {', '.join(s for s in SCHEMES[info.field_name] if s)}, not {scheme}")
        credentials = POSTGRES if scheme == "postgresql" else CREDENTIALS[info.field_name]
        user = found.netloc.rpartition("@")[0]
        if found.query or found.fragment or (user and (scheme != "postgresql" or ":" in user)):
            raise ValueError(f"holds more than an address, such as a password; remove it and set {credentials}")
        passwords = PASSWORDS.get(info.field_name, ()) if scheme in ("", "http", "https", "ray") else ()
        if passwords and not _here(found.hostname) and not any(map(_secret, passwords)):
            raise ValueError(f"is on another machine, which needs a password; set {CREDENTIALS[info.field_name]}")
        return value

    @property
    def remote(self) -> str | None:
        """The URL of a store that several nodes share. None if the store is a folder."""
        return self.store if "://" in self.store else None

    @property
    def cache_bytes(self) -> int:
        return int(self.cache_gib * 2**30)

    @property
    def mirrors(self) -> tuple[Path, ...]:
        """The folders to search for files before any URL. The folders of plugins come last."""
        models = self.parsers and self.parsers.expanduser()
        models = models.parent if models and (models / "resources.json").is_file() else models
        folders = (self.supplied, self.mirror, models, *project.corpora_folders())
        return tuple(folder.expanduser().absolute() for folder in folders if folder)

    @property
    def root(self) -> Path:
        """This node's folder: the store, or the cache of a store at a URL."""
        return (self.cache if self.remote else Path(self.store)).expanduser().absolute()

    @property
    def tracking_uri(self) -> str:
        if not self.mlflow_uri and "?" in str(self.root):  # SQLAlchemy's SQLite URIs cannot express it
            raise ValueError(f"{self.root}: MLflow cannot use a folder with a ? in its name; choose another")
        return self.mlflow_uri or f"sqlite:///{self.root / 'mlflow' / 'mlflow.db'}"

    @property
    def artifact_location(self) -> str | None:
        """The artifact location of new MLflow experiments. None: the server's own; a database has none but the working folder."""
        own = not self.mlflow_uri or self.mlflow_uri.startswith(("postgresql", "mysql", "mssql", "sqlite"))
        return (self.root / "mlflow" / "artifacts").as_uri() if own else None


def _own_folder() -> Path:
    """Return the default folder of the store: in the project folder, or else where the command runs."""
    return (project.folder() or Path()) / ".phrasemodels"


def _here(host: str | None) -> bool:
    """Return whether a host is this machine. `auto` and `local` are Ray's names for it."""
    if host in (None, "auto", "local", "localhost"):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(str(host)).is_loopback
    return False


def _secret(name: str) -> str:
    """Return the password in a variable. Prefect's variable holds USER:PASSWORD."""
    value = os.environ.get(name, "")
    return value.partition(":")[2] if name == "PREFECT_API_AUTH_STRING" and ":" in value else value


def _refuse_unknown() -> None:
    """Raise a ValueError for an unknown variable PHRASEMODELS_...: its name is misspelt."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | OTHERS
    for name in os.environ:
        if name.startswith(PREFIX) and name.upper() not in known:
            (nearest, *_) = difflib.get_close_matches(name, known, 1, 0.0)
            raise ValueError(f"settings: {name} is unknown; did you mean {nearest}?")
