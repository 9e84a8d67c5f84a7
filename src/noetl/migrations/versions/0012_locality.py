"""Commands say which node holds their inputs."""

from alembic import context

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0012_locality.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0012_locality.down.sql")
