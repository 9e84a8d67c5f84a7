"""Streams whose fields cannot be read stand still by themselves, and their shard goes on."""

from alembic import context

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0004_broken_streams")


def downgrade() -> None:
    context.config.attributes["run"].down("0004_broken_streams")
