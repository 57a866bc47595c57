"""Puts a driven tree into a database as its owner would have."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from baton_actors.store import Group, Store, TreeRow
from tests.unit.drive import ROOT, Driver


def store_tree(url: str, driver: Driver, *, lease_ms: int = 60_000) -> None:
    """Write the whole tree in one transaction."""
    group = Group(events=list(driver.log))
    for id, values in driver.rows.rows.items():
        group.add_row(id, True, values)
    root = driver.baton()
    status = str(root.status) if root.status in ("completed", "failed") else "open"
    row = TreeRow(root_id=ROOT, cluster_id="cl_test", owner="owner", epoch=1, status=status, created_at=root.created_at)  # type: ignore[arg-type]
    with opened(url) as store:
        store.begin_tree(row, group, lease_ms)


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = Store(url, patience=5)
    try:
        store.upgrade()
        yield store
    finally:
        store.close()


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/baton.db"
