"""When a task is broken down: the estimate, the policies, the model's judgement."""

import json
from typing import Any

import pytest

from baton_actors.agent.breakdown import Estimate, child_of, estimated_rounds, judgement_of, same_goal, verdict
from baton_actors.baton import Baton, Constraints


@pytest.mark.parametrize(
    ("goal", "context", "rounds"),
    [
        ("Write a short guide to growing tomatoes on a balcony", {}, 1),
        ("Find the population of Lyon. Find that of Nantes. Compare the two.", {}, 3),
        ("Answer these:\n- who was it\n- when was it\n- where was it\n4) and why", {}, 4),
        ("Summarise each of them", {"papers": ["a", "b", "c", "d"]}, 4),
        ("Use read_file on it", {}, 2),
        ("What is e.g. this", {}, 1),
        ("?", {"empty": []}, 1),
    ],
)
def test_rounds_are_estimated_from_asks_lists_and_tools(goal: str, context: dict[str, Any], rounds: int) -> None:
    assert estimated_rounds(goal, context, ["read_file"]) == rounds


def says(policy: str, *, depth: int = 1, rounds: int = 3, seconds: float = 5.0, room: int = 64, hint: float = 25) -> bool | None:
    bounds = Constraints(breakdown=policy, timeout_hint=hint)  # type: ignore[arg-type]
    return verdict(bounds, depth, Estimate(rounds, seconds), room).breaks


def test_auto_has_a_root_judged_whatever_the_estimate_says() -> None:
    assert says("auto", depth=0, rounds=1) is None
    assert says("auto", depth=0, rounds=100) is None


def test_auto_below_the_root_goes_by_the_estimate_and_asks_in_between() -> None:
    assert says("auto", rounds=1, seconds=1_000) is False
    assert says("auto", rounds=6) is True
    assert says("auto", rounds=5) is None
    assert says("auto", rounds=2) is None


def test_the_estimate_learns_from_the_seconds_of_a_round() -> None:
    assert says("estimate", rounds=3, seconds=5) is False
    assert says("estimate", rounds=3, seconds=9) is True


def test_the_other_policies_are_what_they_are_called() -> None:
    assert says("never", depth=0, rounds=100) is False
    assert says("as_needed", depth=0, rounds=100) is False
    assert says("always", depth=0, rounds=1) is True
    assert says("judge", rounds=1) is None


@pytest.mark.parametrize("policy", ["auto", "always", "estimate", "judge", "as_needed"])
def test_nothing_is_broken_down_when_no_two_children_can_be_afforded(policy: str) -> None:
    assert says(policy, depth=0, rounds=100, room=1) is False


def judged(reply: Any, goal: str = "the task", room: int = 10) -> tuple[str, ...]:
    return judgement_of(reply if isinstance(reply, str) else json.dumps(reply), goal, room).subtasks


def test_repeated_blank_and_own_subtasks_are_dropped() -> None:
    goals = ["Compare the cities", "compare  the cities.", "", "  ", "The task.", 7, {"goal": "Find hotels"}, {"aim": "x"}, None]
    assert judged({"fits": False, "subtasks": goals}) == ("Compare the cities", "Find hotels")


def test_numbers_before_the_parts_are_dropped() -> None:
    assert judged({"subtasks": ["1. Dig a hole", "- Water it", "Step 3: Wait a week", "2024 was good"]}) == (
        "Dig a hole",
        "Water it",
        "Wait a week",
        "2024 was good",
    )


def test_a_plan_of_one_means_that_it_fits() -> None:
    assert judgement_of('{"subtasks": ["only this", "Only this"]}', "x", 10).fits


def test_fits_is_believed_though_there_are_subtasks() -> None:
    assert judged({"fits": True, "subtasks": ["do this", "do that"]}) == ()


@pytest.mark.parametrize("reply", ["", "I think it fits.", "[]", "{", '{"subtasks": 3}', "null", '{"fits": "yes"}'])
def test_a_judgement_that_cannot_be_read_breaks_nothing_down(reply: str) -> None:
    assert judgement_of(reply, "x", 10).fits


def test_a_judgement_has_no_more_parts_than_can_be_afforded() -> None:
    assert len(judged({"subtasks": [f"part number {n}" for n in range(20)]}, room=3)) == 3


def test_its_own_estimate_and_reason_are_kept() -> None:
    judgement = judgement_of('Here: {"reason": "two cities", "fits": false, "rounds": 9, "subtasks": ["go east", "go west"]}', "x", 9)
    assert (judgement.reason, judgement.rounds, judgement.fits) == ("two cities", 9, False)


def test_a_child_has_its_parents_context_and_bounds_but_not_always() -> None:
    parent = Baton(
        id="bt_x",
        root_id="bt_x",
        goal="g",
        context={"a": 1, "b": 1},
        constraints=Constraints(max_rounds=3, timeout_hint=9, breakdown="always"),
    )
    child = child_of(parent, "part", {"b": 2}).spec(lambda function: function.__name__)
    assert child.context == {"a": 1, "b": 2}
    assert (child.constraints.max_rounds, child.constraints.timeout_hint, child.constraints.breakdown) == (3, 9, "auto")
    assert child.worker is None


def test_goals_are_the_same_but_for_case_spaces_and_a_full_stop() -> None:
    assert same_goal("Write  a guide.", "write a guide")
    assert not same_goal("Write a guide", "Write a short guide")
