"""Who owns a tree, and which cluster it belongs to. Every function here runs inside a transaction that its caller began.

All times are compared by the database's clock, and no two clocks of machines.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select, update

from baton_actors.store.records import Owned
from baton_actors.store.tables import Now, batons, trees

#: How long a tree stays with its cluster without a renewal.
LEASE_MS = 30_000

_OPEN = trees.c.status == "open"
_EXPIRED = trees.c.lease_until < Now()
_WAITS = (_OPEN, trees.c.owner.is_(None))


def take(connection: Connection, root_id: str, owner: str, epoch: int, pid: int | None) -> tuple[Row[Any], Sequence[Row[Any]]] | None:
    """The row of a tree that is lent to this owner at this epoch, and its batons by (depth, position); None if it is not."""
    mine = (trees.c.root_id == root_id, trees.c.owner == owner, trees.c.epoch == epoch)
    tree = connection.execute(update(trees).where(*mine).values(owner_pid=pid).returning(*trees.c)).first()
    if tree is None:
        return None
    whole = select(batons).where(batons.c.root_id == root_id).order_by(batons.c.depth, batons.c.position)
    return tree, connection.execute(whole).all()


def retake(connection: Connection, owner: str, pid: int | None) -> tuple[str, int] | None:
    """The open tree that this owner held, at a new epoch; None if there is none any more."""
    again = update(trees).where(trees.c.owner == owner, _OPEN).values(epoch=trees.c.epoch + 1, owner_pid=pid)
    row = connection.execute(again.returning(trees.c.root_id, trees.c.epoch)).first()
    return None if row is None else (row.root_id, row.epoch)


def lend(connection: Connection, root_id: str, owner: str, cluster_id: str, previous: str | None, epoch: int | None) -> int | None:
    """Give a tree that `previous` held, at `epoch` if one is named, to an owner; its new epoch.

    None if that is not so, or if it is another cluster's. An owner that was restarted has its name still, and a new epoch.
    """
    expected = [trees.c.root_id == root_id, or_(trees.c.cluster_id == cluster_id, _EXPIRED), trees.c.owner.is_not_distinct_from(previous)]
    if epoch is not None:
        expected.append(trees.c.epoch == epoch)
    lent = (
        update(trees)
        .where(*expected)
        .values(owner=owner, owner_pid=None, epoch=trees.c.epoch + 1, cluster_id=cluster_id, lease_until=Now() + LEASE_MS)
        .returning(trees.c.epoch)
    )
    return connection.execute(lent).scalar()


def renew(connection: Connection, cluster_id: str) -> None:
    """Extend the lease of a cluster's trees that are open, or ended and lent once more."""
    ours = (trees.c.cluster_id == cluster_id, or_(_OPEN, trees.c.owner.is_not(None)))
    connection.execute(update(trees).where(trees.c.root_id.in_(_locked(*ours))).values(lease_until=Now() + LEASE_MS))


def adopt(connection: Connection, cluster_id: str, root_ids: list[str] | None) -> list[str]:
    """Make open trees of other clusters, whose lease has expired, this cluster's, and due at once."""
    theirs = [_OPEN, _EXPIRED, trees.c.cluster_id != cluster_id]
    if root_ids is not None:
        theirs.append(trees.c.root_id.in_(root_ids))
    adopted = (
        update(trees)
        .where(trees.c.root_id.in_(_locked(*theirs)))
        .values(cluster_id=cluster_id, lease_until=Now() + LEASE_MS, owner=None, owner_pid=None, epoch=trees.c.epoch + 1, wake_at=Now())
        .returning(trees.c.root_id)
    )
    return sorted(connection.execute(adopted).scalars())


def leave(connection: Connection, cluster_id: str) -> None:
    """End the lease of a cluster that has ended; its open trees can be adopted at once, also in this millisecond."""
    ours = trees.c.root_id.in_(_locked(_OPEN, trees.c.cluster_id == cluster_id))
    connection.execute(update(trees).where(ours).values(lease_until=Now() - 1))


def owned(connection: Connection, cluster_id: str) -> list[Owned]:
    """The trees of a cluster that are lent."""
    lent = select(trees.c.root_id, trees.c.owner, trees.c.epoch, trees.c.owner_pid).where(
        trees.c.cluster_id == cluster_id, trees.c.owner.is_not(None)
    )
    return [Owned(*row) for row in connection.execute(lent.order_by(trees.c.root_id))]


def due(connection: Connection, cluster_id: str, limit: int) -> list[str]:
    """Open trees that wait for an owner and whose time has come: woken ones before new ones, oldest first."""
    come = select(trees.c.root_id).where(*_WAITS, trees.c.cluster_id == cluster_id, trees.c.wake_at <= Now())
    order = (trees.c.epoch == 0, trees.c.created_at, trees.c.root_id)
    return list(connection.execute(come.order_by(*order).limit(limit)).scalars())


def next_wake(connection: Connection, cluster_id: str) -> int | None:
    """Milliseconds from now until the next open tree without an owner is due; None if none ever is."""
    future = select(func.min(trees.c.wake_at) - Now()).where(*_WAITS, trees.c.cluster_id == cluster_id, trees.c.wake_at > Now())
    return connection.execute(future).scalar()


def abandoned(connection: Connection) -> list[str]:
    """Open trees, of whatever cluster, whose lease has expired; oldest first."""
    return list(connection.execute(select(trees.c.root_id).where(_OPEN, _EXPIRED).order_by(trees.c.created_at, trees.c.root_id)).scalars())


def left_pids(connection: Connection) -> list[int]:
    """Processes that owned open trees, of whatever cluster, whose lease has expired."""
    return list(connection.execute(select(trees.c.owner_pid).where(_OPEN, _EXPIRED, trees.c.owner_pid.is_not(None)).distinct()).scalars())


def lease_left(connection: Connection, root_id: str) -> float | None:
    """Seconds until another cluster may adopt an open tree, 0 if it may now; None if it has ended or is unknown."""
    left = connection.execute(select(trees.c.lease_until - Now()).where(trees.c.root_id == root_id, _OPEN)).scalar()
    return None if left is None else max(0.0, left / 1000)


def _locked(*where: ColumnElement[bool]) -> Any:
    """Ids of trees, locked in one order, so that two directories do not wait for each other; what is locked now comes next time."""
    return select(trees.c.root_id).where(*where).order_by(trees.c.root_id).with_for_update(skip_locked=True)
