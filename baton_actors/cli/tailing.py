"""Following a tree by reading its log in the database: for one that has ended, or works in another program's private Ray."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from baton_actors.baton import Baton
from baton_actors.cli.output import say, status_line
from baton_actors.cli.painting import Followed
from baton_actors.errors import ClusterUnusable, WaitTimeout
from baton_actors.events import Event
from baton_actors.settings import ray_address
from baton_actors.snapshot import Snapshot

if TYPE_CHECKING:
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

    def events(self, after: int = 0) -> Iterator[Event]:
        """Everything after a cursor, then what is added, until the tree has ended."""
        while True:
            last = not self.open  # looked at first: what is read after it is all there will be
            for event in self.stored(after):
                after = event.seq
                yield event
            if last:
                return
            time.sleep(LOOK_EVERY)

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


@contextmanager
def followed(store: "Store", root_id: str, database_url: str | None) -> Iterator[Followed]:
    """A tree to follow: through the cluster that is running, else through the database."""
    stored = StoredTree(store, root_id)
    with ExitStack() as stack:
        if not stored.open or ray_address() is None:
            yield stored
            return
        from baton_actors.client import connect

        try:
            with status_line() as progress:
                client = stack.enter_context(connect(database_url=database_url, start=False, progress=progress))
        except ClusterUnusable as error:
            say(f"{error}; following it through the database")
            yield stored
        else:
            yield client.get(root_id)
