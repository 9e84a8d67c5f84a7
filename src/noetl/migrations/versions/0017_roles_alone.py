"""A projector that has the rights of its role alone sees one organization where it reads for one."""

from alembic import context

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    context.config.attributes["run_sql"]("0017_roles_alone.up.sql")


def downgrade() -> None:
    context.config.attributes["run_sql"]("0017_roles_alone.down.sql")
