"""The `duckdb` tool: SQL goes in, the rows of its last statement come out. All of it happens in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import duckdb
import pyarrow

from noetl.engine.tools.duckdb.databases import database_named, databases_of
from noetl.engine.tools.duckdb.secrets import Secret, drop, install, secrets_of
from noetl.engine.tools.duckdb.tables import shown, tables_of
from noetl.engine.tools.duckdb.values import (
    BadTask,
    like_all_moments,
    plain_value,
    problem_of,
    readable,
    types_of,
    unreadable,
)
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call

_CLOUD = ("s3://", "gs://", "gcs://", "r2://", "azure://", "http://", "https://")
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE_INTO", "COPY", "CREATE"})


class DuckdbTool:
    """Runs SQL in DuckDB; `settings` are DuckDB's own, such as memory_limit or extension_directory."""

    kind: ClassVar[str] = "duckdb"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})

    async def run(self, call: Call) -> Outcome:
        """Run the statements and return the rows of the last one."""
        limits = [float(limit) for limit in (call.options.get("timeout"), call.timeout) if limit]
        try:
            text = text_in(call.options)
            async with asyncio.timeout(min(limits, default=None)):
                secrets = await _secrets(call)
                databases = await databases_of(call.resources, self._settings)
                async with (
                    database_named(call, call.options.get("database")) as path,
                    databases.connection(path) as connection,
                ):
                    tables = await tables_of(call)
                    data = await databases.run(
                        connection, lambda: run_statements(connection, text, call.options, secrets, tables)
                    )
        except Exception as error:
            return Outcome(status="error", error=problem_of(error, shared=not call.options.get("database")))
        return Outcome(data=data)


def text_in(options: Mapping[str, Any]) -> str:
    """Return the SQL of a task's options."""
    command = options.get("command")
    texts = [command] if isinstance(command, str) else command
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadTask("a duckdb task needs `command`: SQL text or a list of SQL texts")
    text = "\n;\n".join(texts)
    if options.get("require_cloud_output") and not any(scheme in text for scheme in _CLOUD):
        raise BadTask("the duckdb task has `require_cloud_output` and its command names no cloud address")
    return text


async def _secrets(call: Call) -> list[Secret]:
    if call.options.get("auto_secrets") is False:
        return []
    found = await secrets_of(call.credentials, call.auth)
    cloud = call.options.get("gcs_credential")
    return [*found, *await secrets_of(call.credentials, {"gcs": cloud})] if cloud else found


def run_statements(
    connection: duckdb.DuckDBPyConnection,
    text: str,
    options: Mapping[str, Any],
    secrets: list[Secret],
    tables: Mapping[str, pyarrow.Table],
) -> dict[str, Any]:
    """Run the statements with tables beside those of the database."""
    with shown(connection, tables):
        return _run(connection, text, options, secrets)


def _run(
    connection: duckdb.DuckDBPyConnection, text: str, options: Mapping[str, Any], secrets: list[Secret]
) -> dict[str, Any]:
    statements = connection.extract_statements(text)
    if not statements:
        raise BadTask("the duckdb task's `command` has no statement in it")
    params = options.get("params")
    install(connection, secrets, attach=str(options.get("db_type") or "").lower().startswith("postgres"))
    try:
        *before, last = statements
        for statement in before:
            connection.execute(statement, _chosen(statement, params))
        chosen = _chosen(last, params)
        sent, texts = readable(connection, last, chosen)
        if _returning(last) and not any(one.type == duckdb.StatementType.TRANSACTION for one in statements):
            connection.execute("BEGIN")
            data = _result(connection.execute(sent, chosen), last, texts)
            connection.execute("COMMIT")
            return data
        return _result(connection.execute(sent, chosen), last, texts)
    finally:
        drop(connection, secrets)


def _returning(statement: duckdb.Statement) -> bool:
    return statement.type.name in _CHANGES and "returning" in statement.query.lower()


def _chosen(statement: duckdb.Statement, params: Any) -> Any:
    """Return the parameters a statement names; DuckDB refuses those it does not."""
    wanted = statement.named_parameters
    given = params if isinstance(params, Mapping) else {str(at): value for at, value in enumerate(params or (), 1)}
    missing = sorted(name for name in wanted if name not in given)
    if missing:
        raise BadTask(f"`params` of the duckdb task has no value for {', '.join(missing)}")
    return {name: given[name] for name in wanted} or None


def _result(
    connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, texts: Collection[str]
) -> dict[str, Any]:
    described = connection.description or ()
    columns = [column[0] for column in described]
    lost = unreadable(connection)
    if lost:
        # Said before anything is committed: a session that ends without a commit has changed nothing.
        raise BadTask(f"the duckdb task returns {', '.join(lost)} in a type with no exact plain form; cast it to text")
    found = connection.fetchall()
    if statement.type.name in _CHANGES and columns == ["Count"] and not _returning(statement):
        return {"status": "ok", "rows": [], "row_count": int(found[0][0]) if found else 0, "columns": []}
    if duckdb.ExpectedResultType.QUERY_RESULT not in statement.expected_result_type:
        found, columns = [], []
    rows = [dict(zip(columns, map(plain_value, row), strict=True)) for row in found]
    for name in texts:
        for row in rows:
            row[name] = like_all_moments(row[name])
    data = {"status": "ok", "rows": rows, "row_count": len(rows), "columns": columns}
    types = types_of(described if columns else (), rows, texts)
    return {**data, "types": types} if types else data
