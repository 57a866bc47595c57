"""Agents that ask people: for words by `ask_human`, for leave by a tool with `approval`; nobody is asked who was not named."""

from typing import Any

import pytest

from baton_actors.capabilities.tool import ToolContext, tool
from baton_actors.testing import ScriptedModel, calls, says
from tests.unit.agents import Stage


def answers(body: dict[str, Any]) -> dict[str, str]:
    return {message["tool_call_id"]: message["content"] for message in body["messages"] if message["role"] == "tool"}


def deleting() -> tuple[list[str], Any]:
    deleted: list[str] = []

    @tool(approval=True)
    def delete(path: str, context: ToolContext) -> str:
        """Delete a file."""
        deleted.append(path)
        return f"deleted {path}"

    return deleted, delete


def look() -> str:
    """Look."""
    return "seen"


def test_a_question_is_a_child_of_the_worker_human_and_its_answer_that_of_the_call() -> None:
    with ScriptedModel(calls(("ask_human", {"question": "Red or blue?"}), ("look", {})), says("It is red.")) as model:
        stage = Stage(model)
        stage.people = {"Red or blue?": "red"}.__getitem__
        assert stage.run("Paint it", breakdown="never", tools=["ask_human", look]).result == "It is red."
    assert answers(model.requests[1]) == {"call_1_0": "red", "call_1_1": "seen"}
    [question] = [record.baton for record in stage.records.values() if record.baton.depth]
    assert (question.worker, question.goal, question.context["part_of"]) == ("human", "Red or blue?", "Paint it")


def test_people_are_asked_only_by_those_who_were_given_the_tool() -> None:
    with ScriptedModel(calls(("ask_human", {"question": "Anybody?"})), says("no")) as model:
        stage = Stage(model)
        stage.run("Paint it", breakdown="never")
    assert len(stage.records) == 1
    assert "There is no tool" in answers(model.requests[1])["call_1_0"]


@pytest.mark.parametrize("arguments", [{}, {"question": " "}, {"question": 3}, "{"])
def test_a_question_that_is_none_is_told(arguments: Any) -> None:
    with ScriptedModel(calls(("ask_human", arguments)), says("ok")) as model:
        stage = Stage(model)
        stage.run("Paint it", breakdown="never", tools=["ask_human"])
    assert len(stage.records) == 1
    assert answers(model.requests[1])["call_1_0"]


@pytest.mark.parametrize("leave", ["yes", True, "Yes ", "ok"])
def test_a_tool_with_approval_runs_once_leave_was_given(leave: Any) -> None:
    deleted, delete = deleting()
    with ScriptedModel(calls(("delete", {"path": "x"})), says("gone")) as model:
        stage = Stage(model)
        stage.people = lambda question: leave
        assert stage.run("Tidy up", breakdown="never", tools=[delete]).result == "gone"
    assert deleted == ["x"]
    assert answers(model.requests[1]) == {"call_1_0": "deleted x"}
    [asked] = [record.baton.goal for record in stage.records.values() if record.baton.depth]
    assert asked == 'May delete be called with {"path": "x"}? (yes, or why not)'


@pytest.mark.parametrize("leave", ["no", False, "not on a Friday", None, {"why": "no"}])
def test_a_tool_without_leave_does_not_run_and_the_model_is_told_why(leave: Any) -> None:
    deleted, delete = deleting()
    with ScriptedModel(calls(("delete", {"path": "x"})), says("kept")) as model:
        stage = Stage(model)
        stage.people = lambda question: leave
        assert stage.run("Tidy up", breakdown="never", tools=[delete]).result == "kept"
    assert deleted == []
    assert "not approved" in answers(model.requests[1])["call_1_0"]


def test_leave_is_for_one_call_and_survives_a_crash() -> None:
    deleted, delete = deleting()
    asked = []

    def person(question: str) -> str:
        asked.append(question)
        return "yes"

    twice = (("delete", {"path": "x"}), ("delete", {"path": "y"}))
    with ScriptedModel(calls(*twice), calls(("delete", {"path": "x"}, "call_1_0")), says("done")) as model:
        stage = Stage(model)
        stage.people = person
        stage.crash_after = lambda data: data["kind"] == "tool"
        assert stage.run("Tidy up", breakdown="never", tools=[delete]).result == "done"
    assert len(asked) == 3
    assert sorted(set(deleted)) == ["x", "y"]


def test_nobody_is_asked_when_no_child_can_be_afforded() -> None:
    deleted, delete = deleting()
    with ScriptedModel(calls(("delete", {"path": "x"})), says("kept")) as model:
        stage = Stage(model, room=0)
        assert stage.run("Tidy up", breakdown="never", tools=[delete]).result == "kept"
    assert deleted == []
    assert "can be afforded" in answers(model.requests[1])["call_1_0"]
