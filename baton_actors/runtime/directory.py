"""The directory: one detached actor that finds, admits and activates. It lends owners to trees and takes them back.

Its state is a query, never a memory: whatever it holds can be lost and is read again from the database and from Ray's list
of actors. It learns of an owner's end by a call that waits for the release of a tree; nothing is asked in a loop but the
lease of the cluster, with which it also looks for what fell between two stools. No owner can hold it up: see `calling`.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError

from baton_actors.baton import root_id as new_id
from baton_actors.commands import Command
from baton_actors.errors import BatonError, ClusterUnusable, DatabaseUnusable, Moved, NotAllowed
from baton_actors.machine import apply, decide
from baton_actors.runtime.awakening import awaken_soon
from baton_actors.runtime.calling import START_SECONDS, called, patiently_called
from baton_actors.runtime.crash_points import reached
from baton_actors.runtime.opening import Submission
from baton_actors.runtime.owner import POLLS, OwnerActor, OwnerConfig
from baton_actors.runtime.patience import unless_unusable, until_certain
from baton_actors.runtime.pool import Pool, Slot
from baton_actors.runtime.publication import Found
from baton_actors.runtime.stopped import end_stopped
from baton_actors.runtime.whereabouts import Whereabouts
from baton_actors.settings import with_own_secret
from baton_actors.store import Group, Owned, Store, TreeRow

log = logging.getLogger(__name__)

NAME = "directory"
_FOREIGN = "belongs to another cluster; 'baton resume' takes it over when that one is gone"
_OWNER_PREFIX = "owner-"
#: Seconds between two renewals of the cluster's lease (30 s); every third comes with a sweep.
RENEW_SECONDS = 10.0
RENEWALS_A_SWEEP = 3
#: Seconds until a tree is lent again whose owner could not take it.
FAILED_TAKE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DirectoryConfig:
    """What the directory is started with, and restarted with.

    Attributes:
        database: URL without its password. kind: the beginning of the cluster's id.
        adopts: takes over trees of other clusters whose lease has expired.
        pinned_node: id of the node on which directory and owners must live (SQLite), or None.
    """

    namespace: str
    database: str
    kind: str
    max_trees: int
    warm_owners: int
    adopts: bool
    pinned_node: str | None


@dataclass(frozen=True, slots=True)
class About:
    """What a client must know of a cluster before it uses it.

    Attributes:
        adopts: as in `DirectoryConfig`. host, pid: of the directory. fault: why its database cannot be used.
    """

    database: str
    cluster_id: str
    adopts: bool
    host: str
    pid: int
    fault: str | None


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a submitted tree is: its id, and its owner if it has one already."""

    root_id: str
    owner: ActorHandle[Any] | None


class DirectoryActor:
    """See the module. One for each Ray namespace.

    What is written and what is read have a thread each: a write may have to wait for a lock, which keeps no reader.
    """

    def __init__(self, config: DirectoryConfig) -> None:
        self._config = config
        # The same for every directory that this Ray ever has: one that takes the place of another has the same trees.
        self._cluster_id = f"{config.kind}-{ray.get_runtime_context().get_session_name()}-{config.namespace}"
        self._owners = Pool(config.warm_owners, config.max_trees, new=self._new_owner, freed=self._owner_is_free, spawn=self._spawn)
        self._lent: dict[str, Slot] = {}
        self._being_lent: set[str] = set()
        self._backlog = True
        self._filling = False
        self._orphans: list[Owned] = []
        self._changed = Whereabouts()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="reading")
        self._begun: asyncio.Task[None] | None = None
        self._ready = False
        self._looks = 0
        self._fault: BatonError | None = None
        self._unusable = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        awaken_soon(ray.get_runtime_context().current_actor)

    # ------------------------------------------------------------ beginnings

    async def awaken(self) -> None:
        """Open the database and find the owners that there are; retried for as long as it takes."""
        await asyncio.shield(self._beginning())

    def _beginning(self) -> "asyncio.Task[None]":
        if self._begun is None:
            self._begun = asyncio.create_task(self._begin())
        return self._begun

    async def _begin(self) -> None:
        pause = 0.1
        while True:
            try:
                await self._begin_once()
                break
            except Exception as error:  # whatever it is, nobody else would try again
                self._fault = (
                    error if isinstance(error, BatonError) else ClusterUnusable("the directory", f"{type(error).__name__}: {error}")
                )
                if isinstance(error, DatabaseUnusable):
                    self._unusable.set()
                else:
                    self._unusable.clear()
                log.warning("the directory cannot begin yet: %s: %s", type(error).__name__, error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, 5.0)
        self._fault = None
        self._unusable.clear()
        self._owners.keep_warm()
        self._ready = True
        self._changed.wake_all()  # who asked for a tree before the database could be read

    async def _begin_once(self) -> None:
        self._store = Store(with_own_secret(self._config.database))
        await self._in_thread(self._store.upgrade)
        if self._keeping is None:
            self._keeping = self._spawn(self._keep_lease())  # before anything is written: a stopped process may be in the way
        await self._find_owners()  # one that has stopped in a transaction must be found before anything is written
        await self._in_thread(self._store.renew, self._cluster_id)
        await self._sweep()

    async def _awake(self) -> None:
        """Wait until it has begun, for somebody who can be told that it cannot.

        Raises:
            DatabaseUnusable: it has not begun, and will not unless somebody mends the database.
        """
        begun, unusable = self._beginning(), asyncio.create_task(self._unusable.wait())
        await asyncio.wait({begun, unusable}, return_when=asyncio.FIRST_COMPLETED)
        unusable.cancel()
        if not begun.done() and self._fault is not None:
            raise self._fault

    async def _find_owners(self) -> None:
        names = await asyncio.to_thread(ray.util.list_named_actors, True)
        for each in names:
            name = each["name"]
            if each["namespace"] != self._config.namespace or not name.startswith(_OWNER_PREFIX) or self._owners.get(name):
                continue
            with contextlib.suppress(ValueError):  # it died since the list was made
                slot = Slot(name, await asyncio.to_thread(ray.get_actor, name, self._config.namespace))
                self._owners.add(slot)
                self._spawn(self._meet(slot))

    async def _meet(self, slot: Slot, pause: float = 0.0) -> None:
        """An owner whose state is not known, asked after a pause: it holds a tree, or is free."""
        slot.known = False
        await asyncio.sleep(pause)
        try:
            status = await patiently_called(slot.handle, "status", pulse=START_SECONDS)
        except RayActorError:
            self._owners.forget(slot)
            self._spawn(self._sweep())
            return
        slot.known = True
        if status["root_id"] is None:
            self._owners.free(slot)
            self._spawn(self._sweep())  # the database may say that it holds one
        else:
            self._note_lent(slot, status["root_id"])

    async def about(self) -> About:
        """Answers within moments, also when the database cannot be used: then with the fault."""
        waiting = asyncio.create_task(self.awaken())
        await asyncio.wait([waiting], timeout=10.0)
        fault = None if self._fault is None else str(self._fault)
        return About(self._config.database, self._cluster_id, self._config.adopts, socket.gethostname(), os.getpid(), fault)

    # ------------------------------------------------------------ for clients

    async def submit(self, submission: Submission) -> Placed:
        """A new tree goes to a warm owner, or into the database until there is room.

        Raises:
            DatabaseUnusable, GroupRefused: it could not be written.
        """
        await self._awake()
        submission = submission.dated(time.time_ns() // 1_000_000)  # by the cluster's clock, not the client's
        if self._owners.idle and not self._backlog and self._has_room:
            placed = await self._begin_at(self._owners.pop(), submission)
            if placed is not None:
                return placed
        tree, group = submission.tree(), Group()
        decision = decide(tree, submission.command())
        for row in apply(tree, decision.events):
            group.add_row(*row)
        group.events.extend(decision.events)
        submission.add_code(group)
        row_of_tree = submission.row(self._cluster_id, None, None, wake_at=0)
        known: str | None = await self._until_certain(self._store.begin_tree, row_of_tree, group)
        self._look_for_work()
        return Placed(known or submission.root.id, None)

    async def _begin_at(self, slot: Slot, submission: Submission) -> Placed | None:
        """Hand a new tree to a warm owner; None: nobody knows whether it was written, the queue writes it only once."""
        slot.root_id = submission.root.id
        begun = None
        try:
            begun = await called(slot.handle, "begin", submission)
        except RayActorError as error:
            log.info("tree %s: %s did not begin it: %s", submission.root.id, slot.name, error)
        finally:
            if begun is None:
                self._spawn(self._meet(slot))
        if begun is None:
            return None
        if begun != submission.root.id:
            self._owners.free(slot)
            return Placed(begun, None)
        self._note_lent(slot, begun)
        self._owners.keep_warm()
        return Placed(begun, slot.handle)

    async def order(self, root_id: str, command: Command, command_id: str) -> BatonError | None:
        """Bring a client's command to the tree's owner, activating the tree if it has none; None, or why it was refused.

        Raises:
            DatabaseUnusable: the tree has no owner, and cannot be lent to one.
        """
        await self._awake()
        pause = 0.05
        for _ in range(60):
            slot = self._lent.get(root_id)
            try:
                if slot is not None:
                    answer: BatonError | None = await called(slot.handle, "order", root_id, command, command_id)
                    if not isinstance(answer, Moved):
                        return answer
                elif root_id not in self._being_lent:
                    taken, answer = await self._activate_for(root_id, (command, command_id))
                    if taken:
                        return answer
                    if await self._is_foreign(root_id):
                        return NotAllowed(root_id, _FOREIGN)
            except RayError as error:
                log.info("order for %s: %s", root_id, error)
            await asyncio.sleep(pause)  # it is being released, or its owner comes back to life
            pause = min(2 * pause, 1.0)
        return ClusterUnusable(f"tree {root_id}", "its owner could not be reached for a minute; try again, 'baton doctor' says more")

    async def _is_foreign(self, root_id: str) -> bool:
        tree: TreeRow = await unless_unusable(self._reading, self._store.tree, root_id)
        return tree.cluster_id != self._cluster_id

    async def adopt(self, root_ids: list[str] | None) -> list[str]:
        """Take over open trees of other clusters whose lease has expired, all or some.

        Raises:
            DatabaseUnusable: it cannot be written.
        """
        await self._awake()
        adopted: list[str] = await unless_unusable(self._executor, self._store.adopt, self._cluster_id, root_ids)
        if adopted:
            self._look_for_work()
        return adopted

    async def counts(self) -> dict[str, Any]:
        """Numbers for tests and benchmarks."""
        await self.awaken()
        return {
            "statements": self._store.statements,
            "commits": self._store.commits,
            "owners": len(self._owners),
            "idle": self._owners.idle,
            "lent": sorted(self._lent),
            "pid": os.getpid(),
        }

    @ray.method(concurrency_group="polls")
    async def where(self, root_id: str, after: int | None = None) -> Found:
        """The owner of a tree, as soon as it has one; gone: it has ended. For a subscriber who has its events up to `after`: news, if
        there are more while nobody owns it, as a tree that waits for somebody may have none for days."""

        async def look() -> Found | None:
            if slot := self._lent.get(root_id):
                return Found("here", slot.handle)
            if not self._ready:
                return None
            tree = await self._read(self._store.tree, root_id)
            if tree.status != "open":
                return Found("gone")
            if tree.cluster_id != self._cluster_id:
                raise NotAllowed(root_id, _FOREIGN)
            return Found("news") if after is not None and tree.seq > after else None

        return await self._changed.until(root_id, look) or Found("waiting")

    # ------------------------------------------------------------ owners

    async def _new_owner(self) -> Slot:
        name = f"{_OWNER_PREFIX}{new_id(time.time_ns() // 1_000_000, os.urandom(10))[3:]}"
        resources = await asyncio.to_thread(ray.cluster_resources)
        cores = int(resources.get("CPU", 1))
        config = OwnerConfig(name, self._config.database, self._cluster_id, cores)
        handle = owner_class().options(**detached(name, self._config.namespace, self._config.pinned_node)).remote(config)
        return Slot(name, handle)

    def _owner_is_free(self) -> None:
        if self._backlog:
            self._look_for_work()

    # ------------------------------------------------------------ lending

    @property
    def _has_room(self) -> bool:
        return len(self._lent) + len(self._being_lent) < self._config.max_trees

    async def _activate_for(self, root_id: str, order: tuple[Command, str]) -> tuple[bool, BatonError | None]:
        """Lend an owner to a tree that nobody holds, for a client's command; whether it took it, and the command's answer.

        Raises:
            DatabaseUnusable: nothing can be written.
        """
        slot = await self._owners.wait()
        epoch = await self._lend(slot, root_id, None, unless_unusable)
        return (False, None) if epoch is None else await self._hand_over(slot, root_id, epoch, order)

    async def _lend(self, slot: Slot, root_id: str, previous: Owned | None, patience: Callable[..., Any] = until_certain) -> int | None:
        """Write that an owner has a tree, which `previous` held; the epoch. None: that is not so any more, the owner is free again."""
        slot.root_id = root_id
        self._being_lent.add(root_id)
        held = (None, None) if previous is None else (previous.owner, previous.epoch)
        try:
            reached("lend.before")
            epoch: int | None = await patience(self._executor, self._store.lend, root_id, slot.name, self._cluster_id, *held)
            reached("lend.after")
        except BaseException:
            self._being_lent.discard(root_id)
            self._spawn(self._meet(slot))  # nobody knows whether it was written
            raise
        if epoch is None:
            self._being_lent.discard(root_id)
            self._owners.free(slot)
        return epoch

    async def _hand_over(self, slot: Slot, root_id: str, epoch: int, order: tuple[Command, str] | None) -> tuple[bool, BatonError | None]:
        """Let an owner take the tree that it was lent; whether it did, and the answer to the order it took with it."""
        taken, answer, pause = False, None, 0.0
        try:
            taken, answer = await called(slot.handle, "take", root_id, epoch, order)
        except Exception as error:
            if not isinstance(error, RayActorError):
                pause = FAILED_TAKE_SECONDS  # it would fail again at once
            raise
        finally:
            self._being_lent.discard(root_id)
            if taken:
                self._note_lent(slot, root_id)
            else:
                self._spawn(self._meet(slot, pause))  # it holds another, or died; a restarted one takes what the database gives it
        return taken, answer

    async def _hand_over_due(self, slot: Slot, root_id: str, epoch: int) -> None:
        try:
            await self._hand_over(slot, root_id, epoch, None)
        except (RayError, BatonError) as error:
            log.warning("tree %s could not be taken by %s, it is lent again: %s", root_id, slot.name, error)

    def _note_lent(self, slot: Slot, root_id: str) -> None:
        slot.root_id = root_id
        self._lent[root_id] = slot
        self._changed.wake(root_id)
        self._spawn(self._watch(slot, root_id))

    async def _watch(self, slot: Slot, root_id: str) -> None:
        """Wait for the release; an owner that died comes back by itself, or, if Ray gave it up, loses its tree."""
        try:
            why = await patiently_called(slot.handle, "released", root_id)
        except RayActorError as error:
            log.warning("owner %s of %s is gone for good: %s", slot.name, root_id, error)
            self._owners.forget(slot)
            self._let_go(slot, root_id)
            self._spawn(self._sweep())
            return
        self._let_go(slot, root_id)
        if why != "ended":
            self._backlog = True
        self._owners.free(slot)
        if why in ("idle", "moved"):  # it does not have what it should: somebody else has it, or nobody
            self._spawn(self._sweep())

    def _let_go(self, slot: Slot, root_id: str) -> None:
        if self._lent.get(root_id) is slot:
            del self._lent[root_id]
        self._changed.wake(root_id)

    # ------------------------------------------------------------ work that waits

    def _look_for_work(self) -> None:
        """There may be trees that are due: lend them owners, oldest first, unless that is being done."""
        self._backlog = True
        self._looks += 1
        if not self._filling:
            self._filling = True
            self._spawn(self._fill())

    async def _fill(self) -> None:
        try:
            while self._has_room and await self._lend_next():
                pass
        finally:
            self._filling = False

    async def _lend_next(self) -> bool:
        """Lend an owner to the tree that comes first; False: none is due."""
        looks = self._looks
        if not (self._orphans or await self._first_due()):
            await self._set_timer()
            self._backlog = looks != self._looks  # something came in after the database was asked
            return self._backlog
        slot = await self._owners.wait()
        orphan = self._orphans.pop(0) if self._orphans else None
        root_id = await self._first_due() if orphan is None else orphan.root_id  # one that was woken meanwhile comes first
        if root_id is None:
            self._owners.free(slot)
        elif (epoch := await self._lend(slot, root_id, orphan)) is not None:
            self._spawn(self._hand_over_due(slot, root_id, epoch))  # a large tree takes its time, others need not wait
        return True

    async def _first_due(self) -> str | None:
        due: list[str] = await until_certain(self._reading, self._store.due, self._cluster_id, 1)
        return due[0] if due else None

    async def _set_timer(self) -> None:
        """One timer, for the tree that is due next."""
        left = await until_certain(self._reading, self._store.next_wake, self._cluster_id)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if left is None else asyncio.get_running_loop().call_later(left / 1000 + 0.01, self._look_for_work)

    async def _keep_lease(self) -> None:
        """Renew the lease, and look now and then for what was left; a write that waits for a lock does not end the looking."""
        renewals = 0
        renewing: asyncio.Task[None] | None = None
        while True:
            await self._end_stopped()
            await asyncio.sleep(RENEW_SECONDS)
            if renewing is None or renewing.done():
                renewals += 1
                renewing = self._spawn(self._renew(sweep=renewals % RENEWALS_A_SWEEP == 0))

    async def _renew(self, *, sweep: bool) -> None:
        try:
            await self._in_thread(self._store.renew, self._cluster_id)
            if sweep:
                await self._sweep()
        except Exception:  # the lease is what keeps other clusters off; the next try may get through
            log.exception("the lease could not be renewed")

    async def _end_stopped(self) -> None:
        """End what a dead cluster of this machine left stopped: it may hold the lock of a SQLite file."""
        if self._config.pinned_node is None:
            return
        try:
            if ended := end_stopped(await self._read(self._store.left_pids)):
                log.warning("processes %s of a cluster that is gone had stopped, they are ended", ended)
        except BatonError as error:
            log.warning("what was left of other clusters cannot be looked for: %s", error)

    async def _sweep(self) -> None:
        """Find trees whose owner is gone, trees that are due, and trees of dead clusters."""
        if self._config.adopts:
            await self._in_thread(self._store.adopt, self._cluster_id, None)
        for owned in await self._read(self._store.owned, self._cluster_id):
            slot = self._owners.get(owned.owner)
            held = slot is not None and (not slot.known or slot.root_id == owned.root_id)
            if not held and owned not in self._orphans:
                self._orphans.append(owned)
        self._look_for_work()

    # ------------------------------------------------------------ inside

    async def _until_certain(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await until_certain(self._executor, function, *arguments)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    async def _read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._reading, function, *arguments)

    def _spawn(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the directory goes on after a fault; the next sweep repairs what it left", exc_info=error)


def detached(name: str, namespace: str, pinned_node: str | None) -> dict[str, Any]:
    """Ray's options of a directory or an owner: found by name, outliving the job, restarted without limit."""
    options: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": 0,
        "num_cpus": 0,
    }
    if pinned_node is not None:
        options["scheduling_strategy"] = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(pinned_node, soft=False)
    return options


def owner_class() -> Any:
    """The owner as Ray starts it."""
    return _with_polls(OwnerActor)


def directory_class() -> Any:
    """The directory as Ray starts it."""
    return _with_polls(DirectoryActor)


def _with_polls(actor: type) -> Any:
    decorate: Any = ray.remote(concurrency_groups={"polls": POLLS})  # type: ignore[call-overload]  # an option that Ray's stubs do not know
    return decorate(actor)
