"""Open work: executions, commands, stages and frames with their leases; the catalog; appends that change them."""

from alembic import context

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0004_work.up.sql")


def downgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0004_work.down.sql")
    run_sql("0002_append.up.sql", "CREATE FUNCTION noetl.append_v1(")
