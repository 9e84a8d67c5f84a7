"""A run of a loop with frames, told to the ledger event by event, then questioned: what is, what was, and is it so?

Everything lives on the embedded defaults: PostgreSQL and payloads in .noetl/, nothing installed beforehand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from noetl.kernel.payloads.codec import ARROW_STREAM, encode_table
from noetl.kernel.replay.as_of import AsOf
from noetl.model.catalogue import BY_NAME
from noetl.model.event import Draft
from noetl.model.ids import snowflake_time
from noetl.model.stream import Stream, execution_stream, frame_stream, loop_stream, stage_stream
from noetl.runtime.config import load_settings
from noetl.runtime.wiring import Runtime, open_runtime

PATIENTS = 1_000
FRAME_ROWS = 50
WORKERS = 4


class Run:
    """One execution: a step that loops over patients in frames."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.execution_id, self.loop_id, self.stage_id = runtime.ids.mint_many(3)
        self.stream = execution_stream(runtime.scope, self.execution_id)

    async def record(self, stream: Stream, kind: str, **fields: Any) -> int:
        """Append one event and return its position."""
        event_type, event_id = BY_NAME[kind], self._runtime.ids.mint()
        draft = Draft(
            event_id=event_id,
            tenant_id=stream.tenant_id,
            organization_id=stream.organization_id,
            execution_id=self.execution_id,
            stream_id=stream.stream_id,
            aggregate_type=event_type.aggregate,
            aggregate_id=stream.stream_id.rsplit("/", 1)[-1],
            event_type=kind,
            schema_name=event_type.schema_name,
            schema_version=event_type.version,
            event_time=snowflake_time(event_id),
            producer="noetl://tenant/default/org/default/worker/demo",
            correlation_id=str(self.execution_id),
            idempotency_key=f"{stream.stream_id}/{kind}/{fields.get('meta', {}).get('attempt', 1)}",
            **fields,
        )
        return (await self._runtime.ledger.append(stream, [draft])).last_position

    async def play(self) -> int:
        """Tell the whole run; return the position in its middle."""
        scope, node = self._runtime.scope, {"node_name": "fetch_patients"}
        loop = loop_stream(scope, self.execution_id, self.loop_id)
        stage = stage_stream(scope, self.execution_id, self.stage_id)
        frames = range(0, PATIENTS, FRAME_ROWS)
        await self.record(self.stream, "playbook.initialized", context={"path": "examples/patients"})
        await self.record(self.stream, "step.entered", **node)
        await self.record(
            loop, "loop.started", loop_id=self.loop_id, meta={"collection_size": PATIENTS, "mode": "cursor"}, **node
        )
        await self.record(
            stage, "stage.opened", stage_id=self.stage_id, meta={"kind": "loop", "dsl_ref": "workflow/1"}, **node
        )
        first, second = list(frames)[: len(frames) // 2], list(frames)[len(frames) // 2 :]
        await self._frames(first, lose_one=True)
        middle = (await self._runtime.ledger.head()).positions[self.stream.shard]
        await self._frames(second)
        tally = {"total": PATIENTS, "completed": PATIENTS, "failed": 0}
        await self.record(loop, "loop.done", loop_id=self.loop_id, result={"status": "ok", "context": tally}, **node)
        await self.record(stage, "stage.closed", stage_id=self.stage_id, status="COMPLETED", **node)
        await self.record(self.stream, "step.exited", **node)
        await self.record(self.stream, "playbook.completed")
        return middle

    async def _frames(self, starts: Sequence[int], *, lose_one: bool = False) -> None:
        limit = asyncio.Semaphore(WORKERS)

        async def work(number: int, start: int) -> None:
            async with limit:
                await self._frame(start, f"worker-{number % WORKERS}", lost=lose_one and number == 0)

        await asyncio.gather(*(work(number, start) for number, start in enumerate(starts)))

    async def _frame(self, start: int, worker: str, *, lost: bool) -> None:
        """Work off one window of rows; if the first worker is lost, another takes the same rows over."""
        frame_id = self._runtime.ids.mint()
        stream = frame_stream(self._runtime.scope, self.execution_id, frame_id)
        ids = {"stage_id": self.stage_id, "frame_id": frame_id, "loop_id": self.loop_id, "node_name": "fetch_patients"}
        rows = {"cursor": {"first": start, "last": start + FRAME_ROWS}}
        given = {"worker": worker, "row_count": FRAME_ROWS}
        await self.record(stream, "frame.dispatched", meta={"attempt": 1, **given}, context=rows, **ids)
        attempt = 1
        if lost:
            await self.record(stream, "frame.abandoned", meta={"attempt": 1}, **ids)
            attempt = 2
            await self.record(stream, "frame.dispatched", meta={**given, "attempt": 2, "worker": "worker-9"}, **ids)
        table = pa.table({"patient": range(start, start + FRAME_ROWS), "score": [n % 7 for n in range(FRAME_ROWS)]})
        encoded = encode_table(table)
        # The payload is durable before any event speaks of it.
        ref = await self._runtime.payloads.store(
            self._runtime.scope, encoded.data, ARROW_STREAM, rows=encoded.rows, schema_digest=encoded.schema_digest
        )
        meta = {"attempt": attempt, "row_count": FRAME_ROWS, "failed_count": 0}
        await self.record(stream, "frame.committed", meta=meta, payload_ref=ref, **ids)


async def main() -> None:
    """Run, project, look back, verify, and say where to look."""
    console = Console()
    began = datetime.now(UTC)
    async with open_runtime(load_settings()) as runtime:
        console.print(
            f"[bold]1. A run[/]: {PATIENTS} patients in frames of {FRAME_ROWS}; one worker is lost on the way"
        )
        run = Run(runtime)
        middle = await run.play()
        head = await runtime.ledger.head()
        events = [event async for event in runtime.ledger.read_execution(runtime.scope, run.execution_id)]
        console.print(
            f"   {len(events)} events for {PATIENTS} rows in {(datetime.now(UTC) - began).total_seconds():.1f} s"
        )

        console.print("[bold]2. Projections[/] are folded from the events")
        await runtime.projector().run_until(head)

        console.print("[bold]3. Replay[/] gives the state of any moment")
        shown = Table("as of position", "status", "loop done", "of", "frames ended", "checksum")
        for as_of in (middle, head.positions[run.stream.shard]):
            state = await runtime.replay.state(
                runtime.scope, run.execution_id, as_of=AsOf(position=as_of), projection="all"
            )
            execution, frames = state.rows["execution"][0]["row"], [each["row"] for each in state.rows["frame"]]
            loop = execution["state"]["loop"]["fetch_patients"]
            ended = sum(frame["status"] == "COMMITTED" for frame in frames)
            shown.add_row(
                str(as_of), execution["status"], str(loop["done"]), str(loop["total"]), str(ended), state.checksum[:16]
            )
        console.print(shown)

        console.print("[bold]4. Proof[/]: the ledger replayed against the live projections and inline rows")
        report = await runtime.verifier.verify(runtime.scope, run.execution_id)
        console.print(f"   {'[green]equal[/]' if report.clean else '[red]different[/]'}")
        console.print("\n[bold]Where to look[/]")
        for command in (
            f"events {run.execution_id}",
            f"replay {run.execution_id} --as-of {middle} --projection frame",
            f"verify {run.execution_id}",
            "projections status",
            "payloads list",
            "db status",
        ):
            console.print(f"  .venv/bin/noetl {command}", soft_wrap=True, highlight=False)
        raise SystemExit(0 if report.clean else 1)


if __name__ == "__main__":
    asyncio.run(main())
