"""The owner actors of a cluster: some are kept idle ahead of need, and those who need one wait for it here.

An actor takes a second to start. What an owner holds is the directory's business.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from baton_actors.runtime.calling import START_SECONDS, patiently_called

log = logging.getLogger(__name__)

#: Owner actors that are started at the same time; each takes a second of CPU.
STARTS_AT_ONCE = 2
#: Seconds that an owner beyond the warm ones is kept idle.
SPARE_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class Slot:
    """One owner actor, and the tree that it holds, or is about to; `known` is false until that is certain."""

    name: str
    handle: ActorHandle[Any]
    root_id: str | None = None
    known: bool = True


class Pool:
    """All owners that are known, by name.

    Args:
        warm: how many are kept idle. most: how many there may be. new: makes an actor, which may not have started yet.
        freed: told when an owner has become idle. spawn: runs something in the background.
    """

    def __init__(
        self,
        warm: int,
        most: int,
        *,
        new: Callable[[], Awaitable[Slot]],
        freed: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._warm = warm
        self._most = most
        self._new = new
        self._freed = freed
        self._spawn = spawn
        self._slots: dict[str, Slot] = {}
        self._idle: list[Slot] = []
        self._starting = 0
        self._wanted = 0
        self._came = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def idle(self) -> int:
        """How many are free to be used."""
        return len(self._idle)

    def get(self, name: str) -> Slot | None:
        """The owner of that name, if it is known."""
        return self._slots.get(name)

    def add(self, slot: Slot) -> None:
        """One that another directory has started; what it holds is not known yet."""
        self._slots[slot.name] = slot

    def pop(self) -> Slot:
        """An idle owner; there must be one."""
        return self._idle.pop()

    async def wait(self) -> Slot:
        """An idle owner, as soon as there is one."""
        async with self._came:
            self._wanted += 1
            try:
                self.keep_warm()
                await self._came.wait_for(lambda: self._idle)
                return self._idle.pop()
            finally:
                self._wanted -= 1

    def free(self, slot: Slot) -> None:
        """An owner holds nothing any more."""
        slot.root_id = None
        self._idle.append(slot)
        self._spawn(self._tell())
        asyncio.get_running_loop().call_later(SPARE_SECONDS, self._end_if_spare, slot)
        self._freed()

    def forget(self, slot: Slot) -> None:
        """An owner is gone for good."""
        self._slots.pop(slot.name, None)
        self.keep_warm()

    def keep_warm(self) -> None:
        """Start owners until enough are idle or on their way."""
        missing = max(self._warm, self._wanted) - len(self._idle) - self._starting
        allowed = self._most + self._wanted - len(self._slots)  # more for orders: they must not wait for a tree to end
        for _ in range(min(missing, allowed, STARTS_AT_ONCE - self._starting)):
            self._starting += 1
            self._spawn(self._start())

    async def _start(self) -> None:
        try:
            await self._start_one()
        finally:
            self._starting -= 1
        self.keep_warm()

    async def _start_one(self) -> None:
        slot = await self._new()
        self.add(slot)
        try:
            await patiently_called(slot.handle, "status", pulse=START_SECONDS)
        except RayActorError as error:
            log.warning("owner %s did not start: %s", slot.name, error)
            self._slots.pop(slot.name, None)
        else:
            self.free(slot)

    async def _tell(self) -> None:
        async with self._came:
            self._came.notify()

    def _end_if_spare(self, slot: Slot) -> None:
        if slot in self._idle and len(self._idle) > max(1, self._warm):
            self._idle.remove(slot)
            self.forget(slot)
            ray.kill(slot.handle)
