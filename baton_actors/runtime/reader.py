"""The reader: an actor that reads the database for clients that cannot reach it, over `ray://` for instance."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from baton_actors.settings import with_own_secret
from baton_actors.store import Store

NAME = "reader"
#: What it may be asked to call: methods of `Store` that only read.
READS = frozenset({"baton", "root_of", "tree", "snapshot", "events", "outcome", "counts", "trees", "waiting", "abandoned", "lease_left"})
#: Seconds that it waits for a database that comes back, before it says so.
PATIENCE_SECONDS = 10.0


class ReaderActor:
    """See the module. `database` is the URL without its password."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="store")

    async def read(self, name: str, *arguments: Any) -> Any:
        """Call a reading method of the store.

        Raises:
            DatabaseUnusable: it cannot be read from here either.
        """
        if name not in READS:
            raise ValueError(f"{name!r} is no reading method")
        return await asyncio.get_running_loop().run_in_executor(self._executor, getattr(self._store, name), *arguments)

    @cached_property
    def _store(self) -> Store:
        """Opened when it is first asked for: an exception in `__init__` would end the actor for good."""
        return Store(with_own_secret(self._database), patience=PATIENCE_SECONDS)
