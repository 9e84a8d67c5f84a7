"""Losses of the stream are recorded, and told on every node until somebody acknowledges them."""

from alembic import context

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0021_lost_facts.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0021_lost_facts.down.sql")
