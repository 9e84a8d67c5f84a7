"""Attacks by what users write for tools that work in the worker's own process: SQL, files to send, scripts, connections."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.tools.io_calls import Caller

from noetl.engine.confinement import policy as policies
from noetl.engine.confinement.policy import Policy, refuse_hidden
from noetl.engine.tools.duckdb.databases import databases_of
from noetl.engine.tools.duckdb.ducklake import DucklakeTool
from noetl.engine.tools.duckdb.tool import DuckdbTool
from noetl.engine.tools.gcs import GcsTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.postgres.tool import PostgresTool
from noetl.engine.tools.programs.source import load_script
from noetl.engine.tools.transfer.tool import TransferTool
from noetl.errors import Denied

confined = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or policies.namespaces_obstacle() is not None,
    reason="only root can confine single threads, on Linux",
)
SECRET = "hush-hush"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is hidden from tasks, beside a project's files."""
    home = tmp_path / "home"
    (home / "keys").mkdir(parents=True)
    (home / "keys" / "key").write_text(SECRET)
    (home / "table.csv").write_text(f"secret\n{SECRET}\n")
    (tmp_path / "data.csv").write_text("n\n7\n")
    (tmp_path / "link.csv").symlink_to(home / "table.csv")
    monkeypatch.setenv("NOETL_SECRET_KEY", SECRET)
    namespaces = policies.namespaces_obstacle() is None
    monkeypatch.setattr(policies, "_policy", Policy(namespaces=namespaces, hidden=(str(home.resolve()),)))
    return home


@pytest.fixture
async def caller(home: Path) -> AsyncIterator[Caller]:
    """Calls of a worker whose home is hidden."""
    async with Caller("duckdb", None, {}) as caller:
        yield caller


async def ask(caller: Caller, command: str, **options: Any) -> Outcome:
    return await DuckdbTool().run(caller.call(command=command, **options))


@confined
@pytest.mark.parametrize(
    "command",
    [
        "SELECT content FROM read_text('{home}/keys/key')",
        "SELECT content FROM read_text('{home}/../home/keys/*')",
        "SELECT content::VARCHAR FROM read_blob('/proc/self/environ')",
        "SELECT content::VARCHAR FROM read_blob('/proc/{pid}/environ')",
        "SELECT content::VARCHAR FROM read_blob('/proc/*/environ')",
        "SELECT content FROM read_text('/proc/{pid}/root{home}/keys/key')",
        "SELECT * FROM '{project}/link.csv'",
        "SELECT * FROM read_csv('{home}/*.csv')",
        "CREATE TABLE t AS FROM read_csv(['{project}/data.csv', '{home}/table.csv'], all_varchar = true, union_by_name = true); FROM t",
        "SET threads = 8; SELECT sum(length(content)) AS n FROM read_text('{home}/**') HAVING n > 0",
        "ATTACH '{home}/made.duckdb' AS made; CREATE TABLE made.t AS SELECT 1 AS n; FROM made.t",
    ],
)
async def test_sql_finds_nothing_that_is_hidden(caller: Caller, home: Path, command: str) -> None:
    """INV-200: by name, by pattern, through links, in processes, in DuckDB's own threads."""
    outcome = await ask(caller, command.format(home=home, project=home.parent, pid=os.getpid()))
    assert outcome.error is not None or outcome.data["rows"] == [], outcome.data
    assert SECRET not in str(outcome)
    assert not (home / "made.duckdb").exists()


@confined
async def test_sql_writes_nothing_where_it_is_hidden_and_all_else_as_before(caller: Caller, home: Path) -> None:
    """INV-200: files, databases and what an execution keeps for itself work beside it."""
    for target in (home / "keys" / "key", home / "new.csv"):
        assert (await ask(caller, f"COPY (SELECT 1) TO '{target}'")).error is not None
    assert (home / "keys" / "key").read_text() == SECRET
    assert not (home / "new.csv").exists()
    project = home.parent
    wrote = await ask(caller, f"COPY (FROM '{project}/data.csv') TO '{project}/out.csv'; FROM '{project}/out.csv'")
    assert wrote.error is None, wrote.error
    assert wrote.data["rows"] == [{"n": 7}]
    for _ in range(2):
        kept = await ask(
            caller, "CREATE TABLE IF NOT EXISTS t(n INT); INSERT INTO t VALUES (1)", database=f"{project}/d.duckdb"
        )
        assert kept.error is None, kept.error
    (own,) = (await ask(caller, "CREATE TABLE mine AS SELECT 2 AS n; FROM mine")).data["rows"]
    assert own == {"n": 2}


@confined
async def test_the_threads_of_sql_may_not_mount_and_take_no_code_of_strangers(caller: Caller, home: Path) -> None:
    """INV-200: what runs in them cannot take a cover away, and the worker itself goes on to see everything."""
    databases = await databases_of(caller.call(command="").resources, {})
    async with databases.connection(":memory:") as connection:
        bits = "SELECT current_setting('allow_community_extensions') AS allowed"
        assert connection.execute(bits).fetchone() == (False,)
        seen, ended = await databases.run(connection, lambda: look(home))
    assert (seen, ended) == (["cgroup", "mountinfo"], True)
    assert look(home)[0] != seen
    assert (home / "keys" / "key").read_text() == SECRET


def look(home: Path) -> tuple[list[str], bool]:
    """Return what this thread sees of its process, and whether it is refused to take the cover away."""
    umount = subprocess.run(["/bin/umount", str(home)], capture_output=True, check=False)
    return sorted(path.name for path in Path("/proc/self").iterdir()), umount.returncode != 0


async def test_a_path_that_leads_to_what_is_hidden_is_refused(home: Path) -> None:
    """INV-200: through links, too."""
    for path in (
        home,
        home / "keys" / "key",
        home.parent / "link.csv",
        home / "not" / "there",
        "/proc/self/environ",
        "/sys/x",
    ):
        with pytest.raises(Denied, match="hidden from tasks"):
            refuse_hidden(path)
    for path in (home.parent / "data.csv", f"{home}-other", home.parent, "/process"):
        refuse_hidden(path)


async def test_tools_send_read_and_open_nothing_that_is_hidden(caller: Caller, home: Path) -> None:
    """INV-200."""
    key, opened = home / "keys" / "key", home / "x.duckdb"
    sent = await GcsTool().run(caller.call(uri="gs://bucket/object", source=str(home.parent / "link.csv")))
    kept = await ask(caller, "SELECT 1", database=str(opened))
    end = {"type": "duckdb", "database": str(opened), "query": "SELECT 1 AS n"}
    moved = await TransferTool().run(caller.call(source=end, target={**end, "table": "t"}))
    for outcome in (sent, kept, moved):
        assert outcome.error is not None
        assert "hidden from tasks" in outcome.error.message
    for uri in (str(key), f"file://{key}"):
        with pytest.raises(Denied, match="hidden from tasks"):
            await load_script(uri, caller.call())
    assert not opened.exists()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("passfile={home}/postgres.pgpass", "hidden from tasks"),
        ("passfile={home}/../link.csv", "hidden from tasks"),
        ("service=ours", "service"),
        ("servicefile={home}/services", "servicefile"),
        ("sslmode=require&sslkey={home}/keys/key", "hidden from tasks"),
        ("sslmode=verify-ca&sslrootcert={home}/keys/key", "hidden from tasks"),
    ],
)
async def test_a_connection_reads_no_password_and_no_key_of_this_account(
    caller: Caller, home: Path, query: str, said: str
) -> None:
    """INV-200: of PostgreSQL tasks and of DuckLake's catalogs."""
    dsn = f"postgresql://noetl_admin@/noetl?host={home}/run&" + query.format(home=home)
    asked = await PostgresTool().run(caller.call(command="SELECT 1", auth={"dsn": dsn}))
    lake = await DucklakeTool().run(caller.call(command="SELECT 1", catalog_connection=dsn))
    for outcome in (asked, lake):
        assert outcome.error is not None
        assert said in outcome.error.message, outcome.error
        assert outcome.error.retryable is not True


async def test_a_catalog_names_no_file_that_is_hidden(caller: Caller, home: Path) -> None:
    """INV-200."""
    for given in ({"catalog_connection": f"sqlite:{home}/x"}, {"catalog_connection": f"{home}/x.ducklake"},
                  {"catalog_connection": f"{home.parent}/x.ducklake", "data_path": f"{home}/data"},
                  {"catalog_connection": f"dbname=noetl passfile={home}/postgres.pgpass"}):  # fmt: skip
        outcome = await DucklakeTool().run(caller.call(command="SELECT 1", **given))
        assert outcome.error is not None
        assert "hidden from tasks" in outcome.error.message or "passfile" in outcome.error.message, outcome.error
