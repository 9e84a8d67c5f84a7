"""Result references are kept and looked up by their execution."""

from alembic import context

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0020_references_of_executions.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0020_references_of_executions.down.sql")
