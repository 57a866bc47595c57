"""The checker finds what it is there for: a right history, and histories that each break one promise."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.checker import STEPS, Recorded, faults
from tests.chaos.plans import evaluated

ROOT, FIRST, SECOND = "bt_root", "bt_first", "bt_second"
PLAN = {
    "do": "sum",
    "failure": "fails",
    "parts": [[{"do": "value", "value": 1, "seconds": 0}, {"do": "mendable", "value": 2}]],
}
KEY = "customer 1 tree 1"
#: Type, baton, attempt, data: the second child fails, and with it the tree; a retry completes both.
STORY: list[tuple[str, str, int, dict[str, Any]]] = [
    ("baton.created", ROOT, 0, {}),
    ("baton.started", ROOT, 1, {}),
    ("baton.spawned", ROOT, 1, {"breakdown": 1, "generation": 0}),
    ("baton.created", FIRST, 0, {}),
    ("baton.created", SECOND, 0, {}),
    ("baton.started", FIRST, 1, {}),
    ("baton.started", SECOND, 1, {}),
    ("baton.retrying", FIRST, 1, {"reason": "lost", "cause": "owner"}),
    ("baton.started", FIRST, 2, {}),
    ("baton.progress", FIRST, 2, {"kind": "checkpoint"}),
    ("baton.completed", FIRST, 2, {}),
    ("baton.failed", SECOND, 1, {"error_kind": "error"}),
    ("baton.resumed", ROOT, 1, {"breakdown": 1, "generation": 0}),
    ("baton.started", ROOT, 2, {}),
    ("baton.failed", ROOT, 2, {"error_kind": "error"}),
    ("tree.failed", ROOT, 2, {}),
    ("tree.reopened", ROOT, 2, {}),
    ("baton.spawned", ROOT, 2, {"breakdown": 1, "generation": 1, "reason": "retry"}),
    ("baton.retrying", SECOND, 1, {"reason": "retry", "generation": 1}),
    ("baton.started", SECOND, 2, {}),
    ("baton.completed", SECOND, 2, {}),
    ("baton.resumed", ROOT, 2, {"breakdown": 1, "generation": 1}),
    ("baton.started", ROOT, 3, {}),
    ("baton.completed", ROOT, 3, {}),
    ("tree.completed", ROOT, 3, {}),
]


class Forged:
    """A right run, to be spoiled by a test.

    Attributes:
        tree, root, first, second: rows. events: rows, numbered when the run is looked at. history: lines.
    """

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {
            "root_id": ROOT,
            "status": "completed",
            "owner": None,
            "owner_pid": None,
            "epoch": 3,
            "idempotency_key": KEY,
            "seq": len(STORY),
        }
        self.root, self.first, self.second = (
            {
                "id": id,
                "root_id": ROOT,
                "status": "completed",
                "attempt": attempt,
                "generation": generation,
                "result": result,
                "error_kind": None,
            }
            for id, attempt, generation, result in ((ROOT, 3, 1, 3), (FIRST, 2, 0, 1), (SECOND, 2, 1, 2))
        )
        self.events = [
            {
                "root_id": ROOT,
                "seq": seq,
                "at": 0,
                "type": kind,
                "baton_id": id,
                "parent_id": None if id == ROOT else ROOT,
                "attempt": attempt,
                "data": copy.deepcopy(data),
            }
            for seq, (kind, id, attempt, data) in enumerate(STORY, 1)
        ]
        end = {"kind": "told", "root_id": ROOT, "status": "completed", "result": 3, "error_kind": None, "generation": 1}
        self.history: list[dict[str, Any]] = [
            {"kind": "submitted", "key": KEY, "root_id": ROOT, "plan": PLAN},
            {"kind": "seen", "root_id": ROOT, "epoch": 1, "owner": "one", "seq": 2},
            {"kind": "seen", "root_id": ROOT, "epoch": 2, "owner": "two", "seq": 16},
            {**end, "status": "failed", "result": None, "error_kind": "error", "generation": 0},
            {"kind": "ordered", "order": "retry", "root_id": ROOT, "baton_id": ROOT, "value": None, "outcome": "done"},
            {"kind": "seen", "root_id": ROOT, "epoch": 2, "owner": None, "seq": 25},
            {"kind": "heard", "root_id": ROOT, "events": [[event["seq"], event["type"]] for event in self.events[:16]]},
            end,
        ]

    def event(self, kind: str, id: str = ROOT, which: int = 0) -> dict[str, Any]:
        """The row of the so manieth event of a kind."""
        return [event for event in self.events if (event["type"], event["baton_id"]) == (kind, id)][which]

    def add(self, after: dict[str, Any], type: str, id: str, attempt: int, **data: Any) -> None:
        """One more event; those that follow are numbered anew, so that nothing else is wrong with it."""
        place = self.events.index(after) + 1
        self.events.insert(
            place, {**after, "type": type, "baton_id": id, "parent_id": None if id == ROOT else ROOT, "attempt": attempt, "data": data}
        )
        self._number()

    def drop(self, event: dict[str, Any]) -> None:
        """One event less, without a gap."""
        self.events.remove(event)
        self._number()

    def line(self, kind: str, which: int = 0) -> dict[str, Any]:
        """A line of the history."""
        return [line for line in self.history if line["kind"] == kind][which]

    def found(self) -> list[str]:
        """What the checker says."""
        return faults(Recorded([self.tree], [self.root, self.first, self.second], self.events), self.history)

    def _number(self) -> None:
        for seq, event in enumerate(self.events, 1):
            event["seq"] = seq
        self.tree["seq"] = len(self.events)
        self.line("heard")["events"] = [[event["seq"], event["type"]] for event in self.events]


def still_open(run: Forged) -> None:
    run.tree |= {"status": "open", "owner": "two"}


def owned_after_its_end(run: Forged) -> None:
    run.tree["owner"] = "two"


def gap(run: Forged) -> None:
    run.events.pop(9)


def lost_end(run: Forged) -> None:
    run.events.pop()
    run.tree["seq"] -= 1


def resumed_twice(run: Forged) -> None:
    after = run.event("baton.resumed")
    run.add(after, "baton.resumed", ROOT, 1, breakdown=1, generation=0)


def resumed_too_early(run: Forged) -> None:
    run.drop(run.event("baton.completed", FIRST))
    run.add(run.event("baton.failed", SECOND), "baton.progress", FIRST, 2, kind="checkpoint")


def late_report(run: Forged) -> None:
    run.event("baton.completed", FIRST)["attempt"] = 1


def late_checkpoint(run: Forged) -> None:
    run.add(run.event("baton.retrying", FIRST), "baton.progress", FIRST, 1, kind="checkpoint")


def started_twice(run: Forged) -> None:
    run.add(run.event("baton.started", FIRST), "baton.started", FIRST, 1)


def event_after_the_end(run: Forged) -> None:
    run.add(run.events[-1], "baton.progress", FIRST, 2, kind="checkpoint")


def row_unlike_its_log(run: Forged) -> None:
    run.first["status"] = "running"


def attempt_unlike_its_log(run: Forged) -> None:
    run.second["attempt"] = 3


def tree_unlike_its_root(run: Forged) -> None:
    run.tree["status"] = "failed"


def wrong_result(run: Forged) -> None:
    run.root["result"] = run.line("told", 1)["result"] = 4


def client_told_otherwise(run: Forged) -> None:
    run.line("told", 1)["result"] = 4


def lost_submission(run: Forged) -> None:
    run.history.append({**run.line("submitted"), "root_id": "bt_gone", "key": "another"})


def two_trees_of_a_key(run: Forged) -> None:
    run.tree["idempotency_key"] = "another"


def lost_cancel(run: Forged) -> None:
    run.history.append({**run.line("ordered"), "order": "cancel"})


def lost_answer(run: Forged) -> None:
    run.history.append({**run.line("ordered"), "order": "answer", "baton_id": FIRST, "value": 7})


def lost_retry(run: Forged) -> None:
    run.history.append({**run.line("ordered"), "baton_id": FIRST})


def retried_by_nobody(run: Forged) -> None:
    run.history.remove(run.line("ordered"))


def subscriber_missed_one(run: Forged) -> None:
    run.line("heard")["events"].pop(3)


def subscriber_heard_one_twice(run: Forged) -> None:
    run.line("heard")["events"].insert(3, [3, "baton.spawned"])


def epoch_went_back(run: Forged) -> None:
    run.line("seen", 2)["epoch"] = 1


def two_owners_in_an_epoch(run: Forged) -> None:
    run.line("seen", 2)["owner"] = "three"


def crashed_too_soon(run: Forged) -> None:
    run.event("baton.failed", SECOND)["data"]["error_kind"] = "crashed"


def test_a_right_history_has_no_fault() -> None:
    assert Forged().found() == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (still_open, "still open"),
        (owned_after_its_end, "still owned by two"),
        (gap, "gap"),
        (lost_end, "last event"),
        (resumed_twice, "resumed twice"),
        (resumed_too_early, "children have not ended"),
        (late_report, "of attempt 1, expected was 2"),
        (late_checkpoint, "an attempt that does not run"),
        (started_twice, "it was running"),
        (event_after_the_end, "after the end of the tree"),
        (row_unlike_its_log, "has status running, by its log completed"),
        (attempt_unlike_its_log, "has attempt 3, by its log 2"),
        (tree_unlike_its_root, "is failed, its root is completed"),
        (wrong_result, "right is completed with 3"),
        (client_told_otherwise, "a client was told"),
        (lost_submission, "was acknowledged and is not there"),
        (two_trees_of_a_key, "its key"),
        (lost_cancel, "its cancel was acknowledged"),
        (lost_answer, "its answer 7 was acknowledged"),
        (lost_retry, "its retry was acknowledged"),
        (retried_by_nobody, "was retried, and nobody asked"),
        (subscriber_missed_one, "a subscriber was told"),
        (subscriber_heard_one_twice, "a subscriber was told"),
        (epoch_went_back, "its epoch was 2, then 1"),
        (two_owners_in_an_epoch, "in epoch 2 the owner was two, then three"),
        (crashed_too_soon, "crashed after losses []"),
    ],
)
def test_a_broken_promise_is_found(spoil: Callable[[Forged], None], words: str) -> None:
    run = Forged()
    spoil(run)
    assert any(words in fault for fault in run.found()), run.found()


def test_a_tree_that_was_cancelled_needs_somebody_who_asked() -> None:
    run = Forged()
    run.root["error_kind"] = "cancelled"
    assert any("nobody asked for it" in fault for fault in run.found())


def test_every_event_of_a_baton_has_its_steps() -> None:
    from baton_actors.events import EventType

    assert set(STEPS) == {str(kind) for kind in EventType if kind.startswith("baton.")}


def test_plain_evaluation_knows_what_a_failure_does() -> None:
    hopeless, one = {"do": "hopeless"}, {"do": "value", "value": 1, "seconds": 0}
    assert evaluated({"do": "sum", "failure": "counts", "parts": [[hopeless, one], [one]]}) == (True, 1_002)
    assert evaluated({"do": "sum", "failure": "fast", "parts": [[hopeless, one], [one]]}) == (True, -1)
    assert evaluated({"do": "sum", "failure": "fails", "parts": [[hopeless, one], [one]]}) == (False, None)
    assert evaluated(PLAN) == (False, None)
    assert evaluated(PLAN, retried=True) == (True, 3)
