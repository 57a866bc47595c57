"""Many rows at once, straight to the driver: Core costs several times what the database does for a row.

SQLite takes a prepared statement and tuples; PostgreSQL takes whole columns as arrays, one statement for all rows,
in the binary form (`%b`), which costs half of the textual one.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql

_POSTGRESQL = postgresql.dialect()

Rows = Sequence[tuple[Any, ...]]


def insert(connection: Connection, table: Table, columns: tuple[str, ...], rows: Rows) -> None:
    """Insert rows whose values stand in the order of `columns`."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_sqlite_insert(table, columns), list(rows))
    else:
        connection.exec_driver_sql(_postgresql_insert(table, columns), _arrays(rows))


def update(connection: Connection, table: Table, columns: tuple[str, ...], rows: Rows) -> None:
    """Set `columns` of the rows with these ids; each row holds the columns' values and, last, the id."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_sqlite_update(table, columns), list(rows))
    else:
        connection.exec_driver_sql(_postgresql_update(table, columns), _arrays(rows))


def _arrays(rows: Rows) -> tuple[list[Any], ...]:
    return tuple(list(column) for column in zip(*rows, strict=True))


@lru_cache(256)
def _sqlite_insert(table: Table, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


@lru_cache(256)
def _sqlite_update(table: Table, columns: tuple[str, ...]) -> str:
    return f"UPDATE {table.name} SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?"


@lru_cache(256)
def _postgresql_insert(table: Table, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT * FROM unnest({_types(table, columns)})"


@lru_cache(256)
def _postgresql_update(table: Table, columns: tuple[str, ...]) -> str:
    sets = ", ".join(f"{name} = given.{name}" for name in columns)
    names = ", ".join((*columns, "id"))
    given = f"unnest({_types(table, (*columns, 'id'))}) AS given ({names})"
    return f"UPDATE {table.name} SET {sets} FROM {given} WHERE {table.name}.id = given.id"


def _types(table: Table, columns: tuple[str, ...]) -> str:
    return ", ".join(f"%b::{table.c[name].type.compile(_POSTGRESQL)}[]" for name in columns)
