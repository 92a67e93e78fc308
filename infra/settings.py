"""Where things are: from environment variables (PHRASEMODELS_...) or one file, each with an embedded default.

Credentials are no settings of ours: each part takes its own from the environment (AWS_..., PREFECT_API_AUTH_STRING,
MLFLOW_TRACKING_USERNAME and _PASSWORD, RAY_AUTH_TOKEN), so that nothing here can print them.
"""

import contextlib
import difflib
import ipaddress
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

PREFIX = "PHRASEMODELS_"
FILE = f"{PREFIX}SETTINGS"  # names the file
OTHERS = {FILE, f"{PREFIX}DEBUG"}  # what the command line reads by itself
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
PASSWORDS = {  # one of these, for what is on another machine
    "prefect_api_url": ("PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"),
    "mlflow_uri": ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
    "ray_address": ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"),
}
POSTGRES = "PGPASSWORD"


class Settings(BaseSettings):
    """PHRASEMODELS_STORE and so on; or these names in a TOML file that PHRASEMODELS_SETTINGS names. Variables win."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", hide_input_in_errors=True)

    store: str = Field(".phrasemodels", description="folder that keeps everything that is made; or file:// or s3://")
    cache: Path = Field(Path(".phrasemodels"), description="this node's folder before a store that is a URL")
    cache_gib: float = Field(50.0, gt=0, le=1e9, description="what the folder before a store that is a URL may hold")
    mirror: Path | None = Field(None, description="folder to fetch corpora from, before their URLs")
    supplied: Path | None = Field(None, description="folder of what is put in by hand: a folder CORPUS each, and glove")
    parsers: Path | None = Field(
        None,
        description="folder of parsers' models: it holds a folder stanza, or is it",
    )
    offline: bool = Field(False, description="never fetch from a URL")
    private: bool = Field(False, description="fetch from URLs with addresses that are not on the internet, too")
    prefect_api_url: str | None = Field(None, description="a Prefect server; default: one is started for the run")
    ray_address: str | None = Field(None, description="a Ray cluster; default: one is started for the run, on loopback")
    mlflow_uri: str | None = Field(None, description="an MLflow server; default: SQLite in the store")
    cpus: int | None = Field(None, ge=1, description="processors of the embedded Ray; default: all")
    cluster: bool = Field(False, description="refuse to run on a Ray cluster of one node")
    workers: int | None = Field(None, ge=1, description="of each training, whatever its experiment says; it is marked")

    def __init__(self, **values: Any) -> None:
        """A ValueError of one line, without values, that names each setting that is wrong."""
        _refuse_unknown()
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, e['loc'])) or 'settings'}: {_said(e)}" for e in error.errors()]
            raise ValueError(f"{_where()}: " + "; ".join(wrong)) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        if not (name := os.environ.get(FILE)):
            return init_settings, env_settings
        file = _existing(name)
        try:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} ({FILE}) is not TOML: {error}") from None

    @model_validator(mode="before")
    @classmethod
    def _paths(cls, values: Any) -> Any:
        return {k: str(v) if k == "store" else v for k, v in values.items()} if isinstance(values, dict) else values

    @field_validator(*SCHEMES)
    @classmethod
    def _address(cls, value: str | None, info: Any) -> str | None:
        """A known scheme, nothing secret in it, and a password elsewhere if others could listen."""
        if value is None or (info.field_name == "store" and "://" not in value):  # a folder may be called anything
            return value
        has_scheme = "://" in value
        try:
            found = urlparse(value if has_scheme else f"//{value}")
        except ValueError:  # which shows the value
            raise ValueError("is no address: brackets or letters in it that no host has") from None
        if (scheme := found.scheme.split("+")[0]) not in SCHEMES[info.field_name] and has_scheme:
            raise ValueError(f"is {', '.join(s for s in SCHEMES[info.field_name] if s)}, not {scheme}")
        credentials = POSTGRES if scheme == "postgresql" else CREDENTIALS[info.field_name]
        user = found.netloc.rpartition("@")[0]
        if found.query or found.fragment or (user and (scheme != "postgresql" or ":" in user)):
            raise ValueError(f"holds more than an address, like a password; leave it out and set {credentials}")
        passwords = PASSWORDS.get(info.field_name, ()) if scheme in ("", "http", "https", "ray") else ()
        if passwords and not _here(found.hostname) and not any(map(_secret, passwords)):
            raise ValueError(f"is another machine, which needs a password; set {CREDENTIALS[info.field_name]}")
        return value

    @property
    def remote(self) -> str | None:
        """The URL of a store that several nodes share, or None."""
        return self.store if "://" in self.store else None

    @property
    def cache_bytes(self) -> int:
        return int(self.cache_gib * 2**30)

    @property
    def mirrors(self) -> tuple[Path, ...]:
        """Folders that files are looked for in, before any URL."""
        models = self.parsers and self.parsers.expanduser()
        models = models.parent if models and (models / "resources.json").is_file() else models
        return tuple(folder.expanduser().absolute() for folder in (self.supplied, self.mirror, models) if folder)

    @property
    def root(self) -> Path:
        """This node's folder."""
        return (self.cache if self.remote else Path(self.store)).expanduser().absolute()

    @property
    def tracking_uri(self) -> str:
        if not self.mlflow_uri and "?" in str(self.root):  # which no SQLite URI of SQLAlchemy can name
            raise ValueError(f"{self.root}: MLflow keeps no database below a folder with a ? in its name; take another")
        return self.mlflow_uri or f"sqlite:///{self.root / 'mlflow' / 'mlflow.db'}"

    @property
    def artifact_location(self) -> str | None:
        """Where a new MLflow experiment keeps artifacts; a server decides for itself."""
        return None if self.mlflow_uri else (self.root / "mlflow" / "artifacts").as_uri()


def _here(host: str | None) -> bool:
    """Whether a host is this machine, which only its users reach; `auto` and `local` are Ray's names for that."""
    if host in (None, "auto", "local", "localhost"):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(str(host)).is_loopback
    return False


def _secret(name: str) -> str:
    """The password in a variable; of Prefect's, what comes after the user."""
    value = os.environ.get(name, "")
    return value.partition(":")[2] if name == "PREFECT_API_AUTH_STRING" and ":" in value else value


def _existing(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"{FILE} names {path}, which is no file")
    return path


def _where() -> str:
    return " or ".join(["settings", *filter(None, [os.environ.get(FILE)])])


def _refuse_unknown() -> None:
    """A variable that nobody reads is a mistake in its name."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | OTHERS
    for name in os.environ:
        if name.startswith(PREFIX) and name.upper() not in known:
            (nearest, *_) = difflib.get_close_matches(name, known, 1, 0.0)
            raise ValueError(f"settings: nobody reads {name}; is {nearest} meant?")


def _said(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        (nearest, *_) = difflib.get_close_matches(str(error["loc"][-1]), Settings.model_fields, 1, 0.0)
        return f"there is no such setting; is {nearest} meant?"
    return str(error["msg"]).removeprefix("Value error, ")
