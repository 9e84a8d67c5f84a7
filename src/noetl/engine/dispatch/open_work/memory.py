"""Open work in memory: the rows that transitions left in a `MemoryLedger`, and the leases on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from noetl.engine.dispatch.open_work.port import (
    FrameInHand,
    FreeFrame,
    HeldFrame,
    LostCommand,
    OpenStage,
    PendingCommand,
    SuspendedCommand,
)
from noetl.kernel.leases.kinds import Kind
from noetl.kernel.leases.open_work import Nearness
from noetl.kernel.ledger.memory_work import MemoryWork, WorkRow
from noetl.kernel.ledger.transition import Fence
from noetl.model.lease import Proof
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope


class MemoryOpenWork:
    """See `OpenWork` for the promises."""

    def __init__(self, work: MemoryWork) -> None:
        self._work = work

    async def pending(self, scope: Scope, want: int, near: Nearness, *, loops: bool) -> list[PendingCommand]:
        """Return commands that a worker may claim now."""
        found = []
        for row in self._rows(scope, "command", status="PENDING"):
            at = _time(row["available_at"]) + timedelta(seconds=_opens_after(row["near"], near))
            if at <= self._work.now() and (loops or row["loop_id"] is None):
                found.append((_time(row["available_at"]), int(row["issued_event_id"]), row))
        return [
            PendingCommand(
                execution_id=int(row["execution_id"]),
                command_id=row["command_id"],
                attempt=row["attempt"],
                issued_event_id=event_id,
                lease_seconds=row["lease_seconds"],
                loop_id=_id(row["loop_id"]),
            )
            for _, event_id, row in sorted(found, key=lambda one: one[:2])[:want]
        ]

    async def renew(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Make leases last longer."""
        return [proof for proof in proofs if self._work.renew(scope, _fence(kind, proof))]

    async def holds(self, scope: Scope, fence: Fence) -> bool:
        """Tell whether the lease of a fence lasts."""
        return not self._work.is_broken(scope, msgspec.structs.replace(fence, mode="held"))

    async def gone(self, scope: Scope, kind: Kind, proofs: Sequence[Proof]) -> Collection[Proof]:
        """Return the leases that are somebody else's, or whose work has ended."""
        return [proof for proof in proofs if not self._is_granted(scope, _fence(kind, proof))]

    def _is_granted(self, scope: Scope, fence: Fence) -> bool:
        row = self._work.row(scope, fence.table, fence.execution_id, fence.id)
        return row is not None and (row["attempt"], row["lease_token"]) == (fence.attempt, fence.token)

    async def free_frames(self, scope: Scope, execution_id: int, stage_id: int) -> list[FreeFrame]:
        """Return the frames of a stage that nobody holds."""
        rows = self._rows(scope, "frame", status="FREE", execution_id=str(execution_id), stage_id=str(stage_id))
        return [
            FreeFrame(
                frame_id=int(row["frame_id"]),
                frame_index=row["frame_index"],
                first_index=row["first_index"],
                row_count=row["row_count"],
                attempt=row["attempt"],
                shard_id=row["shard_id"],
                input_ref=None if row["input_ref"] is None else msgspec.convert(row["input_ref"], PayloadRef),
                checkpoint=row["checkpoint"],
                held_by=self._work.last_holder(scope, "frame", execution_id, row["frame_id"]),
            )
            for row in sorted(rows, key=lambda one: int(one["frame_index"]))[:100]
        ]

    async def frames_of(self, scope: Scope, execution_id: int, command_id: str) -> list[HeldFrame]:
        """Return the frames of a slot."""
        rows = self._rows(scope, "frame", status="LEASED", execution_id=str(execution_id), command_id=command_id)
        return [self._frame(scope, row) for row in rows]

    async def frames_in_hand(self, scope: Scope, execution_id: int) -> list[FrameInHand]:
        """Return the frames of an execution that have holders."""
        found = []
        for row in self._rows(scope, "frame", status="LEASED", execution_id=str(execution_id)):
            stage = self._stage(scope, row)
            found.append(
                FrameInHand(
                    stage_id=int(row["stage_id"]),
                    loop_id=_id(stage["loop_id"]),
                    rows_done=stage["rows_done"],
                    rows_failed=stage["rows_failed"],
                    frame_id=int(row["frame_id"]),
                    attempt=row["attempt"],
                    row_count=row["row_count"],
                )
            )
        return sorted(found, key=lambda frame: frame.stage_id)

    async def stage(self, scope: Scope, execution_id: int, stage_id: int) -> OpenStage | None:
        """Return a stage that is not closed."""
        row = self._work.row(scope, "stage", execution_id, str(stage_id))
        if row is None:
            return None
        policy = row["frame_policy"]
        names = ("next_index", "frames_minted", "frames_open", "frames_failed", "rows_done", "rows_failed", "errors")
        return OpenStage(
            **{name: row[name] for name in names},
            ctx=dict(row["ctx"]),
            has_failed_fast=bool(policy.get("fail_fast")) and row["frames_failed"] > 0,
            is_one_per_frame=policy.get("process") == "frame",
            max_attempts=int(policy.get("max_attempts") or 3),
        )

    async def is_suspended(self, scope: Scope, execution_id: int, command_id: str) -> bool:
        """Tell whether a command waits for a child execution."""
        row = self._work.row(scope, "command", execution_id, command_id)
        return row is not None and row["status"] == "SUSPENDED"

    async def expired_commands(self) -> list[LostCommand]:
        """Return commands whose leases ran out."""
        return [
            LostCommand(
                scope=scope,
                execution_id=int(row["execution_id"]),
                command_id=row["command_id"],
                step_name=row["step_name"],
                attempt=row["attempt"],
                lease_token=row["lease_token"],
                worker=row["worker"],
                issued_event_id=int(row["issued_event_id"]),
                stage_id=_id(row["stage_id"]),
                loop_id=_id(row["loop_id"]),
            )
            for scope, row in self._expired("command", "CLAIMED")
        ]

    async def expired_frames(self) -> list[tuple[Scope, HeldFrame]]:
        """Return frames whose leases ran out."""
        return [(scope, self._frame(scope, row)) for scope, row in self._expired("frame", "LEASED")]

    async def forgotten(self, idle_seconds: float) -> list[SuspendedCommand]:
        """Return commands that wait for a child that is not open."""
        since = self._work.now() - timedelta(seconds=idle_seconds)
        return [
            SuspendedCommand(scope, int(row["execution_id"]), row["command_id"], int(row["child_execution_id"]))
            for scope in self._work.scopes()
            for row in self._rows(scope, "command", status="SUSPENDED")
            if _time(row["available_at"]) < since and not self._is_open(scope, int(row["child_execution_id"]))
        ]

    def _rows(self, scope: Scope, table: str, **values: str) -> Iterator[WorkRow]:
        for row in list(self._work.rows(scope, table).values()):
            if all(row[name] == value for name, value in values.items()):
                yield row

    def _expired(self, table: str, status: str) -> Iterator[tuple[Scope, WorkRow]]:
        found = []
        for scope in self._work.scopes():
            for row in self._rows(scope, table, status=status):
                lease = self._work.lease(scope, table, int(row["execution_id"]), row[f"{table}_id"])
                if lease is not None and lease.until <= self._work.now():
                    found.append((lease.until, scope, row))
        for _, scope, row in sorted(found, key=lambda one: one[0]):
            yield scope, row

    def _frame(self, scope: Scope, row: WorkRow) -> HeldFrame:
        stage = self._stage(scope, row)
        lease = self._work.lease(scope, "frame", int(row["execution_id"]), row["frame_id"])
        return HeldFrame(
            execution_id=int(row["execution_id"]),
            frame_id=int(row["frame_id"]),
            stage_id=int(row["stage_id"]),
            loop_id=_id(row["loop_id"]),
            shard_id=row["shard_id"],
            attempt=row["attempt"],
            lease_token=row["lease_token"],
            worker=row["worker"],
            row_count=row["row_count"],
            frame_index=row["frame_index"],
            step_name=stage["step_name"],
            max_attempts=int(stage["frame_policy"].get("max_attempts") or 3),
            has_expired=lease is None or lease.until <= self._work.now(),
        )

    def _stage(self, scope: Scope, frame: WorkRow) -> WorkRow:
        stage = self._work.row(scope, "stage", int(frame["execution_id"]), frame["stage_id"])
        assert stage is not None, "a frame stands only with its stage"
        return stage

    def _is_open(self, scope: Scope, execution_id: int) -> bool:
        return self._work.row(scope, "execution_head", execution_id, str(execution_id)) is not None


def _fence(kind: Kind, proof: Proof) -> Fence:
    assert kind.fence is not None
    execution_id, name = proof.key
    return Fence(kind.fence, execution_id, str(name), proof.attempt, proof.token)


def _opens_after(near: dict[str, str | None] | None, who: Nearness) -> float:
    """Return after how many seconds work that lies somewhere opens for a worker."""
    if near is None:
        return 0.0
    node, zone, region, anywhere = who.opens
    if near.get("node") == who.node:
        return node
    if near.get("region") != who.region:
        return anywhere
    return region if near.get("zone") != who.zone else zone


def _id(text: str | None) -> int | None:
    return None if text is None else int(text)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
