"""What anybody may read. Every function here runs inside one read transaction that its caller began: it is consistent."""

import json
from collections.abc import Iterable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, func, select

from baton_actors.baton import ENDED, PASSIVE_WORKERS, Baton, Status
from baton_actors.errors import NotFound
from baton_actors.events import Event
from baton_actors.snapshot import Snapshot
from baton_actors.store.records import TreeRow
from baton_actors.store.rows import load_batons, load_event, load_tree
from baton_actors.store.tables import batons, code, messages, trees
from baton_actors.store.tables import events as event_log

T = TypeVar("T")


def trees_of(connection: Connection, status: str | None, limit: int | None) -> list[Baton]:
    """Root batons, newest first."""
    roots = select(batons).join(trees, trees.c.root_id == batons.c.id)
    if status is not None:
        roots = roots.where(batons.c.status == str(status))
    newest = roots.order_by(trees.c.created_at.desc(), trees.c.root_id.desc()).limit(limit)
    return _with_children(connection, connection.execute(newest).all())


def waiting(connection: Connection) -> list[Baton]:
    """Batons that wait for a human or an outside system, longest first."""
    passive = select(batons).where(batons.c.status == "running", batons.c.worker.in_(PASSIVE_WORKERS))
    return _with_children(connection, connection.execute(passive.order_by(batons.c.updated_at, batons.c.id)).all())


def baton(connection: Connection, id: str) -> Baton:
    """One baton. Raises NotFound."""
    return _with_children(connection, [_row(connection, id)])[0]


def outcome(connection: Connection, root_id: str) -> Baton:
    """One baton without the list of its children, which may be long. Raises NotFound."""
    return load_batons([_row(connection, root_id)], {})[0][0]


def root_of(connection: Connection, id: str) -> str:
    """The root of the tree that a baton is in. Raises NotFound."""
    return str(_found(connection.execute(select(batons.c.root_id).where(batons.c.id == id)).scalar(), id))


def tree(connection: Connection, root_id: str) -> TreeRow:
    """The row of a tree. Raises NotFound."""
    return load_tree(_found(connection.execute(select(trees).where(trees.c.root_id == root_id)).first(), root_id))


def snapshot(connection: Connection, root_id: str) -> Snapshot:
    """A whole tree at one moment. Raises NotFound."""
    seq = _found(connection.execute(select(trees.c.seq).where(trees.c.root_id == root_id)).first(), root_id)[0]
    rows = connection.execute(select(batons).where(batons.c.root_id == root_id).order_by(batons.c.depth, batons.c.position)).all()
    ordered = _depth_first(root_id, {baton.id: baton for baton, _ in load_batons(rows)})
    return Snapshot(root_id, ordered[0].status if ordered else Status.PENDING, seq, ordered)


def events(connection: Connection, root_id: str, after: int, limit: int) -> list[Event]:
    """At most `limit` events that follow seq `after`."""
    page = select(event_log).where(event_log.c.root_id == root_id, event_log.c.seq > after).order_by(event_log.c.seq).limit(limit)
    return [load_event(row) for row in connection.execute(page)]


def conversation(connection: Connection, baton_id: str) -> list[dict[str, Any]]:
    """All rows of a baton's conversation."""
    bodies = select(messages.c.body).where(messages.c.baton_id == baton_id).order_by(messages.c.seq)
    return [json.loads(body) for body in connection.execute(bodies).scalars()]


def result_text(connection: Connection, root_id: str, id: str, offset: int, limit: int) -> tuple[str, int] | None:
    """A part of what an ended baton of a tree has left, and the length of the whole; None if there is no such baton."""
    ended = (batons.c.id == id, batons.c.root_id == root_id, batons.c.status.in_([str(status) for status in ENDED]))
    row = connection.execute(select(batons.c.status, batons.c.result, batons.c.error).where(*ended)).first()
    if row is None:
        return None
    text = _as_text(row.result) if row.status == Status.COMPLETED else row.error or ""
    start = max(0, offset)
    return text[start : start + max(0, limit)], len(text)


def _as_text(result: str) -> str:
    """A stored result as a reader wants it: a text as it is, anything else as the JSON that it is stored as."""
    return str(json.loads(result)) if result.startswith('"') else result


def counts(connection: Connection, root_id: str) -> dict[str, int]:
    """How many batons of a tree stand at each status."""
    each = select(batons.c.status, func.count()).where(batons.c.root_id == root_id).group_by(batons.c.status)
    return {str(status): count for status, count in connection.execute(each)}


def code_of(connection: Connection, hashes: Iterable[str]) -> dict[str, bytes]:
    """The bytes of those hashes that are stored."""
    return {hash: bytes(data) for hash, data in connection.execute(select(code.c.hash, code.c.bytes).where(code.c.hash.in_(list(hashes))))}


def _row(connection: Connection, id: str) -> Row[Any]:
    return _found(connection.execute(select(batons).where(batons.c.id == id)).first(), id)


def _found(value: T | None, id: str) -> T:
    if value is None:
        raise NotFound(id)
    return value


def _with_children(connection: Connection, rows: Iterable[Row[Any]]) -> list[Baton]:
    rows = list(rows)
    children: dict[str, list[str]] = {}
    for some in _chunks([row[0] for row in rows], 500):  # SQLite's limit of variables is higher, its parser's speed is not
        of_these: ColumnElement[bool] = batons.c.parent_id.in_(some)
        for id, parent_id in connection.execute(select(batons.c.id, batons.c.parent_id).where(of_these).order_by(batons.c.position)):
            children.setdefault(parent_id, []).append(id)
    return [loaded for loaded, _ in load_batons(rows, children)]


def _chunks(ids: list[str], size: int) -> Iterable[list[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _depth_first(root_id: str, by_id: dict[str, Baton]) -> list[Baton]:
    """Parents before children, children in spawn order; a stack, for trees of 5,000 levels."""
    ordered = []
    stack = [root_id] if root_id in by_id else []
    while stack:
        found = by_id[stack.pop()]
        ordered.append(found)
        stack.extend(reversed(found.children))
    return ordered
