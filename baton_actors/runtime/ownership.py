"""One tree in the hands of its owner: the command loop, without Ray.

Commands queue while a commit is on its way. Then the whole queue is decided, written in one transaction with what can be
started because of it, published, and only then acted upon and acknowledged. When a commit fails, or nobody knows whether
it happened, the tree is loaded again and the same queue is decided again; the fences in the machine and the ids of
commands make that harmless. A tree that is no longer this owner's is dropped without a further word.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from baton_actors.baton import ENDED, ErrorKind, Status
from baton_actors.commands import (
    Checkpoint,
    Command,
    Complete,
    Dispatch,
    Due,
    Effect,
    End,
    Fail,
    HandOver,
    Lose,
    LossCause,
    Recover,
    Spawn,
    Start,
    Stop,
    Wake,
)
from baton_actors.errors import BatonError, Moved, NotAllowed, NotFound
from baton_actors.machine import Tree, apply, decide
from baton_actors.runtime import wire
from baton_actors.runtime.dispatch import Dispatcher, Flight, Run, shape_of
from baton_actors.runtime.opening import Submission, budget_row, digest, loaded_tree
from baton_actors.runtime.publication import Publication
from baton_actors.runtime.wire import Instructions, Lease, WireReport
from baton_actors.store import Group, LoadedTree, Store

log = logging.getLogger(__name__)

#: Seconds that an idle run is kept: the next baton often follows at once.
LINGER_SECONDS = 0.2
#: Seconds after which a run that was told to end, or to stop an isolated baton, is killed.
END_GRACE_SECONDS = 5.0
ISOLATED_GRACE_SECONDS = 1.0
#: A tree gives its owner back if nothing is to happen for so many seconds.
HIBERNATE_SECONDS = 10.0
#: Without a sign of life for so many execution windows, at least so many seconds, a run is lost.
PATIENCE_WINDOWS = 4
LEAST_PATIENCE_SECONDS = 120.0
#: Longest pause between two tries to reach the database.
LONGEST_PAUSE_SECONDS = 5.0
#: A process that ends before its first call is tried again after so many seconds, then twice and three times as many.
START_PAUSE_SECONDS = 1.0
MOST_FAILED_STARTS = 4
#: Client commands whose answers are remembered, so that one that is repeated is not carried out twice.
REMEMBERED_COMMANDS = 32


class Processes(Protocol):
    """Where runs get their processes from; the owner actor gives Ray's."""

    def set_archive(self, digest: str | None, data: bytes | None) -> None:
        """The modules that every run of the tree imports."""

    def start(self, run: Run, lease: Lease, first: Instructions) -> None:
        """Start a process; when it has ended, `Ownership.run_ended` is called."""

    def kill(self, run: Run) -> None:
        """End a run's process, if it is still there."""


@dataclass(slots=True)
class Item:
    """Commands that came in together, and whoever waits for their answer.

    Attributes:
        commands: made with the time of their arrival. functions: code that a breakdown brought.
        command_id: of a client's command, remembered.
    """

    commands: list[Command]
    answer: asyncio.Future[BatonError | None]
    functions: dict[str, bytes] = field(default_factory=dict)
    command_id: str | None = None


@dataclass(slots=True)
class Work:
    """One group of decisions on its way into the database."""

    group: Group = field(default_factory=Group)
    effects: list[Effect] = field(default_factory=list)
    planned: list[tuple[Run, str, dict[str, Any]]] = field(default_factory=list)
    landed: list[tuple[Run, str, Flight]] = field(default_factory=list)
    answers: list[tuple[Item, BatonError | None]] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.group.events or self.group.tree or self.group.code)


class _Undecidable(Exception):
    """A fault of ours: an item that makes the machine raise; the tree in memory may be half changed."""

    def __init__(self, item: Item) -> None:
        super().__init__(item)
        self.item = item


class Ownership:
    """The life of one tree at one owner, from the lending to the release.

    Args:
        owner: name of this owner. epoch: of the lending. store: used in `executor`, one thread, only.
        released: called once with why it ended (`ended`, `hibernated`, `moved`).
    """

    def __init__(
        self,
        root_id: str,
        epoch: int,
        owner: str,
        *,
        store: Store,
        executor: Executor,
        processes: Processes,
        cores: int,
        released: Callable[[str], None],
    ) -> None:
        self.root_id = root_id
        self.epoch = epoch
        self._archive: str | None = None
        self._code: dict[str, bytes] = {}
        self.publication = Publication()
        self._owner = owner
        self._store = store
        self._executor = executor
        self._processes = processes
        self._released = released
        self._dispatcher = Dispatcher(cores)
        self._tree = Tree(root_id)
        self._answered: list[str] = []
        self._queue: list[Item] = []
        self._wake = asyncio.Event()
        self._polls: dict[int, asyncio.Future[Instructions]] = {}
        self._reporting: dict[int, tuple[int, asyncio.Future[BatonError | None]]] = {}
        self._alarms: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._serving: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ beginnings

    async def begin(self, submission: Submission, cluster_id: str) -> str:
        """Create a tree, owned from its first moment; its id, or that of the tree that has its idempotency key already."""
        self._tree = submission.tree()
        self._set_code(submission.functions, digest(submission.archive) if submission.archive else None, submission.archive)
        work = Work()
        self._carry(work, [self._item([submission.command()])])
        submission.add_code(work.group)
        row = submission.row(cluster_id, self._owner, os.getpid(), None)
        known: str | None = await self._until_certain(self._store.begin_tree, row, work.group)
        if known is None:
            self.publication.start(0)
            self._perform(work)
            self._start_serving()
            return self.root_id
        self._take_back(work)
        loaded = await self._take()
        if loaded is None:  # somebody else's tree: of the same idempotency key, or handed in before by a client that heard no answer
            self.abandon()
            return known
        self._load(loaded)  # a try that seemed to fail had come through
        self.publication.start(0)
        await self._catch_up(loaded.tree.seq)
        self._enqueue([Recover(_now())])
        self._start_serving()
        return self.root_id

    async def take(self) -> bool:
        """Take the tree over as the database holds it; False if it is not ours. `serve` goes on from there."""
        loaded = await self._take()
        if loaded is None:
            self.abandon()
            return False
        archive = loaded.tree.code.get("archive")
        functions = loaded.tree.code.get("functions", [])
        code = await self._until_certain(self._store.code, [*functions, archive] if archive else functions)
        self._set_code({name: code[name] for name in functions}, archive, code.get(archive))
        self._load(loaded)
        self.publication.start(loaded.tree.seq)
        self._enqueue([Recover(_now())])
        return True

    def abandon(self) -> None:
        """Let go of a tree that could not be begun or taken; harmless when it was let go already."""
        if not self._over:
            self._close("moved", None)

    async def serve(self, first: tuple[Command, str] | None) -> BatonError | None:
        """Begin to work on a tree that was taken, with a client's command if it was taken because of one; its answer."""
        answer = self.order(*first) if first is not None else None
        self._start_serving()
        return await answer if answer is not None else None

    def _load(self, loaded: LoadedTree) -> None:
        self._tree = loaded_tree(loaded)
        self._answered = list(loaded.tree.answered)
        stored = set(loaded.tree.code.get("functions", ()))
        self._code = {name: data for name, data in self._code.items() if name in stored}

    def _set_code(self, functions: dict[str, bytes], archive: str | None, archive_bytes: bytes | None) -> None:
        self._code = dict(functions)
        self._archive = archive
        self._processes.set_archive(archive, archive_bytes)

    def _start_serving(self) -> None:
        self._wake.set()
        self._serving = asyncio.create_task(self._serve())
        self._serving.add_done_callback(_end_process_on_fault)

    # ------------------------------------------------------------ what comes in

    def order(self, command: Command, command_id: str) -> asyncio.Future[BatonError | None]:
        """Carry out a client's command; None, or why it was refused."""
        return self._enqueue([replace(command, at=_now())], command_id=command_id)  # no two machines' clocks are compared

    async def report(self, lease: Lease, number: int, reports: list[WireReport]) -> bool:
        """Reports of a run; True when they are committed, False if the tree is not here any more."""
        run = self._dispatcher.runs.get(lease.run_id)
        if run is None or self._over:
            return False
        self._connect(run)
        if number <= run.last_report:
            return True
        under_way = self._reporting.get(run.id)
        if under_way is None or under_way[0] != number:
            at = _now()
            commands: list[Command] = [wire.command(report, at, random.random()) for report in reports]
            functions = {name: data for report in reports if report[0] == "spawned" for name, data in report[5].items()}
            under_way = (number, self._enqueue(commands, functions=functions))
            self._reporting[run.id] = under_way
        error = await asyncio.shield(under_way[1])
        if isinstance(error, Moved):
            return False
        run.last_report = max(run.last_report, number)
        return True

    async def instructions(self, lease: Lease, received: int) -> Instructions:
        """What a run is to do next, as soon as there is anything. `received` is the number of the last that reached it."""
        run = self._dispatcher.runs.get(lease.run_id)
        if run is None or self._over:
            return Instructions(received + 1, moved=True)
        self._connect(run)
        if received < run.sent.number:
            return run.sent
        if run.has_news:
            return self._next_instructions(run)
        poll: asyncio.Future[Instructions] = self._loop.create_future()
        self._polls[run.id] = poll
        if not run.in_flight:
            self._linger(run)
        return await poll

    def run_ended(self, run: Run, cause: LossCause | None, error: str = "") -> None:
        """A run's process is gone, by its own end (None) or otherwise; what it had in flight is lost."""
        if self._over or self._dispatcher.runs.pop(run.id, None) is None:
            return
        self._polls.pop(run.id, None)
        at, alone = _now(), run.alone
        if run.in_flight:
            self._enqueue([Lose(at, baton_id, flight.attempt, cause or "owner", alone) for baton_id, flight in run.in_flight.items()])
        if run.connected:
            self._dispatcher.failed_starts.pop(run.shape, None)
            self._wake.set()
        elif cause == "process":
            self._start_failed(run, error)
        else:
            self._loop.call_later(START_PAUSE_SECONDS, self._wake.set)

    def _start_failed(self, run: Run, error: str) -> None:
        """A process that ends before its first call: tried again, not at once, and not for ever."""
        failed = self._dispatcher.failed_starts.get(run.shape, 0) + 1
        self._dispatcher.failed_starts[run.shape] = failed
        if failed < MOST_FAILED_STARTS:
            self._loop.call_later(START_PAUSE_SECONDS * failed, self._wake.set)
            return
        self._dispatcher.failed_starts.pop(run.shape)
        first = (error.strip() or "its process ended before it could begin").splitlines()[0]
        for baton_id in self._dispatcher.take_ready(run.shape):
            at, attempt = _now(), self._tree.nodes[baton_id].baton.attempt + 1
            reason = f"no process could be started for it, {MOST_FAILED_STARTS} times: {first}"
            self._enqueue([Start(at, baton_id), Fail(at, baton_id, attempt, reason, ErrorKind.CRASHED)])

    def _enqueue(
        self, commands: list[Command], *, functions: dict[str, bytes] | None = None, command_id: str | None = None
    ) -> asyncio.Future[BatonError | None]:
        item = self._item(commands, functions, command_id)
        if self._over:
            item.answer.set_result(Moved(self.root_id, self.epoch))
        else:
            self._queue.append(item)
            self._wake.set()
        return item.answer

    def _item(self, commands: list[Command], functions: dict[str, bytes] | None = None, command_id: str | None = None) -> Item:
        return Item(commands, self._loop.create_future(), functions or {}, command_id)

    def _connect(self, run: Run) -> None:
        if run.connected:
            return
        run.connected = True
        for flight in run.in_flight.values():
            self._sign_of_life(flight)
        self._wake.set()

    # ------------------------------------------------------------ the loop

    async def _serve(self) -> None:
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            items, self._queue = self._queue, []
            await self._carry_out(items)
            await self._hibernate_if_idle()

    async def _carry_out(self, items: list[Item]) -> None:
        """Decide, commit, publish, act, answer. Whatever goes wrong before the commit is certain leads back to the database."""
        pause = 0.05
        while not self._over:
            work = Work()
            try:
                self._carry(work, items)
                if not work.empty:
                    work.group.release = self._has_ended
                    await self._in_thread(self._store.commit, self.root_id, self.epoch, work.group)
                break
            except Moved:
                self._depose()
            except _Undecidable as fault:
                log.exception("tree %s: cannot decide %s", self.root_id, fault.item.commands)
                fault.item.answer.set_exception(fault.__cause__ or fault)
                self._take_back(work)
                await asyncio.sleep(pause)
                items = await self._reload([item for item in items if item is not fault.item])
            except BatonError as error:  # doubt of any kind: only the database knows the state now
                log.warning("tree %s: commit failed or is in doubt (%s: %s), loading it again", self.root_id, type(error).__name__, error)
                self._take_back(work)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                items = await self._reload(items)
        if self._over:
            for item in items:
                _settle(item, Moved(self.root_id, self.epoch))
            return
        self._perform(work)

    def _carry(self, work: Work, items: list[Item]) -> None:
        """Decide every item and what can be started then; memory runs ahead of the database until the commit."""
        for item in items:
            work.answers.append((item, self._decide_item(work, item)))
        for baton_id, run in self._dispatcher.plan():
            self._start(work, baton_id, run)

    def _decide_item(self, work: Work, item: Item) -> BatonError | None:
        if item.command_id is not None and item.command_id in self._answered:
            return None
        for command in item.commands:
            try:
                self._decide(work, command)
            except (NotFound, NotAllowed) as refusal:
                return refusal
            except Exception as error:
                raise _Undecidable(item) from error
            self._land(work, command)
        new_code = {name: data for name, data in item.functions.items() if name not in self._code}
        if new_code:
            self._code.update(new_code)
            work.group.code.update({name: ("function", data) for name, data in new_code.items()})
            work.group.tree["code"] = {"archive": self._archive, "functions": sorted(self._code)}
        if item.command_id is not None:
            self._answered = [*self._answered, item.command_id][-REMEMBERED_COMMANDS:]
            work.group.tree["answered"] = self._answered
        return None

    @property
    def _has_ended(self) -> bool:
        """Whether the root stands ended: a retry in the same group may have re-opened it again."""
        return self._tree.root.baton.status in ENDED

    def _decide(self, work: Work, command: Command) -> bool:
        """One command, made true in memory; whether anything came of it."""
        decision = decide(self._tree, command)
        group = work.group
        for row in apply(self._tree, decision.events):
            group.add_row(*row)
        group.events.extend(decision.events)
        for event in decision.events:
            if event.type == "tree.reopened":
                group.tree["status"] = "open"
                group.tree["budget"] = budget_row(self._tree.budget, self._tree.budget_since, self._tree.guards)
        for effect in decision.effects:
            match effect:
                case Dispatch(baton_id):
                    node = self._tree.nodes[baton_id]
                    self._dispatcher.ready(baton_id, shape_of(node.baton, node.alone))
                case End(status):
                    group.tree["status"] = str(status)
                case Stop(baton_id) if run := self._dispatcher.holder(baton_id):
                    self._remove(work, run, baton_id)
                    work.effects.append(effect)
                case _:
                    work.effects.append(effect)
        return bool(decision.events)

    def _land(self, work: Work, command: Command) -> None:
        """A report of an outcome frees its place in the run; a checkpoint is a sign of life."""
        match command:
            case Checkpoint(baton_id=baton_id, attempt=attempt):
                if flight := self._flight(baton_id, attempt):
                    self._sign_of_life(flight)
            case Complete() | Fail() | Spawn() | HandOver() | Lose():
                run = self._dispatcher.holder(command.baton_id)
                if run is not None and run.in_flight[command.baton_id].attempt == command.attempt:
                    self._remove(work, run, command.baton_id)
            case _:
                pass

    def _flight(self, baton_id: str, attempt: int) -> Flight | None:
        run = self._dispatcher.holder(baton_id)
        flight = run.in_flight[baton_id] if run is not None else None
        return flight if flight is not None and flight.attempt == attempt else None

    def _remove(self, work: Work, run: Run, baton_id: str) -> None:
        work.landed.append((run, baton_id, run.in_flight.pop(baton_id)))

    def _start(self, work: Work, baton_id: str, run: Run) -> None:
        if not self._decide(work, Start(_now(), baton_id)):
            return
        baton = self._tree.nodes[baton_id].baton
        patience = max(PATIENCE_WINDOWS * baton.constraints.timeout_hint, LEAST_PATIENCE_SECONDS)
        run.in_flight[baton_id] = Flight(baton.attempt, patience)
        run.served += 1
        work.planned.append((run, baton_id, wire.assignment(self._tree, baton_id)))

    # ------------------------------------------------------------ after the commit

    def _perform(self, work: Work) -> None:
        """The group is durable: tell everybody."""
        self.publication.publish(work.group.events)
        for run, baton_id, assignment in work.planned:
            run.assignments.append(assignment)
            if run.connected:
                self._sign_of_life(run.in_flight[baton_id])
        for effect in work.effects:
            match effect:
                case Stop(baton_id, attempt):
                    self._tell_to_stop(work, baton_id, attempt)
                case Wake(baton_id, at):
                    self._set_alarm(baton_id, at)
        for item, answer in work.answers:
            _settle(item, answer)
        if work.group.release:
            self._close("ended", self._tree.root.baton.model_dump(mode="json"))
            return
        self._instruct_runs()

    def _tell_to_stop(self, work: Work, baton_id: str, attempt: int) -> None:
        for run, landed, flight in work.landed:
            if landed == baton_id and flight.attempt == attempt:
                run.stops.append((baton_id, attempt))
                if run.alone:  # the next one must not share the process with what may not listen
                    run.closing = True
                    self._loop.call_later(ISOLATED_GRACE_SECONDS, self._processes.kill, run)

    def _instruct_runs(self) -> None:
        for run in list(self._dispatcher.runs.values()):
            if not run.started:
                self._start_process(run)
                continue
            if not run.in_flight and (run.stuck or (run.shape.fresh and run.served)) and not run.closing:
                run.closing = True
                if run.id not in self._polls:
                    self._loop.call_later(END_GRACE_SECONDS, self._processes.kill, run)  # it may never ask for instructions again
            if run.id in self._polls:
                if run.has_news:
                    self._polls.pop(run.id).set_result(self._next_instructions(run))
                elif not run.in_flight:
                    self._linger(run)

    def _start_process(self, run: Run) -> None:
        run.started = True
        try:
            self._processes.start(run, Lease(self.root_id, self.epoch, run.id), self._next_instructions(run))
        except Exception as error:  # Ray refuses what a baton asks for, in many ways
            log.warning("tree %s: a process of %s cannot be started: %s", self.root_id, run.shape, error)
            self._loop.call_soon(self.run_ended, run, "process", str(error))

    def _next_instructions(self, run: Run) -> Instructions:
        code = {name: data for name, data in self._code.items() if name not in run.known_code} if run.assignments else {}
        run.known_code.update(code)
        number = run.sent.number + 1
        run.sent = Instructions(number, run.assignments, code, run.stops, end=run.closing and not run.assignments)
        run.assignments, run.stops = [], []
        if run.sent.end:
            self._loop.call_later(END_GRACE_SECONDS, self._processes.kill, run)
        return run.sent

    def _linger(self, run: Run) -> None:
        self._loop.call_later(LINGER_SECONDS, self._end_if_idle, run, run.served)

    def _end_if_idle(self, run: Run, served: int) -> None:
        if self._over or run.closing or run.in_flight or run.served != served or run.id not in self._polls:
            return
        if self._dispatcher.waits(run.shape):
            self._linger(run)  # a slow commit holds up what it is about to be given
            return
        run.closing = True
        self._polls.pop(run.id).set_result(self._next_instructions(run))

    # ------------------------------------------------------------ times

    def _set_alarm(self, baton_id: str, at: int) -> None:
        if (baton_id, at) not in self._alarms:
            delay = max(0.0, (at - _now()) / 1000)
            self._alarms[baton_id, at] = self._loop.call_later(delay, self._alarm, baton_id, at)

    def _alarm(self, baton_id: str, at: int) -> None:
        del self._alarms[baton_id, at]
        # The timer may fire a moment before the wall clock reads `at`.
        self._enqueue([Due(max(_now(), at), baton_id)])

    def _sign_of_life(self, flight: Flight) -> None:
        flight.since = self._loop.time()
        end = flight.since + flight.patience
        if self._watch is None or self._watch.when() > end:
            self._watch_until(end)

    def _watch_until(self, end: float) -> None:
        """One timer, for the run that would be lost first; most have reported long before it fires."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(end, self._lose_stuck)

    def _lose_stuck(self) -> None:
        now = self._loop.time()
        self._watch = None
        flights = [(run, id, flight) for run in self._dispatcher.runs.values() for id, flight in run.in_flight.items() if flight.since]
        stuck = [(run, id, flight) for run, id, flight in flights if (flight.since or now) + flight.patience <= now]
        if stuck:
            for run, _, _ in stuck:
                run.stuck = True
            self._enqueue([Lose(_now(), baton_id, flight.attempt, "stuck", run.alone) for run, baton_id, flight in stuck])
        ends = [(flight.since or now) + flight.patience for _, _, flight in flights]
        if later := [end for end in ends if end > now]:
            self._watch_until(min(later))

    async def _hibernate_if_idle(self) -> None:
        """A tree that waits for somebody outside, or for long, gives its owner back, if nothing has come in meanwhile."""
        if self._over or self._queue or not self._dispatcher.idle or not self._tree.nodes:
            return
        first = min((at for _, at in self._alarms), default=None)
        if first is not None and first - _now() < 1000 * HIBERNATE_SECONDS:
            return
        group = Group(release=True, wake_in=None if first is None else max(0, first - _now()))
        try:
            await self._in_thread(self._store.commit, self.root_id, self.epoch, group)
        except Moved:
            self._depose()
        except BatonError as error:
            log.warning("tree %s: giving it back failed or is in doubt (%s), loading it again", self.root_id, error)
            await asyncio.sleep(LONGEST_PAUSE_SECONDS * random.uniform(0.1, 0.2))
            self._queue[:0] = await self._reload([])
            if not self._over:
                self._wake.set()
        else:
            self._close("hibernated", None)

    # ------------------------------------------------------------ doubt and ends

    def _take_back(self, work: Work) -> None:
        """Undo in the bookkeeping of runs what was decided and not committed."""
        for run, baton_id, _ in work.planned:
            run.in_flight.pop(baton_id, None)
            run.served -= 1
        for run, baton_id, flight in work.landed:
            if flight.since is not None or run.started:
                run.in_flight[baton_id] = flight
        for run in list(self._dispatcher.runs.values()):
            if not run.started:
                del self._dispatcher.runs[run.id]
        self._dispatcher.forget_ready()

    async def _reload(self, items: list[Item]) -> list[Item]:
        """Read the tree again, as often as it takes; the items to be decided again, recovery last."""
        loaded = await self._take()
        if loaded is None:
            await self._let_go()
            return items
        self._load(loaded)
        await self._catch_up(loaded.tree.seq)
        self._stop_what_is_over()
        known = frozenset((id, flight.attempt) for run in self._dispatcher.runs.values() for id, flight in run.in_flight.items())
        # What was lost with a run that has gone is found by recovery; its attempt's number may be given out again.
        again = [item for item in items if not any(isinstance(command, Recover | Lose) for command in item.commands)]
        return [*again, self._item([Recover(_now(), known)])]

    def _stop_what_is_over(self) -> None:
        """A doubtful commit that came through may have ended what still runs: its runs are told now."""
        for run in self._dispatcher.runs.values():
            for baton_id, flight in list(run.in_flight.items()):
                baton = self._tree.nodes[baton_id].baton
                if (baton.status, baton.attempt) != (Status.RUNNING, flight.attempt):
                    del run.in_flight[baton_id]
                    run.stops.append((baton_id, flight.attempt))

    async def _catch_up(self, seq: int) -> None:
        """Publish what a doubtful commit made durable after all."""
        while self.publication.seq < seq:
            self.publication.publish(await self._until_certain(self._store.events, self.root_id, self.publication.seq, 1_000))

    async def _let_go(self) -> None:
        """The tree is not ours: either our ending commit came through after all, or we were deposed."""
        row = await self._until_certain(self._store.tree, self.root_id)
        if row.epoch == self.epoch and row.status != "open":
            await self._catch_up(row.seq)
            root = await self._until_certain(self._store.baton, self.root_id)
            self._close("ended", root.model_dump(mode="json"))
        else:
            self._depose()

    def _depose(self) -> None:
        log.warning("tree %s: deposed at epoch %s", self.root_id, self.epoch)
        self._close("moved", None)

    def _close(self, why: str, final: dict[str, Any] | None) -> None:
        """Let go of the tree: subscribers and runs are told, nothing is written any more."""
        self._over = True
        self._wake.set()
        self.publication.close(final)
        for alarm in self._alarms.values():
            alarm.cancel()
        if self._watch is not None:
            self._watch.cancel()
        for run in self._dispatcher.runs.values():
            if poll := self._polls.pop(run.id, None):
                stops = [*run.stops, *((id, flight.attempt) for id, flight in run.in_flight.items())]
                poll.set_result(Instructions(run.sent.number + 1, stops=stops, end=True))
            if run.started:
                grace = 0.0 if why == "moved" else END_GRACE_SECONDS
                self._loop.call_later(grace, self._processes.kill, run)
        for item in self._queue:
            _settle(item, Moved(self.root_id, self.epoch))
        self._queue.clear()
        self._released(why)

    async def _take(self) -> LoadedTree | None:
        loaded: LoadedTree | None = await self._until_certain(self._store.take, self.root_id, self._owner, self.epoch, os.getpid())
        return loaded

    async def _until_certain(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the store as often as it takes to know what it did; what is called here may be done twice."""
        pause = 0.05
        while True:
            try:
                return await self._in_thread(function, *arguments)
            except NotFound:
                raise
            except BatonError as error:
                log.warning("tree %s: %s, trying again", self.root_id, error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._executor, function, *arguments)


def _end_process_on_fault(serving: asyncio.Task[None]) -> None:
    """A loop that stops by a fault of ours would leave its tree to nobody; a process that ends is started again and recovers."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        log.critical("the command loop failed, this owner starts again", exc_info=error)
        os._exit(70)


def _settle(item: Item, answer: BatonError | None) -> None:
    if not item.answer.done():
        item.answer.set_result(answer)


def _now() -> int:
    return time.time_ns() // 1_000_000
