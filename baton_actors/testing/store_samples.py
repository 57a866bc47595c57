"""Trees, groups and processes for tests of a store: short ways to write what an owner would."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton_actors.baton import Baton, Status, child_id, root_id
from baton_actors.errors import DatabaseUnusable, Moved
from baton_actors.events import Event, EventType
from baton_actors.store import CommitDoubtful, Group, LoadedTree, Store, TreeRow, migrations

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

NOW = 1_764_500_000_000
OWNER = "owner-1"
_numbers = count()


def new_root(**fields: Any) -> Baton:
    """A root with an id of its own."""
    id = root_id(NOW, os.urandom(6) + next(_numbers).to_bytes(4, "big"))
    return Baton(**{"id": id, "root_id": id, "goal": "root", "created_at": NOW, "updated_at": NOW, **fields})


def new_children(parent: Baton, size: int, breakdown: int = 1, **fields: Any) -> list[Baton]:
    """Children of one breakdown, in spawn order."""
    place = {"root_id": parent.root_id, "parent_id": parent.id, "depth": parent.depth + 1}
    known = {"goal": "child", "created_at": NOW, "updated_at": NOW, **place, **fields}
    return [Baton(id=child_id(parent.id, 0, breakdown, index), **known) for index in range(size)]


def group_of(*created: Baton, **rest: Any) -> Group:
    """A group that creates these batons."""
    group = Group(**rest)
    for baton in created:
        group.add_row(baton.id, True, dict(baton))
    return group


def log(root_id: str, first: int, last: int) -> list[Event]:
    """Events of a tree from one seq to another, both included."""
    seqs = range(first, last + 1)
    return [Event(seq, EventType.PROGRESS, NOW, root_id, root_id, None, 0, 1, {"kind": "checkpoint", "n": seq}) for seq in seqs]


def row_of(root: Baton, **columns: Any) -> TreeRow:
    """A tree that is lent to `OWNER` at epoch 1."""
    return TreeRow(**{"root_id": root.id, "cluster_id": "c1", "owner": OWNER, "epoch": 1, "created_at": NOW, **columns})


def begun(store: Store, root: Baton | None = None, lease_ms: int = 30_000, **columns: Any) -> Baton:
    """A new tree in the store, of one baton and one event."""
    root = root or new_root()
    store.begin_tree(row_of(root, **columns), group_of(root, events=log(root.id, 1, 1)), lease_ms)
    return root


def spawned(store: Store, parent: Baton, size: int, seq: int, **fields: Any) -> list[Baton]:
    """Children of a parent, written as the owner of epoch 1 does it; the group holds one event."""
    children = new_children(parent, size, **fields)
    group = group_of(*children, events=log(parent.root_id, seq, seq))
    group.add_row(parent.id, False, {"status": Status.SPAWNED, "children": [child.id for child in children]})
    store.commit(parent.root_id, 1, group)
    return children


def taken(store: Store, root_id: str, epoch: int = 1, owner: str = OWNER) -> LoadedTree:
    """The whole tree, which must be lent to that owner."""
    loaded = store.take(root_id, owner, epoch, os.getpid())
    assert loaded is not None
    return loaded


def execute(store: Store, statement: str) -> None:
    """SQL that a store has no method for."""
    with store._database.write("a test") as connection:
        connection.exec_driver_sql(statement)


def migrate(store: Store, revision: str) -> None:
    """Bring the schema to one of its earlier revisions, as a program of that time did."""
    from alembic import command
    from alembic.config import Config

    with store._database.write("a test") as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        command.upgrade(config, revision)


def upgrade(url: str) -> str:
    """In a process of its own."""
    with closing(Store(url)) as store:
        return store.upgrade()


def write_many(url: str, roots: list[str], times: int) -> None:
    """In a process of its own: each tree is written by a thread with a store of its own, as an owner would."""

    def write(root: str) -> None:
        with closing(Store(url)) as store:
            baton = store.baton(root)
            children = new_children(baton, times)
            for number, child in enumerate(children):
                group = group_of(child, events=log(root, 2 + number, 2 + number))
                group.add_row(root, False, {"status": Status.RUNNING, "children": [each.id for each in children[: number + 1]]})
                store.commit(root, 1, group)

    with ThreadPoolExecutor(len(roots)) as threads:
        list(threads.map(write, roots))


def write_until_killed(url: str, root_id: str, told: "Connection") -> None:
    """In a process of its own: every group sets all children to the seq of its event, and tells the seq once it is written."""
    store = Store(url)
    ids = store.baton(root_id).children
    for seq in count(3):
        group = Group(events=log(root_id, seq, seq))
        for id in ids:
            group.add_row(id, False, {"attempt": seq})
        store.commit(root_id, 1, group)
        told.send(seq)


def write_until_deposed(url: str, root_id: str, epoch: int, told: "Connection") -> None:
    """In a process of its own: as `write_until_killed`, and the last word is what ended it: `moved`."""
    store = Store(url)
    ids = store.baton(root_id).children
    try:
        for seq in count(store.tree(root_id).seq + 1):
            group = Group(events=log(root_id, seq, seq))
            for id in ids:
                group.add_row(id, False, {"attempt": seq, "error": "theirs"})
            store.commit(root_id, epoch, group)
            told.send(seq)
    except Moved:
        told.send("moved")


def lent_while_stopped(store: Store, root_id: str, writer: BaseProcess) -> int:
    """Stop a writing process where it holds no lock, and lend its tree to another; the new epoch. It stays stopped."""
    pid = writer.pid or 0
    url = store.url if store.url.startswith("sqlite") else f"{store.url}?options=-c%20lock_timeout%3D50"
    with closing(Store(url, patience=0.05)) as hasty:
        while True:
            os.kill(pid, signal.SIGSTOP)
            try:
                if (epoch := hasty.lend(root_id, "another", "c1", OWNER, 1)) is not None:
                    return epoch
            except (DatabaseUnusable, CommitDoubtful):  # it was stopped in a transaction: its lock is in the way
                os.kill(pid, signal.SIGCONT)


def last_of(heard: "Connection") -> object:
    """The last that a process says before it ends."""
    last: object = None
    try:
        while True:
            last = heard.recv()
    except EOFError:
        return last


def write_waiting(store: Store, roots: list[Baton]) -> None:
    """New trees that wait for an owner, in one transaction; those that come first are older."""
    from baton_actors.store.tables import trees

    rows = [
        {"root_id": root.id, "cluster_id": "c1", "lease_until": NOW, "wake_at": 0, "created_at": NOW + number}
        for number, root in enumerate(roots)
    ]
    with store._database.write("a test") as connection:
        connection.execute(trees.insert(), rows)
