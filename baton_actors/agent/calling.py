"""One model call as the loop makes it: tried again while that helps, in the way this model speaks, timed and told.

What is learnt on the way (no tools, no JSON schema, seconds of a round) holds for the rest of the run at once, and for the tree
through its log.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import stamina

from baton_actors.agent.access import Dialect
from baton_actors.agent.actions import Unreadable, action_schema, as_calls, from_action, in_actions, written_calls
from baton_actors.agent.breakdown import UNMEASURED_SECONDS
from baton_actors.agent.conversation import repaired, shortened
from baton_actors.agent.model import Model, ModelError, Reply, Request
from baton_actors.agent.prompts import in_words

#: Tries of one call, and seconds between them: doubling, with full jitter.
TRIES = 6
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
#: A server that asks for a longer wait than so many seconds is not waited for: the task fails retryably, with that wait.
LONGEST_ASKED = 120.0
#: Characters that are kept of older tool outputs when a conversation has become too long.
SHORTENED_TO = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call.

    Attributes:
        message: the assistant's, as it is stored. seconds: of the try that succeeded. cut: it stopped at the length limit.
    """

    message: dict[str, Any]
    usage: dict[str, float]
    seconds: float
    cut: bool

    @property
    def text(self) -> str:
        """Its content in words."""
        content = self.message.get("content")
        return content if isinstance(content, str) else ""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls in it, in their normal form."""
        calls: list[dict[str, Any]] = self.message.get("tool_calls", [])
        return calls


class Calls:
    """The calls of one run to one model.

    Args:
        name: of the model. key: under which the tree remembers what is known of it. known: that.
        note: told what was learnt, as `data` of an event. whisper: told what is under way.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        key: str,
        known: Mapping[str, Any],
        *,
        dialect: Dialect,
        note: Callable[[dict[str, Any]], None],
        whisper: Callable[[str, str], None],
    ) -> None:
        self.key = key
        self.seconds_per_round: float = known.get("seconds", UNMEASURED_SECONDS)
        self._model = model
        self._name = name
        self._actions = dialect == "actions" or (dialect == "auto" and known.get("dialect") == "actions")
        self._may_switch = dialect == "auto"
        self._schemas = known.get("schemas", True)
        self._note = note
        self._whisper = whisper

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        purpose: str,
        number: int,
        tools: Sequence[Mapping[str, Any]] = (),
        schema: Mapping[str, Any] | None = None,
        streamed: bool = False,
        tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Answer:
        """The model's answer.

        Args:
            purpose: as it is shown to those who watch. number: of the round, by which calls without an id are named.
            tokens: of the answer at most. extra: fields of the server's own.

        Raises:
            ModelError: waiting, adapting and shortening did not help.
        """
        try:
            wanted = Request(
                self._name,
                repaired(messages),
                tools=tools,
                schema=schema,
                max_tokens=tokens,
                temperature=None if tokens is None else 0.0,
                extra=extra or {},
                on_text=self._told_text if streamed else None,
            )
            return await self._ask(wanted, purpose, number)
        finally:
            self._whisper("idle", "")

    async def _ask(self, wanted: Request, purpose: str, number: int) -> Answer:
        was_shortened = was_empty = was_unreadable = False
        used: dict[str, float] = {}
        while True:
            try:
                reply, seconds = await self._patiently(self._spoken(wanted), purpose)
            except ModelError as error:
                if error.meaning == "no_tools" and wanted.tools and self._may_switch and not self._actions:
                    self._switch(error.why)
                elif error.meaning == "no_schema" and self._schemas:
                    self._schemas = False
                    self._note({"kind": "dialect", "model": self.key, "schemas": False, "reason": error.why})
                elif error.meaning == "too_long" and not was_shortened:
                    was_shortened = True
                    wanted = replace(wanted, messages=shortened(wanted.messages, SHORTENED_TO))
                else:
                    raise
                continue
            used = {name: used.get(name, 0) + reply.usage.get(name, 0) for name in {*used, *reply.usage}}
            cut = reply.finish_reason == "length"
            try:
                message = self._understood(reply.message, wanted.tools, number, cut)
            except Unreadable as error:
                if was_unreadable:
                    raise ModelError(f"the model did not keep to the actions, twice: {error}", usage=used) from None
                was_unreadable = True
                wanted = replace(
                    wanted, messages=_with_more(wanted.messages, f"Your last reply was no action: {error}. Reply with one action.")
                )
                continue
            if message.get("tool_calls") or str(message.get("content") or "").strip():
                return Answer(message, used, seconds, cut)
            if was_empty:
                raise ModelError("the model gave an empty answer, twice", "retry", usage=used)
            was_empty = True

    def _spoken(self, wanted: Request) -> Request:
        """The request in the way that this model speaks."""
        if self._actions and wanted.tools:
            told = in_actions(wanted.messages, wanted.tools)
            wanted = replace(wanted, messages=told, tools=(), schema=action_schema(wanted.tools))
        elif self._actions and any("tool_calls" in message or message["role"] == "tool" for message in wanted.messages):
            told = in_actions(wanted.messages, [])  # to the end of its days this model knows no tool messages
            wanted = replace(wanted, messages=told, schema=wanted.schema or action_schema([]))
        if (schema := wanted.schema) is not None:
            wanted = replace(wanted, on_text=None)  # JSON is no text for people
            if not self._schemas:
                wanted = replace(wanted, messages=_with_more(wanted.messages, in_words(dict(schema))), schema=None)
        return wanted

    def _told_text(self, text: str) -> None:
        self._whisper("text", text)

    def _understood(self, message: dict[str, Any], tools: Sequence[Mapping[str, Any]], number: int, cut: bool) -> dict[str, Any]:
        """The reply in the form of Chat Completions; a call that was written as text makes this a model of actions."""
        names = [tool["function"]["name"] for tool in tools]
        if self._actions:
            return from_action(message, names, number, cut=cut)
        content = message.get("content")
        if names and not message.get("tool_calls") and isinstance(content, str) and (calls := written_calls(content, names)):
            if self._may_switch:
                self._switch("it wrote a tool call as text")
            return {**message, **as_calls(calls, number)}
        return message

    def _switch(self, reason: str) -> None:
        self._actions = True
        self._note({"kind": "dialect", "model": self.key, "dialect": "actions", "reason": reason})

    async def _patiently(self, request: Request, purpose: str) -> tuple[Reply, float]:
        """One reply and its seconds, tried again while the failure is one that passes."""
        async for attempt in stamina.retry_context(on=_pause(), attempts=TRIES, timeout=None):
            with attempt:
                self._whisper("model", purpose)  # with each try the answer begins anew
                began = time.monotonic()
                reply = await self._model.answer(request)
                seconds = time.monotonic() - began
                self.seconds_per_round = seconds
                return reply, seconds
        raise AssertionError("stamina gives up by raising")


def _with_more(messages: Sequence[Mapping[str, Any]], text: str) -> list[Mapping[str, Any]]:
    """The messages with more to say to the model; some servers want roles to take turns, so it joins what was said last."""
    last = messages[-1] if messages else {}
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        return [*messages[:-1], {**last, "content": f"{last['content']}\n\n{text}"}]
    return [*messages, {"role": "user", "content": text}]


def _pause() -> Callable[[Exception], bool | float]:
    """Seconds to wait before the next try; False if there is to be none. What a server asks for is kept, with jitter upwards."""
    limit = FIRST_PAUSE

    def pause(error: Exception) -> bool | float:
        nonlocal limit
        if not isinstance(error, ModelError) or error.meaning != "retry":
            return False
        spread = random.uniform(0, limit)
        limit = min(2 * limit, LONGEST_PAUSE)
        if error.after is None:
            return spread
        return False if error.after > LONGEST_ASKED else error.after + spread

    return pause
