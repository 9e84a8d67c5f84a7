"""Events are bound to each other by links, so that a change of any of them is found."""

from alembic import context

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].up("0007_ledger_links")


def downgrade() -> None:
    context.config.attributes["run"].down("0007_ledger_links")
