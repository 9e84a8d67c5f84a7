"""DuckDB over loops' results: frames, stored tables and small results are tables of the task, by Arrow all the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from tests.unit.engine.tools.conftest import CallOf, OwnersPayloads

from noetl.engine.tools.duckdb.tool import DuckdbTool
from noetl.engine.worker.frame_rows import RowEnd
from noetl.engine.worker.reports import table_of
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, encode_json, encode_table


async def frame(payloads: OwnersPayloads, first: int, values: list[Any]) -> dict[str, Any]:
    rows = [RowEnd(first + number, "ok", value) for number, value in enumerate(values)]
    table = table_of(rows, lambda value: value)
    ref = await payloads.store(table.data, ARROW_STREAM, rows=table.rows, schema_digest=table.schema_digest)
    return {"first_index": first, "rows": len(values), "ref": msgspec.to_builtins(ref)}


async def run(call_of: CallOf, command: str, **tables: Any) -> Any:
    outcome = await DuckdbTool().run(call_of("duckdb", options={"command": command}, input=tables))
    assert outcome.error is None, outcome.error
    return outcome.data["rows"]


async def test_frames_of_mappings_are_a_table_of_their_fields(call_of: CallOf, payloads: OwnersPayloads) -> None:
    frames = [
        await frame(payloads, 0, [{"site": "north", "level": 3}, {"site": "south", "level": 4}, None]),
        {"first_index": 3, "rows": 1, "ref": None},
        await frame(payloads, 4, [{"site": "north", "level": 8, "note": "it's high"}]),
    ]
    sql = "SELECT site, sum(level) AS level, max(_index) AS last, max(note) AS note FROM levels GROUP BY ALL ORDER BY site"
    wanted = [
        {"site": "north", "level": 11, "last": 4, "note": "it's high"},
        {"site": "south", "level": 4, "last": 1, "note": None},
    ]
    assert await run(call_of, sql, levels={"frames": frames}) == wanted
    ref = await payloads.store(encode_json({"frames": frames}), JSON)
    assert await run(call_of, sql, levels={"_ref": msgspec.to_builtins(ref), "status": "ok"}) == wanted
    assert await run(call_of, sql, levels={"kind": "result_ref", "ref": ref.uri, "meta": {"bytes": 9}}) == wanted
    small = {"results": [{"site": "a", "level": 1, "note": None}, None, {"site": "a", "level": 2, "note": None}]}
    assert await run(call_of, sql, levels=small) == [{"site": "a", "level": 3, "last": 2, "note": None}]


async def test_frames_of_plain_values_are_a_column(call_of: CallOf, payloads: OwnersPayloads) -> None:
    frames = [await frame(payloads, 0, [1, 2]), await frame(payloads, 2, [None, 39]), await frame(payloads, 4, [None])]
    assert await run(call_of, "SELECT sum(value)::INT AS n, count(*) AS c FROM t", t={"frames": frames}) == [
        {"n": 42, "c": 3}
    ]
    mixed = [await frame(payloads, 0, [1, 2]), await frame(payloads, 2, ["x"])]
    assert await run(call_of, "SELECT value ->> '$' AS v FROM t ORDER BY _index", t={"frames": mixed}) == [
        {"v": "1"}, {"v": "2"}, {"v": "x"}
    ]  # fmt: skip
    assert await run(call_of, "SELECT count(*) AS c FROM t", t={"frames": []}) == [{"c": 0}]


async def test_a_stored_table_and_a_database_of_ones_own_stand_side_by_side(
    call_of: CallOf, payloads: OwnersPayloads, tmp_path: Any
) -> None:
    table = encode_table(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    ref = await payloads.store(table.data, ARROW_STREAM, rows=2, schema_digest=table.schema_digest)
    options = {"database": str(tmp_path / "d.duckdb"), "command": "CREATE OR REPLACE TABLE kept AS SELECT * FROM given"}
    call = call_of("duckdb", options=options, input={"given": msgspec.to_builtins(ref), "n": 3})
    assert (await DuckdbTool().run(call)).error is None
    options = {"database": str(tmp_path / "d.duckdb"), "command": "SELECT * FROM kept ORDER BY id"}
    outcome = await DuckdbTool().run(call_of("duckdb", options=options))
    assert outcome.data["rows"] == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


async def test_a_table_whose_name_is_none_is_refused(call_of: CallOf) -> None:
    call = call_of("duckdb", options={"command": "SELECT 1"}, input={'a"b': {"results": [1]}})
    outcome = await DuckdbTool().run(call)
    assert outcome.error is not None
    assert "no name in SQL" in outcome.error.message


async def test_a_reference_to_nothing_is_told(call_of: CallOf) -> None:
    given = {"t": {"kind": "result_ref", "ref": "noetl://tenant/acme/org/sales/payloads/sha256/" + "0" * 64}}
    outcome = await DuckdbTool().run(call_of("duckdb", options={"command": "SELECT 1"}, input=given))
    assert outcome.error is not None
    assert (outcome.error.kind, "no event refers to" in outcome.error.message) == ("schema", True)
