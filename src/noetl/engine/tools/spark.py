"""The `spark` kind: rows of a playbook go in as DataFrames, the rows of SQL or of a function over them come out.

Each binding of `input` that is a loop's result, a reference to one, or a list is a table of its name; any other is a
value. Payloads are read where Spark runs, not here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import orjson

from noetl.engine.tools.artifact import is_reference, reference_in
from noetl.engine.tools.outcome import Outcome, failed, refusal
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.errors import InputError, NoetlError
from noetl.kernel.payloads.codec import decode_json, decode_table

MAX_ROWS: Final = 10_000


@dataclass(frozen=True)
class Table:
    """Rows for Spark: references of frames' payloads, or each row as JSON."""

    refs: tuple[dict[str, Any], ...] = ()
    lines: tuple[str | None, ...] = ()


class SparkQueries(Protocol):
    """Where queries run; the worker brings it."""

    async def query(
        self, tables: Mapping[str, Table], *, sql: str | None, code: str | None, values: dict[str, Any], most: int
    ) -> bytes:
        """Run SQL or code over tables and return the rows as an Arrow stream; when cancelled, Spark stops too."""
        ...


class SparkTool:
    """Runs queries on the worker's Spark."""

    kind: ClassVar[str] = "spark"

    def __init__(self, queries: SparkQueries | None = None) -> None:
        self._queries = queries

    async def run(self, call: Call) -> Outcome:
        """Run one query."""
        if self._queries is None:
            return failed("schema", "this worker has no Spark", source=self.kind, code="spark_missing")
        sql, code = call.options.get("sql"), call.options.get("code")
        most = int(call.options.get("max_rows") or MAX_ROWS)
        tables: dict[str, Table] = {}
        values: dict[str, Any] = {}
        try:
            for name, given in call.input.items():
                table = await _table(call, given)
                if table is None:
                    values[name] = plain(given)
                else:
                    tables[name] = table
            data = await self._queries.query(tables, sql=sql, code=code, values=values, most=most)
        except NoetlError as error:
            return refusal(error, self.kind)
        return Outcome(data=await asyncio.to_thread(_rows, data))


async def _table(call: Call, given: Any) -> Table | None:
    """Return the rows a binding stands for; None when it is a value."""
    if isinstance(given, list | tuple):
        return Table(lines=tuple(None if row is None else orjson.dumps(plain(row)).decode() for row in given))
    if not isinstance(given, Mapping):
        return None
    if "frames" in given and isinstance(given["frames"], list):
        return Table(refs=tuple(frame["ref"] for frame in given["frames"] if frame["ref"] is not None))
    ref = given if is_reference(given) else given.get("_ref")
    if isinstance(ref, Mapping):
        return await _table(call, decode_json(await call.payloads.fetch(await reference_in(ref, call.payloads))))
    if isinstance(given.get("results"), list):
        return await _table(call, given["results"])
    raise InputError("a table is a loop's result, its `_ref`, or a list", hint='write input: {frames: "{{ step }}"}')


def _rows(data: bytes) -> dict[str, Any]:
    table = decode_table(data)
    return {"rows": plain(table.to_pylist()), "row_count": table.num_rows, "columns": table.column_names}
