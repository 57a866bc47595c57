"""One model call as the loop makes it: tried again while that helps, in the way this model speaks, timed and told.

What is learnt on the way (no tools, no JSON schema, seconds of a round) holds for the rest of the run at once, and for the tree
through its log.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import stamina

from baton_actors.agent.access import Dialect
from baton_actors.agent.actions import action_schema, as_calls, from_action, in_actions, written_calls
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
        answer_tokens: int | None,
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
        self._answer_tokens = answer_tokens
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
    ) -> Answer:
        """The model's answer; `number` counts the rounds of the task, and names calls that come without an id.

        Raises:
            ModelError: waiting, adapting and shortening did not help.
        """
        try:
            return await self._ask(list(repaired(messages)), purpose, number, tools, schema, streamed)
        finally:
            self._whisper("idle", "")

    async def _ask(
        self,
        messages: list[dict[str, Any]],
        purpose: str,
        number: int,
        tools: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any] | None,
        streamed: bool,
    ) -> Answer:
        was_shortened = was_empty = False
        used: dict[str, float] = {}
        while True:
            self._whisper("model", purpose)  # with each try the answer begins anew
            try:
                reply, seconds = await self._patiently(self._request(messages, tools, schema, streamed))
            except ModelError as error:
                if error.meaning == "no_tools" and tools and self._may_switch and not self._actions:
                    self._switch(error.why)
                elif error.meaning == "no_schema" and self._schemas:
                    self._schemas = False
                    self._note({"kind": "dialect", "model": self.key, "schemas": False, "reason": error.why})
                elif error.meaning == "too_long" and not was_shortened:
                    was_shortened = True
                    messages = shortened(messages, SHORTENED_TO)
                else:
                    raise
                continue
            used = {name: used.get(name, 0) + reply.usage.get(name, 0) for name in {*used, *reply.usage}}
            message = self._understood(reply.message, tools, number)
            if message.get("content") or message.get("tool_calls"):
                return Answer(message, used, seconds, reply.finish_reason == "length")
            if was_empty:
                raise ModelError("the model gave an empty answer, twice", "retry")
            was_empty = True

    def _request(
        self, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, streamed: bool
    ) -> Request:
        told: list[dict[str, Any]] = messages
        offered: Sequence[Mapping[str, Any]] = tools
        if self._actions:
            if tools:
                told, schema, offered = in_actions(messages, tools), action_schema(tools), ()
            elif any("tool_calls" in message or message["role"] == "tool" for message in messages):
                told = in_actions(messages, [])  # to the end of its days this model knows no tool messages
                schema = schema or action_schema([])
        if schema is not None and not self._schemas:
            told, schema = [*told, {"role": "user", "content": in_words(dict(schema))}], None
        small = self._answer_tokens is not None
        return Request(
            self._name,
            told,
            tools=offered,
            schema=schema,
            max_tokens=self._answer_tokens,
            temperature=0.0 if small and schema is not None else None,
            on_text=self._told_text if streamed and schema is None and not (self._actions and tools) else None,
        )

    def _told_text(self, text: str) -> None:
        self._whisper("text", text)

    def _understood(self, message: dict[str, Any], tools: Sequence[Mapping[str, Any]], number: int) -> dict[str, Any]:
        """The reply in the form of Chat Completions; a call that was written as text makes this a model of actions."""
        names = [tool["function"]["name"] for tool in tools]
        if self._actions:
            return from_action(message, names, number)
        content = message.get("content")
        if names and not message.get("tool_calls") and isinstance(content, str) and (calls := written_calls(content, names)):
            if self._may_switch:
                self._switch("it wrote a tool call as text")
            return {**message, **as_calls(calls, number)}
        return message

    def _switch(self, reason: str) -> None:
        self._actions = True
        self._note({"kind": "dialect", "model": self.key, "dialect": "actions", "reason": reason})

    async def _patiently(self, request: Request) -> tuple[Reply, float]:
        """One reply and its seconds, tried again while the failure is one that passes."""
        async for attempt in stamina.retry_context(on=_pause(), attempts=TRIES, timeout=None):
            with attempt:
                began = time.monotonic()
                reply = await self._model.answer(request)
                seconds = time.monotonic() - began
                self.seconds_per_round = seconds
                return reply, seconds
        raise AssertionError("stamina gives up by raising")


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
