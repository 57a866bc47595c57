"""The tables, as both databases have them.

JSON is TEXT on both, so that one rule decides what can be stored. Times are milliseconds since 1970. A change here
needs a migration; a test compares the two.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

metadata = MetaData()

_EMPTY_OBJECT = text("'{}'")
_EMPTY_LIST = text("'[]'")
_ZERO = text("0")


def _needed(name: str, type_: TypeEngine[Any], default: ColumnElement[Any] | TextClause | None = None) -> Column[Any]:
    return Column(name, type_, nullable=False, server_default=default)


batons = Table(
    "batons",
    metadata,
    Column("id", Text, primary_key=True),
    Column("parent_id", Text, ForeignKey("batons.id", name="fk_batons_parent")),
    _needed("depth", Integer(), _ZERO),
    _needed("goal", Text()),
    _needed("context", Text(), _EMPTY_OBJECT),
    Column("tools", Text),
    Column("prompt", Text),
    _needed("max_rounds", Integer(), text("6")),
    _needed("timeout_hint", Double(), text("25")),
    _needed("status", Text(), text("'pending'")),
    Column("result", Text),
    Column("error", Text),
    Column("channel", Text),
    _needed("notify", Integer(), _ZERO),
    _needed("created_at", BigInteger()),
    _needed("updated_at", BigInteger()),
    # Beside the columns above, which are public:
    _needed("root_id", Text()),
    _needed("position", Integer(), _ZERO),
    _needed("worker", Text(), text("'agent'")),
    Column("model", Text),
    Column("result_type", Text),
    _needed("resources", Text(), _EMPTY_OBJECT),
    _needed("breakdown_policy", Text(), text("'auto'")),
    _needed("on_child_failure", Text(), text("'resume'")),
    _needed("max_retries", Integer(), _ZERO),
    _needed("retry_on", Text(), _EMPTY_LIST),
    _needed("partial", Boolean(), false()),
    Column("error_kind", Text),
    _needed("attempt", Integer(), _ZERO),
    _needed("losses", Integer(), _ZERO),
    _needed("generation", Integer(), _ZERO),
    _needed("rounds", Integer(), _ZERO),
    _needed("usage", Text(), _EMPTY_OBJECT),
    _needed("held", Boolean(), false()),
    Column("not_before", BigInteger),
    Column("deadline", BigInteger),
    _needed("breakdowns", Integer(), _ZERO),
    _needed("since", Integer(), _ZERO),
    _needed("retries", Integer(), _ZERO),
    _needed("alone", Boolean(), false()),
    Column("state", Text),
    Column("parked", Text),
    Column("reborn_at", BigInteger),
    _needed("reserved", Text(), _EMPTY_OBJECT),
    _needed("spoken", Integer(), _ZERO),
    Index("idx_batons_parent", "parent_id"),
    Index("idx_batons_status", "status"),
    Index("idx_batons_root", "root_id"),
)

trees = Table(
    "trees",
    metadata,
    Column("root_id", Text, primary_key=True),
    _needed("cluster_id", Text()),
    _needed("lease_until", BigInteger()),
    Column("owner", Text),
    Column("owner_pid", Integer),
    _needed("epoch", Integer(), _ZERO),
    _needed("seq", BigInteger(), _ZERO),
    _needed("status", Text(), text("'open'")),
    Column("wake_at", BigInteger),
    _needed("budget", Text(), _EMPTY_OBJECT),
    Column("idempotency_key", Text),
    _needed("code", Text(), _EMPTY_OBJECT),
    _needed("answered", Text(), _EMPTY_LIST),
    _needed("created_at", BigInteger()),
    _needed("agent", Text(), _EMPTY_OBJECT),
    UniqueConstraint("idempotency_key", name="uq_trees_idempotency_key"),
    Index("idx_trees_status", "status", "cluster_id", "wake_at"),
    Index("idx_trees_owner", "owner"),
    Index("idx_trees_created", "created_at"),
)

events = Table(
    "events",
    metadata,
    Column("root_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    _needed("type", Text()),
    _needed("at", BigInteger()),
    _needed("baton_id", Text()),
    Column("parent_id", Text),
    _needed("depth", Integer()),
    _needed("attempt", Integer()),
    _needed("data", Text(), _EMPTY_OBJECT),
    PrimaryKeyConstraint("root_id", "seq", name="pk_events"),
    sqlite_with_rowid=False,
)

messages = Table(
    "messages",
    metadata,
    _needed("root_id", Text()),
    Column("baton_id", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    _needed("body", Text()),
    PrimaryKeyConstraint("baton_id", "seq", name="pk_messages"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _needed("root_id", Text()),
    _needed("baton_id", Text()),
    _needed("channel", Text()),
    _needed("body", Text()),
    _needed("status", Text(), text("'pending'")),
    _needed("attempts", Integer(), _ZERO),
    _needed("due_at", BigInteger()),
    _needed("created_at", BigInteger()),
    Index("idx_outbox_due", "status", "due_at"),
)

capabilities = Table(
    "capabilities",
    metadata,
    Column("name", Text, primary_key=True),
    _needed("description", Text()),
    _needed("schema", Text(), _EMPTY_OBJECT),
    _needed("reference", Text()),
    Column("code", Text),
    _needed("created_at", BigInteger()),
)

code = Table(
    "code",
    metadata,
    Column("hash", Text, primary_key=True),
    _needed("kind", Text()),
    Column("bytes", LargeBinary, nullable=False),
)


class Now(FunctionElement[int]):
    """The database's own time, in milliseconds: leases and wakes of several machines are compared by one clock."""

    type = BigInteger()
    inherit_cache = True


@compiles(Now, "sqlite")
def _now_sqlite(element: Now, compiler: SQLCompiler, **_: object) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(Now, "postgresql")
def _now_postgresql(element: Now, compiler: SQLCompiler, **_: object) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
