"""Agents on the small local model: the first minute of a user, without a key. What it says is its own; that it says something is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

import baton_actors as baton
from baton_actors.client import Client

from .conftest import story

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def user(connected: Callable[..., Client], sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BATON_MODEL", "BATON_LOCAL_GGUF"):
        monkeypatch.delenv(name, raising=False)
    return connected(database_url=sqlite_url)


def parts(tree: baton.TreeHandle) -> list[str]:
    return [each.goal for each in tree.snapshot().batons if each.depth]


def test_two_goals_give_two_plans_and_two_answers(user: Client, capsys: pytest.CaptureFixture[str]) -> None:
    tomatoes = user.submit("Write a short guide to growing tomatoes on a balcony")
    interview = user.submit("Explain how to prepare for a job interview")
    first, second = tomatoes.result(), interview.result()
    assert "so a small local one answers" in capsys.readouterr().err
    assert len(first.split()) > 10
    assert len(second.split()) > 10
    assert first != second
    assert len(parts(tomatoes)) >= 2
    assert not set(parts(tomatoes)) & set(parts(interview))
    rounds = [event for event in story(user, tomatoes) if event.data.get("kind") == "round"]
    assert all(event.data["seconds"] > 0 and event.data["tokens_out"] > 0 for event in rounds)


def test_a_task_with_a_tool_goes_through_structured_actions(user: Client) -> None:
    def weigh(thing: str) -> str:
        """Weigh a thing."""
        return f"{thing}: 4 kg"

    tree = user.submit("How heavy is the gold?", tools=[weigh], max_rounds=2)
    assert isinstance(tree.result(), str)
    assert [event.data["broken_down"] for event in story(user, tree) if event.data.get("kind") == "decision"] == [False]


def test_a_question_about_a_text_is_broken_down_read_and_answered(user: Client) -> None:
    readme = Path(__file__).parents[2] / "README.md"
    tree = user.submit("Which command runs the tests?", context={"file": str(readme)})
    assert tree.result().strip()
    batons = tree.snapshot().batons
    assert len(batons) > 2
    assert all("[part " in each.goal for each in batons if each.depth)
    assert all(each.status == "completed" for each in batons)
