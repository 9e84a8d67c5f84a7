"""Commands are handed back without a failed attempt, and say when they wait for a part of the platform."""

from alembic import context

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0005_returned_commands")


def downgrade() -> None:
    context.config.attributes["run"].down("0005_returned_commands")
