"""Structured-action mode: a conversation in words of actions and back."""

import json
from typing import Any

import pytest

from baton_actors.agent.actions import Unreadable, action_schema, as_calls, from_action, in_actions, written_calls


def tool(name: str, **properties: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"type": "function", "function": {"name": name, "description": f"{name} things\nmore", "parameters": parameters}}


TOOLS = [tool("add", a="integer", b="integer"), tool("spawn_task", goal="string")]


def said(action: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": action if isinstance(action, str) else json.dumps(action)}


def calls(message: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", ())]


def test_each_tool_has_a_branch_with_its_own_arguments() -> None:
    kinds = [branch["properties"]["action"]["const"] for branch in action_schema(TOOLS)["oneOf"]]
    assert kinds == ["tool", "spawn", "final"]
    assert action_schema(TOOLS)["oneOf"][0]["properties"]["arguments"]["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}


def test_an_action_becomes_a_call() -> None:
    message = from_action(said({"action": "tool", "name": "add", "arguments": {"a": 1, "b": 2}}), ["add"], 3)
    assert calls(message) == [("add", {"a": 1, "b": 2})]


def test_a_spawn_becomes_a_call_for_each_subtask() -> None:
    message = from_action(said({"action": "spawn", "subtasks": [{"goal": "one"}, "two"]}), ["spawn_task"], 1)
    assert calls(message) == [("spawn_task", {"goal": "one"}), ("spawn_task", {"goal": "two"})]
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def test_a_final_action_is_an_answer() -> None:
    assert from_action(said({"action": "final", "answer": "42"}), ["add"], 1)["content"] == "42"
    assert from_action(said({"action": "final", "answer": {"n": 1}}), ["add"], 1)["content"] == '{"n": 1}'


@pytest.mark.parametrize("text", ["Just words.", "", "{broken", '{"act": "dance"}', "[1, 2]"])
def test_what_is_no_action_is_an_answer_in_words(text: str) -> None:
    assert from_action(said(text), ["add"], 1)["content"] == text


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "dance"}',
        '{"action": "spawn", "subtasks": []}',
        '{"action": "tool"}',
        '{"action": "final", "answer": null}',
        '{"action": "fin',
    ],
)
def test_what_is_meant_as_an_action_and_is_none_is_told_apart(text: str) -> None:
    with pytest.raises(Unreadable):
        from_action(said(text), ["add"], 1)


def test_several_actions_in_one_reply_all_count() -> None:
    first = json.dumps({"action": "tool", "name": "add", "arguments": {"a": 1}})
    second = json.dumps({"action": "tool", "name": "add", "arguments": {"a": 2}})
    assert calls(from_action(said(f"{first}\n{second}"), ["add"], 1)) == [("add", {"a": 1}), ("add", {"a": 2})]


def test_a_tools_name_in_the_place_of_the_action_is_understood() -> None:
    assert calls(from_action(said({"action": "add", "arguments": {"a": 1}}), ["add"], 1)) == [("add", {"a": 1})]


def test_a_final_action_that_was_cut_off_is_an_answer() -> None:
    assert from_action(said('{"action": "final", "answer": "Once upon\\na time'), ["add"], 1, cut=True)["content"] == "Once upon\na time"


def test_definitions_of_one_name_in_two_tools_stay_apart() -> None:
    def with_thing(name: str, kind: str) -> dict[str, Any]:
        parameters = {
            "type": "object",
            "properties": {"thing": {"$ref": "#/$defs/Thing"}},
            "$defs": {"Thing": {"type": kind}},
        }
        return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}

    schema = action_schema([with_thing("one", "string"), with_thing("two", "integer")])
    assert schema["$defs"] == {"one.Thing": {"type": "string"}, "two.Thing": {"type": "integer"}}
    things = [branch["properties"]["arguments"]["properties"]["thing"] for branch in schema["oneOf"][:2]]
    assert things == [{"$ref": "#/$defs/one.Thing"}, {"$ref": "#/$defs/two.Thing"}]


@pytest.mark.parametrize("around", ["```json\n%s\n```", "Sure! %s", "%s\nDone."])
def test_words_and_fences_around_an_action_do_not_matter(around: str) -> None:
    text = around % json.dumps({"action": "tool", "name": "add", "arguments": {"a": 1}})
    assert calls(from_action(said(text), ["add"], 1)) == [("add", {"a": 1})]


WRITTEN = [
    '{"name": "add", "arguments": {"a": 1}}',
    '{"name": "add", "parameters": {"a": 1}}',
    '{"function": {"name": "add", "arguments": {"a": 1}}}',
    '{"type": "function", "function": "add", "arguments": {"a": 1}}',
    '{"tool": "add", "args": {"a": 1}}',
    '```json\n{"name": "add", "arguments": {"a": 1}}\n```',
    '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_call_written_as_text_is_found_in_the_shapes_models_write(text: str) -> None:
    assert written_calls(text, ["add"]) == [("add", {"a": 1})]


def test_several_calls_written_as_text() -> None:
    text = '<tool_call>{"name": "add", "arguments": {}}</tool_call><tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
    assert written_calls(text, ["add"]) == [("add", {}), ("add", {"a": 2})]
    assert written_calls('[{"name": "add", "arguments": {}}]', ["add"]) == [("add", {})]


@pytest.mark.parametrize("text", ['{"name": "rm", "arguments": {}}', '{"name": "add"}', '{"add": 1}', "add(1)", '"add"', "null"])
def test_json_that_names_no_offered_tool_is_no_call(text: str) -> None:
    assert written_calls(text, ["add"]) == []


def test_a_conversation_with_calls_is_put_into_actions_and_roles_take_turns() -> None:
    asked = {"role": "assistant", **as_calls([("add", {"a": 1}), ("spawn_task", {"goal": "x"})], 1)}
    first, second = (call["id"] for call in asked["tool_calls"])
    told = in_actions(
        [
            {"role": "system", "content": "Be good."},
            {"role": "user", "content": "Go"},
            asked,
            {"role": "tool", "tool_call_id": first, "content": "1"},
            {"role": "tool", "tool_call_id": second, "content": "done"},
            {"role": "user", "content": [{"type": "text", "text": "and?"}]},
        ],
        TOOLS,
    )
    assert [message["role"] for message in told] == ["system", "user", "assistant", "user"]
    assert told[0]["content"].startswith("Be good.")
    assert '"name": "add"' in told[0]["content"]
    assert told[2]["content"].splitlines()[0] == '{"action": "tool", "name": "add", "arguments": {"a": 1}}'
    assert told[3]["content"] == "Result of add:\n1\n\nResult of the subtask:\ndone\n\nand?"


def test_what_was_put_into_actions_comes_back_the_same() -> None:
    message = {"role": "assistant", **as_calls([("add", {"a": 1, "b": 2})], 2)}
    [told] = [each for each in in_actions([message], TOOLS) if each["role"] == "assistant"]
    assert from_action(told, ["add"], 2) == message
