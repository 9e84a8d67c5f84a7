"""The ledger: shards, streams, idempotency keys, events, roles and policies."""

from alembic import context

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0001_ledger.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0001_ledger.down.sql")
