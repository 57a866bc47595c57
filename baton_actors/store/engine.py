"""The way to the database: opening it, one transaction at a time, waiting for it where that helps.

A read is repeated when its connection breaks; a write never is, once anything was sent after its BEGIN.
"""

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from baton_actors.errors import DatabaseUnusable
from baton_actors.store.faults import UNSENDABLE, opening_fault, passes, patience_fault, shown_url, writing_fault

#: SQLite's own wait begins with short sleeps and ends with long ones, so whoever waited longest comes last. Cut it
#: where its sleeps are still short and begin again: then all who wait have the same chance.
SQLITE_BUSY_SECONDS = 0.025
RETRY_SECONDS = 0.01
SQLITE_RETRY_LIMIT_SECONDS = 0.02
POSTGRESQL_RETRY_LIMIT_SECONDS = 1.0
#: An idle PostgreSQL connection is closed after this, so that 40 owners live with `max_connections=20`.
IDLE_SECONDS = 2.0
#: One that is never idle gives up its place after this, and asks for another after that: else 20 busy owners would keep all
#: places, and 20 more would never get one.
HELD_SECONDS = 1.0
GAP_SECONDS = 0.05
POOL_SIZE = 2
_SQLITE_READ, _SQLITE_WRITE = "BEGIN", "BEGIN IMMEDIATE"
_POSTGRESQL_READ = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_POSTGRESQL_OPTIONS = "-c lock_timeout=10000 -c idle_in_transaction_session_timeout=15000"
_POSTGRESQL_CONNECT = {
    "connect_timeout": 5,
    "client_encoding": "utf8",
    "application_name": "baton_actors",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


T = TypeVar("T")


class Database:
    """One engine and its transactions.

    Attributes:
        url: as SQLAlchemy takes it, password included; shown: without. patience: seconds to wait for it; None for ever.
        statements, commits: how many were sent through this object.
    """

    def __init__(self, url: str, patience: float | None) -> None:
        self.url = parsed(url)
        self.patience = patience
        self.statements = 0
        self.commits = 0
        self.shown = shown_url(self.url)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self._idle = None if self.sqlite else _IdleTimer(self._close_idle)
        self._not_before = 0.0
        try:
            self._engine = _sqlite_engine(self.url) if self.sqlite else _postgresql_engine(self.url)
        except ModuleNotFoundError as error:
            raise opening_fault(self.url, error) from None
        event.listen(self._engine, "begin", _begin)
        event.listen(self._engine, "before_cursor_execute", self._count_statement)
        event.listen(self._engine, "commit", self._count_commit)
        self._reader = self._engine.execution_options(begin=_SQLITE_READ if self.sqlite else _POSTGRESQL_READ)
        self._writer = self._engine.execution_options(begin=_SQLITE_WRITE if self.sqlite else None)

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, run in one consistent read transaction; repeated when the connection breaks."""
        waiting = _Waiting(self)
        while True:
            try:
                return self._read_once(work, waiting)
            except DBAPIError as error:
                if not passes(error):
                    raise opening_fault(self.url, error) from error
                waiting.pause(error)

    @contextmanager
    def write(self, what: str) -> Iterator[Connection]:
        """One write transaction, committed at the end of the block and rolled back by any exception.

        Raises:
            CommitDoubtful: it failed, or may have; `what` names it. DatabaseUnusable: it failed, and will again.
            GroupRefused: it failed because of the values.
        """
        connection = self._begun(self._writer, _Waiting(self))
        try:
            yield connection
            connection.commit()
        except (DBAPIError, *UNSENDABLE) as error:
            raise writing_fault(self.url, what, error) from error
        finally:
            self._given_back(connection)

    def close(self) -> None:
        """Close all connections; the object can be used again."""
        if self._idle is not None:
            self._idle.cancel()
        self._engine.dispose()

    def _read_once(self, work: Callable[[Connection], T], waiting: "_Waiting") -> T:
        connection = self._begun(self._reader, waiting)
        try:
            return work(connection)
        finally:
            self._given_back(connection)

    def _begun(self, engine: Engine, waiting: "_Waiting") -> Connection:
        """A connection in a transaction in which nothing has been sent yet, so the attempt can be repeated."""
        if self._idle is not None:
            self._idle.busy()
        try:
            while True:
                try:
                    return self._connected(engine)
                except DBAPIError as error:
                    if not passes(error):
                        raise opening_fault(self.url, error) from error
                    waiting.pause(error)
                except OSError as error:
                    raise opening_fault(self.url, error) from error
        except BaseException:
            self._free()
            raise

    def _connected(self, engine: Engine) -> Connection:
        if (gap := self._not_before - time.monotonic()) > 0:
            time.sleep(gap)
        connection = engine.connect()
        try:
            connection.begin()
        except BaseException:
            connection.close()
            raise
        return connection

    def _given_back(self, connection: Connection) -> None:
        with suppress(SQLAlchemyError):  # a rollback on a connection that is gone
            if time.monotonic() > connection.info.get("place_until", math.inf):
                connection.detach()  # so it is closed for good
                self._not_before = time.monotonic() + GAP_SECONDS
            connection.close()
        self._free()

    def _free(self) -> None:
        if self._idle is not None:
            self._idle.free()

    def _close_idle(self) -> None:
        self._engine.dispose()

    def _count_statement(self, _connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        self.statements += statement not in (_SQLITE_READ, _SQLITE_WRITE, _POSTGRESQL_READ)

    def _count_commit(self, _: Connection) -> None:
        self.commits += 1


class _Waiting:
    """Growing pauses with full jitter while patience lasts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._limit = SQLITE_RETRY_LIMIT_SECONDS if database.sqlite else POSTGRESQL_RETRY_LIMIT_SECONDS
        self._next = RETRY_SECONDS
        self._end = None if database.patience is None else time.monotonic() + database.patience

    def pause(self, error: DBAPIError) -> None:
        """Sleep before the next attempt.

        Raises:
            DatabaseUnusable: patience is at its end.
        """
        if self._end is not None and time.monotonic() >= self._end:
            raise patience_fault(self._database.url, error, self._database.patience or 0) from error
        time.sleep(random.uniform(0, self._next))
        self._next = min(2 * self._next, self._limit)


class _IdleTimer:
    """Calls back once nothing has been in use for `IDLE_SECONDS`; it sleeps for as long as nothing is used at all."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._lock = threading.Lock()
        self._in_use = 0
        self._free_since = 0.0
        self._timer: threading.Timer | None = None

    def busy(self) -> None:
        with self._lock:
            self._in_use += 1

    def free(self) -> None:
        with self._lock:
            self._in_use -= 1
            self._free_since = time.monotonic()
            if self._timer is None:
                self._start(IDLE_SECONDS)

    def cancel(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _start(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def _fire(self) -> None:
        with self._lock:
            self._timer = None
            if self._in_use:
                return  # whoever frees it starts the timer again
            left = self._free_since + IDLE_SECONDS - time.monotonic()
            if left > 0:
                self._start(left)
                return
            self._then()


def parsed(url: str) -> URL:
    """The URL in SQLAlchemy's form, with the driver we use.

    Raises:
        DatabaseUnusable: it is no URL, or names a database we do not know.
    """
    form = "write sqlite:////path/file.db or postgresql://user@host/name"
    try:
        made = make_url(url)
    except (ArgumentError, ValueError):
        raise DatabaseUnusable("the database URL", f"cannot be understood; {form}") from None
    backend = made.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return made.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise DatabaseUnusable(shown_url(made), f"only SQLite and PostgreSQL can be used; {form}")
    if made.database in (None, "", ":memory:") or "mode=memory" in str(made):
        raise DatabaseUnusable(shown_url(made), f"one process alone would see it; name a file: {form}")
    return made.set(drivername="sqlite+pysqlite")


def _begin(connection: Connection) -> None:
    """The first statement of a transaction; PostgreSQL's driver sends a BEGIN of its own before it."""
    if (statement := connection.get_execution_options()["begin"]) is not None:
        connection.exec_driver_sql(statement)


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(
        url,
        connect_args={"timeout": SQLITE_BUSY_SECONDS, "check_same_thread": False},
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=86_400,
    )

    @event.listens_for(engine, "do_connect")
    def make_folder(*_: Any) -> None:
        path = url.database or ""
        if not path.startswith("file:"):
            Path(path).expanduser().parent.mkdir(parents=True, exist_ok=True)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            _use_wal(url, connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine


def _use_wal(url: URL, connection: Any) -> None:
    import sqlite3

    try:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith("SQLITE_READONLY"):
            return  # reading goes on without it, writing will say so
        raise
    if mode != "wal":
        raise DatabaseUnusable(shown_url(url), "its file system does not support WAL (a network folder?); put the file on a local disk")


def _postgresql_engine(url: URL) -> Engine:
    query = dict(url.query)
    given = query.get("options", "")
    options = f"{_POSTGRESQL_OPTIONS} {given if isinstance(given, str) else ' '.join(given)}".strip()
    connect = {name: value for name, value in _POSTGRESQL_CONNECT.items() if name not in query}
    engine = create_engine(
        url.difference_update_query(["options"]),
        connect_args={**connect, "options": options},
        use_native_hstore=False,  # else each new connection asks whether there is such a type
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=86_400,
    )

    @event.listens_for(engine, "connect")
    def take_place(_: Any, record: Any) -> None:
        record.info["place_until"] = time.monotonic() + HELD_SECONDS

    return engine
