"""Both ends of a transfer over HTTP: one answer to read, one request per chunk to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from noetl.engine.tools.http.tool import HttpTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call
from noetl.engine.tools.transfer.rows import BadTransfer, Row, TransferFailed, rows_in

_OPTIONS = ("headers", "params", "timeout", "follow_redirects", "verify_ssl", "body", "body_kind")


async def _send(tool: HttpTool, call: Call, spec: Mapping[str, Any], **fields: Any) -> Outcome:
    if not spec.get("url"):
        raise BadTransfer("an http end of a transfer needs `url`")
    key = fields.pop("key", call.key)
    options = {name: spec[name] for name in _OPTIONS if name in spec} | {"url": spec["url"], **fields}
    outcome = await tool.run(
        msgspec.structs.replace(call, kind="http", options=options, auth=spec.get("auth"), key=key)
    )
    if outcome.error is not None:
        raise TransferFailed(outcome.error)
    return outcome


@asynccontextmanager
async def http_source(
    tool: HttpTool, call: Call, spec: Mapping[str, Any], size: int
) -> AsyncIterator[AsyncIterator[list[Row]]]:
    """Lend the rows of an answer, chunk by chunk."""

    async def chunks() -> AsyncIterator[list[Row]]:
        outcome = await _send(tool, call, spec, method=spec.get("method") or "GET")
        path = spec.get("data_path")
        rows = rows_in(outcome.data["data"], None if path is None else str(path))
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    yield chunks()


class HttpTarget:
    """Sends each chunk as one JSON list, with an idempotency key of its own."""

    def __init__(self, tool: HttpTool, call: Call, spec: Mapping[str, Any]) -> None:
        self._tool = tool
        self._call = call
        self._spec = spec
        self._sent = 0

    async def write(self, rows: list[Row]) -> int:
        """Send rows and return how many."""
        self._sent += 1
        method = self._spec.get("method") or "POST"
        await _send(
            self._tool,
            self._call,
            self._spec,
            method=method,
            body=rows,
            body_kind="json",
            key=f"{self._call.key}-{self._sent}",
        )
        return len(rows)


@asynccontextmanager
async def http_target(tool: HttpTool, call: Call, spec: Mapping[str, Any], mode: str) -> AsyncIterator[HttpTarget]:
    """Lend a writer. What was sent stays sent: there is no taking back over HTTP."""
    if mode != "append":
        raise BadTransfer(f"an http target can only append, not {mode}")
    yield HttpTarget(tool, call, spec)
