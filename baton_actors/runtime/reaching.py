"""The directory as a client reaches it: over its restarts, and over its end, when another one takes its place."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayTaskError

from baton_actors.errors import ClusterUnusable
from baton_actors.runtime.calling import cause_of
from baton_actors.runtime.publication import POLL_SECONDS, Found

#: Seconds in which the directory must have taken a submission or a command.
ORDER_SECONDS = 120.0
#: Seconds in which it must have answered where a tree is, if only that it is nowhere yet: the longest poll, and some.
WHERE_SECONDS = POLL_SECONDS[1] + 30.0
#: Seconds between two calls of an actor that is being restarted.
PAUSE_SECONDS = 0.5
_WHAT = "the directory actor"


class Reach:
    """A way to the directory. Whoever finds that it has died for good gets another one: there is one for all by its name.

    Args:
        handle: of the directory, replaced when that one has died. find: finds or starts it again, within its own bounds; raises
            ClusterUnusable.
    """

    def __init__(self, handle: ActorHandle[Any], find: Callable[[], ActorHandle[Any]]) -> None:
        self.handle = handle
        self._find = find
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> bool:
        """From now on nothing is asked: Ray would start a cluster of its own for a call without one. Whether it was open."""
        was_open, self._closed = not self._closed, True
        return was_open

    def check_open(self) -> None:
        """See that the client may still ask.

        Raises:
            ClusterUnusable: it was closed.
        """
        if self._closed:
            raise ClusterUnusable("this client", "is closed; connect() makes another")

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call the directory; what is asked of it may be asked twice.

        Raises:
            ClusterUnusable: it has not answered for `ORDER_SECONDS`.
        """
        return self._call(ORDER_SECONDS, time.monotonic() + ORDER_SECONDS, method, arguments)

    def where(self, root_id: str, until: float | None = None, after: int | None = None) -> Found:
        """Where a tree is; asked again while nobody has it.

        Args:
            until: a time of `time.monotonic`. after: seq of the last event that a subscriber has; more of them are news.

        Raises:
            GetTimeoutError: that time has come. ClusterUnusable: it has not answered for `WHERE_SECONDS`.
        """
        while True:
            found: Found = self._call(WHERE_SECONDS, until, "where", _asked(root_id, after))
            if found.state != "waiting":
                return found
            if until is not None and time.monotonic() >= until:
                raise GetTimeoutError

    async def where_async(self, root_id: str, after: int | None = None) -> Found:
        """As `where`, in a running loop."""
        while True:
            found = await self._poll_async(_asked(root_id, after))
            if found.state != "waiting":
                return found

    def _call(self, seconds: float, until: float | None, method: str, arguments: tuple[Any, ...]) -> Any:
        end = time.monotonic() + seconds
        while True:
            self.check_open()
            handle, limit = self.handle, end if until is None else min(end, until)
            try:
                return got(getattr(handle, method).remote(*arguments), max(0.0, limit - time.monotonic()))
            except GetTimeoutError:
                if until is not None and until < end:
                    raise
                raise _silent(seconds) from None
            except RayActorError as error:
                if until is not None and time.monotonic() > until:
                    raise GetTimeoutError from None
                _check_end(error, end)
                if isinstance(error, ActorDiedError):
                    self._replace(handle)
                else:
                    time.sleep(PAUSE_SECONDS)

    async def _poll_async(self, asked: tuple[Any, ...]) -> Found:
        end = time.monotonic() + WHERE_SECONDS
        while True:
            self.check_open()
            handle = self.handle
            try:
                found: Found = await asyncio.wait_for(answer(handle.where.remote(*asked)), max(0.0, end - time.monotonic()))
                return found
            except TimeoutError:
                raise _silent(WHERE_SECONDS) from None
            except RayActorError as error:
                _check_end(error, end)
                if isinstance(error, ActorDiedError):
                    await asyncio.to_thread(self._replace, handle)
                else:
                    await asyncio.sleep(PAUSE_SECONDS)

    def _replace(self, dead: ActorHandle[Any]) -> None:
        with self._lock:
            if self.handle is dead:
                self.handle = self._find()


def _asked(root_id: str, after: int | None) -> tuple[Any, ...]:
    return (root_id,) if after is None else (root_id, after)


def got(reference: Any, timeout: float | None = None) -> Any:
    """What an actor answered; an exception of ours comes out as itself."""
    try:
        return ray.get(reference, timeout=timeout)
    except RayTaskError as error:
        raise cause_of(error) from None


async def answer(reference: Any) -> Any:
    """As `got`, in a running loop."""
    try:
        return await asyncio.wrap_future(reference.future())
    except RayTaskError as error:
        raise cause_of(error) from None


def _silent(seconds: float) -> ClusterUnusable:
    return ClusterUnusable(_WHAT, f"has not answered for {seconds:g} s; 'baton doctor' looks closer")


def _check_end(error: RayActorError, end: float) -> None:
    if time.monotonic() > end:
        raise ClusterUnusable(_WHAT, f"is gone ({type(error).__name__}); 'baton doctor' looks closer") from None
