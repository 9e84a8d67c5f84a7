"""Executions know until when they may go on, and are listed without meeting the streams of their commands."""

from alembic import context

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0003_bounded_executions")


def downgrade() -> None:
    context.config.attributes["run"].down("0003_bounded_executions")
