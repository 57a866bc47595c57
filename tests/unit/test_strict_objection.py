"""What the strict endpoint refuses, and in which words: one case for each rule."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from baton_actors.testing import objection
from tests.unit.histories import GOAL, SYSTEM, VALID, answer, asks, call, spoiled, user

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [GOAL], **fields}


def tool(name: Any = "read", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "Reads.", "parameters": SCHEMA, **function}}


def nested(**parameters: Any) -> dict[str, Any]:
    return tool(parameters={**SCHEMA, "properties": {"x": parameters}})


def schema_format(**json_schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, **json_schema}}


def refused(request: Any) -> dict[str, Any]:
    told = objection(request)
    assert told is not None
    assert told.keys() == {"error"}
    assert told["error"].keys() == {"message", "type", "param", "code"}
    assert told["error"]["type"] == "invalid_request_error"
    return dict(told["error"])


#: What the endpoint says of a name, and of an empty text.
NO_MATCH = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
EMPTY = "empty string. Expected a string with minimum length 1, but got an empty string instead."

ACCEPTED = [
    *(body(*history) for history in VALID),
    body(
        tools=[tool(), tool("list-files", parameters={"type": "object", "properties": {}})], tool_choice="auto", parallel_tool_calls=False
    ),
    body(
        tools=[tool(), {"type": "function", "function": {"name": "bare"}}], tool_choice={"type": "function", "function": {"name": "bare"}}
    ),
    body(tools=[tool(strict=True)], tool_choice="required"),
    body(tools=[nested(anyOf=[{"type": "array", "items": True}, {"$ref": "#/$defs/x"}], default=None)]),
    body(response_format=schema_format(strict=True), max_tokens=5, temperature=0.5, top_p=1, seed=3, n=1, stop=["x"], user="u"),
    body(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"oneOf": [SCHEMA]}}}),
    body(user("Write JSON."), response_format={"type": "json_object"}),
    body(response_format={"type": "text"}, stream=True, stream_options={"include_usage": True}, stop="x", temperature=None),
    body(GOAL, asks(call("a"), call("b")), answer("b"), answer("a")),
]


@pytest.mark.parametrize("request_body", ACCEPTED)
def test_good_requests_are_accepted(request_body: dict[str, Any]) -> None:
    assert objection(request_body) is None


MESSAGES: list[tuple[list[Any], str, str | None, str | None]] = [
    (["hi"], "Invalid type for 'messages[0]': expected an object, but got a string instead.", "messages[0]", "invalid_type"),
    ([{"content": "x"}], "Missing required parameter: 'messages[0].role'.", "messages[0].role", "missing_required_parameter"),
    (
        [{"role": 1, "content": "x"}],
        "Invalid type for 'messages[0].role': expected a string, but got an integer instead.",
        "messages[0].role",
        "invalid_type",
    ),
    (
        [{"role": "oracle", "content": "x"}],
        "Invalid value: 'oracle'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
        "messages[0].role",
        "invalid_value",
    ),
    (
        [{"role": "function", "name": "f", "content": "x"}],
        "Unsupported value: 'messages[0].role' does not support 'function' with this model.",
        "messages[0].role",
        "unsupported_value",
    ),
    ([{"role": "user"}], "Missing required parameter: 'messages[0].content'.", "messages[0].content", "missing_required_parameter"),
    ([user(None)], "Invalid value for 'content': expected a string, got null.", "messages.[0].content", None),
    (
        [GOAL, user({"a": 1})],
        "Invalid type for 'messages[1].content': expected one of a string or array of objects, but got an object instead.",
        "messages[1].content",
        "invalid_type",
    ),
    (
        [user([])],
        "Invalid 'messages[0].content': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "messages[0].content",
        "empty_array",
    ),
    (
        [user(["x"])],
        "Invalid type for 'messages[0].content[0]': expected an object, but got a string instead.",
        "messages[0].content[0]",
        "invalid_type",
    ),
    (
        [user([{"type": "image", "image": "x"}])],
        "Invalid value: 'image'. Supported values are: 'text', 'image_url', 'input_audio', and 'file'.",
        "messages[0].content[0].type",
        "invalid_value",
    ),
    (
        [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "Invalid value: 'image_url'. Supported values are: 'text'.",
        "messages[0].content[0].type",
        "invalid_value",
    ),
    (
        [user([{"type": "text", "text": None}])],
        "Invalid type for 'messages[0].content[0].text': expected a string, but got null instead.",
        "messages[0].content[0].text",
        "invalid_type",
    ),
    (
        [user([{"type": "image_url", "image_url": "x.png"}])],
        "Invalid type for 'messages[0].content[0].image_url': expected an object, but got a string instead.",
        "messages[0].content[0].image_url",
        "invalid_type",
    ),
    (
        [user([{"type": "image_url", "image_url": {"url": "x", "detail": "huge"}}])],
        "Invalid value: 'huge'. Supported values are: 'auto', 'low', 'high', and 'original'.",
        "messages[0].content[0].image_url.detail",
        "invalid_value",
    ),
    (
        [user([{"type": "input_audio", "input_audio": {"data": "x", "format": "ogg"}}])],
        "Invalid value: 'ogg'. Supported values are: 'wav' and 'mp3'.",
        "messages[0].content[0].input_audio.format",
        "invalid_value",
    ),
    (
        [user([{"type": "file", "file": {"file_id": 5}}])],
        "Invalid type for 'messages[0].content[0].file.file_id': expected a string, but got an integer instead.",
        "messages[0].content[0].file.file_id",
        "invalid_type",
    ),
    (
        [{**GOAL, "name": "a b"}],
        r"Invalid 'messages[0].name': string does not match pattern. Expected a string that matches the pattern '^[^\s<|\\/>]+$'.",
        "messages[0].name",
        "invalid_value",
    ),
    ([{**GOAL, "at": 3}], "Unknown parameter: 'messages[0].at'.", "messages[0].at", "unknown_parameter"),
    ([{"role": "assistant"}], "Invalid value for 'content': expected a string, got null.", "messages.[0].content", None),
    ([{"role": "assistant", "content": ""}], "Invalid assistant message: content or tool_calls must be set", "messages.[0].content", None),
    (
        [{"role": "assistant", "content": 5}],
        "Invalid type for 'messages[0].content': expected one of a string or array of objects, but got an integer instead.",
        "messages[0].content",
        "invalid_type",
    ),
    (
        [{"role": "assistant", "content": "x", "refusal": []}],
        "Invalid type for 'messages[0].refusal': expected a string, but got an array instead.",
        "messages[0].refusal",
        "invalid_type",
    ),
    (
        [{"role": "assistant", "content": "x", "audio": {}}],
        "Missing required parameter: 'messages[0].audio.id'.",
        "messages[0].audio.id",
        "missing_required_parameter",
    ),
    (
        [{"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}}],
        "Unsupported parameter: 'messages[0].function_call' is not supported with this model.",
        "messages[0].function_call",
        "unsupported_parameter",
    ),
]

CALLS: list[tuple[Any, str, str | None, str | None]] = [
    (
        None,
        "Invalid type for 'messages[0].tool_calls': expected an array of objects, but got null instead.",
        "messages[0].tool_calls",
        "invalid_type",
    ),
    (
        [],
        "Invalid 'messages[0].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "messages[0].tool_calls",
        "empty_array",
    ),
    (
        [5],
        "Invalid type for 'messages[0].tool_calls[0]': expected an object, but got an integer instead.",
        "messages[0].tool_calls[0]",
        "invalid_type",
    ),
    (
        [{"type": "function", "function": {}}],
        "Missing required parameter: 'messages[0].tool_calls[0].id'.",
        "messages[0].tool_calls[0].id",
        "missing_required_parameter",
    ),
    (
        [call("")],
        f"Invalid 'messages[0].tool_calls[0].id': {EMPTY}",
        "messages[0].tool_calls[0].id",
        "empty_string",
    ),
    (
        [call(1.5)],
        "Invalid type for 'messages[0].tool_calls[0].id': expected a string, but got a decimal number instead.",
        "messages[0].tool_calls[0].id",
        "invalid_type",
    ),
    (
        [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        "Missing required parameter: 'messages[0].tool_calls[0].type'.",
        "messages[0].tool_calls[0].type",
        "missing_required_parameter",
    ),
    (
        [{**call("a"), "type": "tool"}],
        "Invalid value: 'tool'. Supported values are: 'function'.",
        "messages[0].tool_calls[0].type",
        "invalid_value",
    ),
    (
        [{"id": "a", "type": "function"}],
        "Missing required parameter: 'messages[0].tool_calls[0].function'.",
        "messages[0].tool_calls[0].function",
        "missing_required_parameter",
    ),
    (
        [call("a", "")],
        f"Invalid 'messages[0].tool_calls[0].function.name': {EMPTY}",
        "messages[0].tool_calls[0].function.name",
        "empty_string",
    ),
    (
        [call("a", "a.b")],
        f"Invalid 'messages[0].tool_calls[0].function.name': {NO_MATCH}",
        "messages[0].tool_calls[0].function.name",
        "invalid_value",
    ),
    (
        [call("a", "a\n")],
        f"Invalid 'messages[0].tool_calls[0].function.name': {NO_MATCH}",
        "messages[0].tool_calls[0].function.name",
        "invalid_value",
    ),
    (
        [call("a", "a" * 65)],
        "Invalid 'messages[0].tool_calls[0].function.name': string too long. "
        "Expected a string with maximum length 64, but got a string with length 65 instead.",
        "messages[0].tool_calls[0].function.name",
        "string_above_max_length",
    ),
    (
        [{"id": "a", "type": "function", "function": {"name": "f"}}],
        "Missing required parameter: 'messages[0].tool_calls[0].function.arguments'.",
        "messages[0].tool_calls[0].function.arguments",
        "missing_required_parameter",
    ),
    (
        [call("a", arguments={"a": 1})],
        "Invalid type for 'messages[0].tool_calls[0].function.arguments': expected a string, but got an object instead.",
        "messages[0].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    (
        [call("a"), call("b"), call("a")],
        "Invalid parameter: Duplicate value for 'id' of 'a', in messages[0].tool_calls[0] and messages[0].tool_calls[2].",
        "messages.[0].tool_calls",
        None,
    ),
]
MESSAGES += [([asks() | {"tool_calls": calls}], *told) for calls, *told in CALLS]

NOT_ANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)
NO_RESPONSE = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
ANSWERS: list[tuple[list[Any], str, str | None, str | None]] = [
    ([GOAL, asks(call("a"), call("b")), answer("a")], f"{NOT_ANSWERED}b", "messages", None),
    ([GOAL, asks(call("a"), call("b")), user("Hurry!"), answer("a"), answer("b")], f"{NOT_ANSWERED}a, b", "messages.[2].role", None),
    ([GOAL, asks(call("a")), asks(call("a")), answer("a")], f"{NOT_ANSWERED}a", "messages.[2].role", None),
    ([GOAL, answer("a")], NO_RESPONSE, "messages.[1].role", None),
    ([GOAL, asks(call("a")), answer("a"), GOAL, answer("a")], NO_RESPONSE, "messages.[4].role", None),
    (
        [GOAL, asks(call("a")), answer("b")],
        "Invalid parameter: 'tool_call_id' of 'b' not found in 'tool_calls' of previous message.",
        "messages.[2].tool_call_id",
        None,
    ),
    (
        [GOAL, asks(call("a")), answer("a"), answer("a")],
        "Invalid parameter: Duplicate value for 'tool_call_id' of 'a', in messages[2] and messages[3].",
        "messages.[3].tool_call_id",
        None,
    ),
    (
        [{"role": "tool", "content": "x"}],
        "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
        "messages.[0].tool_call_id",
        None,
    ),
    (
        [answer(5)],
        "Invalid type for 'messages[0].tool_call_id': expected a string, but got an integer instead.",
        "messages[0].tool_call_id",
        "invalid_type",
    ),
    ([GOAL, asks(call("a")), answer("a", None)], "Invalid value for 'content': expected a string, got null.", "messages.[2].content", None),
]


@pytest.mark.parametrize(("messages", "message", "param", "code"), MESSAGES + ANSWERS)
def test_bad_messages_are_refused(messages: list[Any], message: str, param: str | None, code: str | None) -> None:
    told = refused(body(*messages))
    assert (told["message"], told["param"], told["code"]) == (message, param, code)


TOO_MANY = "Expected an array with maximum length 128, but got an array with length 129 instead."
FIELDS: list[tuple[dict[str, Any], str, str | None, str | None]] = [
    ({"model": None}, "you must provide a model parameter", None, None),
    ({"model": ""}, "you must provide a model parameter", None, None),
    ({"model": 5}, "Invalid type for 'model': expected a string, but got an integer instead.", "model", "invalid_type"),
    (
        {"messages": "hi"},
        "Invalid type for 'messages': expected an array of objects, but got a string instead.",
        "messages",
        "invalid_type",
    ),
    (
        {"messages": []},
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "messages",
        "empty_array",
    ),
    ({"top_k": 1}, "Unrecognized request argument supplied: top_k", None, None),
    ({"top_k": 1, "num_ctx": 5}, "Unrecognized request arguments supplied: num_ctx, top_k", None, None),
    (
        {"temperature": "0"},
        "Invalid type for 'temperature': expected a decimal number, but got a string instead.",
        "temperature",
        "invalid_type",
    ),
    (
        {"temperature": 2.5},
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.5 instead.",
        "temperature",
        "decimal_above_max_value",
    ),
    (
        {"max_tokens": 0},
        "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead.",
        "max_tokens",
        "integer_below_min_value",
    ),
    ({"max_tokens": True}, "Invalid type for 'max_tokens': expected an integer, but got a boolean instead.", "max_tokens", "invalid_type"),
    (
        {"max_tokens": 5, "max_completion_tokens": 5},
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        "max_tokens",
        "invalid_parameter_combination",
    ),
    (
        {"stop": [1]},
        "Invalid type for 'stop': expected one of a string or array of strings, but got an array instead.",
        "stop",
        "invalid_type",
    ),
    ({"tools": None}, "Invalid type for 'tools': expected an array of objects, but got null instead.", "tools", "invalid_type"),
    (
        {"tools": []},
        "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "tools",
        "empty_array",
    ),
    (
        {"tools": [tool(f"t{place}") for place in range(129)]},
        f"Invalid 'tools': array too long. {TOO_MANY}",
        "tools",
        "array_above_max_length",
    ),
    ({"tools": ["read"]}, "Invalid type for 'tools[0]': expected an object, but got a string instead.", "tools[0]", "invalid_type"),
    ({"tools": [{"function": {}}]}, "Missing required parameter: 'tools[0].type'.", "tools[0].type", "missing_required_parameter"),
    ({"tools": [{"type": "mcp"}]}, "Invalid value: 'mcp'. Supported values are: 'function'.", "tools[0].type", "invalid_value"),
    (
        {"tools": [{"type": "function"}]},
        "Missing required parameter: 'tools[0].function'.",
        "tools[0].function",
        "missing_required_parameter",
    ),
    (
        {"tools": [{"type": "function", "name": "f", "function": {"name": "f"}}]},
        "Unknown parameter: 'tools[0].name'.",
        "tools[0].name",
        "unknown_parameter",
    ),
    (
        {"tools": [{"type": "function", "function": {}}]},
        "Missing required parameter: 'tools[0].function.name'.",
        "tools[0].function.name",
        "missing_required_parameter",
    ),
    (
        {"tools": [tool("read file")]},
        f"Invalid 'tools[0].function.name': {NO_MATCH}",
        "tools[0].function.name",
        "invalid_value",
    ),
    (
        {"tools": [tool(description="x" * 1_025)]},
        "Invalid 'tools[0].function.description': string too long. "
        "Expected a string with maximum length 1024, but got a string with length 1025 instead.",
        "tools[0].function.description",
        "string_above_max_length",
    ),
    ({"tools": [tool(), tool()]}, "Tool names must be unique.", "tools", "invalid_value"),
    (
        {"tools": [tool(parameters="{}")]},
        "Invalid type for 'tools[0].function.parameters': expected an object, but got a string instead.",
        "tools[0].function.parameters",
        "invalid_type",
    ),
    (
        {"tools": [tool(parameters={})]},
        "Invalid schema for function 'read': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [tool(parameters={"type": "object", "oneOf": []})]},
        "Invalid schema for function 'read': "
        "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [tool(parameters={"type": "object"})]},
        "Invalid schema for function 'read': In context=(), object schema missing properties.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [nested(type="array")]},
        "Invalid schema for function 'read': In context=('properties', 'x'), array schema missing items.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [nested(anyOf=[{"type": "object", "properties": []}])]},
        "Invalid schema for function 'read': In context=('properties', 'x', 'anyOf', '0'), [] is not of type 'object'.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [nested(type="array", items="text")]},
        "Invalid schema for function 'read': In context=('properties', 'x', 'items'), schema must be an object.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [tool(strict=True, parameters={"type": "object", "properties": {}})]},
        "Invalid schema for function 'read': In context=(), 'additionalProperties' is required to be supplied and to be false.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [tool(strict=True, parameters={**SCHEMA, "required": []})]},
        "Invalid schema for function 'read': In context=(), 'required' is required to be supplied and to be an array "
        "including every key in properties. Missing 'path'.",
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tool_choice": "auto"},
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
        "tool_choice",
        None,
    ),
    (
        {"parallel_tool_calls": True},
        "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.",
        "parallel_tool_calls",
        None,
    ),
    (
        {"tools": [tool()], "tool_choice": "any"},
        "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'.",
        "tool_choice",
        "invalid_value",
    ),
    (
        {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "write"}}},
        "Tool choice 'write' not found in 'tools' parameter.",
        "tool_choice",
        None,
    ),
    (
        {"response_format": "json"},
        "Invalid type for 'response_format': expected an object, but got a string instead.",
        "response_format",
        "invalid_type",
    ),
    (
        {"response_format": {"type": "json"}},
        "Invalid value: 'json'. Supported values are: 'json_object', 'json_schema', and 'text'.",
        "response_format.type",
        "invalid_value",
    ),
    (
        {"response_format": {"type": "json_object", "schema": {}}},
        "Unknown parameter: 'response_format.schema'.",
        "response_format.schema",
        "unknown_parameter",
    ),
    (
        {"response_format": {"type": "json_object"}},
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        "messages",
        None,
    ),
    (
        {"response_format": {"type": "json_schema"}},
        "Missing required parameter: 'response_format.json_schema'.",
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        "Unknown parameter: 'response_format.json_schema.additionalProperties'.",
        "response_format.json_schema.additionalProperties",
        "unknown_parameter",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        "Missing required parameter: 'response_format.json_schema.name'.",
        "response_format.json_schema.name",
        "missing_required_parameter",
    ),
    (
        {"response_format": schema_format(name="a b")},
        f"Invalid 'response_format.json_schema.name': {NO_MATCH}",
        "response_format.json_schema.name",
        "invalid_value",
    ),
    (
        {"response_format": schema_format(strict=True, schema={"type": "array", "items": {}})},
        "Invalid schema for response_format 'answer': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'.",
        "response_format",
        None,
    ),
    (
        {"stream_options": {"include_usage": True}},
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        "stream_options",
        None,
    ),
    (
        {"stream": True, "stream_options": {"usage": True}},
        "Unknown parameter: 'stream_options.usage'.",
        "stream_options.usage",
        "unknown_parameter",
    ),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        "Invalid type for 'stream_options.include_usage': expected a boolean, but got an integer instead.",
        "stream_options.include_usage",
        "invalid_type",
    ),
]


@pytest.mark.parametrize(("fields", "message", "param", "code"), FIELDS)
def test_bad_fields_are_refused(fields: dict[str, Any], message: str, param: str | None, code: str | None) -> None:
    told = refused(body(**fields))
    assert (told["message"], told["param"], told["code"]) == (message, param, code)


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_what_is_missing_is_named(missing: str) -> None:
    request = body()
    del request[missing]
    assert missing in refused(request)["message"]


@pytest.mark.parametrize("request_body", [None, [], "hi", body(user("\udc88")), body(logit_bias={"a": float("nan")}), {1, 2}])
def test_what_is_no_json_object_is_refused(request_body: Any) -> None:
    assert refused(request_body)["message"].startswith("We could not parse the JSON body of your request.")


def test_endlessly_deep_schemas_are_refused_and_none_raises() -> None:
    schema: dict[str, Any] = {}
    for _ in range(1_000):
        schema = {"type": "array", "items": schema}
        told = objection(body(tools=[nested(**schema)]))
    assert told is not None
    assert told["error"]["message"].startswith("We could not parse")


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_a_spoiled_request_is_judged_and_never_raises(data: st.DataObject) -> None:
    request = data.draw(st.sampled_from([*ACCEPTED, body(SYSTEM, GOAL, tools=[tool(strict=True), nested(type="array", items={})])]))
    told = objection(spoiled(data.draw, request))
    assert told is None or json.dumps(told)
