"""The baseline: every object of the schema, made from its file."""

from alembic import context

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run"].baseline("0001_baseline")


def downgrade() -> None:
    # Roles stay: they belong to the whole server and may serve other databases of it.
    context.config.attributes["run"].down("0001_baseline", "DROP SCHEMA noetl CASCADE")
