"""Rows of projections are counted by shard, and looked up by execution, in one index."""

from alembic import context

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0018_rows_of_shards.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0018_rows_of_shards.down.sql")
