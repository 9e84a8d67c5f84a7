"""References in reports: each has to lead to an object of the organization that is there and as large as claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from noetl.engine.dispatch.reports.refusals import count, refuse
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

AT_ONCE: Final = 16
MOST: Final = 100_000
"""References in one report."""
Named = tuple[str, PayloadRef]
"""The field of a report and the reference it holds."""


def one(field: str, ref: PayloadRef | None, *, media_types: Sequence[str] = (), rows: int | None = None) -> list[Named]:
    """Return a reference to be looked up; one of another kind, or of other rows than granted, is refused."""
    if ref is None:
        return []
    if media_types and ref.media_type not in media_types:
        refuse(f"{field}.media_type", ref.media_type, f"it has to be {' or '.join(media_types)}")
    if rows is not None and ref.rows is not None and ref.rows != rows:
        refuse(f"{field}.rows", ref.rows, f"the report speaks of {rows}")
    return [(field, ref)]


def many(field: str, refs: Iterable[PayloadRef]) -> list[Named]:
    """Return references to be looked up."""
    return [(f"{field}[{number}]", ref) for number, ref in enumerate(refs)]


class References:
    """Looks references up in the payload store."""

    def __init__(self, payloads: PayloadStore) -> None:
        self._payloads = payloads

    async def check(self, scope: Scope, refs: Sequence[Named]) -> None:
        """Refuse a reference of another organization, or to an object that is not there or of another size."""
        count("the number of references", len(refs), f"a report names {MOST} at most", most=MOST)
        for field, ref in refs:
            problems = ref.problems(scope.tenant_id, scope.organization_id)
            if problems:
                refuse(field, ref.uri, "; ".join(problems))
        wanted = {ref.sha256: (field, ref) for field, ref in refs}
        if len(wanted) == 1:
            await self._look(scope, *next(iter(wanted.values())))
            return
        gate = asyncio.Semaphore(AT_ONCE)

        async def look(field: str, ref: PayloadRef) -> None:
            async with gate:
                await self._look(scope, field, ref)

        await asyncio.gather(*(look(*named) for named in wanted.values()))

    async def _look(self, scope: Scope, field: str, ref: PayloadRef) -> None:
        found = await self._payloads.find(scope, ref.sha256)
        if found is None:
            refuse(field, ref.uri, "there is no such object in the payload store")
        # What compression makes of a size cannot be told without reading the object.
        least = 0 if "zstd" in ref.encoding else ref.bytes
        if found.stored_bytes < least or (ref.encoding == "identity" and found.stored_bytes != ref.bytes):
            refuse(f"{field}.bytes", ref.bytes, f"the stored object has {found.stored_bytes}")
