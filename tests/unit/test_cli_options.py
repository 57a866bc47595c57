"""What is typed becomes what `submit` takes, and what cannot be used is said in one line before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from baton_actors.cli.app import execute
from baton_actors.cli.options import budget_limits, json_or_text, task_fields
from baton_actors.errors import InvalidInput

WORKER = "baton_actors.examples.arithmetic:square"


def fields(**given: Any) -> dict[str, Any]:
    return task_fields("count", **{"worker": WORKER, **given})


def test_context_is_json_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "context.json"
    file.write_text('{"城": [1, 2]}', encoding="utf-8")
    assert fields(context='{"a": 1}')["context"] == {"a": 1}
    assert fields(context=f"@{file}")["context"] == {"城": [1, 2]}


def test_what_is_not_given_is_left_to_the_defaults() -> None:
    assert {name for name, value in fields().items() if value is not None} == {"goal", "worker"}


def test_the_agent_works_where_no_worker_is_named() -> None:
    assert fields(worker=None)["worker"] == fields(worker="agent")["worker"] == "agent"


def test_a_budget_is_made_of_keys_and_numbers() -> None:
    assert budget_limits(["batons=100", "cost=0.5", "seconds=30"]) == {"batons": 100, "cost": 0.5, "seconds": 30}
    assert budget_limits([]) is None


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ("batons", "is not KEY=N with a key of batons, rounds, tokens, cost, seconds"),
        ("apples=3", "is not KEY=N"),
        ("batons=many", "'many' is not a number"),
        ("batons=-1", "greater than or equal to 1"),
        ("cost=nan", "finite number"),
    ],
)
def test_a_budget_that_cannot_be_used_is_refused(budget: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"^--budget: .*{why}"):
        budget_limits([budget])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"context": "[1]"}, "--context: must be a JSON object, not list"),
        ({"context": "{"}, "--context: is not JSON"),
        ({"context": "@/nowhere.json"}, "--context: cannot read /nowhere.json: No such file"),
        ({"context": '{"n": NaN}'}, r"context\.n: nan is not JSON"),
        ({"worker": "nowhere_at_all:f"}, "--worker: no module 'nowhere_at_all', neither installed nor in"),
        ({"worker": "baton_actors.examples.arithmetic:nope"}, "has no 'nope'"),
        ({"worker": "baton_actors.examples.arithmetic:LEAF"}, "is int, not a function"),
        ({"worker": "no reference"}, "worker: 'no reference' is no worker"),
        ({"max_rounds": 0}, "max_rounds: input should be greater than"),
        ({"timeout_hint": 0}, "timeout_hint: input should be greater than 0"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        fields(**given)


def test_an_answer_is_json_if_it_is_and_else_text() -> None:
    assert [json_or_text(text) for text in ('{"a": 1}', "3", "yes", '"yes"', "{oops")] == [{"a": 1}, 3, "yes", "yes", "{oops"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", " ", "--worker", WORKER],
        ["run", "count", "--worker", WORKER, "--context", "oops"],
        ["run", "count", "--worker", WORKER, "--breakdown", "sometimes"],
        ["run", "count", "--worker", WORKER, "--timeout", "soon"],
        ["run"],
        ["submit", "count", "--worker", WORKER, "--budget", "x"],
        ["events", "bt_1", "--after", "x"],
        ["events", "bt_1", "--after=-1"],
        ["ls", "--status", "sleeping"],
        ["nonsense"],
        ["--database-url"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
