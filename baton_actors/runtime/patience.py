"""Calling the store until it is known what it did."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import stamina

from baton_actors.errors import BatonError, DatabaseUnusable, NotFound
from baton_actors.store import GroupRefused, NotBegun


def _passes(error: Exception) -> bool:
    """Whether waiting helps: the database is away, busy or full, or what it did is in doubt."""
    return isinstance(error, BatonError) and not isinstance(error, NotFound | NotBegun | GroupRefused)


def _passes_soon(error: Exception) -> bool:
    return _passes(error) and not isinstance(error, DatabaseUnusable)


async def until_certain(executor: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a method of the store returns, called in `executor` as often as it takes; what is called here may be done twice.

    Each failure is logged by stamina, with the pause before the next try: at most 5 s, with jitter.

    Raises:
        NotFound: there is no such row. GroupRefused: the values will never be taken. NotBegun: see `Store.begin_tree`.
    """
    return await _repeated(_passes, executor, function, *arguments)


async def unless_unusable(executor: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
    """As `until_certain`, for somebody who waits for the answer and can be told that there will be none.

    Raises:
        DatabaseUnusable: waiting will not help, unless somebody mends the database.
    """
    return await _repeated(_passes_soon, executor, function, *arguments)


async def _repeated(passes: Callable[[Exception], bool], executor: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
    loop = asyncio.get_running_loop()
    async for attempt in stamina.retry_context(on=passes, attempts=None, timeout=None, wait_initial=0.05, wait_max=5.0, wait_jitter=0.5):
        with attempt:
            return await loop.run_in_executor(executor, function, *arguments)
    raise AssertionError("stamina tries without end")
