"""Proves a view: it is computed again in one go at the mark of its newest barrier, and held against its rows one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import NotFound, Unavailable
from noetl.model.event import time_text
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.services.views.barriers import Barrier
from noetl.services.views.run import Surroundings, arguments_of
from noetl.services.views.versions import Version
from noetl.spark.drivers.protocol import RunProgram

PROGRAM: Final = "noetl.spark.views.recomputation:recompute"
FIRST: Final = 10
"""Differences that are told."""
_CLOSE: Final = 1e-9
"""Sums of fractions depend on the order of their parts, so far."""


class RowDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is not what it should be."""

    key: str
    expected: Any
    found: Any


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What came of holding a view against its recomputation."""

    view: str
    version_id: str
    mark: str
    rows: int
    """Rows of the recomputation."""
    late: int
    """Events that came too late, and are in neither."""
    differences: int
    first: tuple[RowDifference, ...]


class Verifying:
    """Verifies the views of one process."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def verify(self, scope: Scope, version: Version, attempt: int = 1) -> Verified:
        """Compute a version's rows again and compare."""
        sink = self._around.sink_of(scope, version, None)
        try:
            held = await sink.held()
        finally:
            await sink.close()
        if held.barrier is None:
            raise NotFound(
                f"view {version.view} has no barrier yet, so there is nothing to verify",
                hint="`noetl views run` brings it up to date",
            )
        late = list(map(_told, held.late))
        expected, stored = await self._computed(scope, version, held.barrier.mark, attempt, late, held.stored)
        found = compared(expected, held.rows if held.stored is None else stored)
        return Verified(
            view=version.view,
            version_id=version.version_id,
            mark=held.barrier.mark,
            rows=len(expected),
            late=held.barrier.late_total,
            differences=len(found),
            first=tuple(found[:FIRST]),
        )

    async def computed(self, scope: Scope, version: Version, mark: Mark, attempt: int = 1) -> dict[str, Any]:
        """Return the rows by key that a version has at a mark, as if nothing ever came late."""
        return (await self._computed(scope, version, mark.token(), attempt, [], None))[0]

    async def _computed(
        self,
        scope: Scope,
        version: Version,
        mark: str,
        attempt: int,
        late: list[dict[str, Any]],
        files: dict[str, Any] | None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the rows by key as they are computed again, and those that are stored where files hold them."""
        around = self._around
        expected: dict[str, Any] = {}
        stored: dict[str, Any] = {}
        told = {"mark": mark, "late": late, "stored": files}
        arguments = arguments_of(around, scope, version) | told
        if version.definition.dataset is not None:
            arguments["pinned"] = await around.pin(scope, version.definition.dataset, Mark.parse(mark))

        async def take(said: dict[str, Any]) -> dict[str, Any]:
            rows = stored if said["stored"] else expected
            for key, value in zip(said["keys"], said["values"], strict=True):
                row: Any = orjson.loads(value)
                rows[key] = _Twice(rows[key], row) if key in rows else row
            return {}

        code = b"" if version.bundle_ref is None else await around.fetch(scope, version.bundle_ref)
        owner = f"{scope.tenant_id}/{scope.organization_id}"
        errand = RunProgram(
            id=f"verify-{version.version_id}", attempt=attempt, organization=owner, reach=around.reach,
            program=PROGRAM, arguments=arguments, settings=dict(version.definition.spark),
        )  # fmt: skip
        async with around.drivers.for_(version.code_digest, code, owner) as driver:
            result = await driver.do(errand, take)
        if result.status != "ok":
            raise Unavailable(f"view {version.view} could not be computed again: {result.error}")
        return expected, stored


class _Twice:
    """Two rows of one key: equal to nothing."""

    def __init__(self, first: Any, second: Any) -> None:
        self.rows: list[Any] = [*(first.rows if isinstance(first, _Twice) else [first]), second]


def compared(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[RowDifference]:
    """Hold rows by key against each other; return what differs, in the order of keys."""
    differences = []
    for key in sorted({*expected, *found}):
        wanted, there = expected.get(key), found.get(key)
        if isinstance(wanted, _Twice):
            differences.append(RowDifference(key=key, expected=wanted.rows, found=there))
        elif key not in expected or key not in found or not _alike(wanted, there):
            differences.append(RowDifference(key=key, expected=wanted, found=there))
    return differences


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and math.isclose(one, other, rel_tol=_CLOSE)
    return bool(one == other)


def _told(barrier: Barrier) -> dict[str, Any]:
    assert barrier.watermark is not None
    return {"since": barrier.since, "mark": barrier.mark, "watermark": time_text(barrier.watermark)}
