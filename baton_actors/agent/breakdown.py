"""Whether a task is broken down: the estimate, the policy's first word, and the model's judgement. Pure.

The estimate is a small rule on the task alone, times what a round of this model takes. It is there to save a call where the
case is clear; the judgement is the model's own.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from baton_actors.agent.jsontext import objects_in
from baton_actors.baton import Baton, Child, Constraints

#: Seconds of one round before any was measured.
UNMEASURED_SECONDS = 5.0
#: Characters of the model's reason that are kept.
MOST_REASON = 500
#: A breakdown into fewer parts is none.
LEAST_PARTS = 2
#: Levels at which one item of a list, or one sentence, is one thing that is asked for.
_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])\s+\S", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)")
#: What models put before the parts of a plan.
_NUMBER = re.compile(r"^(?:[-*•]|(?:step |part )?\d+[.:)])\s+", re.IGNORECASE)
#: Words that a sentence has at least; "e.g." and "No." are none.
_LEAST_WORDS = 3


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a task may take.

    Attributes:
        rounds: model calls. seconds_per_round: measured, or the default before any.
    """

    rounds: int
    seconds_per_round: float

    @property
    def seconds(self) -> float:
        """For all rounds."""
        return self.rounds * self.seconds_per_round


def estimated_rounds(goal: str, context: Mapping[str, Any], tools: Sequence[str]) -> int:
    """How many rounds a task seems to need: separate asks in the goal, items of a list in the context, tools it names."""
    items = len(_ITEM.findall(goal))
    sentences = sum(len(part.split()) >= _LEAST_WORDS for part in _SENTENCE_END.split(goal))
    lists = [len(value) for value in context.values() if isinstance(value, list)]
    words = goal.casefold().replace("_", " ")
    named = sum(tool.casefold().replace("_", " ") in words for tool in tools)
    return max(1, items, sentences, *lists) + named


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's word: break down (True), do it (False), or ask the model (None); and why."""

    breaks: bool | None
    reason: str


def verdict(constraints: Constraints, depth: int, estimate: Estimate, room: int) -> Verdict:
    """What a policy says before anybody is asked."""
    over = estimate.seconds > constraints.timeout_hint
    sum_ = f"{estimate.rounds} × {estimate.seconds_per_round:.3g} s against a window of {constraints.timeout_hint:g} s"
    policy = constraints.breakdown
    if policy == "never":
        return Verdict(False, "never, by its constraints")
    if room < LEAST_PARTS:
        return Verdict(False, "no children can be afforded")
    match policy:
        case "as_needed":
            return Verdict(False, "tried first, by its constraints")
        case "always":
            return Verdict(True, "always, by its constraints")
        case "estimate":
            return Verdict(over, f"the estimate: {sum_}")
        case "judge":
            return Verdict(None, "the model judges, by its constraints")
        case "auto":
            if depth == 0:
                return Verdict(None, "the model judges a root")
            if estimate.rounds == 1:
                return Verdict(False, "an estimate of one round")
            return Verdict(True, f"the estimate: {sum_}") if over else Verdict(None, f"the estimate leaves it to the model: {sum_}")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the model says.

    Attributes:
        subtasks: fewer than two mean that it fits into one window. rounds: its own estimate, None if it gave none.
    """

    subtasks: tuple[str, ...]
    reason: str
    rounds: int | None = None

    @property
    def fits(self) -> bool:
        """Whether it need not be broken down."""
        return len(self.subtasks) < LEAST_PARTS


def judgement_schema(room: int, *, forced: bool) -> dict[str, Any]:
    """The JSON schema of a judgement. `forced`: it is to be broken down, and only the parts are asked for."""
    goals = {
        "type": "array",
        "items": {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"], "additionalProperties": False},
        "maxItems": room,
    }
    fields: dict[str, Any] = {"reason": {"type": "string"}, "fits": {"type": "boolean"}, "rounds": {"type": "integer"}, "subtasks": goals}
    if forced:
        fields = {"subtasks": {**goals, "minItems": LEAST_PARTS}}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def plan_schema(room: int) -> dict[str, Any]:
    """The JSON schema of a small model's plan; bounds of number and length keep it from running on."""
    goals = {"type": "array", "items": {"type": "string", "minLength": 8, "maxLength": 90}, "minItems": 2, "maxItems": min(4, room)}
    return {"type": "object", "properties": {"subtasks": goals}, "required": ["subtasks"], "additionalProperties": False}


def judgement_of(text: str, goal: str, room: int, copied: Collection[str] = ()) -> Judgement:
    """What a model's reply says; one that cannot be read means that the task is done as it is.

    Repeated parts, blank ones and the task itself are dropped: small models repeat themselves. So are those that were `copied`
    from an example.
    """
    value = next(objects_in(text), None)
    if value is None:
        return Judgement((), "the judgement could not be read")
    given = value.get("subtasks")
    unwanted = {_key(goal), *map(_key, copied)}
    goals: dict[str, str] = {}
    for each in given if isinstance(given, list) else ():
        named = each.get("goal") if isinstance(each, Mapping) else each
        part = _NUMBER.sub("", " ".join(named.split())) if isinstance(named, str) else ""
        if (key := _key(part)) and key not in unwanted:
            goals.setdefault(key, part)
    rounds = value.get("rounds")
    reason = value.get("reason")
    words = reason.strip()[:MOST_REASON] if isinstance(reason, str) and reason.strip() else "the model's plan"
    subtasks = _within(tuple(goals.values()), room)
    if value.get("fits") is True:
        return Judgement((), words, rounds if type(rounds) is int else None)
    if len(subtasks) < LEAST_PARTS:
        words = f"{words}: no two independent parts in it"
    return Judgement(subtasks, words, rounds if type(rounds) is int else None)


def _within(goals: tuple[str, ...], room: int) -> tuple[str, ...]:
    """No more parts than can be afforded: the last one holds what is too much, so that nothing of the task is lost."""
    return goals if len(goals) <= room else (*goals[: room - 1], "All of these:\n" + "\n".join(f"- {goal}" for goal in goals[room - 1 :]))


def _key(goal: str) -> str:
    """What two goals have in common that say the same: case, spaces and the full stop aside."""
    return " ".join(goal.split()).strip(" .!").casefold()


def same_goal(one: str, other: str) -> bool:
    """Whether two goals are the same but for case, spaces and a full stop."""
    return _key(one) == _key(other)


def child_of(parent: Baton, goal: str, context: Mapping[str, Any], tools: Sequence[str] | None = None) -> Child:
    """A part of an agent's task: the parent's context with its own laid over it, the parent's bounds.

    `always` holds for the parent alone, else no task would ever be done.
    """
    bounds = parent.constraints
    return Child(
        goal,
        {**parent.context, **context},
        tools=tools,
        max_rounds=bounds.max_rounds,
        timeout_hint=bounds.timeout_hint,
        breakdown="auto" if bounds.breakdown == "always" else bounds.breakdown,
        on_child_failure=bounds.on_child_failure,
        max_retries=bounds.max_retries,
        retry_on=bounds.retry_on,
    )
