"""State in SQL: SQLite on one machine, PostgreSQL on a cluster; `Store` is all that others use.

Rows only. What a status means and what may follow it is decided in `machine.py`.
"""

from baton_actors.snapshot import Snapshot
from baton_actors.store.faults import CommitDoubtful, GroupRefused, NotBegun
from baton_actors.store.group import Group
from baton_actors.store.lending import LEASE_MS
from baton_actors.store.records import LoadedTree, Owned, TreeRow
from baton_actors.store.store import Store

__all__ = ["LEASE_MS", "CommitDoubtful", "Group", "GroupRefused", "LoadedTree", "NotBegun", "Owned", "Snapshot", "Store", "TreeRow"]
