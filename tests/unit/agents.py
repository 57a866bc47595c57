"""Agents on a stage: whole trees of them without Ray and without SQL, their batons run by the real loop against a scripted model.

The stage keeps what an owner would keep (rows, state, spending, the log) and can end a run at any save, as a crash would.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baton_actors.agent.access import Access
from baton_actors.agent.inputs import read_inputs
from baton_actors.agent.memory import Memory
from baton_actors.agent.model import Model
from baton_actors.agent.profile import LARGE, Profile
from baton_actors.agent.rounds import AgentRun
from baton_actors.agent.run import tools_of
from baton_actors.baton import Baton, ChildResult, Completed, Constraints, Failed, HandedOver, Outcome, Spawned, Status, child_id, root_id

KEY = "scripted at the test"


class Crash(BaseException):
    """The process of a run is gone."""


@dataclass
class Record:
    """One baton, as its owner would know it."""

    baton: Baton
    rows: list[dict[str, Any]] = field(default_factory=list)
    state: Any = None
    breakdown: int = 0
    children: list[ChildResult] = field(default_factory=list)
    runs: int = 0


class StageHost:
    """One run of one baton on the stage."""

    def __init__(self, stage: "Stage", record: Record) -> None:
        self._stage = stage
        self._record = record
        self.baton = record.baton
        self.children = record.children
        self.breakdown = record.breakdown
        self.state = json.loads(json.dumps(record.state))
        self.room = stage.room
        self.limited = stage.rounds_left is not None
        self.learned = stage.learned
        self.agent = stage.access.model_dump()
        self.cancelled = False

    async def conversation(self) -> list[dict[str, Any]]:
        return json.loads(json.dumps(self._record.rows))

    def save(
        self,
        *,
        state: Any,
        data: dict[str, Any],
        rows: Sequence[dict[str, Any]] = (),
        usage: dict[str, float] | None = None,
        rounds: int = 0,
    ) -> Awaitable[None]:
        self._stage.log.append((self.baton.id, data))
        self._record.rows += json.loads(json.dumps(list(rows)))
        self._record.state = json.loads(json.dumps(state))
        baton = self._record.baton
        spent = {name: baton.usage.get(name, 0) + amount for name, amount in (usage or {}).items()}
        self._record.baton = baton.model_copy(update={"usage": {**baton.usage, **spent}, "rounds": baton.rounds + rounds})
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._stage.crash_after and self._stage.crash_after(data):
            self._stage.crash_after = None
            done.set_exception(Crash())
        else:
            done.set_result(None)
        return done

    async def reserve(self, amounts: dict[str, float]) -> str | None:
        left = self._stage.rounds_left
        return "rounds" if left is not None and amounts["rounds"] > left - self._stage.rounds_made else None

    def whisper(self, kind: str, text: str = "") -> None:
        self._stage.whispers.append((self.baton.id, kind, text))

    def function(self, reference: str) -> Callable[..., Any]:
        return self._stage.functions[reference]

    async def read_result(self, baton_id: str, offset: int, limit: int) -> tuple[str, int] | None:
        record = self._stage.records.get(baton_id)
        if record is None or record.baton.status is not Status.COMPLETED:
            return None
        text = record.baton.result
        return text[offset : offset + limit], len(text)

    async def local_base_url(self) -> str:
        raise AssertionError("no local model on the stage")


class Stage:
    """Where agents play.

    Attributes:
        log: (baton id, data) of each save. whispers: (baton id, kind, text). outcomes: (goal, outcome) of each run, in order.
        rounds_left: the budget of rounds; None is no limit.
        people: answers questions. functions: what references stand for. crash_after: ends the run at the first save whose data it takes.
    """

    def __init__(self, model: Model, *, profile: Profile = LARGE, room: int = 64, **access: Any) -> None:
        self.model = model
        self.profile = profile
        self.room = room
        self.access = Access(base_url="http://127.0.0.1:9/v1", folder=str(Path.cwd()), **access)
        self.learned: dict[str, dict[str, Any]] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        self.records: dict[str, Record] = {}
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.whispers: list[tuple[str, str, str]] = []
        self.outcomes: list[tuple[str, Outcome]] = []
        self.rounds_left: int | None = None
        self.people: Callable[[str], Any] = lambda question: "nobody is here"
        self.crash_after: Callable[[dict[str, Any]], bool] | None = None

    @property
    def rounds_made(self) -> int:
        """Calls of all batons."""
        return sum(record.baton.rounds for record in self.records.values())

    def run(self, goal: str, *, tools: Sequence[str | Callable[..., Any]] | None = None, **fields: Any) -> Baton:
        """Run a tree to its end; its root."""
        constraints = {name: fields.pop(name) for name in list(fields) if name in Constraints.model_fields}
        named = None if tools is None else [self.named(tool) for tool in tools]
        id = root_id(1_764_500_000_000, bytes(10))
        root = Baton(id=id, root_id=id, goal=goal, tools=named, model="scripted", constraints=Constraints(**constraints), **fields)
        self.records[id] = Record(root)
        return asyncio.run(self.ended(id))

    def retry(self, baton: Baton) -> Baton:
        """Run a failed root again, as `tree.retry` does."""
        record = self.records[baton.id]
        record.baton = record.baton.model_copy(update={"status": Status.PENDING, "error": None, "generation": baton.generation + 1})
        return asyncio.run(self.ended(baton.id))

    def named(self, tool: str | Callable[..., Any]) -> str:
        """The reference of a tool; functions are put on the stage."""
        if isinstance(tool, str):
            return tool
        reference = f"stage:{tool.__name__}"
        self.functions[reference] = tool
        return reference

    def data(self, kind: str) -> list[dict[str, Any]]:
        """What was logged of a kind."""
        return [data for _, data in self.log if data["kind"] == kind]

    async def ended(self, id: str) -> Baton:
        record = self.records[id]
        if record.baton.worker == "human":
            return self._set(record, status=Status.COMPLETED, result=self.people(record.baton.goal))
        while True:
            record.runs += 1
            try:
                outcome = await self._one_run(record)
            except Crash:
                continue
            self.outcomes.append((record.baton.goal, outcome))
            match outcome:
                case Completed(value, partial):
                    return self._set(record, status=Status.COMPLETED, result=value, partial=partial)
                case Failed(error, kind):
                    return self._set(record, status=Status.FAILED, error=error, error_kind=kind)
                case HandedOver():
                    continue
                case Spawned(children, state):
                    record.state = json.loads(json.dumps(state))
                    record.breakdown += 1
                    record.children = await self._spawned(record, children)

    def host_of(self, record: Record) -> StageHost:
        """The host of one more run."""
        return StageHost(self, record)

    async def _one_run(self, record: Record) -> Outcome:
        host = self.host_of(record)
        memory = Memory(await host.conversation(), host.state, record.baton.generation)
        tools = tools_of(host, self.access, self.profile)
        inputs = read_inputs(record.baton.context, self.access.place, self.profile.input_characters)
        run = AgentRun(
            host, self.model, "scripted", KEY, access=self.access, profile=self.profile, memory=memory, catalogue=tools, inputs=inputs
        )
        try:
            return await run.outcome()
        except BaseExceptionGroup as group:
            if group.split(Crash)[0] is not None:
                raise Crash from None
            raise

    async def _spawned(self, parent: Record, children: Sequence[Any]) -> list[ChildResult]:
        ids = []
        for index, child in enumerate(children):
            spec = child.spec(lambda function: function.__name__)
            id = child_id(parent.baton.id, parent.baton.generation, parent.breakdown, index)
            fields = {
                **dict(spec),
                "worker": spec.worker or "agent",
                "model": parent.baton.model,
                "tools": parent.baton.tools if spec.tools is None else spec.tools,
            }
            self.records[id] = Record(
                Baton(id=id, root_id=parent.baton.root_id, parent_id=parent.baton.id, depth=parent.baton.depth + 1, **fields)
            )
            ids.append(id)
        batons = await asyncio.gather(*(self.ended(id) for id in ids))
        return [ChildResult(b.id, b.goal, b.status, b.result, b.error, b.error_kind) for b in batons]

    @staticmethod
    def _set(record: Record, **changes: Any) -> Baton:
        record.baton = record.baton.model_copy(update=changes)
        return record.baton
