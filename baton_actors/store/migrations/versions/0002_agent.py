"""What the agent needs: how far a baton's conversation goes, and the settings that a tree's agents share."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("batons", sa.Column("spoken", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("trees", sa.Column("agent", sa.Text(), nullable=False, server_default=sa.text("'{}'")))
