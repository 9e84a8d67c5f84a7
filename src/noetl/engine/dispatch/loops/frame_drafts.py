"""What is recorded about a frame: a grant, and what came of it, go in; appends and the fences they rely on come out."""

from __future__ import annotations

from typing import Any

from noetl.engine.dispatch.drafts import Drafting
from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport
from noetl.engine.dispatch.open_work.port import HeldFrame
from noetl.kernel.leases import fences
from noetl.kernel.leases.kinds import FRAME
from noetl.kernel.ledger.transition import Append, Fence
from noetl.model.event import Draft
from noetl.model.stream import Scope, Stream, frame_stream


class FrameDrafts:
    """The events of frames, and of shards, which are frames of a fan-out."""

    def __init__(self, drafting: Drafting) -> None:
        self._drafting = drafting

    def dispatched(
        self, scope: Scope, grant: CommandGrant, frame: FrameGrant, worker: str
    ) -> tuple[Append, tuple[Fence, ...]]:
        """Say that a worker has a frame from now on: a new one, or one that was given up."""
        stream = frame_stream(scope, frame.execution_id, frame.frame_id)
        draft = self._draft(
            scope,
            stream,
            frame,
            "loop.shard.enqueued" if frame.shard_id else "frame.dispatched",
            command_id=grant.command_id,
            current_index=frame.first_index,
            payload_ref=frame.rows_ref if frame.attempt == 1 else None,
            causation_id=grant.issued_event_id,
            meta={
                "attempt": frame.attempt,
                "worker": worker,
                "row_count": frame.row_count,
                "frame_index": frame.frame_index,
                "lease_token": frame.token,
                "lease_seconds": frame.lease_seconds,
            },
        )
        if frame.attempt == 1:
            return Append(stream, [draft], 0), ()
        fence = fences.free(FRAME, (frame.execution_id, frame.frame_id), frame.attempt - 1)
        return Append(stream, [draft]), (fence,)

    def committed(
        self, scope: Scope, grant: CommandGrant, frame: FrameGrant, report: FrameReport
    ) -> tuple[Append, Fence]:
        """Say what a frame came to, and before that what its rows put into the payload store to stay there."""
        stream = frame_stream(scope, frame.execution_id, frame.frame_id)
        failed = has_failed(frame, report)
        kind = ("loop.shard.failed" if failed else "loop.shard.done") if frame.shard_id else "frame.committed"
        meta: dict[str, Any] = {
            "attempt": frame.attempt,
            "row_count": report.row_count,
            "frame_index": frame.frame_index,
        }
        if report.failed_count and not failed:
            meta["failed_count"] = report.failed_count
        if report.swallowed:
            meta["swallowed"] = report.swallowed
        status = "error" if report.failed_count else "ok"
        stored = [
            self._drafting.one(
                scope, stream, frame.execution_id, "artifact.stored", f"artifact/{ref.sha256}", node_name=frame.step,
                command_id=grant.command_id, stage_id=frame.stage_id, frame_id=frame.frame_id, loop_id=frame.loop_id,
                payload_ref=ref,
            )
            for ref in report.artifacts
        ]  # fmt: skip
        draft = self._draft(
            scope,
            stream,
            frame,
            kind,
            command_id=grant.command_id,
            current_index=frame.first_index,
            status="failed" if failed else "committed",
            payload_ref=report.output,
            meta=meta,
            context={"set": report.ctx_writes} if report.ctx_writes else {},
            result={"status": status, "errors": report.errors} if report.errors else {},
            error=report.errors[0].get("message") if failed and report.errors else None,
            idempotency_key=f"{frame.execution_id}/frame/{frame.frame_id}/ended/{frame.attempt}",
        )
        return Append(stream, [*stored, draft]), held(frame)

    def failed(self, scope: Scope, frame: FrameGrant, error: dict[str, Any], max_attempts: int) -> Append:
        """Say that an attempt failed, or after the last one that the frame did."""
        stream = frame_stream(scope, frame.execution_id, frame.frame_id)
        is_last = frame.attempt >= max_attempts
        word = "failed" if is_last else "attempt_failed"
        draft = self._draft(
            scope,
            stream,
            frame,
            f"loop.shard.{word}" if frame.shard_id else f"frame.{word}",
            command_id=frame.command_id,
            status="failed" if is_last else None,
            meta={"attempt": frame.attempt, "row_count": frame.row_count, "frame_index": frame.frame_index},
            result={"status": "error", "error": error},
            error=error.get("message", "failed"),
            idempotency_key=f"{frame.execution_id}/frame/{frame.frame_id}/failed/{frame.attempt}",
        )
        return Append(stream, [draft])

    def checkpointed(self, scope: Scope, frame: FrameGrant, cursor: dict[str, Any]) -> Append:
        """Say how far a frame got."""
        stream = frame_stream(scope, frame.execution_id, frame.frame_id)
        draft = self._draft(
            scope,
            stream,
            frame,
            "frame.checkpointed",
            meta={"attempt": frame.attempt},
            context={"cursor": cursor},
            idempotency_key=f"{frame.execution_id}/frame/{frame.frame_id}/checkpoint/{frame.attempt}/{cursor.get('done')}",
        )
        return Append(stream, [draft])

    def lost(self, scope: Scope, frame: HeldFrame, *, may_fail: bool = True) -> Append:
        """Say of a frame that its worker was lost, and after the last attempt the frame with it.

        Its slot is not named: whose frame ended this way made no progress.
        """
        execution_id, frame_id, shard_id = frame.execution_id, frame.frame_id, frame.shard_id
        stream = frame_stream(scope, execution_id, frame_id)
        is_last = may_fail and frame.attempt >= frame.max_attempts
        draft = self._drafting.one(
            scope, stream, execution_id,
            ("loop.shard." if shard_id else "frame.") + ("failed" if is_last else "abandoned"),
            f"loop/{frame.loop_id}" if shard_id else f"frame/{frame_id}",
            node_name=frame.step_name, stage_id=frame.stage_id, frame_id=frame_id, loop_id=frame.loop_id,
            shard_id=shard_id, error=f"its worker {frame.worker} was lost" if is_last else None,
            meta={"attempt": frame.attempt, "row_count": frame.row_count, "worker": frame.worker},
            idempotency_key=f"{execution_id}/frame/{frame_id}/lost/{frame.attempt}" if is_last else None,
        )  # fmt: skip
        return Append(stream, [draft])

    def _draft(self, scope: Scope, stream: Stream, frame: FrameGrant, kind: str, **fields: Any) -> Draft:
        return self._drafting.one(
            scope,
            stream,
            frame.execution_id,
            kind,
            f"loop/{frame.loop_id}" if kind.startswith("loop.") else f"frame/{frame.frame_id}",
            node_name=frame.step,
            stage_id=frame.stage_id,
            frame_id=frame.frame_id,
            loop_id=frame.loop_id,
            shard_id=frame.shard_id,
            **fields,
        )


def held(frame: FrameGrant) -> Fence:
    """Return the fence of a frame's holder."""
    return fences.held(FRAME, frame.lease.proof)


def has_failed(frame: FrameGrant, report: FrameReport) -> bool:
    """Tell whether a frame failed as a whole: a shard does with any row of it."""
    return bool(frame.shard_id) and report.failed_count > 0
