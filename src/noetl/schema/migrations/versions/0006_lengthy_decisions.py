"""Lengthy decisions are counted before they begin, so that none is tried for ever."""

from alembic import context

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0006_lengthy_decisions")


def downgrade() -> None:
    context.config.attributes["run"].down("0006_lengthy_decisions")
