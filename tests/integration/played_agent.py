"""An agent for the tests, as a file of the user's working directory: it travels with the tree and is forgotten with its modules.

The root takes the real agent's place in its own process, where its only child then runs too.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from baton_actors import Baton, Child, Completed, Context, HandedOver, Spawned


def root(baton: Baton, ctx: Context) -> Any:
    """First a text, then an agent that may read it; the agent's result."""
    if ctx.breakdown == 0:
        return Spawned([Child("write", worker="played_agent:write")])
    if ctx.breakdown == 2:
        return ctx.children[0].result
    sys.modules["baton_actors.agent.run"] = sys.modules[__name__]
    return Spawned([Child(baton.goal, {**baton.context, "read": ctx.children[0].id}, worker="agent")])


def write(baton: Baton, ctx: Context) -> str:
    return "0123456789" * 1_000


async def run_agent(host: Any) -> Any:
    """Each attempt says one thing; the first waits until it is heard, the second until it may end."""
    folder = Path(host.baton.context["folder"])
    rows = await host.conversation()
    host.whisper("model", f"round {len(rows)}")
    for word in ("so ", "far"):
        host.whisper("text", word)
    try:
        await exists(folder / f"go-{len(rows)}")
    except asyncio.CancelledError:
        (folder / "stopped").touch()
        raise
    said = {"role": "assistant", "content": f"word {len(rows)}"}
    await host.save(state=len(rows), data={"kind": "round", "model": "m", "seconds": 2}, rows=[said], usage={"tokens_in": 5}, rounds=1)
    host.whisper("idle")
    if not rows:
        return HandedOver()
    part = await host.read_result(host.baton.context["read"], 9_995, 100)
    return Completed([rows, list(part), host.agent, host.learned, host.room, host.state])


async def exists(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.01)
