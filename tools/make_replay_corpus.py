"""Writes the replay corpus: histories with their payloads and what must come of them, the same bytes each time.

The corpus in `tests/replays` is frozen: run this only to add a history, never to make a failing test pass. A changed
checksum of an old history means that old ledgers would be read differently.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.as_of import AsOf
from noetl.kernel.replay.pages import MerkleRange, counting
from noetl.kernel.replay.replay import Replay
from noetl.model.canonical import canonical_json, sha256_hex
from noetl.model.catalogue import event_type
from noetl.model.event import Draft, Event, to_json
from noetl.model.mark import Mark
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope, Stream
from noetl.model.validate import validate
from noetl.testing.samples.frozen_ledger import FrozenLedger

CORPUS = Path(__file__).parent.parent / "tests" / "replays"
HOME, NEIGHBOUR = Scope("default", "default"), Scope("acme", "care")
FIRST_ID = 604_876_797_720_658_689
Fields = dict[str, Any]
NOON = datetime(2026, 5, 16, 12, tzinfo=UTC)


class Chronicle:
    """A history being written: gives events their ids, times, versions and positions, and keeps the payloads."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.payloads: dict[str, bytes] = {}
        self._versions: dict[Stream, int] = {}
        self._positions: dict[int, int] = {}

    def add(
        self,
        path: str,
        kind: str,
        *,
        run: int = FIRST_ID,
        scope: Scope = HOME,
        version: int | None = None,
        **fields: Any,
    ) -> None:
        """Record an event in a stream: under the run for a path that starts with a slash, else anywhere."""
        found = event_type(kind)
        assert found is not None, kind
        number = len(self.events) + 1
        stream = scope.stream(f"execution/{run}{path}" if not path or path[0] == "/" else path)
        draft = Draft(
            event_id=FIRST_ID + number * 4096,
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            execution_id=run,
            stream_id=stream.stream_id,
            aggregate_type=found.aggregate,
            aggregate_id=stream.stream_id.rpartition("/")[2],
            event_type=kind,
            schema_name=found.schema_name,
            schema_version=found.version if version is None else version,
            event_time=NOON + timedelta(milliseconds=number * 250),
            producer="corpus",
            idempotency_key=f"corpus/{number}" if found.retried else None,
            **fields,
        )
        validate(stream, [draft])
        self._versions[stream] = self._versions.get(stream, 0) + 1
        self._positions[stream.shard] = self._positions.get(stream.shard, 0) + 1
        self.events.append(
            Event(
                **{name: getattr(draft, name) for name in Draft.__struct_fields__},
                stream_version=self._versions[stream],
                shard=stream.shard,
                position=self._positions[stream.shard],
                ingest_time=draft.event_time + timedelta(milliseconds=3),
            )
        )

    def keep(self, value: Any, scope: Scope = HOME, rows: int | None = None) -> PayloadRef:
        """Keep a value as a payload of canonical JSON."""
        data = canonical_json(value)
        digest = sha256_hex(data)
        self.payloads[digest] = data
        return PayloadRef(
            uri=payload_uri(scope.tenant_id, scope.organization_id, digest),
            sha256=digest,
            media_type="application/json",
            bytes=len(data),
            stored_sha256=digest,
            rows=rows,
        )


def simple_run(told: Chronicle) -> None:
    """A run of two steps, and one of a neighbour under the same id that fails; a late event changes neither."""
    for scope, end in ((HOME, "playbook.completed"), (NEIGHBOUR, "playbook.failed")):
        failed: Fields = {"error": "the door is shut \N{LOCK}"} if end == "playbook.failed" else {}
        told.add("", "execution.requested", scope=scope)
        told.add("", "playbook.initialized", scope=scope, catalog_id="0b4c")
        told.add("", "step.entered", scope=scope, node_name="fetch")
        told.add(
            "/command/c1",
            "command.issued",
            scope=scope,
            node_name="fetch",
            command_id="c1",
            meta={"tool_kind": "http"},
        )
        told.add("/command/c1", "command.claimed", scope=scope, command_id="c1", meta={"attempt": 1})
        told.add(
            "/command/c1",
            "command.completed",
            scope=scope,
            command_id="c1",
            payload_ref=told.keep({"rows": [1, 2.5, "\N{SNOWMAN}"]}, scope),
        )
        told.add("", "step.exited", scope=scope, node_name="fetch")
        told.add("", end, scope=scope, **failed)
        told.add("", "step.skipped", scope=scope, node_name="late")


def framed_loop(told: Chronicle) -> None:
    """A loop over a stored collection in frames: a lease that is lost, an attempt that fails, a frame that fails for good."""
    loop: Fields = {"loop_id": 71, "node_name": "each"}
    stage: Fields = {"stage_id": 81}
    told.add("", "playbook.initialized")
    told.add("/loop/71", "loop.started", **loop, meta={"collection_size": 9, "mode": "parallel"})
    told.add(
        "/stage/81",
        "stage.opened",
        **loop,
        **stage,
        meta={"kind": "loop", "dsl_ref": "each"},
        context={"frame_policy": {"size": 3}},
    )
    for number, setbacks in enumerate((["frame.abandoned"], ["frame.attempt_failed", "frame.abandoned"], []), 1):
        frame: Fields = {**stage, "loop_id": 71, "frame_id": 90 + number}
        path, rows = f"/frame/{90 + number}", told.keep([number, number + 1, number + 2], rows=3)
        for attempt, setback in enumerate([*setbacks, None], 1):
            claim = {"attempt": attempt, "worker": f"w{attempt}", "row_count": 3}
            told.add(path, "frame.dispatched", **frame, meta=claim, payload_ref=rows)
            if setback == "frame.attempt_failed":
                told.add(path, setback, **frame, meta={"attempt": attempt}, error="timeout")
            elif setback is not None:
                cursor = {"cursor": {"at": number, "share": 0.1}}
                told.add(path, "frame.checkpointed", **frame, meta={"attempt": attempt}, context=cursor)
                told.add(path, setback, **frame, meta={"attempt": attempt})
        if number == 3:
            told.add(path, "frame.failed", **frame, meta={"attempt": 1, "row_count": 3}, error="no such table")
        else:
            done = {"attempt": len(setbacks) + 1, "row_count": 3, "failed_count": number - 1}
            told.add(path, "frame.committed", **frame, meta=done, payload_ref=told.keep({"ok": 3 - number}))
    told.add("/frame/91", "frame.committed", **stage, loop_id=71, frame_id=91, meta={"attempt": 1, "row_count": 3})
    told.add("/stage/81", "stage.closed", **loop, **stage, status="completed")
    tally = {"total": 9, "completed": 5, "failed": 4}
    told.add("/loop/71", "loop.done", **loop, result={"status": "error", "context": tally})
    told.add("", "workflow.failed", error="4 of 9 rows failed")


def partial_fanout(told: Chronicle) -> None:
    """A fan-out of four shards of which one fails and one ends late; the step is entered a second time."""
    told.add("", "workflow.initialized")
    for loop_id, shards in ((51, 4), (52, 1)):
        loop: Fields = {"loop_id": loop_id, "node_name": "spread"}
        told.add(f"/loop/{loop_id}", "loop.fanout.started", **loop, meta={"total_shards": shards})
        for index in range(shards):
            shard: Fields = {**loop, "shard_id": f"s{index}"}
            told.add(f"/loop/{loop_id}", "loop.shard.enqueued", **shard, current_index=index, current_item={"i": index})
        for index in range(shards - 1 if shards > 1 else 1):
            kind = "loop.shard.failed" if index == 1 else "loop.shard.done"
            told.add(f"/loop/{loop_id}", kind, **loop, shard_id=f"s{index}")
        if loop_id == 51:
            tally = {"done": 2, "failed": 1, "total": 4}
            told.add("/loop/51", "loop.fanin.completed", **loop, result={"status": "partial", "context": tally})
            told.add("/loop/51", "loop.shard.done", **loop, shard_id="s3")


def business_objects(told: Chronicle) -> None:
    """Invoices posted in an old schema and in the new one, by two runs, in streams that outlive both."""
    for run in (FIRST_ID, FIRST_ID + 1):
        told.add("", "playbook.initialized", run=run)
    old, new = {"amount": "12.5"}, {"cents": 399, "currency": "USD"}
    told.add("business_object/invoice/2026-1", "business.invoice.posted", version=1, meta=old)
    told.add("business_object/invoice/2026-2", "business.invoice.posted", version=2, meta=new)
    told.add("business_object/invoice/2026-1", "business.invoice.posted", run=FIRST_ID + 1, version=2, meta=new)
    told.add("business_object/invoice/2026-1", "business.invoice.paid")
    told.add("business_object/invoice/2026-1", "business.invoice.posted", version=1, meta=old)
    told.add("business_object/invoice/2026-2", "business.invoice.posted", run=FIRST_ID + 1, version=1, meta=old)
    told.add("", "playbook.completed", run=FIRST_ID + 1)


HISTORIES: tuple[Callable[[Chronicle], None], ...] = (simple_run, framed_loop, partial_fanout, business_objects)


async def expected(events: list[Event], folds: FoldRegistry, upcasters: Upcasters) -> dict[str, Any]:
    """Return what must come of a history: checksums after each third of it, and all rows at its end."""
    replay = Replay(FrozenLedger(events), MemoryPayloadStore(), MemoryProjectionStore(), folds, upcasters)
    scopes = sorted(
        {event.stream.scope for event in events}, key=lambda scope: (scope.tenant_id, scope.organization_id)
    )
    cuts = []
    for count in sorted({len(events) // 3, 2 * len(events) // 3, len(events)}):
        mark = await FrozenLedger(events[:count]).head()
        cuts.append({"events": count, "mark": mark.token(), "scopes": await _sums(replay, scopes, mark)})
    states = [await replay.state(scope, projection="all") for scope in scopes]
    payloads = MerkleRange()
    counting(payloads)(sorted(events, key=lambda event: (event.shard, event.position)))
    return {
        "fold_versions": {fold.projection: fold.version for fold in folds.folds()},
        "upcaster_digest": upcasters.digest(),
        "payload_root": payloads.root(),
        "cuts": cuts,
        "rows": {_name(state.scope): state.rows for state in states},
    }


async def _sums(replay: Replay, scopes: list[Scope], mark: Mark) -> dict[str, Any]:
    sums = {}
    for scope in scopes:
        state = await replay.state(scope, as_of=AsOf(mark=mark), projection="all", rows="none")
        sums[_name(scope)] = {"projections": state.checksums, "all": state.checksum}
    return sums


def _name(scope: Scope) -> str:
    return f"{scope.tenant_id}/{scope.organization_id}"


def write(directory: Path, folds: FoldRegistry, upcasters: Upcasters) -> None:
    """Write every history under a directory."""
    for tell in HISTORIES:
        told = Chronicle()
        tell(told)
        place = directory / tell.__name__
        (place / "payloads").mkdir(parents=True, exist_ok=True)
        (place / "events.jsonl").write_bytes(b"".join(canonical_json(to_json(event)) + b"\n" for event in told.events))
        for digest, data in told.payloads.items():
            (place / "payloads" / digest).write_bytes(data)
        found = asyncio.run(expected(told.events, folds, upcasters))
        text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
        (place / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(CORPUS))
    import invoices

    write(CORPUS, invoices.folds(), invoices.upcasters())
