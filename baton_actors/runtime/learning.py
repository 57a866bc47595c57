"""What the models of one tree have shown so far, taken from its committed events; handed to each agent with its assignment.

It is kept in the owner's memory and never stored: the next owner of the tree begins anew, at the cost of a first guess.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from baton_actors.events import Event, EventType

#: The mean of so many calls says how long a model takes: the last ones, since its load changes.
RECENT_CALLS = 10


class Experience:
    """What is known of each model, by the key that agents give it in their events."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self._seconds: dict[str, deque[float]] = {}

    def learn(self, events: Iterable[Event]) -> None:
        """Take in what agents said of models: `round` and `dialect`; what has another form is passed over."""
        for event in events:
            if event.type is EventType.PROGRESS and isinstance(model := event.data.get("model"), str):
                self._learn(model, event.data)

    def known(self) -> dict[str, dict[str, Any]]:
        """A copy, as far as there is anything: by model `seconds` (mean of its last calls), `dialect`, and `schemas`: whether
        its server takes JSON schemas.
        """
        return {model: dict(facts) for model, facts in self._known.items()}

    def _learn(self, model: str, data: dict[str, Any]) -> None:
        match data:
            case {"kind": "round", "seconds": int() | float() as seconds} if math.isfinite(seconds):
                calls = self._seconds.setdefault(model, deque(maxlen=RECENT_CALLS))
                calls.append(seconds)
                self._facts(model)["seconds"] = sum(calls) / len(calls)
            case {"kind": "dialect", "dialect": str() as dialect}:
                self._facts(model)["dialect"] = dialect
            case {"kind": "dialect", "schemas": bool() as schemas}:
                self._facts(model)["schemas"] = schemas
            case _:
                pass

    def _facts(self, model: str) -> dict[str, Any]:
        return self._known.setdefault(model, {})
