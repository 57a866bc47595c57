"""One owner without Ray: a real database whose writes can be made to fail, and worker processes that the test plays.

A test says what the story is; `on_stage` gives it a stage and looks afterwards at what no story may break: the stored tree is
valid, its log has no gap, what was published is what is stored and was stored before, no attempt was handed out twice.
"""

import asyncio
import functools
import inspect
import json
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import stamina

from baton_actors.baton import Baton, Budget, Constraints, Guards, child_id, root_id
from baton_actors.commands import Command, LossCause
from baton_actors.errors import BatonError, DatabaseUnusable, Moved
from baton_actors.events import Event, EventType
from baton_actors.machine import Tree, validate
from baton_actors.runtime import ownership, runs
from baton_actors.runtime.dispatch import Run
from baton_actors.runtime.opening import Submission, loaded_tree
from baton_actors.runtime.ownership import Ownership
from baton_actors.runtime.wire import Instructions, Lease, WireReport, spec_wire
from baton_actors.store import Group, LoadedTree, Store
from baton_actors.store.faults import CommitDoubtful
from baton_actors.store.records import TreeRow
from tests.unit.drive import spec

CLUSTER = "cl_test"
#: Seconds until a test that waits for something gives up.
LONGEST_WAIT = 10.0


# ---------------------------------------------------------------- a database that fails


class Fault(StrEnum):
    """What a call of the store does instead of its work, or beside it."""

    NONE = "none"
    BEFORE = "doubtful, not written"
    AFTER = "doubtful, written"
    UNUSABLE = "unusable"
    MOVED = "moved"
    DEPOSED = "the epoch is raised first"


#: The faults after which an owner still owns its tree.
PASSING = (Fault.BEFORE, Fault.AFTER, Fault.UNUSABLE)


@dataclass
class Planned:
    """A fault to come. `reached` is set when the call is made; it goes on when `go` is set."""

    method: str
    fault: Fault
    when: Callable[[Group], bool]
    times: int
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


class FaultyStore(Store):
    """A store of which chosen calls fail.

    Attributes:
        calls: how often each of `begin_tree`, `commit`, `take` was called. groups: what each commit was to write.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, patience=5)
        self.calls: Counter[str] = Counter()
        self.groups: list[Group] = []
        self._plans: list[Planned] = []

    def plan(
        self, method: str, fault: Fault, when: Callable[[Group], bool] = lambda _: True, *, times: int = 1, held: bool = False
    ) -> Planned:
        """The next calls of a method for which `when` says yes fail; a `held` one waits until it is told to go on."""
        planned = Planned(method, fault, when, times)
        if not held:
            planned.go.set()
        self._plans.append(planned)
        return planned

    def begin_tree(self, tree: TreeRow, group: Group, *rest: Any) -> str | None:
        return self._faulty("begin_tree", tree.root_id, group, lambda: Store.begin_tree(self, tree, group, *rest))

    def commit(self, root_id: str, epoch: int, group: Group) -> None:
        self.groups.append(group)
        self._faulty("commit", root_id, group, lambda: Store.commit(self, root_id, epoch, group))

    def take(self, root_id: str, *rest: Any) -> LoadedTree | None:
        return self._faulty("take", root_id, Group(), lambda: Store.take(self, root_id, *rest))

    def release_all(self) -> None:
        """Nothing waits any longer."""
        for planned in self._plans:
            planned.go.set()

    def depose(self, root_id: str) -> int:
        """Lend the tree to somebody else, behind its owner's back; the new epoch."""
        epoch = self.lend(root_id, "another", CLUSTER, self.tree(root_id).owner)
        assert epoch is not None
        return epoch

    def _faulty(self, method: str, root_id: str, group: Group, call: Callable[[], Any]) -> Any:
        self.calls[method] += 1
        planned = next((each for each in self._plans if each.method == method and each.times > 0 and each.when(group)), None)
        if planned is None:
            return call()
        planned.times -= 1
        planned.reached.set()
        assert planned.go.wait(LONGEST_WAIT)
        match planned.fault:
            case Fault.BEFORE:
                raise CommitDoubtful(root_id, "the connection was lost")
            case Fault.AFTER:
                call()
                raise CommitDoubtful(root_id, "the connection was lost")
            case Fault.UNUSABLE:
                raise DatabaseUnusable("the database", "the disk is full")
            case Fault.MOVED:
                raise Moved(root_id, 0)
            case Fault.DEPOSED:
                self.depose(root_id)
                return call()
            case Fault.NONE:
                return call()


def having(type: EventType) -> Callable[[Group], bool]:
    """Whether a group holds an event of that type."""
    return lambda group: any(event.type is type for event in group.events)


def hibernating(group: Group) -> bool:
    """Whether a group gives back a tree that has not ended."""
    return group.release and not group.events


# ---------------------------------------------------------------- workers that the test plays

#: What an automatic worker does with an assignment: its report without baton and attempt, as in `("completed", 1, False)`.
Behaviour = Callable[[dict[str, Any]], tuple[Any, ...]]


class Worker:
    """One worker process. It asks for instructions once it is connected; what it reports, the test says.

    Attributes:
        assignments: by baton id, the last of each. stops: what it was told to stop. ended, moved, killed: what became of it.
    """

    def __init__(self, owner: "Owner", run: Run, lease: Lease, first: Instructions) -> None:
        self.owner = owner
        self.run = run
        self.lease = lease
        self.first = first
        self.assignments: dict[str, dict[str, Any]] = {}
        self.code: dict[str, bytes] = {}
        self.stops: list[tuple[str, int]] = []
        self.ended = False
        self.moved = False
        self.killed = False
        self.gone = False
        self.received = first.number
        self.reports = 0
        self._following: asyncio.Task[None] | None = None
        self._follow(first)

    def connect(self) -> "Worker":
        """Make the first call for instructions, and go on asking."""
        self._following = self.owner.stage.background(self._ask())
        return self

    async def _ask(self) -> None:
        while not (self.ended or self.moved):
            self._follow(await self.owner.ownership.instructions(self.lease, self.received))
        if self.ended:
            self.die(None)

    def _follow(self, instructions: Instructions) -> None:
        self.received = instructions.number
        self.code.update(instructions.code)
        self.stops += instructions.stops
        self.ended = self.ended or instructions.end
        self.moved = self.moved or instructions.moved
        for wire in instructions.assignments:
            baton_id, attempt = wire["baton"]["id"], wire["baton"]["attempt"]
            self.assignments[baton_id] = wire
            self.owner.stage.handed_out(self.owner, baton_id, attempt)
        if self.owner.behaviour and instructions.assignments:
            self.owner.stage.background(self._behave(self.owner.behaviour, instructions.assignments))

    async def _behave(self, behaviour: Behaviour, assignments: list[dict[str, Any]]) -> None:
        if self._following is None:
            self.connect()
        reports = []
        for wire in assignments:
            kind, *rest = behaviour(wire)
            reports.append((kind, wire["baton"]["id"], wire["baton"]["attempt"], *rest))
        await self.report(*reports)

    async def report(self, *reports: WireReport) -> bool:
        """Send one numbered list; the owner's answer."""
        self.reports += 1
        return await self.owner.ownership.report(self.lease, self.reports, list(reports))

    def outcome(self, kind: str, baton_id: str, *rest: Any) -> WireReport:
        """A report of the attempt that this process was handed."""
        return (kind, baton_id, self.assignments[baton_id]["baton"]["attempt"], *rest)

    async def complete(self, *baton_ids: str, value: Any = "done") -> bool:
        return await self.report(*(self.outcome("completed", each, value, False) for each in baton_ids))

    async def fail(self, baton_id: str, error: str = "broken", *, retryable: bool = False) -> bool:
        return await self.report(self.outcome("failed", baton_id, error, "error", retryable, None))

    async def spawn(self, baton_id: str, *goals: str, code: dict[str, bytes] | None = None, **fields: Any) -> bool:
        return await self.report(self.outcome("spawned", *spawning(baton_id, *goals, code=code, **fields)))

    async def checkpoint(self, baton_id: str, state: Any = "saved") -> bool:
        return await self.report(self.outcome("checkpoint", baton_id, state, {}))

    def saved(
        self, baton_id: str, first_row: int, *rows: str, usage: dict[str, float] | None = None, rounds: int = 0, **data: Any
    ) -> WireReport:
        """What an agent's save is reported as; each row says one of these words."""
        bodies = tuple(json.dumps({"content": row}) for row in rows)
        return self.outcome("checkpoint", baton_id, {"at": first_row}, data, first_row, bodies, usage or {}, rounds)

    def die(self, cause: LossCause | None = "process", error: str = "") -> None:
        """The process is gone."""
        if not self.gone:
            self.gone = True
            if self._following is not None:
                self._following.cancel()
            self.owner.ownership.run_ended(self.run, cause, error)


def spawning(baton_id: str, *goals: str, code: dict[str, bytes] | None = None, **fields: Any) -> tuple[Any, ...]:
    """The rest of a spawned report."""
    return (baton_id, [spec_wire(spec(goal, **fields)) for goal in goals], None, code or {})


class PlayedProcesses:
    """Gives an owner processes that the test plays.

    Attributes:
        workers: in the order of their starts. killed: ids of runs whose process was still there. refusal: raised instead of a start.
    """

    def __init__(self, owner: "Owner") -> None:
        self._owner = owner
        self.workers: list[Worker] = []
        self.killed: list[int] = []
        self.refusal: Exception | None = None
        self.refused = 0
        self.archive: tuple[str, bytes] | None = None
        self.agent: dict[str, Any] = {}

    def pack(self, archive: tuple[str, bytes] | None, agent: dict[str, Any]) -> None:
        self.archive, self.agent = archive, agent

    def start(self, run: Run, lease: Lease, first: Instructions) -> None:
        if self.refusal is not None:
            self.refused += 1
            raise self.refusal
        worker = Worker(self._owner, run, lease, first)
        self.workers.append(worker)
        if self._owner.behaviour and worker._following is None:
            worker.connect()

    def kill(self, run: Run) -> None:
        worker = next(each for each in self.workers if each.run is run)
        if not (worker.gone or worker.killed):
            worker.killed = True
            self.killed.append(run.id)
            asyncio.get_running_loop().call_soon(worker.die, "owner")


class Owner:
    """An ownership and all that the test sees of it.

    Attributes:
        released: why it let go; at most once. published: every event. behaviour: of automatic workers, if they are.
    """

    def __init__(self, stage: "Stage", root_id: str, epoch: int, name: str, cores: int, behaviour: Behaviour | None) -> None:
        self.stage = stage
        self.name = name
        self.root_id = root_id
        self.behaviour = behaviour
        self.released: list[str] = []
        self.published: list[Event] = []
        self.processes = PlayedProcesses(self)
        self.ownership = Ownership(
            root_id,
            epoch,
            name,
            store=stage.store,
            executor=stage.executor,
            processes=self.processes,
            cores=cores,
            released=self._let_go,
        )
        self._publish = self.ownership.publication.publish
        self.ownership.publication.publish = self._record  # type: ignore[method-assign]

    @property
    def workers(self) -> list[Worker]:
        return self.processes.workers

    @property
    def tree(self) -> Tree:
        """What it has in memory."""
        return self.ownership._tree

    async def worker(self, number: int) -> Worker:
        """The worker process that is started as the n-th, from 0."""
        await self.stage.until(lambda: len(self.workers) > number)
        return self.workers[number]

    async def order(self, command: Command, command_id: str = "") -> BatonError | None:
        """A client's command; its answer."""
        return await self.ownership.order(command, command_id or os.urandom(8).hex())

    async def end(self) -> str:
        """Wait until it has let go; why."""
        await self.stage.until(lambda: bool(self.released))
        return self.released[0]

    def _let_go(self, why: str) -> None:
        if not (self.stage.closing and self.released):  # the stage ends what still goes on, in whatever it is about
            self.released.append(why)

    def _record(self, events: list[Event]) -> None:
        if events and self.stage.store.tree(self.root_id).seq < events[-1].seq:
            self.stage.complaints.append(f"seq {events[-1].seq} is published and not stored")
        self.published += events
        self._publish(events)


# ---------------------------------------------------------------- the stage


class Stage:
    """One database, and the owners that were put on it.

    Attributes:
        complaints: what should never have happened, found while the story went on. closing: the test is over.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "baton.db"
        self.store = FaultyStore(f"sqlite:///{self.path}")
        self.store.upgrade()
        self.executor = ThreadPoolExecutor(1)
        self.owners: list[Owner] = []
        self.complaints: list[str] = []
        self.closing = False
        self._handed: set[tuple[str, int]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    # ------------------------------------------------------------ owners

    def owner(self, root_id: str, epoch: int, name: str = "A", *, cores: int = 1, behaviour: Behaviour | None = None) -> Owner:
        """An owner that has done nothing yet."""
        owner = Owner(self, root_id, epoch, name, cores, behaviour)
        self.owners.append(owner)
        return owner

    async def begun(
        self,
        submission: Submission | None = None,
        name: str = "A",
        *,
        cores: int = 1,
        behaviour: Behaviour | None = None,
        **root: Any,
    ) -> Owner:
        """The owner of a new tree."""
        submission = submission or submitted(**root)
        owner = self.owner(submission.root.id, 1, name, cores=cores, behaviour=behaviour)
        assert await owner.ownership.begin(submission, CLUSTER) == submission.root.id
        return owner

    async def taken(
        self,
        root_id: str,
        name: str = "B",
        *,
        cores: int = 1,
        behaviour: Behaviour | None = None,
        order: tuple[Command, str] | None = None,
    ) -> Owner:
        """The owner of a tree that was lent to it anew."""
        epoch = self.store.lend(root_id, name, CLUSTER, self.store.tree(root_id).owner)
        assert epoch is not None
        owner = self.owner(root_id, epoch, name, cores=cores, behaviour=behaviour)
        assert await owner.ownership.take()
        assert await owner.ownership.serve(order) is None
        return owner

    # ------------------------------------------------------------ waiting

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition that something under way will make true."""
        end = time.monotonic() + LONGEST_WAIT
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            await asyncio.sleep(0.001)

    async def settled(self, owner: Owner) -> None:
        """Wait until the owner has nothing in its queue and no commit under way."""
        await owner.ownership._enqueue([])

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Something that goes on beside the test; its fault fails the test."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        return task

    # ------------------------------------------------------------ looking

    def handed_out(self, owner: Owner, baton_id: str, attempt: int) -> None:
        """A process was given an attempt: it must be durable, and given to nobody before."""
        if (baton_id, attempt) in self._handed:
            self.complaints.append(f"attempt {attempt} of {baton_id} was handed out twice")
        self._handed.add((baton_id, attempt))
        stored = self.store.outcome(baton_id).attempt
        if stored < attempt:
            self.complaints.append(f"attempt {attempt} of {baton_id} was handed out, stored is {stored}")

    def baton(self, id: str) -> Baton:
        """As it is stored."""
        return self.store.baton(id)

    def statuses(self, root_id: str) -> list[str]:
        """Of all batons, depth first."""
        return [str(baton.status) for baton in self.store.snapshot(root_id).batons]

    def log(self, root_id: str, type: EventType | None = None) -> list[Event]:
        """The stored events, perhaps of one type."""
        return [event for event in self.store.events(root_id, 0, 1_000_000) if type in (None, event.type)]

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that is stored."""
        with sqlite3.connect(self.path) as connection:
            return {name: sorted(connection.execute(f"SELECT * FROM {name}")) for name in ("trees", "batons", "events", "messages", "code")}

    # ------------------------------------------------------------ the end

    async def close(self) -> None:
        """Stop everything; what went wrong beside the test comes out."""
        self.closing = True
        self.store.release_all()
        for owner in self.owners:
            if not owner.ownership._over:
                owner.ownership.abandon()
        for task in self._tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for owner in self.owners:
            if owner.ownership._serving is not None:
                await owner.ownership._serving
        self.executor.shutdown()
        for task in self._tasks:
            if not task.cancelled():
                task.result()

    def check(self) -> None:
        """What holds after every story."""
        assert self.complaints == []
        stored = {row[0] for row in self.rows()["trees"]}
        for root in dict.fromkeys(owner.root_id for owner in self.owners):
            if root in stored:
                self._check_tree(root)

    def _check_tree(self, root_id: str) -> None:
        row, log = self.store.tree(root_id), self.log(root_id)
        assert [event.seq for event in log] == list(range(1, row.seq + 1))
        _check_log(log)
        owners = [owner for owner in self.owners if owner.root_id == root_id]
        for owner in owners:
            assert len(owner.released) == 1, owner.released
            first = owner.published[0].seq - 1 if owner.published else 0
            assert [event[:-1] for event in owner.published] == [event[:-1] for event in log[first : first + len(owner.published)]]
        if owners[-1].released[0] != "moved":
            assert owners[-1].ownership.publication.seq == row.seq
        epoch = self.store.lend(root_id, "checker", CLUSTER, row.owner)
        assert epoch is not None
        loaded = Store.take(self.store, root_id, "checker", epoch, None)
        assert loaded is not None
        validate(loaded_tree(loaded))


def _check_log(log: Iterable[Event]) -> None:
    attempts: dict[str, int] = {}
    resumed: set[tuple[Any, ...]] = set()
    for event in log:
        if event.type is EventType.STARTED:
            assert event.attempt == attempts.get(event.baton_id, 0) + 1, f"{event.baton_id}: {event}"
            attempts[event.baton_id] = event.attempt
        elif event.type is EventType.RESUMED:
            place = (event.baton_id, event.data["generation"], event.data["breakdown"])
            assert place not in resumed, f"{event.baton_id} is resumed twice"
            resumed.add(place)


def submitted(
    *,
    key: str | None = None,
    functions: dict[str, bytes] | None = None,
    archive: bytes | None = None,
    agent: dict[str, Any] | None = None,
    budget: Budget = Budget(),
    id: str | None = None,
    **root: Any,
) -> Submission:
    """A new tree; the fields of `Constraints` stand beside the others."""
    now = time.time_ns() // 1_000_000
    id = id or root_id(now, os.urandom(10))
    bounds = {name: root.pop(name) for name in list(root) if name in Constraints.model_fields}
    given = {"goal": "all", "worker": "work:run", "constraints": Constraints(**bounds), **root}
    baton = Baton(id=id, root_id=id, created_at=now, updated_at=now, **given)
    return Submission(baton, budget, Guards(), key, functions or {}, archive, agent or {})


def children(parent_id: str, count: int, *, breakdown: int = 1, generation: int = 0) -> list[str]:
    """The ids that a breakdown gives."""
    return [child_id(parent_id, generation, breakdown, index) for index in range(count)]


def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries to commit no time passes, and none before a baton that is tried again."""
    monkeypatch.setattr(ownership, "random", SimpleNamespace(uniform=lambda low, high: 0.0, random=lambda: 0.0))


def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and graces are a moment; an idle run is kept, so that the test can go on with it. A fault ends the test, not its process."""
    monkeypatch.setattr(ownership, "_end_process_on_fault", lambda _: None)
    monkeypatch.setattr(runs, "START_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(runs, "LINGER_SECONDS", 60.0)
    monkeypatch.setattr(runs, "END_GRACE_SECONDS", 0.01)
    monkeypatch.setattr(runs, "ALONE_GRACE_SECONDS", 0.01)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def on_stage(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine with a stage as its first argument; the others are fixtures and parameters."""

    async def played(folder: Path, named: dict[str, Any]) -> None:
        stage = Stage(folder)
        try:
            await test(stage, **named)
        finally:
            await stage.close()
        stage.check()
        stage.store.close()

    signature = inspect.signature(test)
    _, *others = signature.parameters.values()
    given = [each.name for each in others]
    fixtures = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("tmp_path", "monkeypatch") if name not in given
    ]

    @functools.wraps(test)
    def run(**named: Any) -> None:
        no_pauses(named["monkeypatch"])
        short_times(named["monkeypatch"])
        with stamina.set_testing(True, attempts=10_000):
            asyncio.run(played(named["tmp_path"], {name: named[name] for name in given}))

    run.__signature__ = signature.replace(parameters=[*others, *fixtures])  # type: ignore[attr-defined]
    return run
