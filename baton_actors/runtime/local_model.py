"""The local model in a cluster: an actor on each node that needs one, which holds the server for all processes of that node.

It outlives the jobs that use it and ends with the cluster. Its address is asked of it each time (a millisecond, against a
second for an answer of the model), so that nobody ever holds the address of a server that has died.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

from baton_actors.agent.local import LocalServer
from baton_actors.agent.weights import available, given_weights, weights
from baton_actors.errors import BatonError, ModelUnusable
from baton_actors.runtime.directory import detached

log = logging.getLogger(__name__)

NAMESPACE = "baton-local"
#: Seconds in which the model must be there: a download of 93 MB over a slow line, then a load.
LOAD_SECONDS = 900.0
#: Seconds over which a server that dies again and again is waited for.
PATIENCE_SECONDS = 60.0
#: Seconds between two looks for an actor that is being restarted.
_PAUSE_SECONDS = 0.2
_SUBJECT = "the local model"


class LocalModelActor:
    """One for each node. `given`: the path of a GGUF file, or None for what the node's own environment says."""

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._server: LocalServer | None = None
        self._loading: asyncio.Task[LocalServer] | None = None

    async def base_url(self) -> str:
        """The server's address, when it has loaded; those who ask meanwhile share the load, and a failed one is tried again.

        Raises:
            InvalidInput, ModelUnusable: why there is none.
        """
        if self._server is None:
            if self._loading is None:
                self._loading = asyncio.create_task(asyncio.to_thread(self._load))
                self._loading.add_done_callback(self._loaded)
            return (await asyncio.shield(self._loading)).base_url
        return self._server.base_url

    def _load(self) -> LocalServer:
        return LocalServer(weights(log.info, self._given))

    def _loaded(self, loading: "asyncio.Task[LocalServer]") -> None:
        self._loading = None
        if not loading.cancelled() and loading.exception() is None:
            self._server = loading.result()


def start_local(progress: Callable[[str], None]) -> None:
    """Let the model of this node load while other things are done.

    The weights are fetched first, where a person can see it, if this process stands on a node of the cluster; over `ray://` the
    cluster fetches them itself.

    Raises:
        InvalidInput: BATON_LOCAL_GGUF is no GGUF file. ModelUnusable: it is not installed here, or cannot be fetched.
    """
    if ray.util.client.ray.is_connected():
        _begin_to_load(_local_actor(*_here(), None))
        return
    if install := available():
        raise ModelUnusable(_SUBJECT, f"its server is not installed; {install}")
    weights(progress)
    _begin_to_load(_local_actor(*_here(), given_weights()))


def _begin_to_load(actor: ActorHandle[Any]) -> None:
    """Nobody waits here; a fault is told to whoever needs the model, and would be told by Ray at great length otherwise."""
    actor.base_url.remote().future().add_done_callback(lambda loaded: loaded.exception())


async def local_base_url() -> str:
    """The address of this node's model, which is started if it does not run. Ask before each call: a restarted one has another.

    Raises:
        InvalidInput, ModelUnusable: why there is none.
    """
    until = None
    while True:
        try:
            return await _address(_local_actor(*_here(), given_weights()))
        except RayActorError as error:
            until = until or time.monotonic() + PATIENCE_SECONDS
            if time.monotonic() > until:
                raise _unusable(error) from None
            if isinstance(error, ActorDiedError):  # for good; a new one takes its name
                _local_actor.cache_clear()
            await asyncio.sleep(_PAUSE_SECONDS)
        except RayError as error:
            raise _unusable(error) from None


async def _address(actor: ActorHandle[Any]) -> str:
    """What an actor answers, once it has loaded; its faults as ours."""
    asked: asyncio.Future[str] = asyncio.wrap_future(actor.base_url.remote().future())
    try:
        return await asyncio.wait_for(asked, LOAD_SECONDS)
    except RayTaskError as error:
        cause = getattr(error, "cause", None)
        raise cause if isinstance(cause, BatonError) else _unusable(error) from None
    except TimeoutError:
        raise ModelUnusable(_SUBJECT, f"has not loaded within {LOAD_SECONDS:g} s; 'baton doctor' looks closer") from None


def _here() -> tuple[str, str]:
    """Node and job: a handle that was made in another job is of no use."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


@lru_cache(maxsize=1)
def _local_actor(node: str, job: str, given: str | None) -> ActorHandle[Any]:
    """The actor of a node, started if there is none; looked up once in a job. `given` is for the one that is started."""
    actor: Any = ray.remote(LocalModelActor)
    handle: ActorHandle[Any] = actor.options(**detached(f"baton-local-model:{node}", NAMESPACE, node)).remote(given)
    return handle


def _unusable(error: Exception) -> ModelUnusable:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ModelUnusable(_SUBJECT, f"its process failed ({first[:200]}); 'baton doctor' looks closer")
