"""The `artifact` and `result_fetch` kinds: a reference goes in and its payload comes out, or the reverse."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from noetl.engine.dispatch.loops.results import results_of
from noetl.engine.tools.outcome import Outcome, failed, refusal
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call, Payloads
from noetl.errors import Corrupt, InputError, NoetlError
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, decode_json, decode_table, encode_json, encode_table
from noetl.model.locator import SCHEME
from noetl.model.payload_ref import FRAMES, PayloadRef

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


_INNER: Final = ("ref", "payload", "result_ref")
_DEPTH: Final = 5


def is_reference(value: Any) -> bool:
    """Tell whether a value is a reference, with the fields that are recorded or with those of older playbooks."""
    if not isinstance(value, Mapping):
        return False
    return ("uri" in value and "sha256" in value) or _is_locator(value.get("ref"))


async def reference_in(value: Any, payloads: Payloads) -> PayloadRef:
    """Return the reference a mapping is, or holds under `ref` or `payload`, or that a locator stands for."""
    seen = value
    for _ in range(_DEPTH):
        if isinstance(seen, PayloadRef):
            return seen
        if _is_locator(seen):
            return await payloads.find(seen)
        if not isinstance(seen, Mapping):
            break
        if "uri" in seen and "sha256" in seen:
            try:
                return msgspec.convert({"stored_sha256": seen["sha256"], **seen}, PayloadRef)
            except msgspec.ValidationError as problem:
                raise InputError(f"the reference is not sound: {problem}") from None
        seen = next((seen[name] for name in _INNER if seen.get(name) is not None), None)
    raise InputError(
        "there is no reference: input.result_ref (or ref) takes a mapping with uri and sha256, such as output.ref,"
        " or the text of its uri"
    )


def _is_locator(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(SCHEME)
