"""The spark tool without Spark: which of its inputs are tables, and where their rows are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.unit.engine.tools.conftest import CallOf, OwnersPayloads

from noetl.engine.tools.spark import SparkTool, Table
from noetl.kernel.payloads.codec import JSON, encode_json, encode_table


class Queries:
    """Notes the tables of a query and gives one row."""

    def __init__(self) -> None:
        self.tables: Mapping[str, Table] = {}

    async def query(self, tables: Mapping[str, Table], **_: Any) -> bytes:
        self.tables = tables
        return encode_table(pa.table({"n": [1]})).data


@pytest.mark.parametrize(
    "given",
    [
        lambda ref: ref,
        lambda ref: {"_ref": ref, "status": "ok"},
        lambda ref: {"kind": "result_ref", "ref": ref["uri"], "meta": {"row_count": 2}},
        lambda ref: {"_ref": {"kind": "result_ref", "ref": ref["uri"]}},
    ],
)
async def test_a_reference_in_any_form_is_a_table(call_of: CallOf, payloads: OwnersPayloads, given: Any) -> None:
    frames = [{"first_index": 0, "rows": 2, "ref": {"uri": "x"}}, {"first_index": 2, "rows": 1, "ref": None}]
    ref = msgspec.to_builtins(await payloads.store(encode_json({"frames": frames}), JSON))
    queries = Queries()
    outcome = await SparkTool(queries).run(call_of("spark", sql="SELECT 1", input={"t": given(ref)}))
    assert outcome.error is None, outcome.error
    assert queries.tables == {"t": Table(refs=({"uri": "x"},))}


async def test_a_reference_to_nothing_is_told(call_of: CallOf) -> None:
    given = {"t": {"kind": "result_ref", "ref": "noetl://tenant/acme/org/sales/payloads/sha256/" + "0" * 64}}
    outcome = await SparkTool(Queries()).run(call_of("spark", sql="SELECT 1", input=given))
    assert outcome.error is not None
    assert outcome.error.kind == "not_found"
