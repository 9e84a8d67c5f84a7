"""Projections, checkpoints, snapshots, result references, archives and retention."""

from alembic import context

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0003_projections.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0003_projections.down.sql")
