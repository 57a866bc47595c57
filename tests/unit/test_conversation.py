"""A conversation is repaired before it is sent: what each rule does, by the cases where others failed."""

import json
from typing import Any

import pytest

from baton_actors.agent.conversation import INTERRUPTED, MAX_DEPTH, normalised_calls, repaired, shortened, unanswered
from baton_actors.testing import objection
from tests.unit.histories import GOAL, SYSTEM, VALID, answer, asks, call, user


def sent(history: list[Any]) -> list[dict[str, Any]]:
    """The repaired history, which the strict endpoint accepts."""
    messages = repaired(history)
    assert not messages or objection({"model": "m", "messages": messages}) is None
    assert repaired(messages) == messages
    return messages


def calls_of(message: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Ids, names and arguments of a message's calls."""
    return [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in message["tool_calls"]]


@pytest.mark.parametrize("history", VALID)
def test_a_valid_conversation_comes_back_unchanged(history: list[Any]) -> None:
    assert sent(history) == history


def test_nothing_is_made_of_nothing() -> None:
    assert repaired([]) == repaired([None, 3, "hi", [], {}, {"role": "oracle", "content": "x"}, {"role": ["user"]}]) == []


def test_messages_of_the_time_before_tools_are_dropped() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert sent([GOAL, old, {"role": "function", "name": "f", "content": "1"}]) == [GOAL]
    assert sent([{**old, "content": "So."}]) == [{"role": "assistant", "content": "So."}]
    assert sent([{**old, "content": "So.", "function_call": None}]) == [{**old, "content": "So.", "function_call": None}]


@pytest.mark.parametrize("content", [None, "", "  \n", [], {}, [{"type": "text", "text": " "}]])
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_a_message_that_says_nothing_is_dropped(role: str, content: Any) -> None:
    assert sent([GOAL, {"role": role, "content": content}, {"role": role}]) == [GOAL]


def test_an_answer_that_is_only_reasoning_is_not_sent() -> None:
    assert sent([GOAL, {"role": "assistant", "content": None, "reasoning_content": "Hm."}]) == [GOAL]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (3, "3"),
        (False, "false"),
        ({"a": "ü"}, '{"a": "ü"}'),
        ({"type": "text", "text": "hi"}, [{"type": "text", "text": "hi"}]),
        (["hi", {"type": "text", "text": "you"}], [{"type": "text", "text": "hi"}, {"type": "text", "text": "you"}]),
        ([{"type": "video", "video": 1}], [{"type": "text", "text": '{"type": "video", "video": 1}'}]),
        ([{"type": "image_url", "image_url": "x.png"}], [{"type": "text", "text": '{"type": "image_url", "image_url": "x.png"}'}]),
    ],
)
def test_content_of_a_wrong_type_becomes_text(content: Any, expected: Any) -> None:
    assert sent([user(content)]) == [user(expected)]


def test_parts_that_only_users_may_send_become_text_elsewhere() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    _, _, told = sent([GOAL, asks(call("a")), answer("a", [image])])
    assert told["content"] == [{"type": "text", "text": json.dumps(image)}]


def test_fields_that_nobody_knows_stay_with_the_assistant_and_go_elsewhere() -> None:
    said = {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "vendor": {"x": [1]}}
    assert sent([{**GOAL, "at": 3, "name": "a b"}, {**said, "audio": 5, "refusal": 7, "name": "a<b"}]) == [GOAL, said]


# -------------------------------------------------------------------------------- calls


def test_arguments_that_are_an_object_are_sent_back_as_text() -> None:  # M4
    (made,) = calls_of(normalised_calls(asks(call("a", arguments={"a": "ü"}))))
    assert made == ("a", "read", '{"a": "ü"}')


@pytest.mark.parametrize("broken", ['{"{"ids": [', "null", "[1]", "3", "text"])
def test_broken_arguments_stay_what_the_model_wrote(broken: str) -> None:  # M1, M2, M3
    (made,) = calls_of(normalised_calls(asks(call("a", arguments=broken))))
    assert made[2] == broken


@pytest.mark.parametrize("function", [{"arguments": None}, {}, {"arguments": ""}, {"arguments": " \n"}])
def test_absent_arguments_are_an_empty_object(function: dict[str, Any]) -> None:  # M5
    message = normalised_calls({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "read", **function}}]})
    assert calls_of(message) == [("a", "read", "{}")]


@pytest.mark.parametrize("missing", [{"id": ""}, {"id": None}, {}, {"id": "  "}, {"id": ["a"]}])
def test_a_missing_id_is_made_and_the_same_each_time(missing: dict[str, Any]) -> None:  # M7
    fresh = {"role": "assistant", "tool_calls": [{"function": {"name": "read"}}, {"function": {"name": "read"}} | missing]}
    made = normalised_calls(fresh)
    assert calls_of(made) == [("call_0_read", "read", "{}"), ("call_1_read", "read", "{}")]
    assert normalised_calls(fresh) == normalised_calls(made) == made
    assert sent([GOAL, made, answer("call_1_read", "second")])[2:] == [answer("call_0_read", INTERRUPTED), answer("call_1_read", "second")]


def test_a_repeated_id_is_made_anew_and_its_answers_are_taken_in_order() -> None:
    messages = sent([GOAL, asks(call("a"), call("call_1_read"), call("a")), answer("a", "1"), answer("a", "3"), answer("call_1_read", "2")])
    assert [each[0] for each in calls_of(messages[1])] == ["a", "call_1_read", "call_2_read"]
    assert [each["content"] for each in messages[2:]] == ["1", "2", "3"]


def test_a_made_id_is_none_that_was_given() -> None:
    message = normalised_calls(asks(call(""), call("call_0_read")))
    assert [each[0] for each in calls_of(message)] == ["call_0_read_", "call_0_read"]


def test_an_id_that_is_a_number_still_finds_its_answer() -> None:
    assert sent([GOAL, asks(call(7)), answer(7, "yes")])[2] == answer("7", "yes")


@pytest.mark.parametrize(
    ("given", "name"),
    [("functions.read", "functions_read"), (" read() ", "read"), ("r" * 70, "r" * 64), ("läs-in", "l_s-in"), ("___", "___")],
)
def test_a_name_is_cleaned(given: str, name: str) -> None:
    assert calls_of(normalised_calls(asks(call("a", given))))[0][1] == name


@pytest.mark.parametrize("name", ["", " ", "读取", "??", None, 5, {"x": 1}])
def test_a_call_without_a_usable_name_is_dropped_with_its_answer(name: Any) -> None:
    assert sent([GOAL, asks(call("a", name), call("b")), answer("a"), answer("b")]) == [GOAL, asks(call("b")), answer("b")]
    assert sent([GOAL, asks(call("a", name)), answer("a")]) == [GOAL]
    assert "tool_calls" not in normalised_calls(asks(call("a", name)))


@pytest.mark.parametrize("calls", [None, [], 5, "read", [None, 3], {}])
def test_calls_that_are_none_leave_no_field(calls: Any) -> None:
    said = {"role": "assistant", "content": "So."}
    assert sent([{**said, "tool_calls": calls}]) == [said]
    assert normalised_calls({**said, "tool_calls": calls}) == said


def test_a_fresh_reply_keeps_what_is_not_about_calls() -> None:
    fresh = asks(call("a", arguments={}), reasoning_content="Hm.", vendor=[1], content="")
    assert normalised_calls(fresh) == {**fresh, "tool_calls": [call("a", arguments="{}")]}


# -------------------------------------------------------------------------------- calls and their answers


def test_a_user_message_between_a_call_and_its_answers_moves_behind_them() -> None:  # B6
    history = [GOAL, asks(call("a"), call("b")), answer("b", "B"), user("Hurry!"), SYSTEM]
    expected = [GOAL, asks(call("a"), call("b")), answer("a", INTERRUPTED), answer("b", "B"), user("Hurry!"), SYSTEM]
    assert sent(history) == expected
    assert sent([GOAL, asks(call("a"), call("b")), user("Hurry!"), answer("b", "B"), SYSTEM]) == expected


def test_answers_are_put_in_the_order_of_the_calls() -> None:
    messages = sent([GOAL, asks(call("a"), call("b"), call("c")), answer("c"), answer("a"), answer("b")])
    assert [each["tool_call_id"] for each in messages[2:]] == ["a", "b", "c"]


def test_answers_without_a_call_and_second_answers_are_dropped() -> None:
    history = [answer("a"), GOAL, answer("b"), asks(call("a")), answer("a", "1"), answer("a", "2"), answer("z"), answer(None)]
    assert sent(history) == [GOAL, asks(call("a")), answer("a", "1")]


def test_the_same_id_in_a_later_round_is_another_call() -> None:  # M8
    history = [GOAL, asks(call("0")), answer("0", "first"), asks(call("0")), answer("0", "second"), asks(call("0"))]
    assert [each["content"] for each in sent(history) if each["role"] == "tool"] == ["first", "second", INTERRUPTED]
    assert [each["id"] for each in unanswered(history)] == ["0"]
    assert [each["content"] for each in sent([GOAL, asks(call("0")), asks(call("0")), answer("0", "late")]) if each["role"] == "tool"] == [
        INTERRUPTED,
        "late",
    ]


def test_an_answer_that_says_nothing_is_still_an_answer() -> None:
    history = [GOAL, asks(call("a")), {"role": "tool", "tool_call_id": "a"}]
    assert sent(history) == [GOAL, asks(call("a")), answer("a", "")]
    assert unanswered(history) == []


def test_an_empty_message_between_a_call_and_its_answer_does_not_part_them() -> None:
    assert sent([GOAL, asks(call("a")), {"role": "assistant", "content": ""}, answer("a")]) == [GOAL, asks(call("a")), answer("a")]


def test_unanswered_calls_are_those_of_the_last_assistant_message() -> None:
    history = [GOAL, asks(call("x")), asks(call("a", arguments={"n": 1}), call(""), call("c")), user("?"), answer("c")]
    assert unanswered(history) == [
        {"id": "a", "name": "read", "arguments": '{"n": 1}'},
        {"id": "call_1_read", "name": "read", "arguments": '{"path": "a"}'},
    ]
    assert unanswered([*history, answer("a"), answer("call_1_read")]) == []


@pytest.mark.parametrize("history", [[], [GOAL], [answer("a")], [GOAL, asks(call("a")), {"role": "assistant", "content": "No."}], [None]])
def test_nothing_is_unanswered_where_nothing_was_asked_last(history: list[Any]) -> None:
    assert unanswered(history) == []


# -------------------------------------------------------------------------------- characters, numbers, depth


def test_what_cannot_be_encoded_or_stored_is_replaced_everywhere() -> None:
    history = [
        user("a\x00b\udc88"),
        asks(call("i\x00", arguments={"k\x00": "\ud800"}), vendor={"\x00": ["\udfff"]}),
        answer("i\x00", "\x00"),
    ]
    messages = sent(history)
    assert "\\u0000" not in json.dumps(messages)
    assert json.dumps(messages, ensure_ascii=False).encode()
    assert messages[0]["content"] == "a\ufffdb\ufffd"
    assert messages[2]["content"] == "\ufffd"


def test_characters_of_all_planes_stay() -> None:
    assert sent([user("你好 🧭🏽 𝔘 שלום \u2028 é")]) == [user("你好 🧭🏽 𝔘 שלום \u2028 é")]


def test_infinity_and_endless_depth_are_cut_off() -> None:
    deep: Any = "bottom"
    for _ in range(3_000):
        deep = [deep]
    messages = sent([GOAL, {"role": "assistant", "content": "So.", "vendor": [deep, float("inf"), 1e300]}])
    assert messages[1]["vendor"][1:] == [None, 1e300]
    assert json.dumps(messages).count("[") < MAX_DEPTH + 10
    assert sent([user(deep)])[0]["role"] == "user"


# -------------------------------------------------------------------------------- shortening


def test_older_outputs_are_shortened_and_say_so() -> None:  # R12
    long = "x" * 5_000
    history = [GOAL, asks(call("a"), call("b")), answer("a", long), answer("b", "short"), asks(call("a")), answer("a", long), user("On.")]
    cut = shortened(history, 100)
    assert cut[2] == answer("a", "x" * 100 + "\n[cut: these are the first 100 characters of this output]")
    assert [each for place, each in enumerate(cut) if place != 2] == [each for place, each in enumerate(history) if place != 2]
    assert shortened(cut, 100) == cut
    assert objection({"model": "m", "messages": cut}) is None


def test_outputs_in_parts_are_shortened_and_none_gets_longer() -> None:
    parts = [{"type": "text", "text": "ab" * 50}, {"type": "text", "text": "cd"}]
    history = [asks(call("a"), call("b")), answer("a", parts), answer("b", "x" * 40), asks(call("c")), answer("c")]
    cut = shortened(history, 10)
    assert cut[1]["content"].startswith("ababababab\n[cut")
    assert cut[2] == history[2]
    assert shortened([None, 3, {"role": "tool"}], 0) == [None, 3, {"role": "tool"}]


def test_the_last_round_stays_whole_after_words_of_the_assistant() -> None:
    history = [GOAL, asks(call("a")), answer("a", "x" * 500), {"role": "assistant", "content": "Hm."}, user("Well?")]
    assert shortened(history, 10) == history
