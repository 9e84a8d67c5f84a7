"""Who an event belongs to: the scope (tenant and organization), the stream of one aggregate, and the shard of both.

The shard is computed from names, a number below the shard count, and never changes: positions are counted per shard,
so a change here would invalidate every stored cursor and mark.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec
from blake3 import blake3

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STREAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}")
_EXECUTION = re.compile(r"execution/([1-9][0-9]{0,18})(?:/.*)?", re.DOTALL)


class Scope(msgspec.Struct, frozen=True):
    """One organization of one tenant: the boundary that no row, object or query crosses."""

    tenant_id: str
    organization_id: str

    def problems(self) -> list[str]:
        """Say what is wrong with these names; empty when they are sound."""
        return [
            f"{field} {value!r} is not a name of letters, digits, '.', '_' and '-' (128 at most)"
            for field, value in (("tenant_id", self.tenant_id), ("organization_id", self.organization_id))
            if not _NAME.fullmatch(value)
        ]

    def stream(self, stream_id: str) -> Stream:
        """Return a stream of this organization."""
        return Stream(self.tenant_id, self.organization_id, stream_id)


class Stream(msgspec.Struct, frozen=True):
    """The events of one aggregate, with dense versions from 1.

    Streams under `execution/<id>` live in the shard of their execution, so an execution has one order. All others
    (datasets, DAGs, jobs, schedules) outlive executions and live in the shard of their own name.
    """

    tenant_id: str
    organization_id: str
    stream_id: str

    @property
    def scope(self) -> Scope:
        """The organization that owns the stream."""
        return Scope(self.tenant_id, self.organization_id)

    @property
    def execution_id(self) -> int | None:
        """The execution this stream is part of, if it is part of one."""
        found = _EXECUTION.fullmatch(self.stream_id)
        return int(found[1]) if found else None

    @property
    def root(self) -> Stream:
        """The stream whose order this one is part of: that of its execution, or itself."""
        execution_id = self.execution_id
        return self if execution_id is None else execution_stream(self.scope, execution_id)

    @property
    def shard(self) -> int:
        """The shard all events of this stream go to."""
        execution_id = self.execution_id
        key = self.stream_id if execution_id is None else str(execution_id)
        return shard_of(self.tenant_id, self.organization_id, key)

    def problems(self) -> list[str]:
        """Say what is wrong with this stream's names; empty when they are sound."""
        found = self.scope.problems()
        if not _STREAM.fullmatch(self.stream_id):
            found.append(
                f"stream_id {self.stream_id!r} is not a path of letters, digits and . _ : @ + - / (512 at most)"
            )
        return found


def execution_stream(scope: Scope, execution_id: int) -> Stream:
    """Return the stream of an execution itself."""
    return scope.stream(f"execution/{execution_id}")


def stage_stream(scope: Scope, execution_id: int, stage_id: int) -> Stream:
    """Return the stream of a stage of an execution."""
    return scope.stream(f"execution/{execution_id}/stage/{stage_id}")


def frame_stream(scope: Scope, execution_id: int, frame_id: int) -> Stream:
    """Return the stream of a frame of an execution."""
    return scope.stream(f"execution/{execution_id}/frame/{frame_id}")


def loop_stream(scope: Scope, execution_id: int, loop_id: int) -> Stream:
    """Return the stream of one activation of a loop."""
    return scope.stream(f"execution/{execution_id}/loop/{loop_id}")


SHARD_COUNT: Final = 16


@lru_cache(maxsize=16_384)
def shard_of(tenant: str, organization: str, key: str, count: int = SHARD_COUNT) -> int:
    """Return the shard of an execution (key: its id in decimal) or of a stream that outlives one (key: its id)."""
    if count < 1:
        raise ValueError(f"there must be at least one shard, not {count}")
    digest = blake3(f"{tenant}\x1f{organization}\x1f{key}".encode()).digest(length=8)
    return int.from_bytes(digest, "little") % count
