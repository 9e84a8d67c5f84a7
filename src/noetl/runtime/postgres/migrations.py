"""Takes an owner's database URL, brings the schema to a revision, forward or back, each run in one transaction.

An empty database is made from the object files of `noetl/schema`, in the order of `contents.txt`, and is then at the
newest revision. A database that exists already takes the migrations it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noetl.errors import Unsupported
from noetl.runtime.postgres.password import admit_new_roles

SCHEMA = Path(__file__).parent.parent.parent / "schema"
_LOCK = 5_641_093_211  # one migration at a time per database


def head(schema: Path = SCHEMA) -> str:
    """Return the newest revision, read from the file names so that asking costs no import of Alembic."""
    return max(revisions(schema))


def revisions(schema: Path = SCHEMA) -> list[str]:
    """Return every revision that this program knows, oldest first."""
    return sorted(path.name.split("_")[0] for path in (schema / "migrations/versions").glob("[0-9]*.py"))


def check_known(found: str | None, schema: Path = SCHEMA) -> None:
    """Refuse a database at a revision that this program has no migration for."""
    if found is not None and found not in revisions(schema):
        raise Unsupported(
            f"the database schema is at revision {found}, newer than this program's {head(schema)} or older than its baseline",
            hint="use the version of NoETL that migrated it; `noetl db reset` starts anew and removes all data",
        )


def chapters(schema: Path = SCHEMA) -> dict[str, list[Path]]:
    """Return the object files by chapter, in the order in which they are read and run."""
    found: dict[str, list[Path]] = {}
    for line in (schema / "contents.txt").read_text().splitlines():
        if line.startswith("# "):
            found[line.removeprefix("# ")] = []
        elif line:
            found[next(reversed(found))].append(schema / line)
    return found


def upgrade(owner_url: str, revision: str = "head", schema: Path = SCHEMA) -> list[str]:
    """Apply every revision up to the given one and return those that were applied."""
    from alembic import command

    found = current(owner_url)
    check_known(found, schema)
    with _configured(owner_url, schema) as (config, applied):
        if found is None and revision not in ("head", head(schema)):
            # The files make the newest revision; what came after the one asked for is undone again.
            command.upgrade(config, "head")
            kept = [name for name in applied if name.split("_")[0] <= revision]
            command.downgrade(config, revision)
            applied = kept
        else:
            command.upgrade(config, revision)
    admit_new_roles(owner_url)
    return applied


def downgrade(owner_url: str, revision: str, schema: Path = SCHEMA) -> list[str]:
    """Undo every revision above the given one (`base` for all) and return those that were undone."""
    from alembic import command

    with _configured(owner_url, schema) as (config, applied):
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
def _configured(owner_url: str, schema: Path) -> Iterator[tuple[Any, list[str]]]:
    from alembic.config import Config
    from sqlalchemy import create_engine, text
    from sqlalchemy.pool import NullPool

    engine = create_engine("postgresql+psycopg://", creator=lambda: _connect(owner_url), poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.commit()
        run = _Run(schema, connection)
        config = Config()
        config.set_main_option("script_location", str(schema / "migrations"))
        config.attributes.update(connection=connection, run=run)
        try:
            yield config, run.applied
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
            connection.commit()
    engine.dispose()


class _Run:
    """What the revisions of one run do to the database."""

    def __init__(self, schema: Path, connection: Any) -> None:
        self._schema = schema
        self._connection = connection
        self._from_files = False
        self.applied: list[str] = []

    def baseline(self, name: str) -> None:
        """Make all objects from their files, which hold what later revisions brought too."""
        # Functions call each other in circles, so their bodies are not checked while some are still missing.
        self.sql("SET LOCAL check_function_bodies = off")
        for files in chapters(self._schema).values():
            for file in files:
                self.sql(file.read_text())
        self._from_files = True
        self.applied.append(name)

    def up(self, name: str) -> None:
        """Take one revision's step forward; a database that was made from the files in this run has it already."""
        if not self._from_files:
            self.sql((self._schema / f"migrations/versions/{name}.up.sql").read_text())
        self.applied.append(name)

    def down(self, name: str, script: str | None = None) -> None:
        """Take one revision's step back."""
        self.sql((self._schema / f"migrations/versions/{name}.down.sql").read_text() if script is None else script)
        self.applied.append(name)

    def sql(self, script: str) -> None:
        """Run a script as it is: sent without parameters, so that bodies with % and : need no escapes."""
        self._connection.connection.cursor().execute(script)


def _connect(owner_url: str) -> Any:
    import psycopg

    return psycopg.connect(owner_url)
