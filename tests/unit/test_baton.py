"""The values: ids, and how a `Child` becomes plain."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_actors import Baton, Child, InvalidInput, Status
from baton_actors.baton import ENDED, LIVE, Budget, Constraints, child_id, root_id


def named(function: Any) -> str:
    return f"module:{function.__name__}"


def work() -> None:
    """A function to be named."""


NOW = 1_764_500_000_000

# ---------------------------------------------------------------- ids


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_root_id_is_a_ulid_in_lower_case(now: int, randomness: bytes) -> None:
    id = root_id(now, randomness)
    assert len(id) == 29
    assert id.startswith("bt_")
    assert set(id[3:]) <= set("0123456789abcdefghjkmnpqrstvwxyz")


@given(st.integers(0, 2**48 - 2), st.integers(1, 10**9))
def test_root_ids_sort_by_time(now: int, later: int) -> None:
    after = min(now + later, 2**48 - 1)
    assert root_id(now, b"\xff" * 10) < root_id(after, b"\x00" * 10)


def test_a_child_id_keeps_its_roots_time_and_is_the_same_each_time() -> None:
    root = root_id(NOW, b"0123456789")
    child = child_id(root, 0, 1, 0)
    assert child == child_id(root, 0, 1, 0)
    assert child[:13] == root[:13]
    assert child_id(child, 0, 1, 0)[:13] == root[:13]


def test_child_ids_differ_by_parent_generation_breakdown_and_index() -> None:
    root = root_id(NOW, b"0123456789")
    ids = {
        child_id(parent, generation, breakdown, index)
        for parent in (root, "bt_x")
        for generation in (0, 1)
        for breakdown in (1, 2)
        for index in range(50)
    }
    assert len(ids) == 2 * 2 * 2 * 50


# ---------------------------------------------------------------- statuses


def test_the_status_sets_partition_the_enum() -> None:
    assert set(Status) == LIVE | ENDED
    assert not LIVE & ENDED


# ---------------------------------------------------------------- Child


def test_a_child_becomes_plain() -> None:
    spec = Child("count", {"n": (1, 2)}, worker=work, tools=[work, "search"], max_rounds=3, hold=True, resources={"num_cpus": 0.5}).spec(
        named
    )
    assert (spec.goal, spec.context, spec.worker, spec.tools) == ("count", {"n": [1, 2]}, "module:work", ["module:work", "search"])
    assert (spec.constraints, spec.held, spec.resources) == (Constraints(max_rounds=3), True, {"num_cpus": 0.5})


def test_what_a_child_does_not_name_is_left_to_its_parent() -> None:
    spec = Child("count").spec(named)
    assert (spec.worker, spec.model, spec.tools, spec.constraints) == (None, None, None, Constraints())


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"goal": "  \n"}, "goal: is blank; say what is to be done"),
    ({"goal": "a\x00"}, "goal: has a NUL character"),
    ({"goal": 5}, "goal: input should be a valid string, not '5'"),
    ({"prompt": ""}, "prompt: is blank"),
    ({"context": [1]}, "context: must be a JSON object, not list"),
    ({"context": {"when": {1}}}, r"context\.when: builtins\.set is not JSON"),
    ({"context": {"n": float("nan")}}, r"context\.n: nan is not JSON"),
    ({"worker": "no reference"}, "worker: 'no reference' is no worker"),
    ({"worker": 7}, "worker: 7 is neither a name nor something that can be called"),
    ({"tools": [7]}, "tools: 7 is neither a name nor something that can be called"),
    ({"max_rounds": 0}, "max_rounds: input should be greater than or equal to 1, not '0'"),
    ({"timeout_hint": -1}, "timeout_hint: input should be greater than 0"),
    ({"breakdown": "maybe"}, "breakdown: input should be 'auto', 'never'"),
    ({"resources": {"num_cpus": -1}}, "resources: num_cpus must be a number that is not negative, not -1"),
    ({"resources": {"isolate": 1}}, "resources: isolate is true or false, not 1"),
    ({"not_before": -5}, "not_before: input should be greater than or equal to 0"),
]


@pytest.mark.parametrize(("fields", "why"), REFUSED, ids=[why[:40] for _, why in REFUSED])
def test_a_child_that_cannot_be_used_names_the_field(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{why}"):
        Child(**{"goal": "count", **fields}).spec(named)


# ---------------------------------------------------------------- Baton, Budget


def test_a_baton_round_trips_as_json_with_characters_of_all_kinds() -> None:
    text = "漢字 🙂 שלום 𝒳"
    baton = Baton(id="bt_1", root_id="bt_1", goal=text, context={text: [text]}, result={"t": text}, error=text)
    assert Baton.model_validate_json(baton.model_dump_json()) == baton


def test_a_baton_refuses_unknown_fields() -> None:
    with pytest.raises(ValueError, match="subagents"):
        Baton(id="bt_1", root_id="bt_1", goal="x", subagents=3)  # type: ignore[call-arg]


def test_more_budget_is_added_where_there_is_a_limit() -> None:
    assert Budget(batons=10, cost=1.5).plus(Budget(batons=5, rounds=3)) == Budget(batons=15, cost=1.5)
