"""Durable trees of tasks on Ray: a task is handed from one stateless worker to the next until it is done.

    import baton_actors as baton

    with baton.connect() as client:
        print(client.submit("count the lines", worker=count).result())

Importing this loads neither Ray nor SQLAlchemy nor a model client: what needs them is fetched when it is first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from baton_actors.baton import Baton, Child, ChildResult, Completed, Constraints, ErrorKind, Failed, HandedOver, Spawned, Status
from baton_actors.errors import (
    BatonCancelled,
    BatonError,
    BatonFailed,
    CannotConnect,
    InvalidInput,
    NotAllowed,
    NotFound,
    Retry,
    WaitTimeout,
)
from baton_actors.events import Event

if TYPE_CHECKING:
    from baton_actors.capabilities.tool import ToolContext, tool
    from baton_actors.client import Client, EventStream, TreeHandle, connect
    from baton_actors.runtime.context import Context

__version__ = "0.1.0"

__all__ = [
    "Baton",
    "BatonCancelled",
    "BatonError",
    "BatonFailed",
    "CannotConnect",
    "Child",
    "ChildResult",
    "Client",
    "Completed",
    "Constraints",
    "Context",
    "ErrorKind",
    "Event",
    "EventStream",
    "Failed",
    "HandedOver",
    "InvalidInput",
    "NotAllowed",
    "NotFound",
    "Retry",
    "Spawned",
    "Status",
    "ToolContext",
    "TreeHandle",
    "WaitTimeout",
    "__version__",
    "connect",
    "tool",
]

#: Names whose modules load Ray or SQLAlchemy (PEP 562).
_LAZY = {
    "Client": "baton_actors.client",
    "Context": "baton_actors.runtime.context",
    "EventStream": "baton_actors.client",
    "ToolContext": "baton_actors.capabilities.tool",
    "TreeHandle": "baton_actors.client",
    "connect": "baton_actors.client",
    "tool": "baton_actors.capabilities.tool",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
