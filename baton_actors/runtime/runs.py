"""The worker processes of one tree, as its owner steers them: what each is told, when it ends, when it is given up.

No decision about a baton is made here, and nothing is written. What is found out (a process died, a run shows no sign of
life) goes to the owner's queue as commands.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from baton_actors.baton import Baton
from baton_actors.commands import Command, Lose, LossCause
from baton_actors.events import Whisper
from baton_actors.runtime.crash_points import reached
from baton_actors.runtime.dispatch import Dispatcher, Flight, Run, Shape
from baton_actors.runtime.whispering import ALIVE, WireWhisper
from baton_actors.runtime.wire import Instructions, Lease

log = logging.getLogger(__name__)

#: Seconds that an idle run is kept: the next baton often follows at once.
LINGER_SECONDS = 0.2
#: Seconds after which a run that was told to end, or to stop a baton that has the process to itself, is killed.
END_GRACE_SECONDS = 5.0
ALONE_GRACE_SECONDS = 1.0
#: Without a sign of life for so many execution windows, at least so many seconds, a run is lost.
PATIENCE_WINDOWS = 4
LEAST_PATIENCE_SECONDS = 120.0
#: A process that ends before its first call is tried again after so many seconds, then twice and three times as many.
START_PAUSE_SECONDS = 1.0
MOST_FAILED_STARTS = 4


class Processes(Protocol):
    """Where runs get their processes from; the owner actor gives Ray's."""

    def pack(self, archive: tuple[str, bytes] | None, agent: dict[str, Any]) -> None:
        """What every run of the tree is given: modules to import, by hash, and the settings of its agents."""

    def start(self, run: Run, lease: Lease, first: Instructions) -> None:
        """Start a process; when it has ended, `Runs.ended` is called."""

    def kill(self, run: Run) -> None:
        """End a run's process, if it is still there."""


@dataclass(frozen=True, slots=True)
class Landed:
    """An attempt that was taken out of its run: it reported, was lost, or is to be stopped."""

    run: Run
    baton_id: str
    flight: Flight


class Runs:
    """The runs of one tree.

    Attributes:
        dispatcher: which baton goes to which run. code: pickled functions by hash, which runs are sent as they need them.

    Args:
        enqueue: puts commands into the owner's queue. look: makes the owner look for what can be started.
        give_up: told of ready batons that no process can be started for, and why.
    """

    def __init__(
        self,
        root_id: str,
        epoch: int,
        *,
        cores: int,
        processes: Processes,
        enqueue: Callable[[list[Command]], Any],
        look: Callable[[], None],
        give_up: Callable[[list[str], str], None],
    ) -> None:
        self.dispatcher = Dispatcher(cores)
        self.code: dict[str, bytes] = {}
        self._root_id = root_id
        self._epoch = epoch
        self._processes = processes
        self._enqueue = enqueue
        self._look = look
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._polls: dict[int, asyncio.Future[Instructions]] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._over = False

    # ------------------------------------------------------------ what runs ask and tell

    def at_work(self, lease: Lease) -> Run | None:
        """The run that makes a call; None if it belongs to another life of the tree. Its first call is its first sign of life."""
        run = None if self._over else self.dispatcher.runs.get(lease.run_id)
        if run is not None and not run.connected:
            run.connected = True
            self.dispatcher.failed_starts.pop(run.shape, None)
            for flight in run.in_flight.values():
                self.sign_of_life(flight)
            self._look()
        return run

    async def instructions(self, lease: Lease, received: int) -> Instructions:
        """What a run is to do next, as soon as there is anything. `received` is the number of the last that reached it."""
        run = self.at_work(lease)
        if run is None:
            return Instructions(received + 1, moved=True)
        if received < run.sent.number:
            return run.sent
        if run.sent.assignments:
            reached("dispatch.after")
        if run.has_news:
            return self._next_instructions(run)
        self._answer_poll(run)  # of a call that was lost: its place in the actor is freed
        poll: asyncio.Future[Instructions] = self._loop.create_future()
        self._polls[run.id] = poll
        if not run.in_flight:
            self._linger(run)
        try:
            return await poll
        finally:
            if self._polls.get(run.id) is poll:  # its caller has gone
                del self._polls[run.id]

    def heard(self, lease: Lease, whispers: list[WireWhisper]) -> list[Whisper]:
        """What a run whispers of attempts that it has in flight, each a sign of life; those that are only that are left out."""
        run = self.at_work(lease)
        if run is None:
            return []
        told = []
        for whisper in map(Whisper._make, whispers):
            flight = run.in_flight.get(whisper.baton_id)
            if flight is not None and flight.attempt == whisper.attempt:
                self.sign_of_life(flight)
                if whisper.kind != ALIVE:
                    told.append(whisper)
        return told

    def ended(self, run: Run, cause: LossCause | None, error: str = "") -> None:
        """A run's process is gone, by its own end (None) or otherwise; what it had in flight is lost."""
        if self._over or self.dispatcher.runs.pop(run.id, None) is None:
            return
        self._answer_poll(run)
        if run.in_flight:
            at = _now()
            self._enqueue([Lose(at, baton_id, flight.attempt, cause or "owner", run.alone) for baton_id, flight in run.in_flight.items()])
        if run.connected:
            self._look()
        elif cause == "process":
            self._start_failed(run, error)
        else:
            self._loop.call_later(START_PAUSE_SECONDS, self._look)

    def _answer_poll(self, run: Run) -> None:
        """Nobody listens to this call any more; unanswered, it would hold its place in the actor for ever."""
        if poll := self._open_poll(run):
            poll.set_result(Instructions(run.sent.number + 1, moved=True))

    def _open_poll(self, run: Run) -> "asyncio.Future[Instructions] | None":
        """The call for instructions that a run waits in; None if there is none, or its caller has gone."""
        poll = self._polls.pop(run.id, None)
        return None if poll is None or poll.done() else poll

    def _start_failed(self, run: Run, error: str) -> None:
        """A process that ends before its first call: tried again, not at once, and not for ever."""
        failed = self.dispatcher.failed_starts.get(run.shape, 0)
        if run.opened_after < failed:
            return  # it was started beside one that failed already
        failed += 1
        self.dispatcher.failed_starts[run.shape] = failed
        if failed < MOST_FAILED_STARTS:
            self.dispatcher.paused.add(run.shape)
            self._loop.call_later(START_PAUSE_SECONDS * failed, self._pause_over, run.shape)
            return
        del self.dispatcher.failed_starts[run.shape]
        first = (error.strip() or "its process ended before it could begin").splitlines()[0]
        self._give_up(self.dispatcher.take_ready(run.shape), f"no process could be started for it, {MOST_FAILED_STARTS} times: {first}")

    def _pause_over(self, shape: Shape) -> None:
        self.dispatcher.paused.discard(shape)
        self._look()

    # ------------------------------------------------------------ what the owner decided

    def put(self, baton: Baton, run: Run) -> None:
        """An attempt was started in a run; not yet durable."""
        patience = max(PATIENCE_WINDOWS * baton.constraints.timeout_hint, LEAST_PATIENCE_SECONDS)
        run.in_flight[baton.id] = Flight(baton.attempt, patience)
        run.served += 1

    def land(self, baton_id: str, attempt: int) -> Landed | None:
        """Take an attempt out of its run, if it is in one."""
        run = self.dispatcher.holder(baton_id)
        if run is None or run.in_flight[baton_id].attempt != attempt:
            return None
        return Landed(run, baton_id, run.in_flight.pop(baton_id))

    def land_to_stop(self, baton_id: str, attempt: int) -> Landed | None:
        """The same for one that must be stopped: its process, if it has one to itself, takes no other."""
        landed = self.land(baton_id, attempt)
        if landed is not None and landed.run.alone:
            landed.run.stopping = True
        return landed

    def checkpointed(self, baton_id: str, attempt: int) -> None:
        """An attempt has reported progress."""
        run = self.dispatcher.holder(baton_id)
        if run is not None and run.in_flight[baton_id].attempt == attempt:
            self.sign_of_life(run.in_flight[baton_id])

    def hand_over(self, run: Run, baton_id: str, assignment: dict[str, Any]) -> None:
        """The start is durable: the run is told with its next instructions."""
        reached("dispatch.before")
        run.assignments.append(assignment)
        if run.connected:
            self.sign_of_life(run.in_flight[baton_id])

    def stop(self, landed: Landed) -> None:
        """An attempt is over for us: the run is told to stop it."""
        run = landed.run
        run.stops.append((landed.baton_id, landed.flight.attempt))
        if run.alone:  # the next one must not share the process with what may not listen
            run.closing = True
            self._loop.call_later(ALONE_GRACE_SECONDS, self._processes.kill, run)

    def instruct(self) -> None:
        """Tell every run what there is to tell, start those that have no process, end those that are done."""
        for run in list(self.dispatcher.runs.values()):
            if not run.started:
                self._start_process(run)
                continue
            if not run.in_flight and not run.closing and (run.stuck or (run.shape.fresh and run.served)):
                run.closing = True
                self._loop.call_later(END_GRACE_SECONDS, self._processes.kill, run)  # it may never ask for instructions again
            if run.has_news:
                if poll := self._open_poll(run):
                    poll.set_result(self._next_instructions(run))
            elif not run.in_flight and run.id in self._polls:
                self._linger(run)

    def undo(self, put: list[tuple[Run, str]], landed: list[Landed]) -> None:
        """Nothing of it was committed: the bookkeeping is as before, and what is ready will be said again."""
        for run, baton_id in put:
            run.in_flight.pop(baton_id, None)
            run.served -= 1
        for each in landed:
            each.run.stopping = False
            if each.run.started:
                each.run.in_flight[each.baton_id] = each.flight
        for run in list(self.dispatcher.runs.values()):
            if not run.started:
                del self.dispatcher.runs[run.id]
        self.dispatcher.forget_ready()

    def keep_only(self, running: Callable[[str, int], bool]) -> frozenset[tuple[str, int]]:
        """Stop every attempt that is not running any more by the database's word; those that go on."""
        known = set()
        for run in self.dispatcher.runs.values():
            for baton_id, flight in list(run.in_flight.items()):
                if running(baton_id, flight.attempt):
                    known.add((baton_id, flight.attempt))
                else:
                    self.stop(Landed(run, baton_id, run.in_flight.pop(baton_id)))
        return frozenset(known)

    def close(self, *, at_once: bool) -> None:
        """The tree is not ours any more: every run is told to stop all and to end, and is killed if it does not, or at once."""
        self._over = True
        if self._watch is not None:
            self._watch.cancel()
        for run in self.dispatcher.runs.values():
            if poll := self._open_poll(run):
                stops = [*run.stops, *((baton_id, flight.attempt) for baton_id, flight in run.in_flight.items())]
                poll.set_result(Instructions(run.sent.number + 1, stops=stops, end=True))
            if run.started:
                self._loop.call_later(0.0 if at_once else END_GRACE_SECONDS, self._processes.kill, run)

    # ------------------------------------------------------------ one run

    def _start_process(self, run: Run) -> None:
        run.started = True
        try:
            self._processes.start(run, Lease(self._root_id, self._epoch, run.id), self._next_instructions(run))
        except Exception as error:  # Ray refuses what a baton asks for, in many ways
            log.warning("tree %s: a process of %s cannot be started: %s", self._root_id, run.shape, error)
            self._loop.call_soon(self.ended, run, "process", str(error))

    def _next_instructions(self, run: Run) -> Instructions:
        code = {name: data for name, data in self.code.items() if name not in run.known_code} if run.assignments else {}
        run.known_code.update(code)
        end = run.closing and not run.assignments
        run.sent = Instructions(run.sent.number + 1, run.assignments, code, run.stops, end=end)
        run.assignments, run.stops = [], []
        if end:
            self._loop.call_later(END_GRACE_SECONDS, self._processes.kill, run)
        return run.sent

    def _linger(self, run: Run) -> None:
        self._loop.call_later(LINGER_SECONDS, self._end_if_idle, run, run.served)

    def _end_if_idle(self, run: Run, served: int) -> None:
        if self._over or run.closing or run.in_flight or run.served != served or run.id not in self._polls:
            return
        if self.dispatcher.waits(run.shape):
            self._linger(run)  # a slow commit holds up what it is about to be given
            return
        run.closing = True
        if poll := self._open_poll(run):
            poll.set_result(self._next_instructions(run))

    # ------------------------------------------------------------ signs of life

    def sign_of_life(self, flight: Flight) -> None:
        """An attempt has shown that it goes on: its clock starts anew."""
        flight.since = self._loop.time()
        end = flight.since + flight.patience
        if self._watch is None or self._watch.when() > end:
            self._watch_until(end)

    def _watch_until(self, end: float) -> None:
        """One timer, for the attempt that would be lost first; most have reported long before it fires."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(end, self._lose_stuck)

    def _lose_stuck(self) -> None:
        now = self._loop.time()
        self._watch = None
        lost: list[Command] = []
        ends = []
        for run in self.dispatcher.runs.values():
            for baton_id, flight in run.in_flight.items():
                if flight.since is None:
                    continue
                if flight.since + flight.patience <= now:
                    run.stuck = True
                    lost.append(Lose(_now(), baton_id, flight.attempt, "stuck", run.alone))
                ends.append(flight.since + flight.patience)
        if lost:
            self._enqueue(lost)
        if later := [end for end in ends if end > now]:
            self._watch_until(min(later))


def _now() -> int:
    return time.time_ns() // 1_000_000
