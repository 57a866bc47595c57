"""The store: each method is one transaction, read or write, and is safe to call from several threads.

Methods that write raise `CommitDoubtful` when a transaction failed or may have: nothing is repeated in here, the caller
reads the database again. They raise `GroupRefused` when it failed because of what was to be written, and would again. Every
method raises `DatabaseUnusable` when waiting will not help, or patience is at its end.
"""

from collections.abc import Iterable
from typing import Any

from baton_actors.baton import Baton
from baton_actors.errors import DatabaseUnusable
from baton_actors.events import Event
from baton_actors.snapshot import Snapshot
from baton_actors.store import lending, reading, schema, writing
from baton_actors.store.engine import Database
from baton_actors.store.faults import NotBegun
from baton_actors.store.group import Group
from baton_actors.store.records import LoadedTree, Owned, TreeRow
from baton_actors.store.rows import load_batons, load_tree


class Store:
    """One database.

    Args:
        url: `sqlite:////path/file.db` or `postgresql://user@host/name`.
        patience: seconds to wait for a database that is busy, full or restarting; None waits for as long as it takes.

    Raises:
        DatabaseUnusable: the URL cannot be used. Nothing is opened before the first call.
    """

    def __init__(self, url: str, *, patience: float | None = None) -> None:
        self.url = url
        self._database = Database(url, patience)

    @property
    def public_url(self) -> str:
        """The URL without its password."""
        return self._database.shown

    @property
    def statements(self) -> int:
        """How many SQL statements were sent, BEGIN and COMMIT not counted."""
        return self._database.statements

    @property
    def commits(self) -> int:
        """How many write transactions were committed."""
        return self._database.commits

    def upgrade(self) -> str:
        """Create or migrate the schema; the revision it now has. A current one is only read.

        Raises:
            DatabaseUnusable: the schema is newer than this program.
        """
        return schema.upgrade(self._database)

    def close(self) -> None:
        """Close the connections; the store opens new ones if it is used again."""
        self._database.close()

    # ---------------------------------------------------------------- writing

    def begin_tree(self, tree: TreeRow, group: Group, cluster_lease_ms: int = lending.LEASE_MS) -> str | None:
        """Write a new tree with its first group; or nothing, if its id or its idempotency key is known: then the id of that tree.

        `tree.lease_until` is not used: the lease begins now, by the database's clock.

        Raises:
            NotBegun: the database cannot be used, and nobody has been promised anything yet.
        """
        try:
            with self._database.write(f"tree {tree.root_id}") as connection:
                return writing.begin_tree(connection, tree, group, cluster_lease_ms)
        except DatabaseUnusable as fault:
            raise NotBegun(fault.what, fault.why) from fault

    def commit(self, root_id: str, epoch: int, group: Group) -> None:
        """Write a group, all or nothing.

        Raises:
            Moved: the tree is at another epoch; nothing was written.
        """
        with self._database.write(f"tree {root_id}") as connection:
            writing.commit(connection, root_id, epoch, group)

    def put_code(self, code: dict[str, tuple[str, bytes]]) -> None:
        """Store code by hash, as (kind, bytes)."""
        if code:
            with self._database.write("code") as connection:
                writing.put_code(connection, code)

    # ---------------------------------------------------------------- lending

    def take(self, root_id: str, owner: str, epoch: int, pid: int | None) -> LoadedTree | None:
        """The whole tree, if it is lent to this owner at this epoch."""
        with self._database.write(f"tree {root_id}") as connection:
            taken = lending.take(connection, root_id, owner, epoch, pid)
        return None if taken is None else LoadedTree(load_tree(taken[0]), load_batons(taken[1]))

    def retake(self, owner: str, pid: int | None) -> tuple[str, int] | None:
        """For an owner that was restarted: id and new epoch of the open tree that it still holds."""
        with self._database.write(f"owner {owner}") as connection:
            return lending.retake(connection, owner, pid)

    def lend(self, root_id: str, owner: str, cluster_id: str, previous: str | None, epoch: int | None = None) -> int | None:
        """Give a tree, open or ended, to an owner; the new epoch.

        None if `previous` (None: nobody) does not hold it, at `epoch` if one is named, or if it belongs to another cluster whose
        lease lasts. Who takes a tree from somebody names the epoch: that one may have come back since.
        """
        with self._database.write(f"tree {root_id}") as connection:
            return lending.lend(connection, root_id, owner, cluster_id, previous, epoch)

    def renew(self, cluster_id: str) -> None:
        """Extend the lease of all trees of a cluster that have not ended."""
        with self._database.write(f"cluster {cluster_id}") as connection:
            lending.renew(connection, cluster_id)

    def leave(self, cluster_id: str) -> None:
        """End the lease of a cluster that has ended: its open trees can be adopted at once."""
        with self._database.write(f"cluster {cluster_id}") as connection:
            lending.leave(connection, cluster_id)

    def adopt(self, cluster_id: str, root_ids: list[str] | None = None) -> list[str]:
        """Take over open trees of other clusters whose lease has expired, all or only some; the ids of those that are ours now."""
        with self._database.write(f"cluster {cluster_id}") as connection:
            return lending.adopt(connection, cluster_id, root_ids)

    def owned(self, cluster_id: str) -> list[Owned]:
        """The trees of a cluster that are lent."""
        return self._database.read(lambda connection: lending.owned(connection, cluster_id))

    def due(self, cluster_id: str, limit: int) -> list[str]:
        """Open trees without an owner whose time has come: woken ones before new ones, oldest first."""
        return self._database.read(lambda connection: lending.due(connection, cluster_id, limit))

    def next_wake(self, cluster_id: str) -> int | None:
        """Milliseconds until the next tree is due that is not yet; None if there is none."""
        return self._database.read(lambda connection: lending.next_wake(connection, cluster_id))

    def abandoned(self) -> list[str]:
        """Open trees of any cluster whose lease has expired, oldest first."""
        return self._database.read(lending.abandoned)

    def left_pids(self) -> list[int]:
        """Ids of processes that owned open trees whose lease has expired."""
        return self._database.read(lending.left_pids)

    def lease_left(self, root_id: str) -> float | None:
        """Seconds that the lease of an open tree lasts, 0 when expired; None if the tree has ended or is unknown."""
        return self._database.read(lambda connection: lending.lease_left(connection, root_id))

    # ---------------------------------------------------------------- reading

    def trees(self, status: str | None = None, limit: int | None = None) -> list[Baton]:
        """Root batons, newest first, perhaps only those with a status."""
        return self._database.read(lambda connection: reading.trees_of(connection, status, limit))

    def waiting(self) -> list[Baton]:
        """Batons that wait for a human or an outside system, longest waiting first."""
        return self._database.read(reading.waiting)

    def baton(self, id: str) -> Baton:
        """One baton, its children listed. Raises NotFound."""
        return self._database.read(lambda connection: reading.baton(connection, id))

    def outcome(self, root_id: str) -> Baton:
        """One baton, its children not listed: quicker. Raises NotFound."""
        return self._database.read(lambda connection: reading.outcome(connection, root_id))

    def root_of(self, id: str) -> str:
        """The root of the tree that a baton is in. Raises NotFound."""
        return self._database.read(lambda connection: reading.root_of(connection, id))

    def tree(self, root_id: str) -> TreeRow:
        """The row of a tree. Raises NotFound."""
        return self._database.read(lambda connection: reading.tree(connection, root_id))

    def snapshot(self, root_id: str) -> Snapshot:
        """The tree at one moment: depth first, children in spawn order. Raises NotFound."""
        return self._database.read(lambda connection: reading.snapshot(connection, root_id))

    def events(self, root_id: str, after: int, limit: int) -> list[Event]:
        """At most `limit` events that follow seq `after`; empty for an unknown tree."""
        return self._database.read(lambda connection: reading.events(connection, root_id, after, limit))

    def conversation(self, baton_id: str) -> list[dict[str, Any]]:
        """The rows of a baton's conversation in order, those of all its lives; empty for one that has said nothing."""
        return self._database.read(lambda connection: reading.conversation(connection, baton_id))

    def result_text(self, root_id: str, id: str, offset: int, limit: int) -> tuple[str, int] | None:
        """At most `limit` characters of what an ended baton of this tree has left, from `offset`, and how many there are.

        A text is given as it is, any other result as JSON, of a failed baton its error. None: no ended baton of that id is here.
        """
        return self._database.read(lambda connection: reading.result_text(connection, root_id, id, offset, limit))

    def counts(self, root_id: str) -> dict[str, int]:
        """How many batons of a tree stand at each status that occurs."""
        return self._database.read(lambda connection: reading.counts(connection, root_id))

    def code(self, hashes: Iterable[str]) -> dict[str, bytes]:
        """The bytes of those hashes that are stored."""
        return self._database.read(lambda connection: reading.code_of(connection, hashes))
