"""The settings: an argument over the environment over `.env` over the default.

Everything but secrets is resolved where the user is and passed on to the cluster, whose processes do not see that
environment. Secrets (`PGPASSWORD`, `OPENAI_API_KEY`, …) are read where they are used, from the node's own environment.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from platformdirs import user_data_path
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from baton_actors.baton import Guards
from baton_actors.errors import InvalidInput


def default_database_url() -> str:
    """A SQLite file in the user's data folder."""
    return f"sqlite:///{user_data_path('baton_actors') / 'baton.db'}"


class Settings(BaseSettings):
    """Each field is `BATON_<NAME>` in the environment or in `.env`.

    Attributes:
        database_url: SQLAlchemy's form: `sqlite:////path/file.db` or `postgresql://user@host/name`. None: the default file.
        model: name of the model that agents use. openai_base_url: `OPENAI_BASE_URL`, the server that has it.
        openai_model: the model of a key alone, without address or name.
        model_dialect: how a model says what to do: by `tools`, by structured `actions`, or `auto`: learnt from what it answers.
        model_timeout: seconds of one model call. fetch: hosts that the tool `fetch_url` may reach, `*.example.org` among them.
        max_trees: how many trees have an owner at once; the rest wait in the database.
        warm_owners: owner actors kept started ahead.
        namespace: of the directory and the owners in Ray; two namespaces know nothing of each other.
        guard_batons, guard_children, guard_depth: see `Guards`.
    """

    model_config = SettingsConfigDict(env_prefix="BATON_", env_file=".env", extra="ignore", frozen=True, populate_by_name=True)

    database_url: str | None = None
    model: str | None = None
    openai_base_url: str | None = Field(None, validation_alias="OPENAI_BASE_URL")
    openai_model: str = "gpt-5-mini"
    model_dialect: Literal["auto", "tools", "actions"] = "auto"
    model_timeout: float = Field(600, gt=0, le=86_400)
    fetch: Annotated[list[str], NoDecode] = []
    max_trees: int = Field(16, ge=1)
    warm_owners: int = Field(1, ge=0)
    namespace: str = Field("baton", min_length=1)
    guard_batons: int = Field(1_000, ge=1)
    guard_children: int = Field(64, ge=1)
    guard_depth: int = Field(64, ge=1)

    @field_validator("fetch", mode="before")
    @classmethod
    def _hosts_are_listed(cls, given: object) -> object:
        return [host.strip() for host in given.split(",") if host.strip()] if isinstance(given, str) else given

    @field_validator("model", "openai_base_url", mode="before")
    @classmethod
    def _blank_is_unset(cls, given: object) -> object:
        return None if isinstance(given, str) and not given.strip() else given

    @cached_property
    def database(self) -> str:
        """The URL of the database to use; a SQLite file with its whole path, since actors stand in other folders."""
        url = self.database_url or default_database_url()
        scheme, slashes, path = url.partition(":///")
        return f"{scheme}:///{Path(path).absolute()}" if slashes and scheme.startswith("sqlite") and path else url

    @cached_property
    def guards(self) -> Guards:
        """The bounds of what a model may spawn."""
        return Guards(batons=self.guard_batons, children=self.guard_children, depth=self.guard_depth)


class _Secrets(BaseSettings):
    """Read where they are used, and kept nowhere."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore")

    openai_api_key: SecretStr | None = None


def model_key() -> str | None:
    """`OPENAI_API_KEY` of this machine, from the environment or `.env`; None if there is none."""
    key = _Secrets().openai_api_key
    return (key.get_secret_value().strip() or None) if key is not None else None


def load_settings(**given: Any) -> Settings:
    """The settings, with what was given as an argument (and is not None) on top.

    Raises:
        InvalidInput: names the setting that cannot be used.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        fault = error.errors()[0]
        field = "_".join(str(part) for part in fault["loc"][:1]).upper()
        name = field if field.startswith("OPENAI_BASE") else f"BATON_{field}"
        raise InvalidInput(name, f"{fault['msg'][:1].lower()}{fault['msg'][1:]}, not {str(fault['input'])[:80]!r}") from None


def without_password(url: str) -> str:
    """A database URL as it may travel: nodes take the password from PGPASSWORD, a file, or their own setting."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))


def with_own_secret(url: str) -> str:
    """A URL that came without its password, with the one that this process's own setting has for it."""
    own = load_settings().database
    return own if without_password(own) == url else url


def ray_address() -> str | None:
    """`RAY_ADDRESS`, or the address that the last `ray start` on this machine wrote down; None if there is neither.

    `ray start` writes the file; a private cluster of another program does not, so it is never joined by accident.
    """
    if address := os.environ.get("RAY_ADDRESS"):
        return address
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray"
    try:
        return (folder / "ray_current_cluster").read_text().strip() or None
    except OSError:
        return None
