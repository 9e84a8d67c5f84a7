"""Result references are read from the events that carry them instead of being written a second time."""

from alembic import context

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0022_references_are_a_view.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0022_references_are_a_view.down.sql")
