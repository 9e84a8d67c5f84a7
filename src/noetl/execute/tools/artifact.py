"""The `artifact` and `result_fetch` kinds: a reference goes in and its payload comes out, or data go in and a reference comes out."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from noetl.dispatch.results import results_of
from noetl.errors import Corrupt, InputError, NoetlError
from noetl.execute.outcome import Outcome, failed
from noetl.execute.plain import plain
from noetl.execute.tools.port import Call
from noetl.execute.tools.references import reference_in
from noetl.execute.tools.refusals import refusal
from noetl.model.payload_ref import FRAMES
from noetl.payloads.codec import ARROW_STREAM, JSON, decode_json, decode_table, encode_json, encode_table

_LARGE = 256 * 1024


class ArtifactTool:
    """Reads and writes payloads of the organization's store by reference."""

    kind: ClassVar[str] = "artifact"

    async def run(self, call: Call) -> Outcome:
        """Get or put one payload."""
        action = call.options.get("action") or "get"
        try:
            if action == "get":
                return await self._get(call)
            if action == "put":
                return await self._put(call)
        except Corrupt as error:
            return failed("parse", error.message, source=call.kind, code=error.code)
        except NoetlError as error:
            return refusal(error, call.kind)
        return failed("schema", f"action: {action!r} is neither get nor put", source=call.kind)

    async def _get(self, call: Call) -> Outcome:
        given = _first(call.input.get("result_ref"), call.input.get("ref"), call.options.get("ref"))
        ref = await reference_in(given, call.payloads)
        data = await call.payloads.fetch(ref)
        if ref.media_type == FRAMES:
            manifest = decode_json(data)
            rows = await results_of(manifest, call.payloads.view)
            return Outcome(data={"rows": rows, "row_count": len(rows), "frames": manifest["frames"]})
        if len(data) < _LARGE:
            return Outcome(data=_decoded(data, ref.media_type))
        return Outcome(data=await asyncio.to_thread(_decoded, data, ref.media_type))

    async def _put(self, call: Call) -> Outcome:
        if "data" not in call.input:
            raise InputError("action put needs input.data")
        format_name = call.options.get("format") or "json"
        if format_name not in ("json", "arrow"):
            raise InputError(f"format: {format_name!r} is neither json nor arrow")
        try:
            if format_name == "arrow":
                table = await asyncio.to_thread(_table, call.input["data"])
                rows, digest = table.rows, table.schema_digest
                ref = await call.payloads.store(table.data, ARROW_STREAM, rows=rows, schema_digest=digest)
            else:
                data = await asyncio.to_thread(lambda: encode_json(plain(call.input["data"])))
                ref = await call.payloads.store(data, JSON)
        except (TypeError, ValueError) as problem:
            return failed("transform", f"input.data cannot be stored: {problem}", source=call.kind)
        return Outcome(data=msgspec.to_builtins(ref), artifacts=(ref,))


class ResultFetchTool(ArtifactTool):
    """The same under its other name."""

    kind: ClassVar[str] = "result_fetch"


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _table(data: Any) -> Any:
    import pyarrow

    flat = isinstance(data, list) and all(
        isinstance(row, Mapping) and not any(isinstance(item, Mapping | list) for item in row.values()) for row in data
    )
    if not flat:
        raise ValueError("format arrow takes a list of flat mappings")
    names = list(dict.fromkeys(name for row in data for name in row))
    try:
        # from_pylist would take the names of the first row alone.
        return encode_table(pyarrow.table({name: [row.get(name) for row in data] for name in names}))
    except pyarrow.ArrowException as problem:
        raise ValueError(f"the rows do not fit in one table: {problem}") from None


def _decoded(data: bytes, media_type: str) -> Any:
    name = media_type.partition(";")[0].strip().lower()
    if name == JSON or name.endswith("+json"):
        return decode_json(data)
    if name == ARROW_STREAM:
        table = decode_table(data)
        return {"rows": plain(table.to_pylist()), "row_count": table.num_rows, "columns": table.column_names}
    if name.startswith("text/"):
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Corrupt(f"the payload of type {media_type} is not text in UTF-8") from None
    return base64.b64encode(data).decode()
