"""What one transaction of a tree writes. Every function here runs inside a transaction that its caller began.

The first statement is the fence: an owner of a lower epoch finds no row and writes nothing.
"""

from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Table, select, update
from sqlalchemy.dialects import postgresql, sqlite

from baton_actors.errors import Moved
from baton_actors.store import bulk, lending
from baton_actors.store.group import Group
from baton_actors.store.records import TreeRow
from baton_actors.store.rows import (
    BATON_COLUMNS,
    EVENT_COLUMNS,
    MESSAGE_COLUMNS,
    changed_rows,
    created_rows,
    event_rows,
    tree_values,
)
from baton_actors.store.tables import Now, batons, code, events, messages, trees


def begin_tree(connection: Connection, tree: TreeRow, group: Group, lease_ms: int) -> str | None:
    """Insert a tree and what its first group holds; or nothing, if its id or its idempotency key is known: then that tree's id."""
    values = {**tree_values(asdict(tree)), **_tree_update(group), "lease_until": Now() + lease_ms}
    inserted = _insert(connection, trees).values(values).on_conflict_do_nothing().returning(trees.c.root_id)
    if connection.execute(inserted).first() is not None:
        _write_rows(connection, tree.root_id, group)
        return None
    if tree.idempotency_key is None:
        return tree.root_id
    same = connection.execute(select(trees.c.root_id).where(trees.c.idempotency_key == tree.idempotency_key)).scalar()
    return tree.root_id if same is None else str(same)


def commit(connection: Connection, root_id: str, epoch: int, group: Group) -> None:
    """Write a group, and renew the tree's lease: a row that is always busy would escape the directory's renewal.

    Raises:
        Moved: the tree has another epoch by now; nothing was written.
    """
    values = _tree_update(group)
    fence = (
        update(trees).where(trees.c.root_id == root_id, trees.c.epoch == epoch).values({**values, "lease_until": Now() + lending.LEASE_MS})
    )
    if not connection.execute(fence).rowcount:
        raise Moved(root_id, epoch)
    _write_rows(connection, root_id, group)


def put_code(connection: Connection, given: dict[str, tuple[str, bytes]]) -> None:
    """Store bytes by hash; those that are known stay as they are."""
    rows = [{"hash": hash, "kind": kind, "bytes": data} for hash, (kind, data) in given.items()]
    connection.execute(_insert(connection, code).on_conflict_do_nothing(), rows)


def _tree_update(group: Group) -> dict[str, Any]:
    values = tree_values(group.tree)
    if group.events:
        values["seq"] = group.events[-1].seq
    if group.release:
        wake_at = None if group.wake_in is None else Now() + group.wake_in
        values |= {"owner": None, "owner_pid": None, "wake_at": wake_at}
    return values


def _write_rows(connection: Connection, root_id: str, group: Group) -> None:
    if group.created:
        bulk.insert(connection, batons, BATON_COLUMNS, created_rows(group.created, group.positions()))
    for columns, rows in changed_rows(group.changed).items():
        bulk.update(connection, batons, columns, rows)
    if group.events:
        bulk.insert(connection, events, EVENT_COLUMNS, event_rows(group.events))
    if group.messages:
        bulk.insert(connection, messages, MESSAGE_COLUMNS, [(root_id, *row) for row in group.messages])
    if group.code:
        put_code(connection, group.code)


def _insert(connection: Connection, table: Table) -> Any:
    """An INSERT that knows ON CONFLICT, which Core has per dialect only."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
