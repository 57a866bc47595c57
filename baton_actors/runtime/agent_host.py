"""The process that an agent runs in, as the agent sees it: `agent.host.Host` on top of a worker process.

It decides nothing. What the agent saves goes out in order with the other reports of its process; what it asks is asked of
the owner; what it whispers may be lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from baton_actors.agent.host import Host
from baton_actors.baton import Baton, ChildResult, Outcome
from baton_actors.jsonable import checked, encode
from baton_actors.runtime.whispering import Whisperer
from baton_actors.runtime.wire import WireReport, read_assignment


class AgentHost:
    """One run of one baton by the agent; see `agent.host.Host`. To be used in the loop of the process only.

    Args:
        assignment: what the owner sent. agent: the tree's agent settings.
        report: sends a report; what it returns is done when the owner has acknowledged it.
        ask: calls a method of the owner, and returns only if the tree is still there.
        function: finds a function by its reference. whisperer: of the process.
    """

    def __init__(
        self,
        assignment: dict[str, Any],
        agent: dict[str, Any],
        *,
        report: "Callable[[WireReport], asyncio.Future[None]]",
        ask: Callable[..., Awaitable[Any]],
        function: Callable[[str], Callable[..., Any]],
        whisperer: Whisperer,
    ) -> None:
        baton, breakdown, state, children = read_assignment(assignment)
        self.baton: Baton = baton
        self.children: list[ChildResult] = children
        self.breakdown: int = breakdown
        self.state: Any = state
        self.room: int = assignment["room"]
        self.learned: dict[str, dict[str, Any]] = assignment["learned"]
        self.limited: bool = assignment["limited"]
        self.agent: dict[str, Any] = agent
        self._spoken: int = assignment["spoken"]
        self._report = report
        self._ask = ask
        self._function = function
        self._whisperer = whisperer
        self._cancelled = False
        self._over = False

    @property
    def cancelled(self) -> bool:
        """Whether what this run still does will be dropped."""
        return self._cancelled

    def stop(self) -> None:
        """For the runtime: from now on `cancelled` is true."""
        self._cancelled = True
        self._fall_silent()

    async def conversation(self) -> list[dict[str, Any]]:
        """All rows that are durable, in order; the owner is not asked if none was ever saved."""
        rows: list[dict[str, Any]] = await self._ask("conversation", self.baton.id) if self._spoken else []
        return rows

    def save(
        self,
        *,
        state: Any,
        data: dict[str, Any],
        rows: Sequence[dict[str, Any]] = (),
        usage: dict[str, float] | None = None,
        rounds: int = 0,
    ) -> Awaitable[None]:
        """See `Host.save`. What it returns is never done if the tree has moved; this run is stopped then.

        Raises:
            InvalidInput: something in it is not JSON; nothing was sent.
        """
        encoded = tuple(encode(checked(row, f"rows[{index}]")) for index, row in enumerate(rows))
        spent = (checked(usage or {}, "usage"), rounds)
        save = (checked(state, "state"), checked(data, "data"), self._spoken, encoded, *spent)
        self._spoken += max(1, len(encoded))
        return self._report(("checkpoint", self.baton.id, self.baton.attempt, *save))

    async def reserve(self, amounts: dict[str, float]) -> str | None:
        """See `Host.reserve`."""
        refused: str | None = await self._ask("reserve", self.baton.id, self.baton.attempt, amounts)
        return refused

    def whisper(self, kind: str, text: str = "") -> None:
        """See `Host.whisper`; of a run that is over, nothing is told."""
        if not self._over:
            self._whisperer.whisper(self.baton.id, self.baton.attempt, kind, text)

    def function(self, reference: str) -> Callable[..., Any]:
        """See `Host.function`."""
        return self._function(reference)

    async def read_result(self, baton_id: str, offset: int, limit: int) -> tuple[str, int] | None:
        """See `Host.read_result`; of a failed baton it is the error that is read."""
        found: tuple[str, int] | None = await self._ask("read_result", baton_id, offset, limit)
        return found

    async def local_base_url(self) -> str:
        """See `Host.local_base_url`."""
        from baton_actors.runtime.local_model import local_base_url

        return await local_base_url()

    async def run(self) -> Outcome:
        """Let the agent do the task; its end is the end of this run."""
        try:
            return await (await asyncio.to_thread(_agent))(self)
        finally:
            self._fall_silent()

    def _fall_silent(self) -> None:
        self._over = True
        self._whisperer.silence(self.baton.id, self.baton.attempt)


def _agent() -> Callable[[Host], Awaitable[Outcome]]:
    """The agent, imported when a process runs its first: what it brings along takes seconds, so not in the loop."""
    from baton_actors.agent.run import run_agent

    return run_agent
