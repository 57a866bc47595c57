"""The owner actor: holds one tree at a time, or none, and serves whoever asks about it.

`__init__` does nothing that can fail, since an exception in a restart would end the actor for good. Long polls live in a
concurrency group with a thread of its own and touch only what is published.
"""

import asyncio
import gc
import logging
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray

from baton_actors.commands import Command
from baton_actors.errors import BatonError, Moved
from baton_actors.runtime.awakening import awaken_soon
from baton_actors.runtime.crash_points import reached
from baton_actors.runtime.opening import Submission
from baton_actors.runtime.ownership import Ownership
from baton_actors.runtime.processes import RayProcesses
from baton_actors.runtime.publication import Found, Page
from baton_actors.runtime.whispering import WireWhisper
from baton_actors.runtime.wire import Instructions, Lease, WireReport
from baton_actors.settings import with_own_secret
from baton_actors.store import Store

log = logging.getLogger(__name__)

#: Calls that may wait at once in the group of the long polls.
POLLS = 10_000


@dataclass(frozen=True, slots=True)
class OwnerConfig:
    """What an owner is started with, and restarted with after a crash.

    Attributes:
        name: of the actor, and in `trees.owner`. database: URL without its password. cores: CPUs of the cluster.
    """

    name: str
    database: str
    cluster_id: str
    cores: int


def few_collections() -> None:
    """Let the garbage collector look seldom: an owner's many small values live long, and hold no cycles."""
    gc.set_threshold(100_000, 50, 1_000)


class OwnerActor:
    """One owner. Methods that belong to a tree carry its id; another answer than asked for means it is not here."""

    def __init__(self, config: OwnerConfig) -> None:
        self._config = config
        self._ownership: Ownership | None = None
        self._awake: asyncio.Event | None = None
        self._released: dict[str, asyncio.Future[str]] = {}
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._calls: Counter[str] = Counter()
        self._handle = ray.get_runtime_context().current_actor
        awaken_soon(self._handle)

    async def awaken(self) -> None:
        """After a restart: take the tree again that the database still gives us, however long the database takes."""
        if self._awake is not None:
            await self._awake.wait()
            return
        self._awake = asyncio.Event()
        few_collections()
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._store = Store(with_own_secret(self._config.database))
                if not ray.get_runtime_context().was_current_actor_reconstructed:
                    break
                held = await loop.run_in_executor(self._executor, self._store.retake, self._config.name, os.getpid())
                if held is not None:
                    ownership = self._own(*held)
                    if await ownership.take():
                        await ownership.serve(None)
                break
            except BatonError as error:
                log.warning("%s cannot take its tree again yet: %s", self._config.name, error)
                await asyncio.sleep(1.0)
        self._awake.set()

    # ------------------------------------------------------------ for the directory

    async def status(self) -> dict[str, Any]:
        """What it holds, and counts for tests and benchmarks."""
        await self.awaken()
        held = self._ownership
        return {
            "name": self._config.name,
            "root_id": held.root_id if held else None,
            "epoch": held.epoch if held else None,
            "pid": os.getpid(),
            "calls": dict(self._calls),
            "commits": self._store.commits,
            "statements": self._store.statements,
        }

    async def begin(self, submission: Submission) -> str | None:
        """Create a tree and own it; the id of the tree that counts. None: this owner holds another.

        Raises:
            NotBegun, GroupRefused: it could not be written.
        """
        await self.awaken()
        self._calls["begin"] += 1
        if self._ownership is not None:
            return None
        ownership = self._own(submission.root.id, 1)
        try:
            reached("begin.before")
            root_id = await ownership.begin(submission, self._config.cluster_id)
            reached("begin.after")
            return root_id
        except BaseException:
            ownership.abandon()
            raise

    async def take(self, root_id: str, epoch: int, order: tuple[Command, str] | None) -> tuple[bool, BatonError | None]:
        """Take a tree that was lent, perhaps because of a client's command; whether it is ours now, and the command's answer."""
        await self.awaken()
        self._calls["take"] += 1
        if self._ownership is not None:
            return False, None
        ownership = self._own(root_id, epoch)
        try:
            reached("take.before")
            if not await ownership.take():
                return False, None
            reached("take.after")
        except BaseException:
            ownership.abandon()
            raise
        return True, await ownership.serve(order)

    async def released(self, root_id: str) -> str:
        """Waits until that tree is not held here; why."""
        await self.awaken()
        if self._ownership is None or self._ownership.root_id != root_id:
            return "idle"
        return await asyncio.shield(self._released[root_id])

    async def order(self, root_id: str, command: Command, command_id: str) -> BatonError | None:
        """Carry out a client's command: None, or why not (`Moved`: not here)."""
        await self.awaken()
        self._calls["order"] += 1
        ownership = self._ownership
        if ownership is None or ownership.root_id != root_id:
            return Moved(root_id, 0)
        return await ownership.order(command, command_id)

    @ray.method(concurrency_group="polls")
    async def alive(self) -> None:
        """Answered by any process that has not stopped, also when its own loop is busy."""

    # ------------------------------------------------------------ for runs

    async def report(self, lease: Lease, number: int, reports: list[WireReport]) -> bool:
        """See `Ownership.report`."""
        self._calls["report"] += 1
        ownership = self._owned_by(lease)
        return ownership is not None and await ownership.report(lease, number, reports)

    async def instructions(self, lease: Lease, received: int) -> Instructions:
        """See `Ownership.instructions`."""
        self._calls["instructions"] += 1
        ownership = self._owned_by(lease)
        if ownership is None:
            return Instructions(received + 1, moved=True)
        return await ownership.instructions(lease, received)

    async def whisper(self, lease: Lease, whispers: list[WireWhisper]) -> None:
        """See `Ownership.whisper`; of another life of the tree, nothing is told."""
        self._calls["whisper"] += 1
        if ownership := self._owned_by(lease):
            ownership.whisper(lease, whispers)

    async def conversation(self, lease: Lease, baton_id: str) -> Found:
        """See `Ownership.conversation`."""
        self._calls["conversation"] += 1
        ownership = self._owned_by(lease)
        return Found("gone") if ownership is None else Found("here", await ownership.conversation(baton_id))

    async def read_result(self, lease: Lease, baton_id: str, offset: int, limit: int) -> Found:
        """See `Ownership.read_result`."""
        self._calls["read_result"] += 1
        ownership = self._owned_by(lease)
        return Found("gone") if ownership is None else Found("here", await ownership.read_result(baton_id, offset, limit))

    async def reserve(self, lease: Lease, baton_id: str, attempt: int, amounts: dict[str, float]) -> Found:
        """See `Ownership.reserve`."""
        self._calls["reserve"] += 1
        ownership = self._owned_by(lease)
        return Found("gone") if ownership is None else Found("here", await ownership.reserve(lease, baton_id, attempt, amounts))

    # ------------------------------------------------------------ for subscribers

    @ray.method(concurrency_group="polls")
    async def events(self, root_id: str, after: int, heard: int | None = None) -> Page:
        """The next events after a cursor, and for those who listen, whispers; see `Publication.after`."""
        ownership = self._ownership
        if ownership is None or ownership.root_id != root_id:
            return Page(moved=True)
        self._calls["events"] += 1
        return await ownership.publication.after(after, heard)

    @ray.method(concurrency_group="polls")
    async def outcome(self, root_id: str) -> Found:
        """The root, once the tree has ended."""
        ownership = self._ownership
        if ownership is None or ownership.root_id != root_id:
            return Found("gone")
        self._calls["outcome"] += 1
        return await ownership.publication.final()

    # ------------------------------------------------------------ inside

    def _owned_by(self, lease: Lease) -> Ownership | None:
        held = self._ownership
        return held if held is not None and (held.root_id, held.epoch) == (lease.root_id, lease.epoch) else None

    def _own(self, root_id: str, epoch: int) -> Ownership:
        loop = asyncio.get_running_loop()
        released = self._released[root_id] = loop.create_future()
        processes = RayProcesses(self._handle, lambda run, cause, error: ownership.run_ended(run, cause, error))

        def let_go(why: str) -> None:
            reached("release.after")
            self._ownership = None
            del self._released[root_id]
            if not released.done():
                released.set_result(why)

        ownership = Ownership(
            root_id,
            epoch,
            self._config.name,
            store=self._store,
            executor=self._executor,
            processes=processes,
            cores=self._config.cores,
            released=let_go,
        )
        self._ownership = ownership
        return ownership
