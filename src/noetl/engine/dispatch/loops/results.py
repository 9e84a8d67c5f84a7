"""What the frames of a loop came to: small results inline, large ones in a manifest, and the problems of rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from noetl.engine.dispatch.facts.port import Facts
from noetl.engine.plan.locality import Place, fullest, place_of
from noetl.errors import Corrupt
from noetl.kernel.payloads.arrow_bounds import decode_bounded
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, decode_json, encode_json
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.payload_ref import FRAMES, PayloadRef
from noetl.model.stream import Scope

INLINE_BYTES = 32_768
"""Up to this many bytes of results, as JSON, stand in the step's own result."""
INLINE_FRAMES = 256
"""Results of more frames are not even looked at: whoever needs them fetches them."""
AT_ONCE = 16
"""Payloads of frames that are fetched side by side."""
_LARGE = 256 * 1024

View = Callable[[PayloadRef], Awaitable[bytes | memoryview]]
"""Gives the bytes of a frame's payload."""


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop's rows came to: results that are few, or a manifest and the node that holds most of what it names."""

    results: list[Any] | None = None
    manifest: PayloadRef | None = None
    near: Place | None = None
    near_bytes: int = 0


class Part(msgspec.Struct, frozen=True):
    """How many rows a frame had and where their results are; rows of a frame that failed as a whole have none."""

    rows: int
    ref: PayloadRef | None
    results: int | None = None
    """How many results it gives; None gives one for each row."""

    @property
    def places(self) -> int:
        """How many places it has among the results."""
        return self.rows if self.results is None else self.results


class Gathering:
    """Reads the frames' payloads of a loop."""

    def __init__(self, facts: Facts, payloads: PayloadStore) -> None:
        self._facts = facts
        self.payloads = payloads

    async def gather(self, scope: Scope, execution_id: int, loop_id: int, *, one_per_frame: bool) -> Gathered:
        """Return the rows' results, or the reference of a manifest where they are many, and which node holds most.

        With `one_per_frame` the rows of a frame were worked off together, and came to one result.
        """
        ends = await self._facts.frame_ends(scope, execution_id, loop_id)
        if not ends:
            return Gathered()
        own = {"results": 1} if one_per_frame else {}
        parts = [Part(end.row_count, end.payload_ref, **own) for end in ends]
        if _may_be_few(parts):
            results = await _few_results(parts, lambda ref: self.payloads.view(scope, ref))
            if results is not None:
                return Gathered(results=results)
        manifest = {
            "frames": [
                {
                    "frame_id": str(end.frame_id),
                    "first_index": end.first_index,
                    "rows": end.row_count,
                    "ref": None if end.payload_ref is None else msgspec.to_builtins(end.payload_ref),
                    **own,
                }
                for end in ends
            ]
        }
        # Who worked at a frame again after others is not told by its first dispatch, and counts for no node.
        held = fullest(
            (place_of(end.worker), end.payload_ref.bytes)
            for end in ends
            if end.payload_ref is not None and end.worker is not None
        )
        near, near_bytes = held or (None, 0)
        count = sum(part.rows for part in parts)
        stored = await self.payloads.store(scope, encode_json(manifest), FRAMES, rows=count)
        return Gathered(manifest=stored, near=near, near_bytes=near_bytes)


def _may_be_few(parts: Sequence[Part]) -> bool:
    """Tell whether results may be small as JSON, by how large their tables are without what every table has besides."""
    if len(parts) > INLINE_FRAMES or sum(part.places for part in parts) * 2 > INLINE_BYTES:
        return False
    texts = (max(0, part.ref.bytes - 1024 - 32 * part.places) for part in parts if part.ref is not None)
    return sum(texts) <= INLINE_BYTES


async def _few_results(parts: Sequence[Part], view: View) -> list[Any] | None:
    """Return the results of all rows, or None as soon as they take too much room."""
    results: list[Any] = []
    size = 0
    async for some in _results(parts, view):
        results += some
        size += len(orjson.dumps(some))
        if size > INLINE_BYTES:
            return None
    return results


async def _results(parts: Sequence[Part], view: View) -> AsyncIterator[list[Any]]:
    """Give what the rows of frames came to, frame by frame, some fetched side by side."""
    for first in range(0, len(parts), AT_ONCE):
        for some in await asyncio.gather(*(_of_frame(part, view) for part in parts[first : first + AT_ONCE])):
            yield some


async def _of_frame(part: Part, view: View) -> list[Any]:
    # Rows of a frame that failed as a whole keep their places, so that results and rows stay side by side.
    if part.ref is None:
        return [None] * part.places
    data = await view(part.ref)
    try:
        if part.ref.bytes < _LARGE:
            return rows_of(data, part.places)
        return await asyncio.to_thread(rows_of, data, part.places)
    except Corrupt as problem:
        raise Corrupt(f"the results {part.ref.uri} cannot be read: {problem}") from None


async def results_of(manifest: Any, view: View) -> list[Any]:
    """Return what the rows of the frames that a manifest names came to, in their order."""
    try:
        parts = msgspec.convert(manifest["frames"], list[Part])
    except (KeyError, TypeError, msgspec.ValidationError) as problem:
        raise Corrupt(f"this is no manifest of frames: {problem}") from None
    return [value async for some in _results(parts, view) for value in some]


async def loaded(payloads: PayloadStore, scope: Scope, ref: PayloadRef) -> Any:
    """Return the value a reference stands for: JSON as it is, a table's rows, what the rows of a loop came to."""
    if ref.media_type == ARROW_STREAM:
        return {"rows": rows_of(await payloads.view(scope, ref))}
    data = await payloads.fetch(scope, ref)
    if ref.media_type == FRAMES:
        return await results_of(decode_json(data), lambda part: payloads.view(scope, part))
    return decode_json(data) if ref.media_type == JSON else data.decode(errors="replace")


def rows_of(data: bytes | memoryview, rows: int | None = None) -> list[Any]:
    """Return what the rows of a frame's payload came to, in their order; a failed row gives None.

    A worker wrote it: with `rows` it has to have just so many, and it never comes to more than its bytes can hold.
    """
    table = decode_bounded(data, rows=rows, flat="data")
    try:
        values: list[Any] = table.column("data").to_pylist()
        if (table.schema.field("data").metadata or {}).get(b"noetl.form") == b"json":
            return [None if value is None else orjson.loads(value) for value in values]
    except (KeyError, TypeError, ValueError) as problem:
        raise Corrupt(f"this table is not what the rows of a frame came to: {problem}") from None
    return values


SHOWN_CHARACTERS = 500
"""Of a problem, where it stands in a sentence."""


class RowProblem(msgspec.Struct, frozen=True, order=True):
    """One row that failed, or all rows of a frame that failed as a whole, and why."""

    first_index: int
    rows: int
    frame_id: int
    message: str

    @property
    def place(self) -> str:
        """Which rows these are."""
        last = self.first_index + self.rows - 1
        return f"row {self.first_index}" if self.rows == 1 else f"rows {self.first_index} to {last}"

    @property
    def text(self) -> str:
        """The message in one line, not too long for a sentence."""
        line = " ".join(self.message.split())
        return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


def row_problems(
    frame_id: int, first_index: int, row_count: int, result: Mapping[str, Any], error: str | None
) -> Iterator[RowProblem]:
    """Give what the end of a frame says of rows that failed: the first few of them, or the frame itself."""
    if errors := result.get("errors"):
        for one in errors:
            yield RowProblem(one.get("index", first_index), 1, frame_id, str(one.get("message") or "failed"))
    elif error is not None:
        yield RowProblem(first_index, row_count, frame_id, error)


async def first_problem(facts: Facts, scope: Scope, execution_id: int, loop_id: int) -> str | None:
    """Say which row of a loop is the first that failed, and why; None where no event tells."""
    end = await facts.first_failure(scope, execution_id, loop_id)
    if end is None:
        return None
    found = min(
        row_problems(end.frame_id, end.first_index or 0, end.row_count or 0, end.result, end.error), default=None
    )
    return None if found is None else f"{found.place}: {found.text}"
