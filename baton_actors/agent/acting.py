"""What a model asked for, done: tools run and are answered, parts of the task and questions to people become children.

A call is answered by the tool, by a child (`spawn_task`), or by a person: `ask_human` asks for words, a tool with `approval` for
leave to run. Persons are children too, of the worker `human`; so a task that waits for one holds no process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from baton_actors.agent import prompts, spawning
from baton_actors.agent.access import Access
from baton_actors.agent.actions import SPAWN
from baton_actors.agent.host import Host
from baton_actors.agent.memory import Memory
from baton_actors.agent.profile import Profile
from baton_actors.baton import Child, ChildResult, Outcome, Spawned, Status
from baton_actors.capabilities.catalogue import Catalogue
from baton_actors.capabilities.tool import ToolContext

ASK_HUMAN = "ask_human"
#: The same calls in so many rounds in a row: the model is told.
TOLD_OF_REPEATS = 3
#: Answers of a person that give leave.
_YES = frozenset({"yes", "y", "true", "ok", "approve", "approved", "1"})


class Acting:
    """The calls of one run.

    Attributes:
        definitions: the tools that are offered, as Chat Completions has them. may_spawn: whether `spawn_task` is among them.
    """

    def __init__(
        self,
        host: Host,
        memory: Memory,
        catalogue: Catalogue,
        *,
        access: Access,
        profile: Profile,
        may_spawn: bool,
        save: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        self.may_spawn = may_spawn
        self.definitions = catalogue.definitions + ([spawning.definition(catalogue)] if may_spawn else [])
        self._host = host
        self._baton = host.baton
        self._memory = memory
        self._catalogue = catalogue
        self._access = access
        self._profile = profile
        self._save = save

    def take_results(self, children: Sequence[ChildResult]) -> None:
        """Each child's result is the answer to the call that it was made for; leave to run a tool leaves the call open."""
        each = prompts.share(len(children), self._profile)
        calls = {call["id"]: call for call in self._memory.open_calls}
        ids, self._memory.waiting = self._memory.waiting or [], None
        for id, child in zip(ids, children, strict=False):
            if id in calls and self._needs_leave(calls[id]):
                self._take_leave(calls[id], child)
            else:
                self.answer(id, prompts.result_text(child, each))

    def _take_leave(self, call: dict[str, Any], child: ChildResult) -> None:
        if child.status is Status.COMPLETED and str(child.result).strip().casefold() in _YES:
            self._memory.approved.append(call["id"])
            return
        words = prompts.as_text(child.result) if child.status is Status.COMPLETED else child.error or "nobody answered"
        self.answer(call["id"], f"Nothing was done: this call was not approved. The answer was: {words[:1_000]}")

    def _needs_leave(self, call: dict[str, Any]) -> bool:
        tool = self._catalogue.get(call["function"]["name"])
        return tool is not None and tool.approval and call["id"] not in self._memory.approved

    async def do(self, calls: Sequence[dict[str, Any]]) -> Outcome | None:
        """Answer the calls of one reply. Children, if any are asked for, are the outcome; all else is answered and saved before."""
        parking = [call for call in calls if self._parks(call)]
        running = [call for call in calls if call not in parking]
        if running:
            self._host.whisper("tool", ", ".join(dict.fromkeys(call["function"]["name"] for call in running)))
            try:
                async with asyncio.TaskGroup() as group:
                    for call in running:
                        group.create_task(self._run_tool(call))
            finally:
                self._host.whisper("idle")
        return await self._park(parking) if parking else None

    def _parks(self, call: dict[str, Any]) -> bool:
        name = call["function"]["name"]
        if name == SPAWN:
            return self.may_spawn
        return (name == ASK_HUMAN and self._catalogue.get(name) is not None) or self._needs_leave(call)

    def answer(self, call_id: str, text: str) -> None:
        """Append the answer of a call; it is saved with the next save."""
        self._memory.add({"role": "tool", "tool_call_id": call_id, "content": text})
        if call_id in self._memory.approved:
            self._memory.approved.remove(call_id)

    # ------------------------------------------------------------ tools

    async def _run_tool(self, call: dict[str, Any]) -> None:
        name, began = call["function"]["name"], time.monotonic()
        tool = self._catalogue.get(name)
        if tool is None:
            there = ", ".join(definition["function"]["name"] for definition in self.definitions) or "none"
            text, failed = f"There is no tool {name!r} here; there are: {there}.", True
        else:
            answer = await tool.call(call["function"]["arguments"], self._context(call["id"]))
            text, failed = self._bounded(answer.text), answer.failed
        if self._memory.repeats >= TOLD_OF_REPEATS:
            text += "\n(The same call as in the rounds before: its answer will not change. Go on, or answer the task.)"
        self.answer(call["id"], text)
        await self._save({"kind": "tool", "name": name, "seconds": round(time.monotonic() - began, 3), "failed": failed})

    def _bounded(self, text: str) -> str:
        most = self._profile.tool_characters
        if most is None or len(text) <= most:
            return text
        return f"{text[:most]}\n[cut after {most:,} of {len(text):,} characters, which is what this model can hold; ask for less at a time]"

    def _context(self, call_id: str) -> ToolContext:
        baton = self._baton
        return ToolContext(
            idempotency_key=f"{baton.id}:{self._memory.place}:{call_id}",
            baton_id=baton.id,
            goal=baton.goal,
            context=baton.context,
            folder=self._access.place,
            fetch=tuple(self._access.fetch),
            read_result=self._host.read_result,
            cancelled=lambda: self._host.cancelled,
        )

    # ------------------------------------------------------------ children

    async def _park(self, calls: Sequence[dict[str, Any]]) -> Outcome | None:
        children: list[Child] = []
        waiting: list[str] = []
        for call in calls:
            child = self._child(call)
            if isinstance(child, Child) and len(children) >= self._host.room:
                child = f"No more than {self._host.room} subtasks or questions can be afforded now, so this was not done."
            if isinstance(child, str):
                self.answer(call["id"], child)
                await self._save({"kind": "tool", "name": call["function"]["name"], "seconds": 0, "failed": True})
            else:
                children.append(child)
                waiting.append(call["id"])
        return Spawned(children, self._memory.state(waiting=waiting)) if children else None

    def _child(self, call: dict[str, Any]) -> Child | str:
        """The child that is to answer a call, or what the model is told instead."""
        name = call["function"]["name"]
        if name == SPAWN:
            return spawning.child_for(call, self._baton, self._catalogue, self._access.place)
        if name == ASK_HUMAN:
            return spawning.question_for(call, self._baton)
        return spawning.approval_for(call, self._baton)
