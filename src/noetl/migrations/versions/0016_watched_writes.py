"""Changes of the write path are held by lease, and what was written of the stream is known by its messages."""

from alembic import context

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0016_change_lease.up.sql")
    run_sql("0016_materialized_ids.up.sql")


def downgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0016_materialized_ids.down.sql")
    run_sql("0013_write_path.up.sql", start="-- Writes what came from the stream")
    run_sql("0016_change_lease.down.sql", stop="-- Who may call")
    run_sql(
        "0013_write_path.up.sql",
        start="-- Changes the way of all events.",
        stop="CREATE FUNCTION noetl.waiting_v1",
    )
    run_sql("0016_change_lease.down.sql", start="-- Who may call")
