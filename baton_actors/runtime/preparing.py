"""From what a person asks for to what can be handed in: checked, packed, complete. No cluster is needed for it."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from baton_actors.agent.access import OPENAI_URL, Access, Wishes, choose
from baton_actors.baton import AGENT, Baton, Budget, Child, ChildSpec, Notify, first_fault, root_id
from baton_actors.capabilities.catalogue import check_tools
from baton_actors.errors import InvalidInput
from baton_actors.jsonable import checked_text
from baton_actors.runtime.opening import Submission
from baton_actors.runtime.packing import Packing, sender_roots
from baton_actors.settings import Settings, model_key, ray_address

#: Seconds for which a server's list of models is not asked for again: many tasks may be submitted in a row.
LISTED_SECONDS = 60.0
_listed: dict[tuple[str, str | None], tuple[float, list[str] | None]] = {}


def prepared(
    settings: Settings,
    goal: str,
    *,
    worker: str | Callable[..., Any] | None = None,
    tools: Sequence[str | Callable[..., Any]] | None = None,
    model: str | None = None,
    channel: str | None = None,
    notify: Notify | bool | None = None,
    idempotency_key: str | None = None,
    budget: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Submission:
    """A task with its code, ready for `Client.hand_in`; `fields` as for `Child`.

    Args:
        progress: told what takes its time: the model's server is asked whether it has the model.

    Raises:
        InvalidInput: names what cannot be used. ModelUnusable: the model's server does not answer, or refuses the key.
    """
    packing = Packing(sender_roots())
    check_tools(tools or ())
    child = Child(goal, worker=packing.worker(worker), tools=None if tools is None else [packing.tool(tool) for tool in tools], **fields)
    child.spec(packing.reference)  # what is wrong with the task is said before a server is asked
    agent = worker is None or worker == AGENT
    name, url = _model(settings, model, progress) if agent else (model or settings.model, _address(settings))
    spec = replace(child, model=name).spec(packing.reference)
    return Submission(
        root=_root(spec, None if channel is None else checked_text(channel, "channel"), _notify(notify)),
        budget=checked_budget(budget),
        guards=settings.guards,
        idempotency_key=None if idempotency_key is None else checked_text(idempotency_key, "idempotency_key"),
        functions=packing.functions,
        archive=packing.archive,
        agent=_access(settings, url, local=agent and url is None).model_dump(),
    )


def _model(settings: Settings, model: str | None, progress: Callable[[str], None]) -> tuple[str, str | None]:
    """The agent's model and its address; None for the local one."""

    def listed(url: str, key: str | None) -> list[str] | None:
        known = _listed.get((url, key))
        if known is None or time.monotonic() - known[0] > LISTED_SECONDS:
            progress(f"asking {url} for its models")
            from baton_actors.agent.chat import listed_models  # openai takes a second or two

            known = _listed[url, key] = (time.monotonic(), listed_models(url, key))
        return known[1]

    elsewhere = ray_address() is not None
    wishes = Wishes(model or settings.model, settings.openai_base_url, model_key(), settings.openai_model, may_be_elsewhere=elsewhere)
    try:
        return choose(wishes, listed, progress)
    except InvalidInput:
        if not _listed:
            raise
    _listed.clear()  # it may have been added since
    return choose(wishes, listed, progress)


def _address(settings: Settings) -> str | None:
    """Where agents find their model that a function spawns; nobody is asked, since there may be none."""
    return settings.openai_base_url or (OPENAI_URL if model_key() else None)


def _access(settings: Settings, url: str | None, *, local: bool) -> Access:
    return Access(
        base_url=url,
        local=local,
        dialect=settings.model_dialect,
        timeout=settings.model_timeout,
        folder=str(Path.cwd()),
        fetch=settings.fetch,
    )


def checked_budget(budget: Mapping[str, Any] | None) -> Budget:
    """The budget of a mapping, perhaps an empty one.

    Raises:
        InvalidInput: an unknown key, or a limit that is no positive number.
    """
    try:
        return Budget.model_validate(dict(budget or {}))
    except ValidationError as error:
        fault = first_fault(error)
        raise InvalidInput(f"budget {fault.what}", fault.why) from None


def _root(spec: ChildSpec, channel: str | None, notify: Notify) -> Baton:
    now = time.time_ns() // 1_000_000
    id = root_id(now, secrets.token_bytes(10))
    fields = {**dict(spec), "worker": spec.worker or AGENT}
    return Baton(id=id, root_id=id, created_at=now, updated_at=now, channel=channel, notify=notify, **fields)


def _notify(notify: Notify | bool | None) -> Notify:
    match notify:
        case None | False | "off":
            return "off"
        case True | "final":
            return "final"
        case "progress":
            return "progress"
        case _:
            raise InvalidInput("notify", f"{notify!r} is none of off, final, progress")
