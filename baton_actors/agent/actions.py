"""Structured-action mode: a model that cannot call tools says what to do as one JSON object, `tool`, `spawn` or `final`.

Pure. The conversation is kept in the form of Chat Completions whichever way a model speaks; here it is put into the words of
actions for a request, and the reply is put back. So a tree can change from one to the other in the middle of a task.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from baton_actors.agent.jsontext import objects_in, parsed

SPAWN = "spawn_task"

#: How some models mark a call that they write as text.
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
#: How a final action begins; one that was cut off is still an answer.
_FINAL = ('{"action": "final", "answer": "', '{"action":"final","answer":"')


class Unreadable(Exception):
    """A reply that is meant as an action and is none; its text tells the model why."""


def action_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON schema of one action: a branch for each tool, with that tool's own arguments."""
    branches = []
    defs: dict[str, Any] = {}
    for tool in tools:
        function = tool["function"]
        if function["name"] == SPAWN:
            task = {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"], "additionalProperties": False}
            subtasks = {"type": "array", "items": task, "minItems": 1, "maxItems": 8}
            branches.append(_branch("spawn", {"subtasks": subtasks}))
        else:
            parameters = _with_own_names(function["parameters"], function["name"])
            defs |= parameters.pop("$defs", {})
            branches.append(_branch("tool", {"name": {"const": function["name"]}, "arguments": parameters}))
    branches.append(_branch("final", {"answer": {"type": "string"}}))
    return {"type": "object", "oneOf": branches, **({"$defs": defs} if defs else {})}


def _with_own_names(schema: Mapping[str, Any], tool: str) -> dict[str, Any]:
    """The schema with its definitions under names of the tool's own, since all tools' definitions come to stand together."""
    if "$defs" not in schema:
        return dict(schema)
    text = json.dumps({name: value for name, value in schema.items() if name != "$defs"})
    defs = json.dumps(schema["$defs"])
    for name in schema["$defs"]:
        text, defs = (each.replace(f'"#/$defs/{name}"', f'"#/$defs/{tool}.{name}"') for each in (text, defs))
    return {**json.loads(text), "$defs": {f"{tool}.{name}": value for name, value in json.loads(defs).items()}}


def _branch(action: str, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"action": {"const": action}, **more},
        "required": ["action", *more],
        "additionalProperties": False,
    }


def instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    """What the model is told about its actions, one line each, with the form to write."""
    lines = ["Reply with one JSON object and nothing else. It is one of these actions:"]
    for tool in tools:
        function = tool["function"]
        if function["name"] == SPAWN:
            lines.append('{"action": "spawn", "subtasks": [{"goal": "..."}]}  hands independent parts on; you get their results')
        else:
            properties = function["parameters"].get("properties", {})
            arguments = ", ".join(f'"{name}": {_kind(schema)}' for name, schema in properties.items())
            first_line = function.get("description", "").partition("\n")[0]
            lines.append(f'{{"action": "tool", "name": "{function["name"]}", "arguments": {{{arguments}}}}}  {first_line}')
    lines.append('{"action": "final", "answer": "..."}  the whole answer to the task, when you have it')
    return "\n".join(lines)


def _kind(schema: Any) -> str:
    kind = schema.get("type", "any value") if isinstance(schema, Mapping) else "any value"
    return f"<{kind if isinstance(kind, str) else 'any value'}>"


def in_actions(messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation in the words of actions: only system, user and assistant messages of text, roles taking turns."""
    told: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        match message["role"]:
            case "assistant":
                names = {call["id"]: call["function"]["name"] for call in message.get("tool_calls", ())}
                _append(told, "assistant", _said(message))
            case "tool":
                name = names.get(message["tool_call_id"], "the tool")
                _append(told, "user", f"Result of {'the subtask' if name == SPAWN else name}:\n{_text(message['content'])}")
            case "system" | "developer":
                _append(told, "system", _text(message["content"]))
            case _:
                _append(told, "user", _text(message["content"]))
    if told and told[0]["role"] == "system":
        told[0]["content"] += "\n\n" + instructions(tools)
    else:
        told.insert(0, {"role": "system", "content": instructions(tools)})
    return told


def _append(told: list[dict[str, Any]], role: str, text: str) -> None:
    """Templates of small models want roles to take turns."""
    if told and told[-1]["role"] == role:
        told[-1]["content"] += "\n\n" + text
    else:
        told.append({"role": role, "content": text})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if isinstance(part, Mapping) and isinstance(part.get("text"), str))


def _said(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls", ())
    if not calls:
        return json.dumps({"action": "final", "answer": _text(message.get("content"))}, ensure_ascii=False)
    named = [(call["function"]["name"], _arguments(call)) for call in calls]
    spawned = [arguments for name, arguments in named if name == SPAWN]
    others = [{"action": "tool", "name": name, "arguments": arguments} for name, arguments in named if name != SPAWN]
    actions = [*others, *([{"action": "spawn", "subtasks": spawned}] if spawned else [])]
    return "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)


def _arguments(call: Mapping[str, Any]) -> Any:
    try:
        return parsed(call["function"]["arguments"])
    except ValueError:
        return call["function"]["arguments"]


def from_action(message: Mapping[str, Any], offered: Sequence[str], round: int, *, cut: bool = False) -> dict[str, Any]:
    """The assistant's message of a reply in actions, in the form of Chat Completions; words alone are an answer.

    Several actions in one reply all count, but for an answer beside calls. `cut`: the reply stopped at the length limit.

    Raises:
        Unreadable: it is meant as an action, and is none.
    """
    text = _text(message.get("content")).strip()
    rest = {name: value for name, value in message.items() if name not in ("content", "tool_calls")}
    actions = [each for each in objects_in(text) if isinstance(each.get("action"), str)]
    calls = [call for action in actions for call in _calls_of(action, offered)]
    if calls:
        return {**rest, **as_calls(calls, round)}
    answers = [action["answer"] for action in actions if action["action"] == "final" and action.get("answer") is not None]
    if answers:
        return {**rest, "content": answers[-1] if isinstance(answers[-1], str) else json.dumps(answers[-1], ensure_ascii=False)}
    if written := written_calls(text, offered):
        return {**rest, **as_calls(written, round)}
    if cut and (begun := next((text[len(start) :] for start in _FINAL if text.startswith(start)), None)):
        return {**rest, "content": begun.replace("\\n", "\n").replace('\\"', '"')}
    if actions:
        raise Unreadable(f"{actions[0]['action']!r} as you wrote it is no action")
    if text.startswith('{"action"'):
        raise Unreadable("your JSON could not be read to its end")
    return {**rest, "content": text}


def _calls_of(action: Mapping[str, Any], offered: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The calls that an action stands for."""
    match action:
        case {"action": "spawn", "subtasks": [*subtasks]}:
            yield from ((SPAWN, task if isinstance(task, dict) else {"goal": str(task)}) for task in subtasks)
        case {"action": "tool", "name": str() as name}:
            yield name, action.get("arguments") or {}
        case {"action": str() as name} if name in offered:
            yield name, action.get("arguments") or {}
        case _:
            pass


def as_calls(calls: Sequence[tuple[str, Any]], round: int) -> dict[str, Any]:
    """`tool_calls` for names and arguments; ids are told by round and place, so that they are the same if it is read again."""
    return {
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{round}_{place}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)},
            }
            for place, (name, given) in enumerate(calls)
        ],
    }


def written_calls(text: str, offered: Sequence[str]) -> list[tuple[str, Any]]:
    """Calls that a model wrote as text instead of calling, if all of them name a tool that was offered."""
    calls = []
    for piece in _tagged(text) or [text]:
        value = _value_in(piece)
        for each in value if isinstance(value, list) else [value]:
            call = _written(each)
            if call is None or call[0] not in offered:
                return []
            calls.append(call)
    return calls


def _tagged(text: str) -> list[str]:
    return [piece.partition(_CLOSE)[0] for piece in text.split(_OPEN)[1:] if _CLOSE in piece]


def _written(value: Any) -> tuple[str, Any] | None:
    """Name and arguments, in the shapes in which models write a call."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = value.get("name") or value.get("tool") or value.get("tool_name") or (inner if isinstance(inner, str) else None)
    if not isinstance(name, str):
        return None
    for key in ("arguments", "parameters", "args", "input", "tool_input"):
        if key in value:
            return name, value[key]
    return None


def _value_in(text: str) -> Any:
    """The JSON value that a text is, but for a fence around it."""
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.strip("`").removeprefix("json").strip()
    try:
        return parsed(bare)
    except ValueError:
        return None
