"""The payloads of a replay: the values behind the references in rows, and the proof that stored bytes are the right
ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from noetl.errors import NoetlError
from noetl.kernel.payloads.arrow_bounds import decode_bounded
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, decode_json
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.replay.compare import SHOWN
from noetl.kernel.replay.pages import EventPages, reading
from noetl.kernel.replay.report import Difference
from noetl.model.event import Event
from noetl.model.payload_ref import FRAMES, PayloadRef
from noetl.model.stream import Scope

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a payload that is still printed whole."""

_DIGEST: Final = re.compile(r"noetl://.+/payloads/sha256/([0-9a-f]{64})")


async def resolve_rows(
    history: EventPages,
    payloads: PayloadStore,
    scope: Scope,
    execution_id: int | None,
    upto: Mapping[Any, int],
    rows: Mapping[str, list[dict[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Return, by digest, what each payload in the rows is and holds; one that cannot be read says why."""
    wanted = {digest for part in rows.values() for row in part for digest in _digests(row["row"])}
    found: dict[str, dict[str, Any]] = {}
    for key, last in upto.items():
        if not wanted - found.keys() or not last:
            continue
        pages = (
            history.execution_pages(scope, execution_id, to_position=last)
            if execution_id is not None
            else history.shard_pages(key, scope=scope, to_position=last)
        )
        # Rows name a payload by digest; how its bytes are stored is told by the event that refers to it.
        async with reading(pages) as pages_ahead:
            async for page in pages_ahead:
                for event in page:
                    ref = event.payload_ref
                    if ref is not None and ref.sha256 in wanted and ref.sha256 not in found:
                        found[ref.sha256] = await _resolved(payloads, scope, ref)
    unknown = {"error": "no event of this history refers to it"}
    return {digest: found.get(digest, unknown) for digest in sorted(wanted)}


async def _resolved(payloads: PayloadStore, scope: Scope, ref: PayloadRef) -> dict[str, Any]:
    about: dict[str, Any] = {"media_type": ref.media_type, "bytes": ref.bytes}
    if ref.rows is not None:
        about["rows"] = ref.rows
    try:
        if ref.media_type not in (JSON, FRAMES, ARROW_STREAM) or ref.bytes > LARGEST:
            await payloads.check(scope, ref)
            return about
        if ref.media_type in (JSON, FRAMES):
            return {**about, "value": decode_json(await payloads.fetch(scope, ref))}
        table = decode_bounded(await payloads.view(scope, ref))
        return {**about, "value": table.slice(0, 1000).to_pylist()}
    except NoetlError as problem:
        return {**about, "error": f"{problem.code}: {problem.message}"}


def _digests(value: Any) -> Iterator[str]:
    """Find the payload locators in a row, wherever they stand."""
    if isinstance(value, str):
        match = _DIGEST.fullmatch(value)
        if match:
            yield match[1]
    elif isinstance(value, dict | list):
        parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for part in parts:
            yield from _digests(part)


_SEEN: Final = 1_000_000
"""Payload digests remembered so as not to check one twice."""


class PayloadProofs:
    """Proves the stored bytes of payloads, each once, without keys."""

    def __init__(self, store: PayloadStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._seen: set[bytes] = set()
        self.checked = 0
        self.differences: list[Difference] = []

    async def check(self, event: Event) -> None:
        """Prove what an event refers to."""
        for ref in (event.payload_ref, event.fields_ref):
            if ref is not None and bytes.fromhex(ref.sha256) not in self._seen:
                if len(self._seen) < _SEEN:
                    self._seen.add(bytes.fromhex(ref.sha256))
                await self._prove(event, ref)

    async def _prove(self, event: Event, ref: PayloadRef) -> None:
        self.checked += 1
        try:
            await self._store.check(self._scope, ref)
        except NoetlError as problem:
            if len(self.differences) < SHOWN:
                self.differences.append(
                    Difference(
                        where="payload",
                        id=ref.sha256,
                        field=f"bytes, which event {event.event_id} at position {event.position} refers to",
                        expected=ref.stored_sha256,
                        found=f"{problem.code}: {problem.message}",
                    )
                )
