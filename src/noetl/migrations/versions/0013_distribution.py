"""Streams, shards held by roles of their own, and a durability boundary that can be moved."""

from alembic import context

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0013_distribution.up.sql")
    context.config.attributes["run_sql"]("0013_write_path.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0013_write_path.down.sql")
    context.config.attributes["run_sql"]("0013_distribution.down.sql")
