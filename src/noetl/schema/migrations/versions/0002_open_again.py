"""An organization that has had a token asks for one until it is opened again."""

from alembic import context

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0002_open_again")


def downgrade() -> None:
    context.config.attributes["run"].down("0002_open_again")
