"""Takes an owner's database URL, brings the schema to a revision, forward or back, each step in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent.parent / "migrations"
_LOCK = 5_641_093_211  # one migration at a time per database


def head() -> str:
    """Return the newest revision, read from the file names so that asking costs no import of Alembic."""
    return max(path.name.split("_")[0] for path in (_FOLDER / "versions").glob("[0-9]*.py"))


def upgrade(owner_url: str, revision: str = "head") -> list[str]:
    """Apply every revision up to the given one and return those that were applied."""
    from alembic import command

    with _configured(owner_url) as (config, applied):
        command.upgrade(config, revision)
    return applied


def downgrade(owner_url: str, revision: str) -> list[str]:
    """Undo every revision above the given one (`base` for all) and return the scripts that were run."""
    from alembic import command

    with _configured(owner_url) as (config, applied):
        command.downgrade(config, revision)
    return applied


def current(owner_url: str) -> str | None:
    """Return the revision the database is at, or None when it has no schema yet."""
    import psycopg

    with psycopg.connect(owner_url) as connection:
        if connection.execute("SELECT to_regclass('public.schema_revision')").fetchone() == (None,):
            return None
        row = connection.execute("SELECT version_num FROM public.schema_revision").fetchone()
        return None if row is None else str(row[0])


@contextmanager
def _configured(owner_url: str) -> Iterator[tuple[Any, list[str]]]:
    from alembic.config import Config
    from sqlalchemy import create_engine, text
    from sqlalchemy.pool import NullPool

    applied: list[str] = []
    engine = create_engine("postgresql+psycopg://", creator=lambda: _connect(owner_url), poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.commit()

        def run_sql(name: str, start: str = "", stop: str | None = None) -> None:
            # The driver sends a script without parameters as it is, so that bodies with % and : need no escapes.
            script = (_FOLDER / "sql" / name).read_text()
            cursor = connection.connection.cursor()
            cursor.execute(script[script.index(start) : None if stop is None else script.index(stop)])
            # The first whole script of a revision names it.
            if not start and not any(known.startswith(name[:4]) for known in applied):
                applied.append(name.removesuffix(".sql"))

        config = Config()
        config.set_main_option("script_location", str(_FOLDER))
        config.attributes.update(connection=connection, run_sql=run_sql)
        try:
            yield config, applied
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
            connection.commit()
    engine.dispose()


def _connect(owner_url: str) -> Any:
    import psycopg

    return psycopg.connect(owner_url)
