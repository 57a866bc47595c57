"""Which model an agent calls, and where: chosen where the user is, stored with the tree, read by every worker of it.

The rule: a model and an address that are named are used. An address alone: its only listed model. A key alone: the default
model of the settings. Nothing at all: the small local model. What can be known at submission is said there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from baton_actors.agent.forbidding import check_address
from baton_actors.agent.local import model_name
from baton_actors.agent.weights import SMOLLM2, available, weights
from baton_actors.baton import Frozen
from baton_actors.errors import InvalidInput

#: The address that a key without an address belongs to.
OPENAI_URL = "https://api.openai.com/v1"
#: Models of a list that are named in a message.
MOST_NAMED = 12

Dialect = Literal["auto", "tools", "actions"]


class Access(Frozen):
    """How the agents of one tree reach their model; JSON in `trees.agent`. Holds no secret.

    Attributes:
        base_url: of a server that speaks Chat Completions; None if none was known at submission.
        local: whether the agents use their node's local model.
        dialect: `tools` are called by the protocol, `actions` by JSON schema; `auto` begins with the first and learns.
        timeout: seconds of one model call.
        folder: what relative paths of the submitter stand for. fetch: hosts that `fetch_url` may reach.
    """

    base_url: str | None = None
    local: bool = False
    dialect: Dialect = "auto"
    timeout: float = Field(600, gt=0)
    folder: str | None = None
    fetch: list[str] = []

    @property
    def place(self) -> Path | None:
        """The folder as a path."""
        return None if self.folder is None else Path(self.folder)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What flags, environment and settings say about the model.

    Attributes:
        model: None if none is named. base_url: None if none is set. key: the secret, never stored.
        default_model: of a key alone. may_be_elsewhere: workers may have a key that is not known here.
    """

    model: str | None
    base_url: str | None
    key: str | None
    default_model: str
    may_be_elsewhere: bool = False


def choose(wishes: Wishes, listed: Callable[[str, str | None], list[str] | None], say: Callable[[str], None]) -> tuple[str, str | None]:
    """The name of the model and its address (None: the local model, which is fetched if it is not there).

    Args:
        listed: asks an address for its models; None if it does not tell. Raises `ModelUnusable` when nothing answers there.
        say: told what takes its time.

    Raises:
        InvalidInput: no such model, several to choose from, no key, or the extra `local` is missing.
        ModelUnusable: the address does not answer, or refuses the key; or the local model cannot be fetched.
    """
    if wishes.base_url is None and wishes.key is None:
        if wishes.model is None:
            return _the_local_one(say), None
        if wishes.may_be_elsewhere:
            return wishes.model, OPENAI_URL
        raise InvalidInput(
            "model",
            f"{wishes.model!r} needs OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own; with no name the local one answers",
        )
    url = wishes.base_url or OPENAI_URL
    _check_url(url)
    check_address(url)
    if wishes.key is not None and not (wishes.key.isascii() and wishes.key.isprintable()):
        raise InvalidInput("OPENAI_API_KEY", "has characters that no key has; copy it again")
    names = listed(url, wishes.key)
    if wishes.model is None and wishes.base_url is None:
        return _listed(wishes.default_model, names, url, "BATON_OPENAI_MODEL"), url
    if wishes.model is not None:
        return _listed(wishes.model, names, url, "model"), url
    if names is None:
        raise InvalidInput("model", f"{url} does not list its models; name one with --model or BATON_MODEL")
    if len(names) != 1:
        raise InvalidInput("model", f"{url} has {len(names)} models; choose with --model or BATON_MODEL: {_some(names)}")
    return names[0], url


def is_tiny(model: str) -> bool:
    """Whether a local model is the one that is fetched, and not a better one of the user's."""
    return model == model_name(Path(SMOLLM2.file))


def _the_local_one(say: Callable[[str], None]) -> str:
    if missing := available():
        why = f"none is configured; set OPENAI_API_KEY, or OPENAI_BASE_URL and BATON_MODEL, or take the small local one: {missing}"
        raise InvalidInput("model", why)
    return model_name(weights(say))


def _check_url(url: str) -> None:
    """See that a text is an address that can be asked.

    Raises:
        InvalidInput: it is none, or holds a secret, which would be stored with the tree.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise InvalidInput("OPENAI_BASE_URL", f"{url!r} is no address; give http://HOST:PORT/v1")
    if parts.username or parts.password:
        raise InvalidInput(
            "OPENAI_BASE_URL", "holds a user or a password, and would be stored with the task; give the key as OPENAI_API_KEY"
        )


def _listed(model: str, names: list[str] | None, url: str, what: str) -> str:
    if names is None or any(_is_called(model, name) for name in names):
        return model
    near = get_close_matches(model, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {_some(names)}"
    raise InvalidInput(what, f"{url} has no model {model!r}; {hint}")


def _is_called(model: str, listed: str) -> bool:
    """Whether a server that lists one name takes the other: without a tag, with a variant, or without the word `models/`."""
    return model in (listed, listed.removesuffix(":latest"), listed.removeprefix("models/")) or model.rpartition(":")[0] == listed


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "none"
