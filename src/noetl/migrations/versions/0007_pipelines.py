"""Data pipelines: DAG versions, jobs, datasets, partitions, tasks, cursors and the outbox; appends that change them."""

from alembic import context

revision = "0007"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0007_pipelines.up.sql")


def downgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0007_pipelines.down.sql")
    run_sql("0004_work.up.sql", "CREATE FUNCTION noetl.broken_fences_v1(", "-- The only way into the ledger.")
