"""An owner that the test plays, for the worker process under test."""

import asyncio
import functools
import types
from typing import Any

from baton_actors.baton import Baton, Constraints, Status
from baton_actors.runtime.publication import Found
from baton_actors.runtime.whispering import WireWhisper
from baton_actors.runtime.wire import Instructions, Lease, WireReport

LEASE = Lease("bt_root", 1, 1)


def baton(number: int = 0, work: str = "work:run", *, attempt: int = 1, **fields: Any) -> Baton:
    bounds = {name: fields.pop(name) for name in list(fields) if name in Constraints.model_fields}
    given: dict[str, Any] = {"goal": "all", "worker": work, "constraints": Constraints(**bounds), **fields}
    return Baton(id=f"bt_{number}", root_id="bt_root", attempt=attempt, status=Status.RUNNING, **given)


def assignment(given: Baton, **more: Any) -> dict[str, Any]:
    return {"baton": given.model_dump(exclude_defaults=True), **more}


class PlayedOwner:
    """An owner that gives what the test puts there, and keeps what is reported.

    Attributes:
        calls: reports by number, in the order of the calls. accepts: the answer to reports. faults: raised by the next calls.
        heard: whispers. questions: of agents, with their arguments; answers: to these, by method.
    """

    def __init__(self) -> None:
        self.to_give: asyncio.Queue[Instructions] = asyncio.Queue()
        self.calls: list[tuple[int, list[WireReport]]] = []
        self.asked: list[int] = []
        self.accepts = True
        self.faults: list[Exception] = []
        self.gate: asyncio.Event | None = None
        self.number = 1
        self.heard: list[WireWhisper] = []
        self.questions: list[tuple[Any, ...]] = []
        self.answers: dict[str, Found] = {}

    @property
    def instructions(self) -> Any:
        return types.SimpleNamespace(remote=self._instructions)

    @property
    def report(self) -> Any:
        return types.SimpleNamespace(remote=self._report)

    @property
    def whisper(self) -> Any:
        return types.SimpleNamespace(remote=self._whisper)

    @property
    def conversation(self) -> Any:
        return types.SimpleNamespace(remote=functools.partial(self._answer, "conversation"))

    @property
    def read_result(self) -> Any:
        return types.SimpleNamespace(remote=functools.partial(self._answer, "read_result"))

    @property
    def reports(self) -> list[WireReport]:
        return [report for _, reports in self.calls for report in reports]

    def give(self, *assignments: dict[str, Any], **more: Any) -> None:
        self.number += 1
        self.to_give.put_nowait(Instructions(self.number, list(assignments), **more))

    async def _instructions(self, lease: Lease, received: int) -> Instructions:
        assert lease == LEASE
        if self.faults:
            raise self.faults.pop()
        self.asked.append(received)
        await asyncio.sleep(0)  # a call of Ray is never answered at once
        return await self.to_give.get()

    async def _report(self, lease: Lease, number: int, reports: list[WireReport]) -> bool:
        assert lease == LEASE
        if self.faults:
            raise self.faults.pop()
        if self.gate is not None:
            await self.gate.wait()
        self.calls.append((number, reports))
        return self.accepts

    async def _whisper(self, lease: Lease, whispers: list[WireWhisper]) -> None:
        assert lease == LEASE
        if self.faults:
            raise self.faults.pop()
        self.heard += whispers

    async def _answer(self, method: str, lease: Lease, *arguments: Any) -> Found:
        assert lease == LEASE
        if self.faults:
            raise self.faults.pop()
        self.questions.append((method, *arguments))
        return self.answers[method]

    async def reported(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.reports) < count:
                await asyncio.sleep(0.001)
