"""The ducklake kind: on a catalog where DuckDB has the extension, and what it says where it has not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from noetl.engine.tools.duckdb.ducklake import DucklakeTool, catalog_of
from noetl.engine.tools.port import Call, Credential

CallOf = Callable[..., Call]


def has_extension() -> bool:
    with duckdb.connect() as connection:
        try:
            connection.execute("LOAD ducklake")
        except duckdb.Error:
            return False
        return True


async def test_catalogs_are_named_by_an_address_or_a_credential(
    call_of: CallOf, credentials: dict[str, Credential]
) -> None:
    async def read(text: str) -> tuple[str, str]:
        return await catalog_of(call_of("ducklake", catalog_connection=text))

    assert await read("postgresql://ann:p%40ss@db:5433/lake?sslmode=require") == (
        "postgres",
        "host='db' port='5433' dbname='lake' user='ann' password='p@ss' sslmode='require'",
    )
    assert await read("postgres:dbname=lake host=db") == ("postgres", "dbname=lake host=db")
    assert await read("dbname=lake host=db") == ("postgres", "dbname=lake host=db")
    assert await read("sqlite:/data/meta.sqlite") == ("sqlite", "/data/meta.sqlite")
    assert await read("/data/meta.ducklake") == ("duckdb", "/data/meta.ducklake")
    credentials["pg"] = Credential(
        "pg", "postgres", {"db_host": "db", "db_user": "ann", "db_password": "it's", "db_name": "x"}
    )
    auth = {"source": "credential", "key": "pg", "service": "postgres"}
    assert await catalog_of(call_of("ducklake", auth=auth)) == (
        "postgres",
        "host='db' dbname='x' user='ann' password='it\\'s'",
    )


async def test_without_a_catalog_or_its_extension_the_error_says_so(call_of: CallOf, tmp_path: Path) -> None:
    nowhere = await DucklakeTool().run(call_of("ducklake", command="SELECT 1"))
    assert nowhere.error is not None
    assert "catalog_connection" in nowhere.error.message
    tool = DucklakeTool({"extension_directory": str(tmp_path), "custom_extension_repository": str(tmp_path / "none")})
    missing = await tool.run(call_of("ducklake", command="SELECT 1", catalog_connection=str(tmp_path / "x.ducklake")))
    assert missing.error is not None
    assert missing.error.kind == "schema"
    assert "extension ducklake is not installed" in missing.error.message


@pytest.mark.service
@pytest.mark.skipif(not has_extension(), reason="DuckDB's ducklake extension is not installed here")
@pytest.mark.parametrize("kept_in", ["duckdb", "sqlite", "postgres"])
async def test_tables_of_a_catalog_are_shared_by_tasks(
    call_of: CallOf, tmp_path: Path, empty_url: str, kept_in: str
) -> None:
    places = {
        "duckdb": str(tmp_path / "x.ducklake"),
        "sqlite": f"sqlite:{tmp_path / 'x.sqlite'}",
        "postgres": empty_url,
    }
    lake = {"catalog_connection": places[kept_in], "data_path": str(tmp_path / "data"), "catalog_name": "shop"}

    async def done(command: Any) -> dict[str, Any]:
        outcome = await DucklakeTool().run(call_of("ducklake", command=command, **lake))
        assert outcome.error is None, outcome.error
        data: dict[str, Any] = outcome.data
        return data

    await done("CREATE TABLE users (id INTEGER, name VARCHAR); INSERT INTO users VALUES (1, 'ann')")
    assert (await done("INSERT INTO users VALUES (2, 'bob')"))["row_count"] == 1
    assert (await done("SELECT * FROM users ORDER BY id"))["rows"] == [
        {"id": 1, "name": "ann"},
        {"id": 2, "name": "bob"},
    ]
    assert (await done(["SELECT count(*) AS n FROM ducklake_snapshots('shop')"]))["rows"][0]["n"] >= 3
    broken = {**lake, "catalog_connection": "postgres:host=127.0.0.1 port=1 password=s3cret"}
    failed = await DucklakeTool().run(call_of("ducklake", command="SELECT 1", **broken))
    assert failed.error is not None
    assert (failed.error.kind, failed.error.retryable) == ("connection", True)
    assert "s3cret" not in failed.error.message
