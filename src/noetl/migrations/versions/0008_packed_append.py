"""Appends arrive packed, and one append alone takes a short way."""

from alembic import context

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0008_packed_append.up.sql")


def downgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0008_packed_append.down.sql")
    run_sql("0004_work.up.sql", "-- The only way into the ledger.", "DROP FUNCTION noetl.append_v1;")
