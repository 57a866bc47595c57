"""Alembic's entry: the migrations run on the connection, and in the transaction, that the store hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
