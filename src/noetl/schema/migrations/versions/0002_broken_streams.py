"""Streams whose fields cannot be read stand still by themselves, and their shard goes on."""

from alembic import context

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0002_broken_streams")


def downgrade() -> None:
    context.config.attributes["run"].down("0002_broken_streams")
