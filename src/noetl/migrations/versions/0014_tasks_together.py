"""Tasks that are claimed or completed together change by one statement."""

from alembic import context

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0014_tasks_together.up.sql")


def downgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0014_tasks_together.down.sql", stop="-- Looks at waiting events too")
    run_sql(
        "0007_pipelines.up.sql",
        start="CREATE FUNCTION noetl.apply_pipelines_v1",
        stop="CREATE FUNCTION noetl.lock_jobs_v1",
    )
    run_sql("0014_tasks_together.down.sql", start="-- Looks at waiting events too")
