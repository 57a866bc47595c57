"""What an owner learns of models from the events of its tree."""

from typing import Any

import pytest

from baton_actors.events import Event, EventType
from baton_actors.runtime.learning import RECENT_CALLS, Experience


def said(type: EventType = EventType.PROGRESS, **data: Any) -> Event:
    return Event(1, type, 0, "bt_root", "bt_root", None, 0, 1, data)


def learned(*events: Event) -> dict[str, dict[str, Any]]:
    experience = Experience()
    experience.learn(events)
    return experience.known()


def test_a_models_time_is_the_mean_of_its_last_calls() -> None:
    calls = [said(kind="round", model="m", seconds=100.0)] + [said(kind="round", model="m", seconds=n) for n in range(RECENT_CALLS)]
    assert learned(said(kind="round", model="m", seconds=3), said(kind="round", model="m", seconds=4.0)) == {"m": {"seconds": 3.5}}
    assert learned(*calls)["m"]["seconds"] == sum(range(RECENT_CALLS)) / RECENT_CALLS


def test_each_model_is_known_by_itself() -> None:
    known = learned(
        said(kind="round", model="a", seconds=1),
        said(kind="round", model="b", seconds=9),
        said(kind="dialect", model="b", dialect="actions", reason="no tools"),
        said(kind="dialect", model="b", dialect="tools"),
        said(kind="dialect", model="b", schemas=False, reason="no schemas"),
    )
    assert known == {"a": {"seconds": 1}, "b": {"seconds": 9, "dialect": "tools", "schemas": False}}


@pytest.mark.parametrize(
    "event",
    [
        said(kind="checkpoint", model="m", seconds=1),
        said(kind="round", seconds=1),
        said(kind="round", model=7, seconds=1),
        said(kind="round", model="m", seconds="long"),
        said(kind="round", model="m"),
        said(kind="dialect", model="m", dialect=None),
        said(EventType.RETRYING, kind="round", model="m", seconds=1),
    ],
)
def test_what_has_another_form_teaches_nothing(event: Event) -> None:
    """A function may put what it likes into its events."""
    assert learned(event) == {}


def test_what_is_handed_out_does_not_change_afterwards() -> None:
    experience = Experience()
    experience.learn([said(kind="dialect", model="m", dialect="actions")])
    known = experience.known()
    experience.learn([said(kind="dialect", model="m", dialect="tools"), said(kind="round", model="m", seconds=1)])
    assert known == {"m": {"dialect": "actions"}}
