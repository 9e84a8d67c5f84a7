"""Alembic's entry: runs the revisions on the connection handed over by `noetl.runtime.postgres.migrations`."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="schema_revision", version_table_schema="public")
with context.begin_transaction():
    context.run_migrations()
