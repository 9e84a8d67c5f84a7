"""Streaming views: versions, rows and barriers."""

from alembic import context

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0010_views.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0010_views.down.sql")
