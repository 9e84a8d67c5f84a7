"""Types survive from PostgreSQL through a playbook to Parquet."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

QUERY = """\
SELECT * FROM (VALUES
    (1::int8, 12.50::numeric(12,2), 1.5::numeric, 'NaN'::float8, 2::float8, '2026-03-01 12:00+02'::timestamptz,
     '2026-03-01 12:00'::timestamp, '2026-03-01'::date, '\\x0102'::bytea, ARRAY[1.25, 2]::numeric[], true,
     '7a1c6b7e-0000-4000-8000-000000000001'::uuid, '{"a": 1}'::jsonb, interval '1 day', numrange(1, 2), '12:30'::time),
    (9007199254740993, -0.01, 2.125, 1, 3, '2026-03-01 12:00:00.123456+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL)
) AS t(id, price, rate, score, whole, at, local, day, raw, parts, flag, uid, doc, span, bounds, clock) ORDER BY id
"""
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: typed, path: shop/typed}
workflow:
  - step: read
    tool: {kind: postgres, auth: pg, query: QUERY, params: PARAMS}
"""
DAG = """\
name: typed
jobs:
  - {name: found, playbook: typed.yaml, config: {rows: rows}}
  - {name: bound, playbook: bound.yaml, config: {rows: rows}}
  - name: declared
    playbook: typed.yaml
    config: {rows: rows}
    schema:
      columns:
        - {name: id, type: bigint}
        - {name: price, type: "decimal(12,2)"}
        - {name: rate, type: double}
        - {name: at, type: timestamp}
        - {name: local, type: timestamp_ntz}
        - {name: day, type: date}
        - {name: raw, type: binary}
        - {name: parts, type: "array<decimal(10,2)>"}
        - {name: uid, type: string}
        - {name: doc, type: "struct<a:int>"}
publish: {typed_found: found, typed_bound: bound, typed_declared: declared}
"""
FIRST = {
    "id": 1,
    "price": Decimal("12.50"),
    "at": datetime(2026, 3, 1, 10, tzinfo=UTC),
    "local": datetime(2026, 3, 1, 12),  # noqa: DTZ001
    "day": date(2026, 3, 1),
    "raw": b64decode("AQI="),
    "uid": "7a1c6b7e-0000-4000-8000-000000000001",
}


def stored(noetl: Noetl, name: str) -> pa.Table:
    """Return what the files of a dataset hold."""
    code, output, errors = noetl("datasets", "path", name)
    assert code == 0, errors
    return pa.concat_tables(pq.read_table(path.removeprefix("file://")) for path in output.splitlines() if path)


def test_types_survive_from_postgresql_to_parquet(
    noetl: Noetl, tmp_path: Path, owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NOETL_SECRET_KEY", b64encode(bytes(range(32))).decode())
    (tmp_path / "pg.json").write_text(json.dumps({"name": "pg", "type": "postgres", "data": {"dsn": owner_url}}))
    code, _, errors = noetl("credentials", "put", "--file", "pg.json")
    assert code == 0, errors
    bound = QUERY.replace("ORDER BY", "WHERE id >= $1 ORDER BY")
    for name, query, params in (("typed", QUERY, "null"), ("bound", bound, "[1]")):
        written = PLAYBOOK.replace("QUERY", json.dumps(query)).replace("PARAMS", params)
        (tmp_path / f"{name}.yaml").write_text(
            written.replace("shop/typed", f"shop/{name}").replace(", params: null", "")
        )
    (tmp_path / "dag.yaml").write_text(DAG)
    code, output, errors = noetl("dag", "run", "dag.yaml")
    assert code == 0, (output, errors)

    for name in ("typed_found", "typed_bound"):
        table = stored(noetl, name)
        kinds = {field.name: str(field.type) for field in table.schema}
        assert kinds == {
            "id": "int64", "price": "decimal128(38, 2)", "rate": "decimal128(38, 18)", "score": "double", "whole": "double",
            "at": "timestamp[us, tz=UTC]", "local": "timestamp[us]", "day": "date32[day]", "raw": "binary",
            "parts": "list<element: decimal128(38, 18)>", "flag": "bool", "uid": "string", "doc": "struct<a: int64>",
            "span": "string", "bounds": "string", "clock": "string",
        }  # fmt: skip
        first, second = table.to_pylist()
        assert {key: first[key] for key in FIRST} == FIRST
        assert (str(first["score"]), first["parts"]) == ("nan", [Decimal("1.25"), Decimal(2)])
        assert (second["id"], second["price"]) == (9007199254740993, Decimal("-0.01"))
        assert second["at"] == datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

    declared = stored(noetl, "typed_declared")
    assert str(declared.schema.field("price").type) == "decimal128(12, 2)"
    assert str(declared.schema.field("parts").type) == "list<element: decimal128(10, 2)>"
    first, second = declared.to_pylist()
    assert {key: first[key] for key in FIRST} == FIRST
    assert (first["rate"], second["rate"], first["doc"]) == (1.5, 2.125, {"a": 1})
