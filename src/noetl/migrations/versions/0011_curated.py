"""Curated views: what operators may read of all tenants, and the role that reads it."""

from alembic import context

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0011_curated.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0011_curated.down.sql")
