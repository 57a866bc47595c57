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
from typing import Any

from baton_actors.baton import ENDED, ErrorKind, Status
from baton_actors.commands import (
    Checkpoint,
    Command,
    Complete,
    Decision,
    Dispatch,
    Due,
    End,
    Fail,
    HandOver,
    Lose,
    LossCause,
    Recover,
    Reserve,
    Spawn,
    Start,
    Stop,
    Wake,
)
from baton_actors.errors import BatonError, Moved, NotAllowed, NotFound
from baton_actors.machine import Tree, apply, decide
from baton_actors.runtime import wire
from baton_actors.runtime.crash_points import reached
from baton_actors.runtime.dispatch import Run, shape_of
from baton_actors.runtime.learning import Experience
from baton_actors.runtime.opening import Submission, budget_row, digest, loaded_tree
from baton_actors.runtime.patience import until_certain
from baton_actors.runtime.publication import Publication
from baton_actors.runtime.runs import Landed, Processes, Runs
from baton_actors.runtime.whispering import WireWhisper
from baton_actors.runtime.wire import Instructions, Lease, WireReport
from baton_actors.store import Group, GroupRefused, LoadedTree, Store

log = logging.getLogger(__name__)

#: A tree gives its owner back if nothing is to happen for so many seconds.
HIBERNATE_SECONDS = 10.0
#: Longest pause between two tries to reach the database.
LONGEST_PAUSE_SECONDS = 5.0
#: Client commands whose answers are remembered, so that one that is repeated is not carried out twice.
REMEMBERED_COMMANDS = 32
#: How the error of a baton begins whose report could not be written.
REFUSED = "the database refuses what it reported"


@dataclass(slots=True)
class Item:
    """Commands that came in together, and whoever waits for their answer.

    Attributes:
        commands: made with the time of their arrival. functions: code that a breakdown brought.
        command_id: of a client's command, remembered.
    """

    commands: list[Command]
    answer: "asyncio.Future[BatonError | None]"
    functions: dict[str, bytes] = field(default_factory=dict)
    command_id: str | None = None


@dataclass(slots=True)
class Work:
    """One group of decisions on its way into the database.

    Attributes:
        alarms: times that were asked for. started: runs, batons and what they are handed. landed: attempts that ended;
        stopped: those of them whose run must be told. answers: for each item.
    """

    group: Group = field(default_factory=Group)
    alarms: list[Wake] = field(default_factory=list)
    started: list[tuple[Run, str, dict[str, Any]]] = field(default_factory=list)
    landed: list[Landed] = field(default_factory=list)
    stopped: list[Landed] = field(default_factory=list)
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
        self.publication = Publication()
        self._owner = owner
        self._store = store
        self._executor = executor
        self._processes = processes
        self._released = released
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._tree = Tree(root_id)
        self._experience = Experience()
        self._archive: str | None = None
        self._answered: list[str] = []
        self._queue: list[Item] = []
        self._reporting: dict[int, tuple[int, asyncio.Future[BatonError | None]]] = {}
        self._alarms: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._over = False
        self._serving: asyncio.Task[None] | None = None
        self._runs = Runs(
            root_id, epoch, cores=cores, processes=processes, enqueue=self._enqueue, look=self._wake.set, give_up=self._give_up
        )

    # ------------------------------------------------------------ beginnings

    async def begin(self, submission: Submission, cluster_id: str) -> str:
        """Create a tree, owned from its first moment; its id, or that of the tree that has its idempotency key already."""
        self._tree = submission.tree()
        archive = (digest(submission.archive), submission.archive) if submission.archive else None
        self._set_code(submission.functions, archive, submission.agent)
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
        self._set_code({name: code[name] for name in functions}, (archive, code[archive]) if archive else None, loaded.tree.agent)
        self._load(loaded)
        self.publication.start(loaded.tree.seq)
        self._enqueue([Recover(_now())])
        return True

    async def serve(self, first: tuple[Command, str] | None) -> BatonError | None:
        """Begin to work on a tree that was taken, with a client's command if it was taken because of one; its answer."""
        answer = self.order(*first) if first is not None else None
        self._start_serving()
        return await answer if answer is not None else None

    def abandon(self) -> None:
        """Let go of a tree that could not be begun or taken; harmless when it was let go already."""
        if not self._over:
            self._close("moved", None)

    def _set_code(self, functions: dict[str, bytes], archive: tuple[str, bytes] | None, agent: dict[str, Any]) -> None:
        self._runs.code = dict(functions)
        self._archive = archive[0] if archive else None
        self._processes.pack(archive, agent)

    def _start_serving(self) -> None:
        self._wake.set()
        self._serving = asyncio.create_task(self._serve())
        self._serving.add_done_callback(_end_process_on_fault)

    # ------------------------------------------------------------ what comes in

    def order(self, command: Command, command_id: str) -> "asyncio.Future[BatonError | None]":
        """Carry out a client's command; None, or why it was refused."""
        return self._enqueue([replace(command, at=_now())], command_id=command_id)  # no two machines' clocks are compared

    async def report(self, lease: Lease, number: int, reports: list[WireReport]) -> bool:
        """Reports of a run; True when they are committed, False if the tree is not here any more."""
        run = self._runs.at_work(lease)
        if run is None:
            return False
        if number <= run.last_report:
            return True
        under_way = self._reporting.get(run.id)
        if under_way is None or under_way[0] != number:
            at = _now()
            commands: list[Command] = [wire.command(report, at, random.random()) for report in reports]
            functions = {name: data for report in reports if report[0] == "spawned" for name, data in report[5].items()}
            under_way = self._reporting[run.id] = (number, self._enqueue(commands, functions=functions))
        error = await asyncio.shield(under_way[1])
        if isinstance(error, Moved):
            return False
        run.last_report = max(run.last_report, number)
        return True

    async def reserve(self, lease: Lease, baton_id: str, attempt: int, amounts: dict[str, float]) -> str | None:
        """Set aside what a model call may use; None, or the limit that has no room for it (`attempt`: the run is not the one any more)."""
        if self._runs.at_work(lease) is None:
            return "attempt"
        error = await self._enqueue([Reserve(_now(), baton_id, attempt, amounts)])
        return error.why if isinstance(error, NotAllowed) else "attempt" if error else None

    async def instructions(self, lease: Lease, received: int) -> Instructions:
        """See `Runs.instructions`."""
        return await self._runs.instructions(lease, received)

    def whisper(self, lease: Lease, whispers: list[WireWhisper]) -> None:
        """What runs of agents are doing: signs of life, and passed on to those who listen."""
        self.publication.whisper(self._runs.heard(lease, whispers))

    async def conversation(self, baton_id: str) -> list[dict[str, Any]]:
        """What a baton has said so far, as far as it is durable."""
        rows: list[dict[str, Any]] = await self._until_certain(self._store.conversation, baton_id)
        return rows

    async def read_result(self, baton_id: str, offset: int, limit: int) -> tuple[str, int] | None:
        """See `Store.result_text`."""
        found: tuple[str, int] | None = await self._until_certain(self._store.result_text, self.root_id, baton_id, offset, limit)
        return found

    def run_ended(self, run: Run, cause: LossCause | None, error: str = "") -> None:
        """See `Runs.ended`."""
        self._reporting.pop(run.id, None)
        self._runs.ended(run, cause, error)

    def _give_up(self, baton_ids: list[str], reason: str) -> None:
        for baton_id in baton_ids:
            at, attempt = _now(), self._tree.nodes[baton_id].baton.attempt + 1
            self._enqueue([Start(at, baton_id), Fail(at, baton_id, attempt, reason, ErrorKind.CRASHED)])

    def _enqueue(
        self, commands: list[Command], *, functions: dict[str, bytes] | None = None, command_id: str | None = None
    ) -> "asyncio.Future[BatonError | None]":
        item = self._item(commands, functions, command_id)
        if self._over:
            item.answer.set_result(Moved(self.root_id, self.epoch))
        else:
            self._queue.append(item)
            self._wake.set()
        return item.answer

    def _item(self, commands: list[Command], functions: dict[str, bytes] | None = None, command_id: str | None = None) -> Item:
        return Item(commands, self._loop.create_future(), functions or {}, command_id)

    # ------------------------------------------------------------ the loop

    async def _serve(self) -> None:
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            items, self._queue = self._queue, []
            await self._carry_out(items)
            await self._hibernate_if_idle()

    async def _carry_out(self, items: list[Item], *, alone: bool = False) -> None:
        """Decide, commit, publish, act, answer. Whatever goes wrong before the commit is certain leads back to the database.

        `alone`: this is one command, taken out of a group that the database refused.
        """
        pause = 0.05
        while not self._over:
            work = Work()
            try:
                self._carry(work, items)
                if not work.empty:
                    work.group.release = self._tree.root.baton.status in ENDED
                    if work.group.release:
                        reached("release.before")
                    reached("commit.before")
                    await self._in_thread(self._store.commit, self.root_id, self.epoch, work.group)
                    reached("commit.after")
                break
            except Moved:
                self._depose()
                continue
            except _Undecidable as fault:
                log.exception("tree %s: cannot decide %s", self.root_id, fault.item.commands)
                fault.item.answer.set_exception(fault.__cause__ or fault)
                items = [item for item in items if item is not fault.item]
            except GroupRefused as refusal:
                log.error("tree %s: %s", self.root_id, refusal)
                self._take_back(work)
                await (self._refuse(items[0], refusal) if alone else self._take_apart(items))
                return
            except BatonError as error:  # doubt of any kind: only the database knows the state now
                log.warning("tree %s: commit failed or is in doubt (%s: %s), loading it again", self.root_id, type(error).__name__, error)
            self._take_back(work)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            items = await self._reload(items)
        if self._over:
            for item in items:
                _settle(item, Moved(self.root_id, self.epoch))
        else:
            self._perform(work)

    async def _take_apart(self, items: list[Item]) -> None:
        """The database will never take these together: each command is decided and written alone, so that only the one at fault fails."""
        await self._carry_out(await self._reload([]))
        for item in items:
            if not _recovers_anyway(item):
                for command in item.commands[:-1]:
                    await self._carry_out([self._item([command], item.functions)], alone=True)
                await self._carry_out([replace(item, commands=item.commands[-1:])], alone=True)

    async def _refuse(self, item: Item, refusal: GroupRefused) -> None:
        """A report whose values no database takes fails its baton; anybody else is told that it was refused."""
        await self._carry_out(await self._reload([]))
        match item.commands[0]:
            case Fail(error=error) if error.startswith(REFUSED):
                _settle(item, refusal)
            case Complete() | Fail() | Spawn() | HandOver() | Checkpoint() as report:
                failure = Fail(report.at, report.baton_id, report.attempt, f"{REFUSED}: {refusal.why}", ErrorKind.INVALID_RESULT)
                await self._carry_out([replace(item, commands=[failure], functions={})], alone=True)
            case _:
                _settle(item, refusal)

    def _carry(self, work: Work, items: list[Item]) -> None:
        """Decide every item and what can be started then; memory runs ahead of the database until the commit."""
        for item in items:
            work.answers.append((item, self._decide_item(work, item)))
        for baton_id, run in self._runs.dispatcher.plan():
            if self._decide(work, Start(_now(), baton_id)).events:
                self._runs.put(self._tree.nodes[baton_id].baton, run)
                work.started.append((run, baton_id, wire.assignment(self._tree, baton_id, self._experience)))

    def _decide_item(self, work: Work, item: Item) -> BatonError | None:
        if item.command_id is not None and item.command_id in self._answered:
            return None
        for command in item.commands:
            try:
                decision = self._decide(work, command)
            except (NotFound, NotAllowed) as refusal:
                return refusal
            except Exception as error:
                raise _Undecidable(item) from error
            if isinstance(command, Reserve) and decision.refused is not None:
                return NotAllowed(command.baton_id, decision.refused)
            if decision.events and isinstance(command, Checkpoint) and command.first_row is not None:
                work.group.messages += [(command.baton_id, seq, row) for seq, row in enumerate(command.rows, command.first_row)]
            self._note(work, command)
        self._add_code(work, item.functions)
        if item.command_id is not None:
            self._answered = [*self._answered, item.command_id][-REMEMBERED_COMMANDS:]
            work.group.tree["answered"] = self._answered
        return None

    def _decide(self, work: Work, command: Command) -> Decision:
        """One command, made true in memory."""
        decision = decide(self._tree, command)
        for row in apply(self._tree, decision.events):
            work.group.add_row(*row)
        work.group.events.extend(decision.events)
        if any(event.type == "tree.reopened" for event in decision.events):
            budget = budget_row(self._tree.budget, self._tree.budget_since, self._tree.guards)
            work.group.tree |= {"status": "open", "budget": budget}
        for effect in decision.effects:
            match effect:
                case Dispatch(baton_id):
                    node = self._tree.nodes[baton_id]
                    self._runs.dispatcher.ready(baton_id, shape_of(node.baton, node.alone))
                case Stop(baton_id, attempt):
                    if landed := self._runs.land_to_stop(baton_id, attempt):
                        work.landed.append(landed)
                        work.stopped.append(landed)
                case Wake():
                    work.alarms.append(effect)
                case End(status):
                    work.group.tree["status"] = str(status)
        return decision

    def _note(self, work: Work, command: Command) -> None:
        """A report of an outcome frees its place in the run; a checkpoint is a sign of life."""
        match command:
            case Checkpoint(baton_id=baton_id, attempt=attempt):
                self._runs.checkpointed(baton_id, attempt)
            case Complete() | Fail() | Spawn() | HandOver() | Lose():
                if landed := self._runs.land(command.baton_id, command.attempt):
                    work.landed.append(landed)
            case _:
                pass

    def _add_code(self, work: Work, functions: dict[str, bytes]) -> None:
        if new := {name: data for name, data in functions.items() if name not in self._runs.code}:
            self._runs.code.update(new)
            work.group.code.update({name: ("function", data) for name, data in new.items()})
            work.group.tree["code"] = {"archive": self._archive, "functions": sorted(self._runs.code)}

    def _perform(self, work: Work) -> None:
        """The group is durable: tell everybody."""
        self.publication.publish(work.group.events)
        reached("publish.after")
        self._experience.learn(work.group.events)
        for run, baton_id, assignment in work.started:
            self._runs.hand_over(run, baton_id, assignment)
        for landed in work.stopped:
            self._runs.stop(landed)
        for alarm in work.alarms:
            self._set_alarm(alarm.baton_id, alarm.at)
        for item, answer in work.answers:
            _settle(item, answer)
        if work.group.release:
            self._close("ended", self._tree.root.baton.model_dump(mode="json"))
        else:
            self._runs.instruct()

    # ------------------------------------------------------------ times

    def _set_alarm(self, baton_id: str, at: int) -> None:
        if (baton_id, at) not in self._alarms:
            delay = max(0.0, (at - _now()) / 1000)
            self._alarms[baton_id, at] = self._loop.call_later(delay, self._alarm, baton_id, at)

    def _alarm(self, baton_id: str, at: int) -> None:
        del self._alarms[baton_id, at]
        # The timer may fire a moment before the wall clock reads `at`.
        self._enqueue([Due(max(_now(), at), baton_id)])

    async def _hibernate_if_idle(self) -> None:
        """A tree that waits for somebody outside, or for long, gives its owner back, if nothing has come in meanwhile."""
        if self._over or self._queue or not self._runs.dispatcher.idle or not self._tree.nodes:
            return
        first = min((at for _, at in self._alarms), default=None)
        if first is not None and first - _now() < 1000 * HIBERNATE_SECONDS:
            return
        group = Group(release=True, wake_in=None if first is None else max(0, first - _now()))
        try:
            reached("release.before")
            await self._in_thread(self._store.commit, self.root_id, self.epoch, group)
        except Moved:
            self._depose()
        except BatonError as error:
            log.warning("tree %s: giving it back failed or is in doubt (%s), loading it again", self.root_id, error)
            await asyncio.sleep(random.uniform(0.5, 1.0))
            self._queue[:0] = await self._reload([])
            if not self._over:
                self._wake.set()
        else:
            self._close("hibernated", None)

    # ------------------------------------------------------------ doubt

    def _take_back(self, work: Work) -> None:
        self._runs.undo([(run, baton_id) for run, baton_id, _ in work.started], work.landed)

    async def _reload(self, items: list[Item]) -> list[Item]:
        """Read the tree again, as often as it takes; the items to be decided again, recovery last."""
        loaded = await self._take()
        if loaded is None:
            await self._let_go()
            return items
        self._load(loaded)
        await self._catch_up(loaded.tree.seq)
        known = self._runs.keep_only(self._is_running)
        self._queue = [item for item in self._queue if not _recovers_anyway(item)]
        return [*(item for item in items if not _recovers_anyway(item)), self._item([Recover(_now(), known)])]

    def _is_running(self, baton_id: str, attempt: int) -> bool:
        node = self._tree.nodes.get(baton_id)
        return node is not None and node.baton.status is Status.RUNNING and node.baton.attempt == attempt

    def _load(self, loaded: LoadedTree) -> None:
        self._tree = loaded_tree(loaded)
        self._answered = list(loaded.tree.answered)
        stored = set(loaded.tree.code.get("functions", ()))
        self._runs.code = {name: data for name, data in self._runs.code.items() if name in stored}

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

    # ------------------------------------------------------------ ends

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
        self._runs.close(at_once=why == "moved")
        for item in self._queue:
            _settle(item, Moved(self.root_id, self.epoch))
        self._queue.clear()
        self._released(why)

    # ------------------------------------------------------------ the database

    async def _take(self) -> LoadedTree | None:
        loaded: LoadedTree | None = await self._until_certain(self._store.take, self.root_id, self._owner, self.epoch, os.getpid())
        return loaded

    async def _until_certain(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await until_certain(self._executor, function, *arguments)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._executor, function, *arguments)


def _recovers_anyway(item: Item) -> bool:
    """Whether recovery does what an item was for: what a dead run lost, whose attempts' numbers may be given out again."""
    return any(isinstance(command, Recover) or (isinstance(command, Lose) and command.cause != "stuck") for command in item.commands)


def _end_process_on_fault(serving: "asyncio.Task[None]") -> None:
    """A loop that stops by a fault of ours would leave its tree to nobody; a process that ends is started again and recovers."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        log.critical("the command loop failed, this owner starts again", exc_info=error)
        os._exit(70)


def _settle(item: Item, answer: BatonError | None) -> None:
    if not item.answer.done():
        item.answer.set_result(answer)


def _now() -> int:
    return time.time_ns() // 1_000_000
