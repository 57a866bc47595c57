"""The conversation between two runs: rows are appended, a state says which of them count."""

from typing import Any

from baton_actors.agent.memory import Memory


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def asks(**arguments: str) -> dict[str, Any]:
    function = {"name": "look", "arguments": str(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def answered() -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "content": "seen"}


def test_a_later_run_sees_what_was_saved() -> None:
    first = Memory([], None, 0)
    assert first.fresh
    first.add(user("a"), user("b"))
    rows, state = first.take_unsaved(), first.state()
    second = Memory(rows, state, 0)
    assert second.messages == [user("a"), user("b")]
    assert not second.fresh
    assert second.take_unsaved() == []


def test_a_retry_goes_on_from_its_state_and_leaves_later_rows_where_they_are() -> None:
    memory = Memory([], None, 0)
    memory.add(user("task"), asks())
    rows = memory.take_unsaved()
    parked = memory.state(waiting=["c"])
    memory.add(answered(), user("later"))
    rows += memory.take_unsaved()
    again = Memory(rows, parked, 1)
    assert again.waiting == ["c"]
    assert again.messages == rows[:2]
    again.add(answered())
    rows += again.take_unsaved()
    assert Memory(rows, again.state(), 1).messages == [user("task"), asks(), answered()]


def test_a_state_does_not_change_with_what_comes_after() -> None:
    memory = Memory([], None, 0)
    memory.add(user("a"))
    before = memory.state()
    memory.add(user("b"))
    assert before["spans"] == [[0, 1]]


def test_beginning_anew_hides_what_was_and_keeps_it_stored() -> None:
    memory = Memory([], None, 0)
    memory.add(user("a"))
    memory.begin_anew(user("b"))
    rows = memory.take_unsaved()
    assert rows == [user("a"), user("b")]
    assert Memory(rows, memory.state(), 0).messages == [user("b")]


def test_rounds_begin_at_nothing_in_a_new_generation() -> None:
    memory = Memory([], None, 0)
    memory.rounds = 5
    assert Memory([], memory.state(), 0).rounds == 5
    assert Memory([], memory.state(), 1).rounds == 0


def test_a_breakdown_is_in_the_state_only_when_it_is_made() -> None:
    memory = Memory([], None, 0)
    assert memory.state(parts=True)["parts"] is True
    assert "parts" not in memory.state()
    assert not Memory([], memory.state(parts=True), 0).fresh


def test_the_answer_is_known_when_its_report_was_lost() -> None:
    memory = Memory([], None, 0)
    memory.add(user("a"))
    assert memory.final_text is None
    memory.add(asks())
    assert memory.final_text is None
    memory.add(answered(), {"role": "assistant", "content": "42"})
    assert memory.final_text == "42"


def test_rounds_that_repeat_the_same_calls_are_counted() -> None:
    memory = Memory([], None, 0)
    memory.add(user("a"), asks(at="x"), answered())
    assert memory.repeats == 1
    for _ in range(2):
        memory.add(asks(at="y"), answered())
    assert memory.repeats == 2
    memory.add({"role": "assistant", "content": "42"})
    assert memory.repeats == 0
