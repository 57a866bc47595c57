"""What the real Chat Completions endpoint refuses, with its error bodies, worded as it words them as far as that is known. Pure.

Small servers let most of this pass, so that a program that was only tried with those fails with the real one. Stricter than the
real one in two points: an assistant message of an empty text is refused (others refuse it), and so is the `function` role of the
time before tools (new models refuse it). The rules are written out here a second time, without `agent.conversation`, on purpose.
"""

import json
from collections.abc import Iterator
from typing import Any

from baton_actors.testing.checking import (
    Objection,
    bounded,
    error_body,
    known_fields,
    matching,
    not_empty,
    not_longer,
    one_of,
    optional,
    required,
    typed,
)

UNREADABLE = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. "
    "The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
)
MOST_TOOLS = 128
MOST_NAME_CHARACTERS = 64
MOST_DESCRIPTION_CHARACTERS = 1_024
_NAME = r"^[a-zA-Z0-9_-]+$"
_SPEAKER = r"^[^\s<|\\/>]+$"

#: Each field of a request that is not looked at more closely below: its type, and the bounds of a number.
_FIELDS: dict[str, tuple[str, tuple[float, float] | None]] = {
    "audio": ("an object", None),
    "frequency_penalty": ("a decimal number", (-2, 2)),
    "function_call": ("one of a string or object", None),
    "functions": ("an array of objects", None),
    "logit_bias": ("an object", None),
    "logprobs": ("a boolean", None),
    "max_completion_tokens": ("an integer", (1, 10**9)),
    "max_tokens": ("an integer", (1, 10**9)),
    "metadata": ("an object", None),
    "modalities": ("an array of strings", None),
    "n": ("an integer", (1, 128)),
    "parallel_tool_calls": ("a boolean", None),
    "prediction": ("an object", None),
    "presence_penalty": ("a decimal number", (-2, 2)),
    "prompt_cache_key": ("a string", None),
    "prompt_cache_retention": ("a string", None),
    "reasoning_effort": ("a string", None),
    "safety_identifier": ("a string", None),
    "seed": ("an integer", None),
    "service_tier": ("a string", None),
    "stop": ("one of a string or array of strings", None),
    "store": ("a boolean", None),
    "stream": ("a boolean", None),
    "temperature": ("a decimal number", (0, 2)),
    "top_logprobs": ("an integer", (0, 20)),
    "top_p": ("a decimal number", (0, 1)),
    "user": ("a string", None),
    "verbosity": ("a string", None),
    "web_search_options": ("an object", None),
}
_LOOKED_AT = {"messages", "model", "response_format", "stream_options", "tool_choice", "tools"}

_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
#: What a message may hold; an assistant's may hold anything, since models add fields of their own and want them back.
_MESSAGE_FIELDS = {
    "system": ("role", "content", "name"),
    "developer": ("role", "content", "name"),
    "user": ("role", "content", "name"),
    "tool": ("role", "content", "name", "tool_call_id"),
}
_PARTS = {"user": ("text", "image_url", "input_audio", "file"), "assistant": ("text", "refusal")}


def objection(body: Any) -> dict[str, Any] | None:
    """The body of the answer 400 that a request gets, `{"error": {"message", "type", "param", "code"}}`; None if it is accepted."""
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):  # no JSON: also a lone surrogate, which no UTF-8 can hold
        return error_body(UNREADABLE)
    try:
        _check(body)
    except Objection as refused:
        return refused.body
    except RecursionError:  # a schema of hundreds of levels
        return error_body(UNREADABLE)
    return None


def _check(body: Any) -> None:
    if not isinstance(body, dict):
        raise Objection(UNREADABLE)
    if body.get("model") in (None, ""):
        raise Objection("you must provide a model parameter")
    typed(body["model"], "model", "a string")
    if unknown := sorted(body.keys() - _FIELDS.keys() - _LOOKED_AT):
        raise Objection(f"Unrecognized request argument{'s' * (len(unknown) > 1)} supplied: {', '.join(unknown)}")
    for name, (expected, bounds) in _FIELDS.items():
        value = optional(body, name, "", expected)
        if value is not None and bounds is not None:
            bounded(value, name, *bounds)
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        told = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise Objection(told, "max_tokens", "invalid_parameter_combination")
    messages = not_empty(required(body, "messages", "", "an array of objects"), "messages")
    for place, message in enumerate(messages):
        _check_message(message, f"messages[{place}]", place)
    _check_answers(messages)
    _check_tools(body)
    _check_format(body)
    _check_streaming(body)


# -------------------------------------------------------------------------------- messages


def _check_message(message: Any, path: str, place: int) -> None:
    typed(message, path, "an object")
    role = required(message, "role", path, "a string")
    one_of(role, f"{path}.role", _ROLES)
    if role == "function":
        told = f"Unsupported value: '{path}.role' does not support 'function' with this model."
        raise Objection(told, f"{path}.role", "unsupported_value")
    name = optional(message, "name", path, "a string")
    if name is not None:
        matching(name, f"{path}.name", _SPEAKER)
        not_longer(name, f"{path}.name", MOST_NAME_CHARACTERS)
    if role == "assistant":
        _check_assistant(message, path, place)
        return
    known_fields(message, path, _MESSAGE_FIELDS[role])
    if role == "tool" and "tool_call_id" not in message:
        told = "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
        raise Objection(told, f"messages.[{place}].tool_call_id")
    if role == "tool":
        required(message, "tool_call_id", path, "a string")
    if "content" in message and message["content"] is None:
        raise Objection("Invalid value for 'content': expected a string, got null.", f"messages.[{place}].content")
    _check_content(required(message, "content", path, "one of a string or array of objects"), f"{path}.content", role)


def _check_content(content: Any, path: str, role: str) -> None:
    if isinstance(content, str):
        return
    kinds = _PARTS.get(role, ("text",))
    for place, part in enumerate(not_empty(content, path)):
        where = f"{path}[{place}]"
        typed(part, where, "an object")
        kind = required(part, "type", where, "a string")
        one_of(kind, f"{where}.type", kinds)
        payload = required(part, kind, where, "a string" if kind in ("text", "refusal") else "an object")
        if kind == "image_url":
            required(payload, "url", f"{where}.image_url", "a string")
            one_of(payload.get("detail", "auto"), f"{where}.image_url.detail", ("auto", "low", "high", "original"))
        if kind == "input_audio":
            required(payload, "data", f"{where}.input_audio", "a string")
            one_of(required(payload, "format", f"{where}.input_audio", "a string"), f"{where}.input_audio.format", ("wav", "mp3"))
        if kind == "file":
            for name in payload:
                required(payload, name, f"{where}.file", "a string")


def _check_assistant(message: dict[str, Any], path: str, place: int) -> None:
    optional(message, "refusal", path, "a string")
    audio = optional(message, "audio", path, "an object")
    if audio is not None:
        required(audio, "id", f"{path}.audio", "a string")
    if message.get("function_call") is not None:
        told = f"Unsupported parameter: '{path}.function_call' is not supported with this model."
        raise Objection(told, f"{path}.function_call", "unsupported_parameter")
    if "tool_calls" in message:
        _check_calls(message["tool_calls"], f"{path}.tool_calls", place)
    content = message.get("content")
    if content is None and "tool_calls" not in message:
        raise Objection("Invalid value for 'content': expected a string, got null.", f"messages.[{place}].content")
    if content == "" and "tool_calls" not in message:
        raise Objection("Invalid assistant message: content or tool_calls must be set", f"messages.[{place}].content")
    if content is not None:
        _check_content(typed(content, f"{path}.content", "one of a string or array of objects"), f"{path}.content", "assistant")


def _check_calls(calls: Any, path: str, message_place: int) -> None:
    places: dict[str, int] = {}
    for place, call in enumerate(not_empty(typed(calls, path, "an array of objects"), path)):
        where = f"{path}[{place}]"
        typed(call, where, "an object")
        id = not_empty(required(call, "id", where, "a string"), f"{where}.id")
        one_of(required(call, "type", where, "a string"), f"{where}.type", ("function",))
        function = required(call, "function", where, "an object")
        _check_name(function, f"{where}.function")
        required(function, "arguments", f"{where}.function", "a string")
        if id in places:
            told = f"Invalid parameter: Duplicate value for 'id' of '{id}', in {path}[{places[id]}] and {where}."
            raise Objection(told, f"messages.[{message_place}].tool_calls")
        places[id] = place


def _check_name(owner: dict[str, Any], path: str) -> str:
    name = str(not_empty(required(owner, "name", path, "a string"), f"{path}.name"))
    matching(name, f"{path}.name", _NAME)
    not_longer(name, f"{path}.name", MOST_NAME_CHARACTERS)
    return name


def _check_answers(messages: list[dict[str, Any]]) -> None:
    """Each call is answered once, directly behind its message, in any order."""
    open_ids: list[str] = []
    answered: dict[str, int] = {}
    for place, message in enumerate(messages):
        if message["role"] != "tool":
            _check_none_left(open_ids, answered, f"messages.[{place}].role")
            open_ids, answered = [call["id"] for call in message.get("tool_calls", ())], {}
            continue
        id = message["tool_call_id"]
        if not open_ids:
            told = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            raise Objection(told, f"messages.[{place}].role")
        if id in answered:
            told = f"Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in messages[{answered[id]}] and messages[{place}]."
            raise Objection(told, f"messages.[{place}].tool_call_id")
        if id not in open_ids:
            told = f"Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."
            raise Objection(told, f"messages.[{place}].tool_call_id")
        answered[id] = place
    _check_none_left(open_ids, answered, "messages")


def _check_none_left(ids: list[str], answered: dict[str, int], param: str) -> None:
    if left := [id for id in ids if id not in answered]:
        told = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            f"The following tool_call_ids did not have response messages: {', '.join(left)}"
        )
        raise Objection(told, param)


# -------------------------------------------------------------------------------- tools, formats, streams


def _check_tools(body: dict[str, Any]) -> None:
    names = []
    if "tools" in body:
        tools = not_empty(typed(body["tools"], "tools", "an array of objects"), "tools")
        not_longer(tools, "tools", MOST_TOOLS)
        names = [_check_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools)]
        if len(set(names)) < len(names):
            raise Objection("Tool names must be unique.", "tools", "invalid_value")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not names:
            raise Objection(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", name)
    choice = optional(body, "tool_choice", "", "one of a string or object")
    if isinstance(choice, str):
        one_of(choice, "tool_choice", ("none", "auto", "required"))
    elif choice is not None:
        one_of(required(choice, "type", "tool_choice", "a string"), "tool_choice.type", ("function",))
        chosen = _check_name(required(choice, "function", "tool_choice", "an object"), "tool_choice.function")
        if chosen not in names:
            raise Objection(f"Tool choice '{chosen}' not found in 'tools' parameter.", "tool_choice")


def _check_tool(tool: Any, path: str) -> str:
    typed(tool, path, "an object")
    one_of(required(tool, "type", path, "a string"), f"{path}.type", ("function",))
    known_fields(tool, path, ("type", "function"))
    function = required(tool, "function", path, "an object")
    known_fields(function, f"{path}.function", ("name", "description", "parameters", "strict"))
    name = _check_name(function, f"{path}.function")
    description = optional(function, "description", f"{path}.function", "a string")
    if description is not None:
        not_longer(description, f"{path}.function.description", MOST_DESCRIPTION_CHARACTERS)
    strict = optional(function, "strict", f"{path}.function", "a boolean")
    schema = optional(function, "parameters", f"{path}.function", "an object")
    if schema is not None:
        what, param = f"Invalid schema for function '{name}'", f"{path}.function.parameters"
        _check_root(schema, what, param, "invalid_function_parameters")
        _check_schema(schema, (), what, param, "invalid_function_parameters", strict=bool(strict))
    return name


def _check_root(schema: dict[str, Any], what: str, param: str, code: str | None) -> None:
    kind = schema.get("type")
    if kind != "object":
        raise Objection(f"{what}: schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'.", param, code)
    if schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
        told = "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        raise Objection(f"{what}: {told}", param, code)
    if "properties" not in schema:
        raise Objection(f"{what}: In context=(), object schema missing properties.", param, code)


def _check_schema(schema: Any, at: tuple[str, ...], what: str, param: str, code: str | None, *, strict: bool) -> None:
    """The faults of a schema and of those in it. `at`: where it stands; `strict`: by the narrow rules of strict mode."""
    if told := _fault_of(schema, strict):
        raise Objection(f"{what}: In context={at}, {told}.", param, code)
    for inner, each in _schemas_in(schema) if isinstance(schema, dict) else ():
        _check_schema(each, (*at, *inner), what, param, code, strict=strict)


def _fault_of(schema: Any, strict: bool) -> str | None:
    if not isinstance(schema, dict):
        return None if isinstance(schema, bool) and not strict else "schema must be an object"
    for name, kind in (("properties", dict), ("$defs", dict), ("required", list), ("anyOf", list), ("oneOf", list), ("allOf", list)):
        if name in schema and not isinstance(schema[name], kind):
            return f"{schema[name]!r} is not of type '{'object' if kind is dict else 'array'}'"
    if schema.get("type") == "array" and "items" not in schema:
        return "array schema missing items"
    if not strict or schema.get("type") != "object":
        return None
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false"
    missing = [name for name in schema.get("properties", {}) if name not in schema.get("required", ())]
    told = "'required' is required to be supplied and to be an array including every key in properties. Missing"
    return f"{told} '{missing[0]}'" if missing else None


def _schemas_in(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The schemas directly in a schema, and where they stand in it."""
    for key in ("properties", "$defs"):
        for name, each in schema.get(key, {}).items():
            yield (key, name), each
    if "items" in schema:
        yield ("items",), schema["items"]
    for key in ("anyOf", "oneOf", "allOf"):
        for place, each in enumerate(schema.get(key, ())):
            yield (key, str(place)), each


def _check_format(body: dict[str, Any]) -> None:
    wanted = optional(body, "response_format", "", "an object")
    if wanted is None:
        return
    kind = required(wanted, "type", "response_format", "a string")
    one_of(kind, "response_format.type", ("json_object", "json_schema", "text"))
    known_fields(wanted, "response_format", ("type", "json_schema") if kind == "json_schema" else ("type",))
    if kind == "json_object" and "json" not in json.dumps(body["messages"]).lower():
        told = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
        raise Objection(told, "messages")
    if kind != "json_schema":
        return
    path = "response_format.json_schema"
    given = required(wanted, "json_schema", "response_format", "an object")
    known_fields(given, path, ("name", "description", "schema", "strict"))
    name = _check_name(given, path)
    optional(given, "description", path, "a string")
    strict = optional(given, "strict", path, "a boolean")
    schema = optional(given, "schema", path, "an object")
    if strict and schema is not None:
        what = f"Invalid schema for response_format '{name}'"
        _check_root(schema, what, "response_format", None)
        _check_schema(schema, (), what, "response_format", None, strict=True)


def _check_streaming(body: dict[str, Any]) -> None:
    options = optional(body, "stream_options", "", "an object")
    if options is None:
        return
    if not body.get("stream"):
        raise Objection("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    known_fields(options, "stream_options", ("include_usage", "include_obfuscation"))
    for name in options:
        required(options, name, "stream_options", "a boolean")
