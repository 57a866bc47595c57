"""The store on a SQLite file, and what only SQLite can do wrong."""

import multiprocessing
import os
import resource
import signal
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from baton_actors.errors import DatabaseUnusable
from baton_actors.store import Group, Store
from baton_actors.testing.store_contract import StoreContract
from baton_actors.testing.store_samples import begun, log

NOBODY = 65534


@pytest.fixture
def empty_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'new' / 'folder' / 'baton.db'}"


@pytest.fixture
def store(empty_url: str) -> Iterator[Store]:
    with closing(Store(empty_url)) as opened:
        opened.upgrade()
        yield opened


def path_of(store: Store) -> Path:
    return Path(store.url.removeprefix("sqlite:///"))


class TestSqlite(StoreContract):
    pass


def test_the_file_is_in_wal_mode_and_every_commit_is_synced(store: Store) -> None:
    def pragmas(connection: Any) -> list[Any]:
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous", "foreign_keys")]

    assert store._database.read(pragmas) == ["wal", 2, 1]


def test_a_writer_waits_for_a_lock_longer_than_any_busy_timeout(store: Store) -> None:
    root = begun(store)
    held, attempts = sqlite3.connect(path_of(store), isolation_level=None), threading.Semaphore(0)
    event.listen(store._database._engine, "before_cursor_execute", lambda *_: attempts.release())
    held.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=store.commit, args=(root.id, 1, Group(events=log(root.id, 2, 2))))
    writer.start()
    for _ in range(20):
        attempts.acquire()
    held.execute("COMMIT")
    writer.join()
    assert store.tree(root.id).seq == 2
    held.close()


def test_patience_ends_with_the_line_that_names_a_stopped_process(store: Store) -> None:
    root = begun(store)
    with closing(sqlite3.connect(path_of(store), isolation_level=None)) as held, closing(Store(store.url, patience=0.05)) as hasty:
        hasty.tree(root.id)
        held.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnusable, match=r"locked by another process for 0\.05 s"):
            hasty.commit(root.id, 1, Group())
        assert hasty.tree(root.id).seq == 1
        held.execute("ROLLBACK")
        hasty.commit(root.id, 1, Group())


def test_a_full_disk_is_said_and_leaves_nothing_half_written(store: Store) -> None:
    root = begun(store)
    store.close()

    def no_room(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA max_page_count = 1")

    event.listen(store._database._engine, "connect", no_room)
    with pytest.raises(DatabaseUnusable, match="disk is full"):
        store.commit(root.id, 1, Group(events=log(root.id, 2, 2_000)))
    assert store.tree(root.id).seq == 1


def test_a_file_that_may_not_grow_is_said_and_leaves_nothing_half_written(store: Store) -> None:
    """A quota, as a limit of the process: the system signals it, and then says that the file is too large."""
    root = begun(store)
    store.close()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        said = pool.apply(commit_within, (200_000, store.url, root.id))
    assert "look at the disk, or at its quota" in said
    assert "\n" not in said
    assert store.tree(root.id).seq == 1
    store.commit(root.id, 1, Group(events=log(root.id, 2, 2)))


def commit_within(size: int, url: str, root_id: str) -> str:
    """What a process is told whose files may not be larger."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with closing(Store(url)) as store:
        try:
            store.commit(root_id, 1, Group(events=log(root_id, 2, 5_000)))
        except DatabaseUnusable as error:
            return str(error)
        return "was written"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    with closing(Store(f"sqlite:///{tmp_path / 'notes.txt'}")) as store, pytest.raises(DatabaseUnusable, match="not a SQLite database"):
        store.upgrade()


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with closing(Store(f"sqlite:///{tmp_path}")) as store, pytest.raises(DatabaseUnusable, match="cannot be opened"):
        store.upgrade()


def test_a_read_only_file_is_read_and_never_written(tmp_path: Path, store: Store) -> None:
    root = begun(store)
    store.close()
    path = path_of(store)
    path.chmod(0o444)
    path.parent.chmod(0o777)  # WAL needs its index file beside it, even to read
    before = path.read_bytes()
    assert as_nobody(read_and_commit, path, root.id) == [1, "is read-only; give yourself write permission"]
    assert path.read_bytes() == before


def test_a_read_only_folder_is_refused_with_what_to_do(store: Store) -> None:
    store.close()
    path_of(store).parent.chmod(0o555)
    assert as_nobody(open_new, path_of(store), "") == "is read-only; give yourself write permission on the fil"


def test_a_folder_that_may_not_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    assert as_nobody(open_new, tmp_path / "baton.db", "") == "cannot be opened; its folder must exist and be writable"
    assert as_nobody(open_new, tmp_path / "sub" / "baton.db", "") == "cannot be opened; its folder must exist and be writable"


# ---------------------------------------------------------------- without permission: root has all, so it steps down


def as_nobody(work: Any, path: Path, id: str) -> Any:
    """What `work` returns in a process that may not write what it does not own."""
    for folder in path.parents:
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o055)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_stepped_down, (work, f"sqlite:///{path}", id))


def _stepped_down(work: Any, url: str, id: str) -> Any:
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return work(url, id)


def read_and_commit(url: str, root_id: str) -> list[Any]:
    with closing(Store(url)) as store:
        store.upgrade()
        seq = store.snapshot(root_id).seq
        try:
            store.commit(root_id, 1, Group(events=log(root_id, 2, 2)))
        except DatabaseUnusable as error:
            return [seq, error.why[:44]]
        return [seq, "was written"]


def open_new(url: str, _: str) -> str:
    with closing(Store(url)) as store:
        try:
            return store.upgrade()
        except DatabaseUnusable as error:
            return error.why[:55]
