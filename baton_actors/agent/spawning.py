"""Which children answer a call: parts of the task that a model hands on by `spawn_task`, questions to a person."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baton_actors.agent.actions import SPAWN
from baton_actors.agent.breakdown import child_of, same_goal
from baton_actors.agent.jsontext import parsed
from baton_actors.agent.prompts import PART_OF
from baton_actors.baton import Baton, Child
from baton_actors.capabilities.builtin import ungranted
from baton_actors.capabilities.catalogue import Catalogue
from baton_actors.errors import InvalidInput

#: Characters of a call's arguments that a person is shown.
MOST_SHOWN = 1_000


def definition(catalogue: Catalogue) -> dict[str, Any]:
    """The tool as a model sees it; `tools` can only name what the task itself has."""
    properties: dict[str, Any] = {
        "goal": {"type": "string", "description": "The whole subtask, so that it makes sense to somebody who knows nothing else."},
        "context": {"type": "object", "description": "Data for the subtask, laid over this task's context."},
    }
    if names := _handed_on(catalogue):
        items = {"type": "string", "enum": names}
        properties["tools"] = {"type": "array", "items": items, "description": "Tools it may use; without this, all of this task's."}
    parameters = {"type": "object", "properties": properties, "required": ["goal"], "additionalProperties": False}
    description = "Hand an independent part of the task on; several in one reply run side by side. You get the result of each."
    return {"type": "function", "function": {"name": SPAWN, "description": description, "parameters": parameters}}


def child_for(call: Mapping[str, Any], parent: Baton, catalogue: Catalogue, folder: Path | None) -> Child | str:
    """The child that a call asks for, or what the model is told instead."""
    given = _arguments(call["function"]["arguments"])
    if isinstance(given, str):
        return given
    goal, context, tools = given.get("goal"), given.get("context") or {}, given.get("tools")
    if not isinstance(goal, str) or not goal.strip():
        return "spawn_task needs a goal: a text that says what is to be done. Nothing was spawned."
    if same_goal(goal, parent.goal):
        return "That is your own task; nothing was spawned. Do it yourself, or hand on parts of it."
    if not isinstance(context, dict):
        return "The context of spawn_task is a JSON object. Nothing was spawned."
    if path := ungranted({**parent.context, **context}, parent.context, folder):
        return f"This task was not given {path}, so it cannot hand it on. Nothing was spawned."
    references = None if tools is None else _references(tools, catalogue)
    if isinstance(references, str):
        return references
    return _checked(child_of(parent, goal, context, references))


def _arguments(text: str) -> dict[str, Any] | str:
    try:
        value = parsed(text or "{}")
    except ValueError as error:
        return f"The arguments of spawn_task are no JSON ({error}). Nothing was spawned."
    return value if isinstance(value, dict) else "The arguments of spawn_task are no JSON object. Nothing was spawned."


def question_for(call: Mapping[str, Any], parent: Baton) -> Child | str:
    """The question that a call of `ask_human` asks a person, or what the model is told instead."""
    given = _arguments(call["function"]["arguments"])
    question = given.get("question") if isinstance(given, dict) else None
    if not isinstance(question, str) or not question.strip():
        return "ask_human needs a question: a text. Nobody was asked."
    return _checked(Child(question, {PART_OF: parent.goal}, worker="human"))


def approval_for(call: Mapping[str, Any], parent: Baton) -> Child | str:
    """The question whether a tool may be called, or what the model is told instead."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    shown = arguments if len(arguments) <= MOST_SHOWN else f"{arguments[:MOST_SHOWN]}…"
    return _checked(Child(f"May {name} be called with {shown}? (yes, or why not)", {PART_OF: parent.goal, "tool": name}, worker="human"))


def _checked(child: Child) -> Child | str:
    try:
        child.spec(lambda function: function.__name__)
    except InvalidInput as error:
        return f"{error}. Nothing was spawned."
    return child


def _references(tools: Any, catalogue: Catalogue) -> Sequence[str] | str:
    if not isinstance(tools, list):
        return "The tools of spawn_task are a list of names. Nothing was spawned."
    unknown = [name for name in tools if not isinstance(name, str) or (name not in catalogue.tools and name != SPAWN)]
    if unknown:
        there = ", ".join(_handed_on(catalogue)) or "none"
        return f"This task has no tool {unknown[0]!r} to hand on; there are: {there}. Nothing was spawned."
    return [catalogue.reference(name) for name in tools if name in _handed_on(catalogue)]


def _handed_on(catalogue: Catalogue) -> list[str]:
    """The names that a child may be given; reading children's results is not handed on, each has its own."""
    return [name for name in catalogue.tools if name != "read_result"]
