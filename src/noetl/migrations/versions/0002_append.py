"""The one function that appends, and the tombstones it heeds."""

from alembic import context

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0002_append.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0002_append.down.sql")
