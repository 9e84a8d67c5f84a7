"""The shadow notes where it began and how much it compared since."""

from alembic import context

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0019_shadow_reach.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0019_shadow_reach.down.sql")
