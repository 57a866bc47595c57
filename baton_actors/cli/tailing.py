"""Following a tree by reading its log in the database: for one that has ended, or works in another program's private Ray."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from baton_actors.baton import Baton
from baton_actors.cli.output import data_only, say, status_line
from baton_actors.errors import ClusterUnusable, WaitTimeout
from baton_actors.events import Event, Whisper
from baton_actors.settings import ray_address
from baton_actors.snapshot import Snapshot

if TYPE_CHECKING:
    from baton_actors.client import TreeHandle
    from baton_actors.store import Store

#: Seconds between two looks at the log. Nobody tells a reader of a database that there is something new.
LOOK_EVERY = 0.5
_PAGE = 1_000


class StoredTree:
    """A tree that is followed through its database alone; a handle as far as watching goes.

    Attributes:
        id: of the root.
    """

    def __init__(self, store: "Store", id: str) -> None:
        self.id = id
        self._store = store

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self._store.tree(self.id).status == "open"

    def snapshot(self) -> Snapshot:
        """The tree as it stands."""
        return self._store.snapshot(self.id)

    def stored(self, after: int = 0) -> Iterator[Event]:
        """The events that are there, page by page."""
        while page := self._store.events(self.id, after, _PAGE):
            yield from page
            after = page[-1].seq

    def events(self, after: int = 0, beside: Callable[[Whisper], None] | None = None) -> "StoredEvents":
        """Everything after a cursor, then what is added, until the tree has ended; for `for` and `async for`.

        `beside` is never called: what is only heard is in no database.
        """
        return StoredEvents(self, after)

    def wait(self, timeout: float | None = None) -> Baton:
        """The root when the tree has ended.

        Raises:
            WaitTimeout: not within `timeout` seconds. ClusterUnusable: nobody works on it.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self.open:
            if until is not None and time.monotonic() >= until:
                raise WaitTimeout(self.id, timeout or 0.0)
            if self._store.lease_left(self.id) == 0:
                raise ClusterUnusable(f"tree {self.id}", f"no cluster works on it (any more); 'baton resume {self.id}' finishes it")
            time.sleep(LOOK_EVERY)
        return self._store.baton(self.id)


class StoredEvents:
    """The events of a stored tree after a cursor, up to the end of the tree."""

    def __init__(self, tree: StoredTree, after: int) -> None:
        self._tree = tree
        self._after = after

    def __iter__(self) -> Iterator[Event]:
        last = False
        while not last:
            last, page = self._look()
            yield from page
            if not last:
                time.sleep(LOOK_EVERY)

    async def __aiter__(self) -> AsyncIterator[Event]:
        last = False
        while not last:
            last, page = await asyncio.to_thread(self._look)
            for event in page:
                yield event
            if not last:
                await asyncio.sleep(LOOK_EVERY)

    def _look(self) -> tuple[bool, list[Event]]:
        """Whether the tree had ended before what is there was read, and that."""
        last = not self._tree.open
        page = list(self._tree.stored(self._after))
        if page:
            self._after = page[-1].seq
        return last, page


@contextmanager
def followed(store: "Store", root_id: str, database_url: str | None) -> Iterator["StoredTree | TreeHandle"]:
    """A tree to follow: through the cluster that is running, else through the database."""
    stored = StoredTree(store, root_id)
    with ExitStack() as stack:
        if not stored.open or ray_address() is None:
            yield stored
            return
        from baton_actors.client import connect

        try:
            with status_line() as progress:
                stack.enter_context(data_only())
                client = stack.enter_context(connect(database_url=database_url, start=False, progress=progress))
        except ClusterUnusable as error:
            say(f"{error}; following it through the database")
            yield stored
        else:
            yield client.get(root_id)
