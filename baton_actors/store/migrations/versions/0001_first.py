"""All tables, as they first were."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "batons",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text()),
        sa.Column("depth", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("context", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("tools", sa.Text()),
        sa.Column("prompt", sa.Text()),
        sa.Column("max_rounds", sa.Integer(), nullable=False, server_default=sa.text("6")),
        sa.Column("timeout_hint", sa.Double(), nullable=False, server_default=sa.text("25")),
        sa.Column("status", sa.Text(), nullable=False, server_default=sa.text("'pending'")),
        sa.Column("result", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("channel", sa.Text()),
        sa.Column("notify", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("root_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("worker", sa.Text(), nullable=False, server_default=sa.text("'agent'")),
        sa.Column("model", sa.Text()),
        sa.Column("result_type", sa.Text()),
        sa.Column("resources", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("breakdown_policy", sa.Text(), nullable=False, server_default=sa.text("'auto'")),
        sa.Column("on_child_failure", sa.Text(), nullable=False, server_default=sa.text("'resume'")),
        sa.Column("max_retries", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("retry_on", sa.Text(), nullable=False, server_default=sa.text("'[]'")),
        sa.Column("partial", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("error_kind", sa.Text()),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("losses", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("generation", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("rounds", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("usage", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("held", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("not_before", sa.BigInteger()),
        sa.Column("deadline", sa.BigInteger()),
        sa.Column("breakdowns", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("since", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("retries", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("alone", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("state", sa.Text()),
        sa.Column("parked", sa.Text()),
        sa.Column("reborn_at", sa.BigInteger()),
        sa.Column("reserved", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.PrimaryKeyConstraint("id"),
        sa.ForeignKeyConstraint(["parent_id"], ["batons.id"], name="fk_batons_parent"),
    )
    op.create_index("idx_batons_parent", "batons", ["parent_id"])
    op.create_index("idx_batons_root", "batons", ["root_id"])
    op.create_index("idx_batons_status", "batons", ["status"])
    op.create_table(
        "trees",
        sa.Column("root_id", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("owner_pid", sa.Integer()),
        sa.Column("epoch", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("seq", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("status", sa.Text(), nullable=False, server_default=sa.text("'open'")),
        sa.Column("wake_at", sa.BigInteger()),
        sa.Column("budget", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("code", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("answered", sa.Text(), nullable=False, server_default=sa.text("'[]'")),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("root_id"),
        sa.UniqueConstraint("idempotency_key", name="uq_trees_idempotency_key"),
    )
    op.create_index("idx_trees_created", "trees", ["created_at"])
    op.create_index("idx_trees_owner", "trees", ["owner"])
    op.create_index("idx_trees_status", "trees", ["status", "cluster_id", "wake_at"])
    op.create_table(
        "events",
        sa.Column("root_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("baton_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text()),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.PrimaryKeyConstraint("root_id", "seq", name="pk_events"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "messages",
        sa.Column("root_id", sa.Text(), nullable=False),
        sa.Column("baton_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("baton_id", "seq", name="pk_messages"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("root_id", sa.Text(), nullable=False),
        sa.Column("baton_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False, server_default=sa.text("'pending'")),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("idx_outbox_due", "outbox", ["status", "due_at"])
    op.create_table(
        "capabilities",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("schema", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("code", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "code",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("bytes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
