"""The `transfer` tool: rows go from one place to another in chunks, so that memory holds a chunk and never the whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import duckdb

from noetl.engine.tools.duckdb.values import BadTask
from noetl.engine.tools.duckdb.values import problem_of as duckdb_problem
from noetl.engine.tools.http.tool import HttpTool
from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.problems import problem_of as postgres_problem
from noetl.engine.tools.snowflake.problems import BadCommand, BadTarget, is_of_connector
from noetl.engine.tools.snowflake.problems import problem_of as snowflake_problem
from noetl.engine.tools.transfer.duckdb import Held, duckdb_source, duckdb_target, held
from noetl.engine.tools.transfer.http import http_source, http_target
from noetl.engine.tools.transfer.postgres import postgres_source, postgres_target
from noetl.engine.tools.transfer.rows import BadTransfer, Row, TransferFailed, mapped
from noetl.engine.tools.transfer.snowflake import folded, snowflake_source, snowflake_target

_KINDS = ("postgres", "duckdb", "snowflake", "http")
_MODES = {"append": "append", "insert": "append", "overwrite": "overwrite", "replace": "overwrite", "upsert": "upsert"}
_DEFAULT_CHUNK = 1000


class Writer(Protocol):
    """The receiving end of a transfer."""

    async def write(self, rows: list[Row]) -> int:
        """Take rows and return how many were written."""
        ...


@dataclass
class Counts:
    """How far a transfer has come."""

    rows_read: int = 0
    rows_written: int = 0
    chunks: int = 0


class TransferTool:
    """Copies rows between PostgreSQL, DuckDB, Snowflake and HTTP; `settings` are DuckDB's own."""

    kind: ClassVar[str] = "transfer"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._http = HttpTool()

    async def run(self, call: Call) -> Outcome:
        """Copy the rows; into a database all of them or none."""
        counts = Counts()
        limits = [float(limit) for limit in (call.options.get("timeout"), call.timeout) if limit]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                await self._copy(call, counts)
        except Exception as error:
            problem = _problem(error)
            if call.options.get("target", {}).get("type") != "http":
                counts.rows_written = 0
            return Outcome(status="error", data={"status": "error", **vars(counts)}, error=problem)
        return Outcome(data={"status": "ok", **vars(counts)})

    async def _copy(self, call: Call, counts: Counts) -> None:
        source, target = _end(call, "source"), _end(call, "target")
        mode = _MODES.get(str(target.get("mode") or "append").lower())
        if mode is None:
            raise BadTransfer(f"`target.mode` of a transfer is one of {', '.join(_MODES)}")
        size = _size(call.options.get("chunk_size"))
        mapping = target.get("mapping")
        if mapping and source["type"] == "snowflake":
            mapping = {column: folded(str(name)) for column, name in mapping.items()}
        async with (
            held(call, self._settings, (source, target)) as databases,
            self._source(call, source, size, databases, json_as_text=target["type"] != "http") as chunks,
            self._target(call, target, mode, databases, exact=source["type"] == "http") as writer,
        ):
            async for rows in chunks:
                counts.rows_read += len(rows)
                counts.rows_written += await writer.write(mapped(rows, mapping))
                counts.chunks += 1

    def _source(
        self, call: Call, spec: Mapping[str, Any], size: int, databases: Held, *, json_as_text: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[list[Row]]]:
        if spec["type"] == "postgres":
            return postgres_source(call, spec, size, json_as_text=json_as_text)
        if spec["type"] == "duckdb":
            return duckdb_source(databases, spec, size)
        if spec["type"] == "snowflake":
            return snowflake_source(call, spec, size, json_as_text=json_as_text)
        return http_source(self._http, call, spec, size)

    def _target(
        self, call: Call, spec: Mapping[str, Any], mode: str, databases: Held, *, exact: bool
    ) -> AbstractAsyncContextManager[Writer]:
        if spec["type"] == "postgres":
            return postgres_target(call, spec, mode, exact=exact)
        if spec["type"] == "duckdb":
            return duckdb_target(databases, spec, mode, exact=exact)
        if spec["type"] == "snowflake":
            return snowflake_target(call, spec, mode, exact=exact)
        return http_target(self._http, call, spec, mode)


def _end(call: Call, name: str) -> dict[str, Any]:
    spec = call.options.get(name)
    if not isinstance(spec, Mapping) or spec.get("type") not in _KINDS:
        raise BadTransfer(f"`{name}` of a transfer needs `type`: one of {', '.join(_KINDS)}")
    shared = {key: call.options[key] for key in ("mode", "mapping") if name == "target" and call.options.get(key)}
    return {"auth": call.auth, **shared, **spec}


def _size(given: Any) -> int:
    try:
        size = _DEFAULT_CHUNK if given is None else int(given)
    except (TypeError, ValueError):
        size = 0
    if size < 1:
        raise BadTransfer("`chunk_size` of a transfer is a whole number of rows, one or more")
    return size


def _problem(error: Exception) -> Problem:
    if isinstance(error, TransferFailed):
        return error.problem
    if isinstance(error, BadTransfer):
        return Problem(kind="schema", message=error.message, code=error.code, source="transfer")
    if isinstance(error, duckdb.Error | BadTask):
        return duckdb_problem(error, "transfer")
    if isinstance(error, BadCommand | BadTarget) or is_of_connector(error):
        return snowflake_problem(error, "the transfer's account", "transfer")
    return postgres_problem(error, "the transfer's database", "transfer")
