"""Only executions are looked for by their status."""

from alembic import context

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0015_executions_by_status.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0015_executions_by_status.down.sql")
