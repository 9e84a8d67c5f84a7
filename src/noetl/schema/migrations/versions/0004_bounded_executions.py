"""Executions know until when they may go on, and are listed without meeting the streams of their commands."""

from alembic import context

revision = "0004"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0004_bounded_executions")


def downgrade() -> None:
    context.config.attributes["run"].down("0004_bounded_executions")
