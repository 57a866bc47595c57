"""A worker that does what its context says, as `plans` writes it; it travels to the cluster by itself."""

import time
from typing import Any

from baton_actors import Baton, Child, Context, HandedOver, Retry, Spawned

#: What a failed child counts in a sum, and what a sum is worth that ended at its first failure.
FAILED_COUNTS = 1_000
FAILED_FAST = -1


def act(baton: Baton, ctx: Context) -> Any:
    plan = baton.context
    match plan["do"]:
        case "value":
            return _slowly(ctx, plan)
        case "flaky":  # attempts only grow, so a loss brings it nearer to its end
            if ctx.attempt <= plan["fails"]:
                raise Retry(f"attempt {ctx.attempt}", after=0.05)
            return plan["value"]
        case "hopeless":
            raise ValueError("this task cannot be done")
        case "mendable":
            if baton.generation == 0:
                raise ValueError("not in this life")
            return plan["value"]
        case "relay":
            step = (ctx.state or 0) + 1
            return plan["value"] if step == plan["steps"] else HandedOver(step)
        case "checkpoints":
            for step in range(ctx.state or 0, plan["steps"]):
                time.sleep(plan["seconds"])
                ctx.checkpoint(step + 1)
            return plan["value"]
        case "sum":
            return _sum(baton, ctx)
        case unknown:
            raise LookupError(f"no plan does {unknown!r}")


def _slowly(ctx: Context, plan: dict[str, Any]) -> Any:
    end = time.monotonic() + plan["seconds"]
    while (left := end - time.monotonic()) > 0 and not ctx.cancelled:
        time.sleep(min(left, 0.05))
    return plan["value"]


def _sum(baton: Baton, ctx: Context) -> Any:
    """As many breakdowns as there are lists of parts; the sum so far is the state."""
    plan, total = baton.context, ctx.state or 0
    if ctx.breakdown:
        if any(child.status == "failed" for child in ctx.children):
            if plan["failure"] == "fails":
                raise ValueError("a part failed")
            if plan["failure"] == "fast":
                return FAILED_FAST
        total += sum(FAILED_COUNTS if child.status == "failed" else child.result for child in ctx.children)
    if ctx.breakdown == len(plan["parts"]):
        return total
    return Spawned([child_of(part) for part in plan["parts"][ctx.breakdown]], state=total)


def child_of(plan: dict[str, Any]) -> Child:
    return Child(str(plan["do"]), plan, **bounds_of(plan))


def bounds_of(plan: dict[str, Any]) -> dict[str, Any]:
    """What a plan needs beside its context, in the words of `Child` and `submit`."""
    bounds: dict[str, Any] = {"worker": "human" if plan["do"] == "human" else "playing:act"}
    if plan["do"] == "flaky":
        bounds["max_retries"] = plan["fails"]
    if plan.get("failure") == "fast":
        bounds["on_child_failure"] = "fail_fast"
    if plan.get("isolate"):
        bounds["resources"] = {"num_cpus": 0.1, "isolate": True}
    return bounds
