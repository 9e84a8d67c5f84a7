"""The artifact tool: references to payloads and back, in every form a playbook may hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow
import pytest

from noetl.engine.tools.artifact import ArtifactTool, ResultFetchTool
from noetl.engine.tools.port import Call
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, encode_json, encode_table
from noetl.model.payload_ref import payload_uri

CallOf = Callable[..., Call]
tool = ArtifactTool()


async def test_what_is_put_comes_back(call_of: CallOf) -> None:
    data = {"b": [1, 2.5, None], "a": "é"}
    put = await tool.run(call_of("artifact", action="put", input={"data": data}))
    assert put.data["media_type"] == JSON
    assert [msgspec.to_builtins(ref) for ref in put.artifacts] == [put.data]
    got = await tool.run(call_of("artifact", action="get", input={"result_ref": put.data}))
    assert (got.data, got.artifacts) == (data, ())


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda ref: {"input": {"result_ref": ref}},
        lambda ref: {"input": {"ref": ref}},
        lambda ref: {"ref": ref},
        lambda ref: {"input": {"result_ref": {"kind": "result_ref", "ref": ref}}},
        lambda ref: {"input": {"result_ref": {"payload": ref, "preview": "…"}}},
        lambda ref: {"input": {"result_ref": {"status": "ok", "ref": {"payload": ref}}}},
        lambda ref: {"ref": ref["uri"]},
        lambda ref: {"input": {"result_ref": ref["uri"]}},
        lambda ref: {"input": {"result_ref": {"kind": "result_ref", "ref": ref["uri"], "meta": {"bytes": 3}}}},
        lambda ref: {"input": {"ref": {"kind": "temp_ref", "ref": ref["uri"], "store": "kv", "expires_at": None}}},
    ],
)
async def test_a_reference_is_found_where_playbooks_have_it(
    call_of: CallOf, payloads: Any, wrapped: Callable[[Any], dict[str, Any]]
) -> None:
    ref = msgspec.to_builtins(await payloads.store(encode_json([1]), JSON))
    assert (await ResultFetchTool().run(call_of("result_fetch", **wrapped(ref)))).data == [1]


async def test_tables_come_back_as_rows(call_of: CallOf, payloads: Any) -> None:
    table = encode_table(pyarrow.table({"id": [1, 2], "name": ["a", None]}))
    ref = await payloads.store(table.data, ARROW_STREAM, rows=table.rows, schema_digest=table.schema_digest)
    got = await tool.run(call_of("artifact", input={"ref": msgspec.to_builtins(ref)}))
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert got.data == {"rows": rows, "row_count": 2, "columns": ["id", "name"]}


async def test_rows_may_be_put_as_a_table(call_of: CallOf) -> None:
    rows = [{"id": 1}, {"id": 2, "name": "b"}]
    put = await tool.run(call_of("artifact", action="put", format="arrow", input={"data": rows}))
    assert (put.data["media_type"], put.data["rows"]) == (ARROW_STREAM, 2)
    got = await tool.run(call_of("artifact", input={"ref": put.data}))
    assert got.data["rows"] == [{"id": 1, "name": None}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize("data", [[{"a": {}}], {"a": 1}, [{"a": 1}, {"a": "x"}]])
async def test_what_is_no_flat_table_is_refused_as_one(call_of: CallOf, data: Any) -> None:
    put = await tool.run(call_of("artifact", action="put", format="arrow", input={"data": data}))
    assert put.error is not None
    assert put.error.kind == "transform"


async def test_text_comes_back_as_text_and_other_bytes_in_base64(call_of: CallOf, payloads: Any) -> None:
    text = msgspec.to_builtins(await payloads.store("é".encode(), "text/csv; charset=utf-8"))
    raw = msgspec.to_builtins(await payloads.store(b"\xff", "image/png"))
    assert (await tool.run(call_of("artifact", input={"ref": text}))).data == "é"
    assert (await tool.run(call_of("artifact", input={"ref": raw}))).data == "/w=="


async def test_a_large_payload_comes_back_whole(call_of: CallOf) -> None:
    data = ["x" * 1000] * 1000
    put = await tool.run(call_of("artifact", action="put", input={"data": data}))
    assert (await tool.run(call_of("artifact", input={"ref": put.data}))).data == data


async def test_problems_say_what_is_wrong(call_of: CallOf, payloads: Any) -> None:
    sha = "0" * 64
    ref = {"sha256": sha, "stored_sha256": sha, "media_type": JSON, "bytes": 1}
    missing = {**ref, "uri": payload_uri("acme", "sales", sha)}
    foreign = {**ref, "uri": payload_uri("acme", "finance", sha)}
    broken = msgspec.to_builtins(await payloads.store(b"{", JSON))
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"input": {"ref": missing}}, "not_found", "there is no object"),
        ({"input": {"ref": foreign}}, "schema", "this tenant and organization"),
        ({"input": {"ref": {"uri": "x", "sha256": 3}}}, "schema", "not sound"),
        ({"input": {"ref": broken}}, "parse", "no JSON"),
        ({"input": {"ref": missing["uri"]}}, "not_found", "no event refers to"),
        ({"input": {"ref": {"kind": "result_ref", "ref": missing["uri"]}}}, "not_found", "no event refers to"),
        ({"input": {"ref": "somewhere"}}, "schema", "there is no reference"),
        ({"input": {"ref": {"kind": "result_ref", "meta": {}}}}, "schema", "there is no reference"),
        ({}, "schema", "there is no reference"),
        ({"action": "put"}, "schema", "needs input.data"),
        ({"action": "put", "format": "xml", "input": {"data": 1}}, "schema", "neither json nor arrow"),
        ({"action": "put", "input": {"data": object()}}, "transform", "cannot be stored"),
        ({"action": "burn"}, "schema", "neither get nor put"),
    ]
    for options, kind, words in cases:
        outcome = await tool.run(call_of("artifact", **options))
        assert outcome.error is not None, options
        assert outcome.error.kind == kind
        assert words in outcome.error.message
