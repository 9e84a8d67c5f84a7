"""The whole story of open work: every way its rows change."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Transition
from noetl.testing.samples.executions import IDS, SCOPE, Driven, joined, one, token


def whole_story(run: Driven) -> list[Transition]:
    """Every way open work changes, one after another; what ends last is left to the caller."""
    first, second, third, shard, last = (IDS.mint() for _ in range(5))
    held = [token() for _ in range(6)]
    rows_ref = run.drafts.payload(rows=10)
    of_shard = {"shard_id": f"{run.stage_id}-3", "node_name": "each"}
    handed = {"worker": "w9", "attempt": 1, "lease_token": token().upper(), "lease_seconds": 12.5}
    ctx = {"set": {"a": {"b": [1, 2.5, None, True]}, "c.d": 1e-7, "ü": 123456789.125}}
    other, loop = IDS.mint(), run.stage_id
    lone = Driven(SCOPE, run.execution_id)
    lone.stage_id = other

    def shard_event(kind: str, meta: dict[str, Any], **fields: Any) -> Transition:
        given = {"stage_id": loop, "frame_id": shard, "shard_id": of_shard["shard_id"], "meta": meta, **fields}
        return one(run.drafts.loop(run.execution_id, run.loop_id, kind, **given))

    def shard_lease(attempt: int) -> dict[str, Any]:
        row = {"row_count": 1, "frame_index": 3, "lease_token": token(), "lease_seconds": 2.0}
        return {"attempt": attempt, "worker": "w1", **row}

    return [
        run.requested(parent_execution_id=IDS.mint(), meta={"parent_command_id": "up/1/0"}),
        run.issued("a/1/0", "a/1/1", stage_id=run.stage_id, loop_id=run.loop_id, near={"node": "n1", "zone": "z1"}),
        run.issued("handed/1/0", **handed),
        run.issued("child/1/0", child_execution_id=str(IDS.mint())),
        run.claimed("a/1/0", held[0]),
        run.command("a/1/0", "command.attempt_failed", run.fence("a/1/0", 1, held[0]), delay_seconds=0.1234565),
        run.claimed("a/1/0", held[1], attempt=2, worker="w2"),
        run.command("a/1/0", "command.abandoned", attempt=2),
        run.claimed("a/1/0", held[1], attempt=3, worker="w3"),
        run.command("a/1/0", "command.returned", attempt=3, delay_seconds=0.25),
        run.opened(None),
        lone.opened(0, "reduce"),
        run.dispatched(first, held[2], payload_ref=rows_ref),
        run.dispatched(second, held[3], index=1),
        run.dispatched(third, held[4], index=2),
        run.frame(first, "frame.checkpointed", context={"cursor": {"done": 3, "at": "x"}}),
        run.frame(first, "frame.abandoned"),
        run.dispatched(first, held[5], attempt=2),
        run.frame(first, "frame.attempt_failed", meta={"attempt": 2}),
        run.frame(second, "frame.committed", meta={"failed_count": 2, "swallowed": 1}, context=ctx),
        run.frame(third, "frame.failed", context={"set": {"c.d": "later"}}),
        shard_event("loop.shard.enqueued", shard_lease(1), current_index=30, command_id="a/1/1"),
        shard_event("loop.shard.abandoned", {"attempt": 1}),
        shard_event("loop.shard.enqueued", shard_lease(2), current_index=30, command_id="a/1/1"),
        shard_event("loop.shard.attempt_failed", {"attempt": 2}),
        shard_event("loop.shard.enqueued", shard_lease(3), current_index=30, command_id="a/1/0"),
        shard_event("loop.shard.done", {"attempt": 3, "row_count": 1}, context={"set": {"n": 1.0}}),
        shard_event("loop.shard.enqueued", shard_lease(1), current_index=31, frame_id=last, command_id="a/1/0"),
        shard_event("loop.shard.failed", {"attempt": 1, "row_count": 1}, frame_id=last),
        joined(run.command("handed/1/0", "command.completed"), lone.closed()),
        run.command("child/1/0", "command.failed"),
    ]
