"""From what a person asks for to what can be handed in: checked, packed, complete. No cluster is needed for it."""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from baton_actors.baton import AGENT, Baton, Budget, Child, ChildSpec, Notify, first_fault, root_id
from baton_actors.errors import InvalidInput
from baton_actors.jsonable import checked_text
from baton_actors.runtime.opening import Submission
from baton_actors.runtime.packing import Packing, sender_roots
from baton_actors.settings import Settings


def prepared(
    settings: Settings,
    goal: str,
    *,
    worker: str | Callable[..., Any] | None = None,
    model: str | None = None,
    channel: str | None = None,
    notify: Notify | bool | None = None,
    idempotency_key: str | None = None,
    budget: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Submission:
    """A task with its code, ready for `Client.hand_in`; `fields` as for `Child`.

    Raises:
        InvalidInput: names what cannot be used.
    """
    if worker is None or worker == AGENT:
        why = "name one: a function of (baton, ctx), or 'module:function'; the model's agent is not part of this version"
        raise InvalidInput("worker", why)
    packing = Packing(sender_roots())
    spec = Child(goal, worker=packing.worker(worker), model=model or settings.model, **fields).spec(packing.reference)
    return Submission(
        root=_root(spec, None if channel is None else checked_text(channel, "channel"), _notify(notify)),
        budget=checked_budget(budget),
        guards=settings.guards,
        idempotency_key=None if idempotency_key is None else checked_text(idempotency_key, "idempotency_key"),
        functions=packing.functions,
        archive=packing.archive,
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
