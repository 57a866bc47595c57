"""Bringing the schema up to this program's, under a lock, so that any number of processes may start at once."""

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from baton_actors.errors import DatabaseUnusable
from baton_actors.store import migrations
from baton_actors.store.engine import Database

#: The advisory lock of PostgreSQL that migrations are run under: "baton" in ASCII.
_LOCK = 0x6261746F6E
#: Alembic keeps what it works on in module variables, so two databases cannot be migrated at once in one process.
_ALEMBIC = threading.Lock()


def upgrade(database: Database) -> str:
    """Apply the migrations that are missing; nothing is written if there are none.

    Returns:
        The revision that the database now has.

    Raises:
        DatabaseUnusable: its schema is newer than this program, or it holds somebody else's tables.
    """
    if database.read(lambda connection: _is_current(connection, database)):
        return migrations.HEAD
    with database.write("the schema") as connection:
        if not database.sqlite:  # there BEGIN IMMEDIATE is the lock
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        if not _is_current(connection, database):
            _refuse_foreign(connection, database)
            _migrate(connection)
    return migrations.HEAD


def _is_current(connection: Connection, database: Database) -> bool:
    revision = _revision(connection)
    if revision is not None and revision not in migrations.REVISIONS:
        raise DatabaseUnusable(
            database.shown, f"its schema ({revision}) is newer than this program ({migrations.HEAD}); pip install -U baton_actors"
        )
    return revision == migrations.HEAD


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _refuse_foreign(connection: Connection, database: Database) -> None:
    if _revision(connection) is None and inspect(connection).has_table("batons"):
        raise DatabaseUnusable(database.shown, "has a table 'batons' that this program did not make; name another database")
    if not database.sqlite:
        encoding = connection.execute(text("SHOW server_encoding")).scalar()
        if encoding not in ("UTF8", "SQL_ASCII"):
            raise DatabaseUnusable(
                database.shown, f"its encoding {encoding} cannot hold every text; 'createdb {database.url.database} --encoding UTF8'"
            )


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with _ALEMBIC:
        command.upgrade(config, "head")
