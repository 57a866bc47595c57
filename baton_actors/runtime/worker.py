"""A worker process at work: one Ray task that runs many assignments of one tree, side by side.

It is stateless: what it knows came from the owner, what it finds out goes back in numbered lists of reports. While it lasts
it holds one call for instructions. It never decides anything about a baton.
"""

import asyncio
import inspect
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayError

from baton_actors.baton import AGENT, Baton, Child, Completed, ErrorKind, Failed, HandedOver, Outcome, Spawned
from baton_actors.capabilities.calling import any_left
from baton_actors.errors import InvalidInput, Retry
from baton_actors.jsonable import checked
from baton_actors.machine import ERROR_CHARACTERS
from baton_actors.runtime.agent_host import AgentHost
from baton_actors.runtime.context import Context
from baton_actors.runtime.crash_points import reached
from baton_actors.runtime.dispatch import SHARED_LIMIT
from baton_actors.runtime.loading import Loader, archive_folder, importable, unpack
from baton_actors.runtime.packing import Packing
from baton_actors.runtime.publication import Found
from baton_actors.runtime.whispering import Whisperer, WireWhisper
from baton_actors.runtime.wire import Instructions, Lease, Luggage, WireReport, read_assignment, spec_wire

#: Seconds between two tries of a call that the owner's node could not take; the task ends with its owner's process anyway.
RESEND_SECONDS = 0.2
#: Seconds that a worker may ask to wait before it is retried: 30 days.
LONGEST_WAIT_SECONDS = 30 * 86_400.0
#: Reports that go in one call at most: one commit should not keep the others waiting.
REPORTS_A_CALL = 1_000


def run_assignments(owner: ActorHandle[Any], lease: Lease, first: Instructions, luggage: Luggage) -> None:
    """The body of the Ray task."""
    run = WorkerRun(owner, lease, _unpacked(luggage.archive), luggage.agent)
    asyncio.run(run.main(first))
    if run.busy or any_left():
        os._exit(0)  # functions of a tree that is gone still run in threads, and Ray would give this process to another tree


def _unpacked(archive: tuple[str, Any] | None) -> Path | None:
    if archive is None:
        return None
    folder = archive_folder(archive[0])
    return folder if folder.is_dir() else unpack(ray.get(archive[1]))


class WorkerRun:
    """The assignments of one process, the reports that wait to be sent, the call for instructions.

    Args:
        folder: with the tree's unpacked modules. agent: the tree's agent settings.
    """

    def __init__(self, owner: ActorHandle[Any], lease: Lease, folder: Path | None, agent: dict[str, Any]) -> None:
        self._owner = owner
        self._lease = lease
        self._folder = folder
        self._agent = agent
        self._loader = Loader()
        self._packing_roots = tuple(sorted(folder.iterdir())) if folder else ()
        self._threads = ThreadPoolExecutor(SHARED_LIMIT, thread_name_prefix="baton")
        self._at_work: dict[tuple[str, int], tuple[Context | AgentHost, asyncio.Task[None] | None]] = {}
        self._outbox: list[WireReport] = []
        self._outbox_lock = threading.Lock()
        self._reported = 0
        self._acknowledged = 0
        self._awaited: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._whisperer: Whisperer | None = None
        self._whispering: asyncio.Task[None] | None = None
        self._moved = False
        self._finishing = False

    @property
    def busy(self) -> bool:
        """Whether anything still runs."""
        return bool(self._at_work)

    async def main(self, first: Instructions) -> None:
        """Work until told to end."""
        self._loop = asyncio.get_running_loop()
        self._outbox_filled = asyncio.Event()
        self._nothing_left = asyncio.Event()
        with importable(self._folder):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_reports())
                self._follow(first)
                await self._take_instructions(first)
                while self._at_work and not self._moved:
                    self._nothing_left.clear()
                    await self._nothing_left.wait()
                self._finishing = True
                self._outbox_filled.set()
                if self._whispering is not None:
                    self._whispering.cancel()
        self._threads.shutdown(wait=False)

    # ------------------------------------------------------------ instructions

    async def _take_instructions(self, last: Instructions) -> None:
        while not last.end and not last.moved:
            last = await self._call("instructions", last.number)
            self._follow(last)
        if last.moved:
            self._moved = True
            for baton_id, attempt in list(self._at_work):
                self._stop(baton_id, attempt)

    def _follow(self, instructions: Instructions) -> None:
        for baton_id, attempt in instructions.stops:
            self._stop(baton_id, attempt)
        self._loader.add(instructions.code)
        stopped = set(instructions.stops)
        for wire in instructions.assignments:
            if (wire["baton"]["id"], wire["baton"]["attempt"]) not in stopped:  # handed out and stopped between two calls
                self._begin(wire)

    def _stop(self, baton_id: str, attempt: int) -> None:
        context, task = self._at_work.get((baton_id, attempt), (None, None))
        if context is not None:
            context.stop()
        if task is not None:
            task.cancel()

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call the owner until it answers. Were its process gone, this task would be gone with it."""
        while True:
            try:
                return await getattr(self._owner, method).remote(self._lease, *arguments)
            except ActorUnavailableError:
                await asyncio.sleep(RESEND_SECONDS)

    async def _ask(self, method: str, *arguments: Any) -> Any:
        """What the owner answers to an agent; does not return if it has another tree now, since this run is stopped then."""
        found: Found = await self._call(method, *arguments)
        if found.state == "gone":
            await self._loop.create_future()
        return found.value

    async def _send_whispers(self, whispers: list[WireWhisper]) -> None:
        """One try: whispers may be lost."""
        with suppress(RayError):
            await self._owner.whisper.remote(self._lease, whispers)

    # ------------------------------------------------------------ runs

    def _begin(self, wire: dict[str, Any]) -> None:
        if wire.get("breakdown"):
            reached("resume.before")
        if wire["baton"].get("worker", AGENT) == AGENT:
            self._begin_agent(wire)
        else:
            self._begin_function(wire)

    def _begin_agent(self, wire: dict[str, Any]) -> None:
        if self._whisperer is None:
            self._whisperer = Whisperer(self._send_whispers)
            self._whispering = self._loop.create_task(self._whisperer.run())
        host = AgentHost(
            wire,
            self._agent,
            report=self._report_awaited,
            ask=self._ask,
            function=self._loader.function,
            whisperer=self._whisperer,
        )
        task = self._loop.create_task(self._run_async(lambda _, host: host.run(), host.baton, host))
        self._at_work[host.baton.id, host.baton.attempt] = (host, task)

    def _begin_function(self, wire: dict[str, Any]) -> None:
        baton, breakdown, state, children = read_assignment(wire)
        context = Context(
            baton,
            children=children,
            breakdown=breakdown,
            state=state,
            report_checkpoint=lambda state, data: self._report(("checkpoint", baton.id, baton.attempt, state, data)),
        )
        try:
            function = self._loader.function(baton.worker)
        except Exception as error:  # loading runs foreign code, which may raise anything
            self._report(_failed_report(baton, Failed(f"worker {baton.worker} cannot be loaded: {_described(error)}")))
            return
        key = (baton.id, baton.attempt)
        if inspect.iscoroutinefunction(function):
            self._at_work[key] = (context, asyncio.create_task(self._run_async(function, baton, context)))
        else:
            self._at_work[key] = (context, None)
            self._threads.submit(self._run_in_thread, function, baton, context)

    def _run_in_thread(self, function: Callable[..., Any], baton: Baton, context: Context) -> None:
        try:
            value = function(baton, context)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            report = self._outcome_report(baton, value)
        except BaseException as error:  # the worker's own code may raise anything; SystemExit too is a failure of the task
            report = _exception_report(baton, error)
        self._ended(baton, report)

    async def _run_async(self, function: Callable[..., Any], baton: Baton, context: Context | AgentHost) -> None:
        try:
            report = self._outcome_report(baton, await function(baton, context))
        except BaseException as error:  # as above; a stopped one ends in CancelledError, and its report is not sent
            report = _exception_report(baton, error)
        self._ended(baton, report)

    def _outcome_report(self, baton: Baton, value: Any) -> WireReport:
        """The report of what a worker returned; a plain value is its result."""
        outcome: Outcome = value if isinstance(value, Completed | Failed | Spawned | HandedOver) else Completed(value)
        try:
            match outcome:
                case Completed():
                    return ("completed", baton.id, baton.attempt, checked(outcome.value, "result"), bool(outcome.partial))
                case Failed():
                    return _failed_report(baton, outcome)
                case HandedOver():
                    return ("handed_over", baton.id, baton.attempt, checked(outcome.state, "state"))
                case Spawned():
                    return self._spawned_report(baton, outcome)
        except InvalidInput as error:
            return _failed_report(baton, Failed(str(error), ErrorKind.INVALID_RESULT))

    def _spawned_report(self, baton: Baton, outcome: Spawned) -> WireReport:
        packing = Packing(self._packing_roots, packed=True)
        specs = []
        for index, child in enumerate(outcome.children):
            if not isinstance(child, Child):
                raise InvalidInput(f"children[{index}]", f"{type(child).__name__} is no Child(...)")
            try:
                specs.append(spec_wire(child.spec(packing.reference)))
            except InvalidInput as error:
                raise InvalidInput(f"children[{index}].{error.what}", error.why) from None
        return ("spawned", baton.id, baton.attempt, specs, checked(outcome.state, "state"), packing.functions)

    # ------------------------------------------------------------ reports

    def _report(self, report: WireReport) -> int:
        """Put a report into the outbox, from any thread; its number. The loop is woken for the first one only."""
        with self._outbox_lock:
            self._outbox.append(report)
            self._reported += 1
            number, first = self._reported, len(self._outbox) == 1
        if first:
            self._loop.call_soon_threadsafe(self._outbox_filled.set)
        return number

    def _report_awaited(self, report: WireReport) -> "asyncio.Future[None]":
        """The same, in the loop; done when the report is acknowledged."""
        acknowledged: asyncio.Future[None] = self._loop.create_future()
        self._awaited.append((self._report(report), acknowledged))
        return acknowledged

    def _acknowledge(self, count: int) -> None:
        """So many more reports are durable, in the order in which they were made."""
        self._acknowledged += count
        while self._awaited and self._awaited[0][0] <= self._acknowledged:
            _, acknowledged = self._awaited.popleft()
            if not acknowledged.done():  # whoever waited for it may have been stopped
                acknowledged.set_result(None)

    def _ended(self, baton: Baton, report: WireReport) -> None:
        context, _ = self._at_work.pop((baton.id, baton.attempt))
        if not context.cancelled:
            self._report(report)
        if not self._at_work:
            self._loop.call_soon_threadsafe(self._nothing_left.set)

    async def _send_reports(self) -> None:
        """One numbered call at a time; what is reported meanwhile goes with the next."""
        number = 0
        while not self._moved:
            await self._outbox_filled.wait()
            with self._outbox_lock:
                reports, self._outbox = self._outbox[:REPORTS_A_CALL], self._outbox[REPORTS_A_CALL:]
                if not self._outbox:
                    self._outbox_filled.clear()
            if reports:
                number += 1
                reached("report.before")
                self._moved = not await self._call("report", number, reports)
                reached("report.after")
                if not self._moved:
                    self._acknowledge(len(reports))
            elif self._finishing:
                return
            if self._finishing:
                self._outbox_filled.set()
        self._nothing_left.set()


async def _awaited(value: Any) -> Any:
    return await value


def _exception_report(baton: Baton, error: BaseException) -> WireReport:
    """The report of an exception; there is one, however strange the exception is: a silent attempt would be lost only after minutes."""
    try:
        return _failed_report(baton, _failure(baton, error))
    except Exception:  # a foreign class may raise anything when it is looked at
        return _failed_report(baton, Failed(f"{type(error).__name__}: (it cannot be shown)", retryable=isinstance(error, Retry)))


def _failure(baton: Baton, error: BaseException) -> Failed:
    """What an exception means: the task failed, retryably if it is `Retry` or a class that the constraints name."""
    if isinstance(error, Retry):
        return Failed(str(error.why), retryable=True, after=error.after)
    retry_on = set(baton.constraints.retry_on)
    names = {name for each in type(error).__mro__ for name in (each.__name__, f"{each.__module__}.{each.__qualname__}")}
    return Failed(_described(error), retryable=not retry_on.isdisjoint(names))


def _described(error: BaseException) -> str:
    """Type and message in the first line, then where it happened."""
    try:
        message = str(error)
    except Exception:  # a foreign __str__ may raise anything
        message = "(its message cannot be shown)"
    first = f"{type(error).__name__}: {message}" if message else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(str(Path(__file__).parent))]
    return f"{first}\n{''.join(traceback.format_list(own[-8:]))}".rstrip()


def _failed_report(baton: Baton, failed: Failed) -> WireReport:
    error = str(failed.error).encode("utf-8", "replace").decode().replace("\x00", "\\x00")[:ERROR_CHARACTERS]
    try:
        after = None if failed.after is None else min(max(0.0, float(failed.after)), LONGEST_WAIT_SECONDS)
    except (TypeError, ValueError, OverflowError):
        after = None  # not a number of seconds: the backoff decides
    kind = failed.kind if failed.kind in set(ErrorKind) else ErrorKind.ERROR
    return ("failed", baton.id, baton.attempt, error, ErrorKind(kind).value, bool(failed.retryable), after)
