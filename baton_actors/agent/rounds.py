"""One run of the agent: from what is stored of its task to an outcome.

A round is a model call and the tools it calls. Each step is saved before the next depends on it, so whatever dies costs a step:
the reply before its tools run, each tool's answer as it comes. Between two rounds the run ends when its window is over.
"""

import json
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from baton_actors.agent import prompts, small
from baton_actors.agent.access import Access
from baton_actors.agent.acting import Acting
from baton_actors.agent.actions import written_calls
from baton_actors.agent.breakdown import (
    LEAST_PARTS,
    Estimate,
    Judgement,
    Verdict,
    child_of,
    estimated_rounds,
    judgement_of,
    judgement_schema,
    plan_schema,
    verdict,
)
from baton_actors.agent.calling import Answer, Calls
from baton_actors.agent.host import Host
from baton_actors.agent.inputs import PART, Inputs, question_of
from baton_actors.agent.memory import Memory
from baton_actors.agent.model import Model, ModelError
from baton_actors.agent.profile import Profile
from baton_actors.baton import Child, Completed, ErrorKind, Failed, HandedOver, Outcome, Spawned
from baton_actors.capabilities.catalogue import Catalogue

#: After the same calls in so many rounds in a row the task is closed.
CLOSED_AFTER_REPEATS = 5
#: The answer of a call in a reply that was cut off.
CUT_OFF = "Your reply reached the length limit in the middle of a call, so nothing was executed. Be shorter."
#: Words that an answer has at least which is taken for an echo of the question.
LEAST_WORDS_OF_AN_ECHO = 4
#: A call is made only if the budget has room for a closing one after it.
CALL_AND_CLOSING = 2
#: What a call may use at most, where nobody knows: characters of a token of the prompt, and tokens of an answer without a bound.
CHARACTERS_PER_TOKEN = 3
UNKNOWN_ANSWER_TOKENS = 1_000


class AgentRun:
    """One run of one task.

    Args:
        name: of the model. key: under which the tree remembers it. access: how it is reached. inputs: the texts of the task.
    """

    def __init__(
        self,
        host: Host,
        model: Model,
        name: str,
        key: str,
        *,
        access: Access,
        profile: Profile,
        memory: Memory,
        catalogue: Catalogue,
        inputs: Inputs,
    ) -> None:
        self._host = host
        self._baton = host.baton
        self._profile = profile
        self._memory = memory
        self._catalogue = catalogue
        self._inputs = inputs
        self._began = time.monotonic()
        self._rounds_here = 0
        self._cost = 0.0
        self._policy = self._baton.constraints.breakdown
        may_spawn = self._policy != "never" and host.room > 0 and not profile.small
        self._acting = Acting(host, memory, catalogue, access=access, profile=profile, may_spawn=may_spawn, save=self._save)
        self._shape = self._small_shape() if profile.small and not self._acting.definitions else None
        self._tokens = profile.answer_tokens if self._shape is None else self._shape.tokens
        self._extra = None if self._shape is None else self._shape.extra
        self._calls = Calls(
            model,
            name,
            key,
            host.learned.get(key, {}),
            dialect=access.dialect,
            note=self._note,
            whisper=host.whisper,
        )

    async def outcome(self) -> Outcome:
        """Work until the task ends, parks, or its window is over."""
        try:
            return await self._work()
        except ModelError as error:
            if error.usage:
                self._save({"kind": "round", "purpose": "failed", "model": self._calls.key, **error.usage}, usage=error.usage, rounds=1)
            if error.meaning != "retry" and (spawned := await self._break_down_after(error)):
                return spawned
            kind = ErrorKind.REFUSED if error.meaning == "refused" else ErrorKind.ERROR
            return Failed(error.why, kind, retryable=error.meaning == "retry", after=error.after)

    async def _work(self) -> Outcome:
        if self._memory.fresh and (spawned := await self._decide()):
            return spawned
        if not self._host.breakdown and (found := self._nothing_to_ask()) is not None:
            return found
        if self._memory.waiting is not None:
            self._acting.take_results(self._host.children)
        elif self._memory.parts:
            self._take_results_of_parts()
        if (calls := self._memory.open_calls) and (outcome := await self._acting.do(calls)):
            return outcome
        while True:
            if (text := self._memory.final_text) is not None:
                return Completed(text, partial=self._memory.partial)
            if self._memory.rounds >= self._baton.constraints.max_rounds or self._memory.repeats >= CLOSED_AFTER_REPEATS:
                return await self._close()
            if self._window_is_over():
                return HandedOver()
            if await self._no_room_for(self._memory.messages, CALL_AND_CLOSING):
                return await self._close()
            answer = await self._round()
            if answer.calls and not answer.cut and (outcome := await self._acting.do(answer.calls)):
                return outcome

    def _small_shape(self) -> small.Shape:
        """How the small model is asked for what is to be done now."""
        baton, children = self._baton, self._host.children
        if self._host.breakdown and all(child.goal.startswith(baton.goal) for child in children):
            return small.readers_summary(baton.goal, children, baton.prompt)
        if self._host.breakdown:
            return small.summary(baton.goal, children, baton.prompt)
        texts = [text.text for text in self._inputs.texts if text.text]
        if texts:
            return small.reading(question_of(baton.context) or baton.goal, "\n\n".join(texts), baton.prompt)
        return small.answer(baton.goal, baton.context, baton.prompt)

    def _opening(self) -> list[dict[str, Any]]:
        if self._shape is not None:
            return self._shape.messages
        return prompts.opening(self._baton, self._inputs.texts, may_spawn=self._acting.may_spawn)

    def _window_is_over(self) -> bool:
        """Whether another round would go beyond it; one is made in each run in any case."""
        elapsed = time.monotonic() - self._began
        return self._rounds_here > 0 and elapsed + self._calls.seconds_per_round > self._baton.constraints.timeout_hint

    # ------------------------------------------------------------ breakdown

    async def _decide(self) -> Spawned | None:
        """Break a new task down, or not; the log says why."""
        bounds = self._baton.constraints
        rounds = estimated_rounds(self._baton.goal, self._baton.context, list(self._catalogue.tools))
        stretches = self._inputs.stretches if self._profile.small else ()
        estimate = Estimate(max(rounds, len(stretches)), self._calls.seconds_per_round)
        word = self._small_verdict() or verdict(bounds, self._baton.depth, estimate, self._host.room)
        breaks, reason = word.breaks, word.reason
        if breaks is not False and LEAST_PARTS <= len(stretches) <= self._host.room:
            children = self._readers(stretches)
            reason = f"its text is too long for one prompt: {len(stretches)} parts"
            return await self._spawn_parts(children, self._decision(estimate, True, reason))
        judgement = None if breaks is False else await self._judge(forced=breaks is True)
        if judgement is None or judgement.fits:
            self._memory.add(*self._opening())
            await self._save(self._decision(estimate, False, reason if judgement is None else f"{reason}: {judgement.reason}", judgement))
            return None
        told = self._decision(estimate, True, f"{reason}: {judgement.reason}", judgement)
        return await self._spawn_parts(self._children(judgement), told)

    def _small_verdict(self) -> Verdict | None:
        """A small model can make a plan of anything, also of what is small already, and hands no tools on."""
        if not self._profile.small:
            return None
        if self._baton.depth:
            return Verdict(False, "a small model plans at the root only")
        return None if self._shape is not None else Verdict(False, "a small model with tools does its task itself")

    def _readers(self, stretches: Sequence[dict[str, int]]) -> list[Child]:
        """A child for each stretch of a text, with the same question."""
        goal, count = self._baton.goal, len(stretches)
        return [
            child_of(self._baton, f"{goal} [part {place}/{count}]", {PART: {**stretch, "question": goal}})
            for place, stretch in enumerate(stretches, 1)
        ]

    def _children(self, judgement: Judgement) -> list[Child]:
        return [child_of(self._baton, goal, {prompts.PART_OF: self._baton.goal}) for goal in judgement.subtasks]

    def _decision(self, estimate: Estimate | None, broken_down: bool, reason: str, judgement: Judgement | None = None) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": "decision", "breakdown": self._policy, "broken_down": broken_down, "reason": reason}
        if estimate is not None:
            data |= {"rounds": estimate.rounds, "seconds_per_round": round(estimate.seconds_per_round, 3)}
        if judgement is not None and judgement.rounds is not None:
            data["judged_rounds"] = judgement.rounds
        return data

    async def _judge(self, *, forced: bool) -> Judgement:
        """Ask the model itself, in one call."""
        room = self._host.room
        if self._profile.small:
            plan = small.plan(self._baton.goal)
            messages, schema = plan.messages, plan_schema(room)
            tokens: int | None = plan.tokens
        else:
            fitting = int(self._baton.constraints.timeout_hint / self._calls.seconds_per_round)
            messages = prompts.judging(self._baton, self._inputs.texts, min(fitting, self._baton.constraints.max_rounds), forced=forced)
            schema, tokens = judgement_schema(room, forced=forced), self._profile.answer_tokens
        if limit := await self._no_room_for(messages, CALL_AND_CLOSING):
            return Judgement((), f"the budget of {limit} has no room for a judgement")
        try:
            answer = await self._calls.ask(messages, purpose="judging", number=0, schema=schema, tokens=tokens)
        except ModelError as error:
            if error.meaning == "retry":
                raise
            return Judgement((), f"the model could not judge ({error.why})")
        await self._save(self._round_data(answer, "judgement"), usage=answer.usage, rounds=1)
        return judgement_of(answer.text, self._baton.goal, room, small.COPIED if self._profile.small else ())

    async def _spawn_parts(self, children: list[Child], decision: dict[str, Any]) -> Spawned:
        await self._save(decision)
        return Spawned(children, self._memory.state(parts=True))

    async def _break_down_after(self, error: ModelError | None) -> Spawned | None:
        """`as_needed`: the first try did not succeed, so the task is broken down, once."""
        if self._policy != "as_needed" or self._host.breakdown or self._host.room < LEAST_PARTS:
            return None
        try:
            judgement = await self._judge(forced=True)
        except ModelError:
            return None
        if judgement.fits:
            return None
        reason = "its rounds ran out" if error is None else f"it failed: {error.why}"
        return await self._spawn_parts(self._children(judgement), self._decision(None, True, reason, judgement))

    def _take_results_of_parts(self) -> None:
        self._memory.parts = False
        if self._shape is not None:
            self._memory.begin_anew(*self._shape.messages)
        else:
            told = {"role": "user", "content": prompts.results_of_parts(self._host.children, self._profile)}
            self._memory.begin_anew(*self._opening(), told)

    def _nothing_to_ask(self) -> Completed | Failed | None:
        """What a small model is not asked about, since it would make something up: a text that cannot be read, or a part of one that
        shares no word with the question."""
        question = question_of(self._baton.context)
        if self._shape is not None and (fault := next((text for text in self._inputs.texts if text.fault), None)):
            return Failed(f"{fault.name} cannot be read: {fault.fault}; the small model does nothing without it")
        if self._shape is None or question is None or any(small.relevant(text.text, question) for text in self._inputs.texts):
            return None
        return Completed(small.NOTHING_FOUND)

    # ------------------------------------------------------------ rounds

    async def _round(self) -> Answer:
        number = self._memory.rounds + 1
        purpose = f"round {number}"
        answer = await self._ask(self._memory.messages, purpose, number, self._acting.definitions)
        self._memory.add(answer.message)
        self._memory.rounds = number
        self._memory.partial = answer.cut and not answer.calls
        self._rounds_here += 1
        if answer.cut:  # a call that was cut off is never made, so it is answered at once
            for call in answer.calls:
                self._acting.answer(call["id"], CUT_OFF)
        saved = self._save(self._round_data(answer, "round"), usage=answer.usage, rounds=1)
        if answer.calls:  # a tool acts on the world: what it was asked must not be forgotten
            await saved
        return answer

    async def _close(self) -> Outcome:
        """No rounds are left: one last call without tools, so that the work is not lost."""
        if spawned := await self._break_down_after(None):
            return spawned
        closing = prompts.closing()
        names = [definition["function"]["name"] for definition in self._acting.definitions]
        self._memory.partial = True
        for more in ([closing], [closing, prompts.in_words_only()]):
            messages = [*self._memory.messages, *more]
            if limit := await self._no_room_for(messages, 1):
                return self._spent(limit)
            answer = await self._ask(messages, "closing", self._memory.rounds + 1)
            if answer.text and not written_calls(answer.text, names) and not _is_echo(answer.text, closing["content"]):
                self._memory.add(closing, {"role": "assistant", "content": answer.text})
                self._save(self._round_data(answer, "closing"), usage=answer.usage, rounds=1)
                return Completed(answer.text, partial=True)
            await self._save(self._round_data(answer, "closing"), usage=answer.usage, rounds=1)
        if text := self._memory.last_words:
            return Completed(text, partial=True)
        return Failed("its rounds ran out, and the model gave no answer in words")

    async def _no_room_for(self, messages: Sequence[dict[str, Any]], calls: int) -> str | None:
        """Set aside in the tree's budget what so many calls may use; the limit that has no room for them."""
        if not self._host.limited:
            return None
        asked = len(json.dumps(messages, ensure_ascii=False)) / CHARACTERS_PER_TOKEN
        tokens = round(asked + (self._tokens or UNKNOWN_ANSWER_TOKENS))
        return await self._host.reserve({"rounds": calls, "tokens": calls * tokens, "cost": calls * self._cost})

    def _spent(self, limit: str) -> Outcome:
        """The budget has no room for another call: what there is counts, and fails only if there is nothing."""
        if text := self._memory.last_words:
            return Completed(text, partial=True)
        return Failed(f"the budget of {limit} has no room for another model call", ErrorKind.BUDGET)

    async def _ask(self, messages: Sequence[dict[str, Any]], purpose: str, number: int, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        answer = await self._calls.ask(
            messages,
            purpose=purpose,
            number=number,
            tools=tools,
            streamed=self._baton.depth == 0,
            tokens=self._tokens,
            extra=self._extra,
        )
        self._cost = answer.usage.get("cost", self._cost)
        return answer

    def _round_data(self, answer: Answer, purpose: str) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": "round", "purpose": purpose, "model": self._calls.key, "seconds": round(answer.seconds, 3)}
        if purpose != "judgement":
            data["round"] = self._memory.rounds
        if answer.calls:
            data["calls"] = [call["function"]["name"] for call in answer.calls]
        return data | answer.usage

    def _note(self, data: dict[str, Any]) -> None:
        self._save(data)

    def _save(self, data: dict[str, Any], *, usage: dict[str, float] | None = None, rounds: int = 0) -> Awaitable[None]:
        return self._host.save(state=self._memory.state(), data=data, rows=self._memory.take_unsaved(), usage=usage, rounds=rounds)


def _is_echo(text: str, said: str) -> bool:
    """Whether a small model only repeats what it was told; a word or two may be an answer."""
    return len(text.split()) >= LEAST_WORDS_OF_AN_ECHO and text.strip() in said
