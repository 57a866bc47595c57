"""Reading the database without Ray."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from baton_actors.cli.options import database
from baton_actors.cli.output import say

if TYPE_CHECKING:
    from baton_actors.store import Store

#: Seconds that a command waits for a database that is busy or restarting.
PATIENCE = 10.0
#: Seconds without an answer after which it is said what is waited for.
_SAY_AFTER = 1.5


@contextmanager
def opened(url: str | None) -> Iterator["Store"]:
    """The store of the settings, its schema brought up to date; whoever waits is told for what."""
    from baton_actors.store import Store

    store = Store(database(url), patience=PATIENCE)
    slow = threading.Timer(_SAY_AFTER, say, [f"waiting for {store.public_url} (up to {PATIENCE:g} s)"])
    slow.daemon = True
    slow.start()
    try:
        store.upgrade()
        slow.cancel()
        yield store
    finally:
        slow.cancel()
        store.close()
