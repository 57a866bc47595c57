"""Running a foreign function so that nothing it does harms who calls it: it may raise, hang, or end the program.

A function that is not async runs in a thread of its own: one that hangs for ever keeps no pool's place, and no process alive.
"""

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: How the threads of calls are known.
_THREAD_NAME = "baton tool"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: with a value, with what it raised (carried, since a future takes no StopIteration), or not in time."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False


async def run_guarded(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any], seconds: float) -> Ended:
    """Call a function, async or not, and wait for what it returns, awaitables among it.

    After `seconds` an async call is cancelled, and one in a thread goes on unseen. The same when the caller is cancelled.
    """
    task = asyncio.ensure_future(_guarded(function, positional, named))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            return Ended(timed_out=True)
        # Not ours: we have not been cancelled, so the function has raised it.
        return Ended(error=asyncio.CancelledError("cancelled from inside")) if task.cancelled() else task.result()
    finally:
        task.cancel()  # one that has ended does not mind; one that will not stop is not waited for


async def _guarded(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Ended:
    try:
        if inspect.iscoroutinefunction(function):
            return Ended(await function(*positional, **named))
        result = await _in_thread(function, positional, named)
        return Ended(await result.value) if inspect.isawaitable(result.value) else result
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a foreign function are its failure, not our end
        return Ended(error=error)


async def _in_thread(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Ended:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[Ended] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = Ended(context.run(function, *positional, **named))
        except BaseException as error:
            result = Ended(error=error)
        with contextlib.suppress(RuntimeError):  # the loop has been closed, nobody waits any more
            loop.call_soon_threadsafe(arrive, result)

    def arrive(result: Ended) -> None:
        if not arrived.done():
            arrived.set_result(result)

    threading.Thread(target=run, name=f"{_THREAD_NAME} {getattr(function, '__name__', '')}", daemon=True).start()
    return await arrived


def any_left() -> bool:
    """Whether a call of this process still runs in its thread, though nobody waits for it any more."""
    return any(thread.name.startswith(_THREAD_NAME) for thread in threading.enumerate())
