"""Around pipelines: schedules, invalidations, backfills, lineage, queries, alerts and pins."""

from alembic import context

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_ROWS = ("schedules", "changes", "lineage", "queries", "alerts", "pins")


def upgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0009_around.up.sql")
    for name in _ROWS:
        run_sql(f"0009_{name}.up.sql")


def downgrade() -> None:
    run_sql = context.config.attributes["run_sql"]
    run_sql("0009_around.down.sql")
    for name in reversed(_ROWS):
        run_sql(f"0009_{name}.down.sql")
