"""No-op children through one tree, per second, beside bare Ray tasks awaited by an actor, in the same run.

    python -m tests.benchmarks.children [--children 20000] [--rounds 3] [--json]

SQLite with `synchronous=FULL`. The two take turns, so that both see the same noise.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from typing import Any

import ray

import baton_actors as baton
from baton_actors.examples.arithmetic import square


def fan_out(task: baton.Baton, ctx: baton.Context) -> Any:
    """`count` children that do next to nothing."""
    if ctx.breakdown:
        return len(ctx.children)
    return baton.Spawned([baton.Child("square", {"number": number}, worker=square) for number in range(task.context["count"])])


@ray.remote
def echo(value: Any) -> Any:
    return value


@ray.remote(num_cpus=0)
class BareRay:
    """What the engine does by itself: one task for each item, nothing durable."""

    async def tasks_per_second(self, count: int) -> float:
        begun = time.perf_counter()
        await asyncio.gather(*[echo.remote({"number": number, "goal": "square"}) for number in range(count)])
        return count / (time.perf_counter() - begun)


def children_per_second(client: baton.Client, count: int) -> float:
    begun = time.perf_counter()
    assert client.submit("fan out", worker=fan_out, context={"count": count}).result() == count
    return count / (time.perf_counter() - begun)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--children", type=int, default=20_000)
    arguments.add_argument("--bare", type=int, default=2_000, help="bare Ray tasks in a round")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, baton.connect(database_url=f"sqlite:///{folder}/b.db", progress=_say) as client:
        bare = BareRay.remote()
        children_per_second(client, 500)
        rounds = []
        for number in range(given.rounds):
            _say(f"round {number + 1} of {given.rounds}")
            rounds.append((ray.get(bare.tasks_per_second.remote(given.bare)), children_per_second(client, given.children)))
    ratios = [ours / theirs for theirs, ours in rounds]
    figures = {
        "bare_ray_tasks_per_second": round(statistics.median(theirs for theirs, _ in rounds)),
        "children_per_second": round(statistics.median(ours for _, ours in rounds)),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "children": given.children,
    }
    print(json.dumps(figures) if given.json else "\n".join(f"{name:28} {value}" for name, value in figures.items()))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
