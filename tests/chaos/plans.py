"""Random trees whose right result is known by plain evaluation: no runtime, one thing after the other.

A plan is the context of a baton: `{"do": "value", "value": 3, "seconds": 0.1}`. A sum's parts are plans; it breaks down once for
each list of them. `failure` says what a failed part means to it: it `counts`, the sum `fails` too, or it ends `fast`.
"""

import random
from typing import Any

from tests.chaos.playing import FAILED_COUNTS, FAILED_FAST

Plan = dict[str, Any]

#: What a leaf may be, and how often.
LEAVES = {"value": 9, "slow": 3, "flaky": 3, "hopeless": 1, "relay": 2, "checkpoints": 2, "human": 1, "isolated": 1}


def random_plan(chance: random.Random) -> Plan:
    """A tree of some 5 to 60 batons; one in six fails at first, and completes when it is retried."""
    if chance.random() < 1 / 6:
        return _mendable(chance, chance.randint(1, 3))
    if chance.random() < 1 / 8:
        return _chain(chance, chance.randint(5, 12))
    return _sum(chance, chance.randint(1, 3), chance.choice(["counts", "counts", "fast"]))


def evaluated(plan: Plan, *, retried: bool = False) -> tuple[bool, Any]:
    """Whether it completes, and its result; `retried`: after one retry of the root."""
    if plan["do"] == "hopeless" or (plan["do"] == "mendable" and not retried):
        return False, None
    if plan["do"] != "sum":
        return True, plan["value"]
    total = 0
    for parts in plan["parts"]:
        results = [evaluated(part, retried=retried) for part in parts]
        if not all(completed for completed, _ in results):
            if plan["failure"] == "fails":
                return False, None
            if plan["failure"] == "fast":
                return True, FAILED_FAST
        total += sum(value if completed else FAILED_COUNTS for completed, value in results)
    return True, total


def _sum(chance: random.Random, levels: int, failure: str) -> Plan:
    def part() -> Plan:
        if levels > 1 and chance.random() < 0.5:
            return _sum(chance, levels - 1, chance.choice(["counts", "counts", "fast"]))
        return _leaf(chance)

    return {"do": "sum", "failure": failure, "parts": [[part() for _ in range(chance.randint(0, 4))] for _ in range(chance.randint(1, 3))]}


def _chain(chance: random.Random, levels: int) -> Plan:
    plan = _leaf(chance)
    for _ in range(levels):
        plan = {"do": "sum", "failure": "counts", "parts": [[plan]]}
    return plan


def _mendable(chance: random.Random, levels: int) -> Plan:
    """What fails lies below sums that fail with it, and nowhere else: only then it is certain what a retry starts again."""
    below = _mendable(chance, levels - 1) if levels > 1 else {"do": "mendable", "value": chance.randint(1, 99)}
    parts = [_leaf(chance, hopeless=False) for _ in range(chance.randint(0, 3))]
    parts.insert(chance.randint(0, len(parts)), below)
    return {"do": "sum", "failure": "fails", "parts": [parts, [_leaf(chance, hopeless=False)]]}


def _leaf(chance: random.Random, *, hopeless: bool = True) -> Plan:
    kind = chance.choices(list(LEAVES), list(LEAVES.values()))[0]
    value = chance.randint(1, 99)
    match kind:
        case "slow":
            return {"do": "value", "value": value, "seconds": chance.uniform(0.5, 3.0)}
        case "flaky":
            return {"do": "flaky", "value": value, "fails": chance.randint(1, 3)}
        case "hopeless" if hopeless:
            return {"do": "hopeless"}
        case "relay":
            return {"do": "relay", "value": value, "steps": chance.randint(2, 5)}
        case "checkpoints":
            return {"do": "checkpoints", "value": value, "steps": chance.randint(2, 5), "seconds": chance.uniform(0.01, 0.3)}
        case "human":
            return {"do": "human", "value": value}
        case "isolated":
            return {"do": "value", "value": value, "seconds": 0.0, "isolate": True}
        case _:
            return {"do": "value", "value": value, "seconds": chance.uniform(0.0, 0.2)}
