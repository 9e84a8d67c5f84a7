"""Credentials, keychain entries and API tokens."""

from alembic import context

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0005_credentials.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0005_credentials.down.sql")
