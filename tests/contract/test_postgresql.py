"""The store on PostgreSQL, and what only PostgreSQL can do wrong.

Needs a server: BATON_TEST_POSTGRESQL is the URL of a user that may create databases and end others' connections.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import event, make_url

from baton_actors.errors import DatabaseUnusable, Moved
from baton_actors.store import CommitDoubtful, Group, GroupRefused, Store, engine
from baton_actors.testing.store_contract import StoreContract
from baton_actors.testing.store_samples import begun, log

SERVER = os.environ.get("BATON_TEST_POSTGRESQL", "")
pytestmark = pytest.mark.skipif(not SERVER, reason="set BATON_TEST_POSTGRESQL=postgresql://user:password@host/postgres (a superuser's)")
_TABLES = "batons, trees, events, messages, outbox, capabilities, code"


@pytest.fixture(scope="session")
def admin() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(SERVER, autocommit=True) as connection:
        yield connection


@contextmanager
def new_database(admin: psycopg.Connection[Any], options: str = "") -> Iterator[str]:
    """The URL of a fresh database, dropped at the end."""
    name = f"baton_test_{uuid4().hex[:12]}"
    admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {options}")
    try:
        yield make_url(SERVER).set(database=name).render_as_string(hide_password=False)
    finally:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def migrated_url(admin: psycopg.Connection[Any]) -> Iterator[str]:
    with new_database(admin) as url, closing(Store(url)) as store:
        store.upgrade()
        store.close()
        yield url


@pytest.fixture
def empty_url(admin: psycopg.Connection[Any]) -> Iterator[str]:
    with new_database(admin) as url:
        yield url


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    with psycopg.connect(migrated_url) as connection:
        connection.execute(f"TRUNCATE {_TABLES}")
    with closing(Store(migrated_url)) as opened:
        yield opened


class TestPostgresql(StoreContract):
    pass


def sessions(admin: psycopg.Connection[Any], store: Store, where: str = "true") -> list[int]:
    """Process ids of a store's connections."""
    name = make_url(store.url).database
    found = admin.execute(f"SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'baton_actors' AND {where}", [name])
    return [pid for (pid,) in found]


def end_sessions(admin: psycopg.Connection[Any], store: Store, where: str = "true") -> int:
    """End a store's connections as a restart of the server would; how many."""
    pids = sessions(admin, store, where)
    for pid in pids:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    return len(pids)


def test_a_connection_that_breaks_before_the_commit_leaves_nothing(store: Store, admin: psycopg.Connection[Any]) -> None:
    root = begun(store)
    group = Group(events=log(root.id, 2, 3))
    with psycopg.connect(store.url) as rival, ThreadPoolExecutor(1) as threads:
        rival.execute("LOCK TABLE events IN EXCLUSIVE MODE")
        writing = threads.submit(store.commit, root.id, 1, group)
        while not end_sessions(admin, store, "wait_event_type = 'Lock'"):
            pass
        with pytest.raises(CommitDoubtful, match=root.id):
            writing.result()
    assert store.tree(root.id).seq == 1
    store.commit(root.id, 1, group)
    assert store.tree(root.id).seq == 3


def test_a_commit_whose_answer_is_lost_is_doubtful_and_not_repeated(store: Store) -> None:
    root = begun(store)
    engine_ = store._database._engine

    def lose_the_answer(connection: Any) -> None:
        raw = connection.connection.driver_connection
        raw.commit()
        raw.close()

    event.listen(engine_, "commit", lose_the_answer)
    with pytest.raises(CommitDoubtful):
        store.commit(root.id, 1, Group(events=log(root.id, 2, 2)))
    event.remove(engine_, "commit", lose_the_answer)
    assert [each.seq for each in store.events(root.id, 0, 10)] == [1, 2]


def test_a_read_is_repeated_when_its_connection_breaks(store: Store, admin: psycopg.Connection[Any]) -> None:
    root = begun(store)
    for _ in range(3):
        assert end_sessions(admin, store) > 0
        assert store.tree(root.id).seq == 1


def test_idle_connections_are_closed_and_opened_again_when_needed(
    store: Store, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 0.05)
    root = begun(store)
    assert sessions(admin, store)
    while sessions(admin, store):
        pass
    assert store.tree(root.id).seq == 1


def test_40_owners_live_with_few_connections(store: Store, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 0.05)
    admin.execute(f"ALTER DATABASE {make_url(store.url).database} CONNECTION LIMIT 5")
    admin.execute("DROP ROLE IF EXISTS baton_test_plain")
    admin.execute("CREATE ROLE baton_test_plain LOGIN PASSWORD 'plain'")
    roots = [begun(store) for _ in range(40)]
    plain = make_url(store.url).set(username="baton_test_plain", password="plain").render_as_string(hide_password=False)
    try:
        with psycopg.connect(store.url) as connection:
            connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO baton_test_plain")

        def own(root: Any) -> int:
            with closing(Store(plain)) as mine:
                for seq in range(2, 5):
                    mine.commit(root.id, 1, Group(events=log(root.id, seq, seq)))
                return mine.tree(root.id).seq

        with ThreadPoolExecutor(40) as threads:
            assert list(threads.map(own, roots)) == [4] * 40
        hasty = Store(plain, patience=0.05)
        with ExitStack() as rivals:
            for _ in range(5):
                rivals.enter_context(psycopg.connect(plain))
            with pytest.raises(DatabaseUnusable, match=r"no free connection.*tried for 0\.05 s"):
                hasty.tree(roots[0].id)
    finally:
        admin.execute(f"ALTER DATABASE {make_url(store.url).database} CONNECTION LIMIT -1")
        with psycopg.connect(store.url) as connection:
            connection.execute("DROP OWNED BY baton_test_plain")
        admin.execute("DROP ROLE baton_test_plain")


def test_a_text_with_a_nul_is_refused(store: Store) -> None:
    root = begun(store)
    group = Group()
    group.add_row(root.id, False, {"error": "a NUL: \x00"})
    with pytest.raises(GroupRefused, match=root.id):
        store.commit(root.id, 1, group)
    store.commit(root.id, 1, Group(events=log(root.id, 2, 2)))


def test_20_places_are_shared_by_40_owners_that_are_never_idle(
    store: Store, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q4: none of them pauses for as long as an idle connection is kept; each must get a place again and again."""
    monkeypatch.setattr(engine, "HELD_SECONDS", 0.2)
    monkeypatch.setattr(engine, "POSTGRESQL_RETRY_LIMIT_SECONDS", 0.3)
    roots = [begun(store) for _ in range(40)]
    with role_with_limit(admin, store, 20) as url:
        role = make_url(url).username
        enough, peak = threading.Barrier(41), 0
        done = threading.Event()

        def own(root: Any) -> int:
            with closing(Store(url)) as mine:
                seq = 1
                while not done.is_set():
                    seq += 1
                    mine.commit(root.id, 1, Group(events=log(root.id, seq, seq)))
                    if seq == 6:
                        reached.release()
                enough.wait()
                return seq

        reached = threading.Semaphore(0)
        with ThreadPoolExecutor(40) as threads:
            owning = [threads.submit(own, root) for root in roots]
            for _ in roots:  # all have written five times, although the first were never idle
                while not reached.acquire(timeout=0.1):
                    (now,) = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", [role]).fetchone() or (0,)
                    peak = max(peak, now)
            done.set()
            enough.wait()
            assert all(each.result() >= 6 for each in owning)
    assert 10 < peak <= 20
    print(f"40 owners, {peak} connections at the most")


def test_a_writer_that_is_stopped_in_a_transaction_blocks_others_no_longer_than_the_limit(store: Store) -> None:
    root = begun(store)
    limits = "?options=-c%20lock_timeout%3D150%20-c%20idle_in_transaction_session_timeout%3D400"
    spawn = multiprocessing.get_context("spawn")
    heard, told = spawn.Pipe(duplex=False)
    writer = spawn.Process(target=stop_in_a_transaction, args=(store.url + limits, root.id, told))
    writer.start()
    assert heard.recv() == "writing"
    try:
        doubts: list[str] = []
        with closing(Store(store.url + limits)) as other:
            while True:
                try:
                    epoch = other.lend(root.id, "another", "c1", "owner-1", 1)
                    break
                except CommitDoubtful as doubt:
                    doubts.append(doubt.why)
        assert epoch == 2
        assert 1 <= len(doubts) <= 4
        assert all("lock timeout" in doubt for doubt in doubts)
        store.commit(root.id, 2, Group(events=log(root.id, 2, 2)))
        os.kill(writer.pid or 0, signal.SIGCONT)
        assert heard.recv() == "doubtful"
        assert heard.recv() == "moved"
    finally:
        writer.kill()
        writer.join()
    assert store.tree(root.id).seq == 2


def stop_in_a_transaction(url: str, root_id: str, told: Any) -> None:
    """In a process of its own: it is stopped between its update and its commit, and goes on when it is continued."""
    store = Store(url)
    stopped = []

    def stop(_: Any) -> None:
        if not stopped:
            stopped.append(True)
            told.send("writing")
            os.kill(os.getpid(), signal.SIGSTOP)

    event.listen(store._database._engine, "commit", stop)
    for _ in range(2):
        try:
            store.commit(root_id, 1, Group(events=log(root_id, 2, 2)))
        except CommitDoubtful:
            told.send("doubtful")
        except Moved:
            told.send("moved")


@contextmanager
def role_with_limit(admin: psycopg.Connection[Any], store: Store, limit: int) -> Iterator[str]:
    """The URL of the store's database for a user of its own who may have so many connections."""
    role = f"baton_test_{uuid4().hex[:12]}"
    admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'plain' CONNECTION LIMIT {limit}")
    try:
        with psycopg.connect(store.url) as connection:
            connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        yield make_url(store.url).set(username=role, password="plain").render_as_string(hide_password=False)
    finally:
        with psycopg.connect(store.url) as connection:
            connection.execute(f"DROP OWNED BY {role}")
        admin.execute(f"DROP ROLE {role}")


def test_a_stopped_writer_is_cut_off_by_the_server(store: Store) -> None:
    def limits(connection: Any) -> list[str]:
        return [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in ("lock_timeout", "idle_in_transaction_session_timeout")]

    assert store._database.read(limits) == ["10s", "15s"]


def test_options_of_the_url_are_kept(store: Store) -> None:
    url = make_url(store.url).update_query_dict({"options": "-c work_mem=5MB"}).render_as_string(hide_password=False)
    with closing(Store(url)) as mine:
        assert mine._database.read(lambda connection: connection.exec_driver_sql("SHOW work_mem").scalar()) == "5MB"
        assert mine._database.read(lambda connection: connection.exec_driver_sql("SHOW lock_timeout").scalar()) == "10s"


def refusal(url: Any, patience: float = 0.0) -> str:
    """The line that a store of this URL ends with."""
    with closing(Store(url.render_as_string(hide_password=False), patience=patience)) as store, pytest.raises(DatabaseUnusable) as refused:
        store.upgrade()
    line = str(refused.value)
    assert "\n" not in line
    assert "s3cret" not in line
    assert str(make_url(SERVER).password) not in line
    return line


def test_each_way_of_not_getting_in_is_told_with_its_remedy(admin: psycopg.Connection[Any]) -> None:
    server = make_url(SERVER)
    assert "nothing answers at 127.0.0.1:1; start PostgreSQL there" in refusal(server.set(host="127.0.0.1", port=1))
    assert "no host is called 'no-such-host.invalid'" in refusal(server.set(host="no-such-host.invalid"))
    assert "wrong or no password for user" in refusal(server.set(password="s3cret"))
    assert "has no database 'missing'; 'createdb missing" in refusal(server.set(database="missing"))


def test_a_user_who_may_not_create_tables_is_told_so(admin: psycopg.Connection[Any], empty_url: str) -> None:
    admin.execute("DROP ROLE IF EXISTS baton_test_guest")
    admin.execute("CREATE ROLE baton_test_guest LOGIN PASSWORD 's3cret'")
    try:
        assert "may not do this; make it the owner" in refusal(make_url(empty_url).set(username="baton_test_guest", password="s3cret"))
    finally:
        admin.execute("DROP ROLE baton_test_guest")


def test_a_database_whose_encoding_cannot_hold_every_text_is_refused(admin: psycopg.Connection[Any]) -> None:
    name = f"baton_test_{uuid4().hex[:12]}"
    admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        assert f"'createdb {name} --encoding UTF8'" in refusal(make_url(SERVER).set(database=name))
    finally:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_two_owners_of_different_trees_do_not_wait_for_each_other(store: Store) -> None:
    mine, theirs = begun(store), begun(store)
    with psycopg.connect(store.url) as rival:
        rival.execute("UPDATE trees SET seq = seq WHERE root_id = %s", [theirs.id])
        store.commit(mine.id, 1, Group(events=log(mine.id, 2, 2)))
        assert store.adopt("c2") == []
        store.renew("c1")


def test_counting_goes_on_while_two_threads_share_a_store(store: Store) -> None:
    roots = [begun(store) for _ in range(4)]
    seqs = count(2)
    lock = threading.Lock()

    def write(root: Any) -> None:
        for seq in range(2, 12):
            store.commit(root.id, 1, Group(events=log(root.id, seq, seq)))
            with lock:
                next(seqs)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, roots))
    assert next(seqs) == 42
    assert [store.tree(root.id).seq for root in roots] == [11] * 4
