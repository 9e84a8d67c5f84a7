"""One execution for people: its own events go in, its steps with their tries, times and loops come out as text or JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from noetl.errors import NotFound

if TYPE_CHECKING:
    from noetl.engine.plan.state import State
    from noetl.model.event import Event
    from noetl.model.stream import Scope
    from noetl.runtime.wiring import Runtime

_STAGES = "SELECT loop_id, rows_done, rows_failed FROM noetl.stage WHERE execution_id = $1 AND loop_id IS NOT NULL"
_NOT_SHOWN = ("began", "ended", "loop_id", "is_counted")
SHOWN_RUNS = 200
"""Activations of steps that are shown; a playbook may go round many times."""


@dataclass
class StepRun:
    """One activation of a step."""

    step: str
    run: int
    status: str
    began: datetime
    ended: datetime | None = None
    tries: int = 0
    loop_id: int | None = None
    rows: int | None = None
    done: int = 0
    failed: int = 0
    not_tried: int = 0
    is_counted: bool = False
    """Its end says how many rows there were."""
    so_far: dict[str, Any] | None = None
    """What workers say came of a loop's rows up to now; None where nothing more is known than what is committed."""
    error: str | None = None

    def seconds(self) -> float:
        """How long it took, or takes already."""
        return ((self.ended or datetime.now(UTC)) - self.began).total_seconds()


@dataclass
class Shown:
    """What is known of an execution."""

    state: State
    version: int | None = None
    began: datetime | None = None
    ended: datetime | None = None
    requested_by: str | None = None
    rerun_of: str | None = None
    kind: str | None = None
    """What a run of a DAG is: a deploy or an emission; nothing for a playbook."""
    tasks: dict[str, int] = field(default_factory=dict)
    """How many tasks of such a run there are, by status."""
    runs: list[StepRun] = field(default_factory=list)

    def seconds(self) -> float | None:
        """How long it took, or takes already."""
        return None if self.began is None else ((self.ended or datetime.now(UTC)) - self.began).total_seconds()


async def shown_execution(runtime: Runtime, scope: Scope, execution_id: int) -> Shown:
    """Read an execution's own events, also archived ones, and add what is counted of its loops."""
    from noetl.engine.plan.state import State, evolve
    from noetl.kernel.payloads.envelope import resolve
    from noetl.model.stream import execution_stream

    shown = Shown(State(execution_id=execution_id))
    async for event in runtime.history.read(execution_stream(scope, execution_id)):
        full = await resolve(runtime.payloads, event)
        shown.state = evolve(shown.state, full)
        _note(shown, full)
    if shown.state.version == 0:
        raise NotFound(
            f"there is no execution {execution_id} in {scope.tenant_id}/{scope.organization_id}",
            hint="`noetl executions list` shows what there is",
        )
    await _count_rows(runtime, scope, execution_id, shown)
    if not shown.state.ended:
        await _count_so_far(runtime, scope, execution_id, shown)
    if shown.kind is not None:
        await _count_tasks(runtime, scope, execution_id, shown)
    return shown


def _note(shown: Shown, event: Event) -> None:
    from noetl.model.catalogue import ENDING

    step, meta = event.node_name or "", event.meta
    if event.event_type == "execution.requested":
        shown.began = event.event_time
        shown.version, shown.requested_by = meta.get("version"), meta.get("requested_by")
        shown.rerun_of = meta.get("rerun_of")
        shown.kind = meta.get("kind")
    elif event.event_type == "step.entered":
        total = (meta.get("loop") or {}).get("total")
        shown.runs.append(StepRun(step, meta["run"], "running", event.event_time, loop_id=event.loop_id, rows=total))
    elif event.event_type == "step.skipped":
        at = event.event_time
        shown.runs.append(StepRun(step, meta["run"], "skipped", at, at, error=meta.get("reason")))
    elif event.event_type in ("command.completed", "command.failed"):
        run = _open(shown, step)
        if run is not None:
            # Tries of a task within one attempt are told by it, further attempts by their number.
            run.tries = max(run.tries, meta.get("attempt", 1), len(meta.get("tries", ())))
    elif event.event_type == "step.exited":
        run = _open(shown, step)
        if run is not None:
            run.status, run.ended, run.error = event.status or "completed", event.event_time, event.error
            if run.loop_id is not None and (came_to := event.result.get("data")) is not None:
                run.rows, run.done, run.failed = came_to["total"], came_to["completed"], came_to["failed"]
                run.not_tried = came_to.get("not_tried", 0)
                run.is_counted = True
    elif event.event_type in ENDING:
        shown.ended = event.event_time
        for run in shown.runs:
            if run.ended is None:
                run.status, run.ended = "stopped", event.event_time


def _open(shown: Shown, step: str) -> StepRun | None:
    return next((run for run in reversed(shown.runs) if run.step == step and run.ended is None), None)


async def _count_rows(runtime: Runtime, scope: Scope, execution_id: int, shown: Shown) -> None:
    """Count the rows of loops that have not said themselves what came of them."""
    uncounted = [run for run in shown.runs if run.loop_id is not None and not run.is_counted]
    if uncounted and not shown.state.ended:
        async with runtime.database.transaction(scope) as connection:
            stages = {row["loop_id"]: row for row in await connection.fetch(_STAGES, execution_id)}
        uncounted = [run for run in uncounted if not _counted(run, stages.get(run.loop_id))]
    if uncounted:
        await _count_projected(runtime, scope, execution_id, uncounted)


def _counted(run: StepRun, stage: Any) -> bool:
    if stage is not None:
        run.done, run.failed = stage["rows_done"], stage["rows_failed"]
    return stage is not None


async def _count_projected(runtime: Runtime, scope: Scope, execution_id: int, runs: list[StepRun]) -> None:
    """Ask the projections about loops that were broken off: nothing else has counted their rows."""
    from noetl.runtime.projections.projector import catch_up

    await catch_up(runtime)
    counts = {}
    for projection in ("loop", "fanout"):
        async for stored in runtime.projections.query(scope, projection, {"execution_id": execution_id}):
            counts[stored.folded.row["loop_id"]] = stored.folded.row
    for run in runs:
        counted = counts.get(str(run.loop_id))
        if counted is not None:
            run.done, run.failed = counted["done"], counted["failed"]
            run.rows = counted.get("total", counted.get("total_shards"))


async def _count_so_far(runtime: Runtime, scope: Scope, execution_id: int, shown: Shown) -> None:
    from noetl.runtime.commands.execution import loops_so_far

    found = {one.loop_id: one for one in await loops_so_far(runtime, scope, execution_id)}
    for run in shown.runs:
        one = None if run.loop_id is None else found.get(run.loop_id)
        if one is not None:
            run.so_far = {
                "done": one.rows_done, "failed": one.rows_failed, "rows_per_second": one.rows_per_second,
            }  # fmt: skip


async def _count_tasks(runtime: Runtime, scope: Scope, execution_id: int, shown: Shown) -> None:
    async with runtime.database.transaction(scope) as connection:
        found = await connection.fetch(
            "SELECT status, count(*) AS tasks FROM noetl.task WHERE execution_id = $1 GROUP BY status ORDER BY status",
            execution_id,
        )
    shown.tasks = {row["status"]: row["tasks"] for row in found}


def facts_of(shown: Shown) -> dict[str, Any]:
    """Return everything as JSON shows it."""
    import msgspec

    from noetl.runtime.commands.run import result_of

    state = shown.state
    return {
        "execution_id": str(state.execution_id),
        "status": state.status,
        "path": state.path,
        "version": shown.version,
        "parent_execution_id": None if state.parent_execution_id is None else str(state.parent_execution_id),
        "requested_by": shown.requested_by,
        "rerun_of": shown.rerun_of,
        "start_time": shown.began and shown.began.isoformat(),
        "end_time": shown.ended and shown.ended.isoformat(),
        "seconds": shown.seconds(),
        "workload": state.workload,
        "ctx": state.ctx,
        "result": result_of(state),
        "error": state.error,
        "failed_step": state.failed_step,
        "swallowed": state.swallowed,
        "steps": [
            {
                **{name: value for name, value in vars(run).items() if name not in _NOT_SHOWN},
                "start_time": run.began.isoformat(),
                "end_time": run.ended and run.ended.isoformat(),
                "seconds": run.seconds(),
                "loop_id": None if run.loop_id is None else str(run.loop_id),
            }
            for run in shown.runs
        ],
        "results": {name: msgspec.to_builtins(result) for name, result in state.results.items()},
        **({} if shown.kind is None else {"kind": shown.kind, "tasks": shown.tasks}),
    }


def show(shown: Shown) -> None:
    """Print an execution for a person."""
    from noetl.cli.run.ending import bounded
    from noetl.cli.terminal.tables import rendered
    from noetl.runtime.commands.run import result_of

    state, seconds = shown.state, shown.seconds()
    took = "" if seconds is None else f" {'in' if state.ended else 'for'} {seconds:.3f} s"
    version = "" if shown.version is None else f" version {shown.version}"
    click.echo(f"{state.status} {state.path}{version}{took}")
    parent = state.parent_execution_id
    lines = [
        ("execution", str(state.execution_id)),
        ("kind", shown.kind),
        ("tasks", ", ".join(f"{count} {status}" for status, count in shown.tasks.items())),
        ("requested by", shown.requested_by),
        ("rerun of", shown.rerun_of),
        ("parent", None if parent is None else str(parent)),
        ("started", None if shown.began is None else f"{shown.began:%Y-%m-%d %H:%M:%S.%f}"[:23]),
        ("error", state.error),
    ]
    for label, value in lines:
        if value:
            click.echo(f"{label}: {value}")
    if shown.kind is not None:
        return  # the run of a DAG has neither workload nor steps
    click.echo(f"workload: {bounded(state.workload)}")
    result = result_of(state)
    if result is not None:
        click.echo(f"result: {bounded(result)}")
    rows = [
        (run.step, str(run.run), run.status, str(run.tries), f"{run.seconds():.3f} s", _rows(run), run.error or "")
        for run in shown.runs[-SHOWN_RUNS:]
    ]
    click.echo()
    click.echo(rendered(("step", "run", "status", "tries", "took", "rows", "error"), rows), nl=False)
    if len(shown.runs) > SHOWN_RUNS:
        click.echo(f"{len(shown.runs) - SHOWN_RUNS} earlier ones are not shown; --json prints all")
    if state.swallowed:
        were = "error was" if state.swallowed == 1 else "errors were"
        click.echo(f"{state.swallowed} {were} let pass: `noetl why {state.execution_id}` tells where")


def _rows(run: StepRun) -> str:
    if run.loop_id is None:
        return ""
    of = "" if run.rows is None else f" of {run.rows}"
    counted = f"{run.done}{of}" + (f", {run.failed} failed" if run.failed else "")
    counted += f", {run.not_tried} never tried" if run.not_tried else ""
    if run.so_far is None:
        return counted
    now = run.so_far["done"] + run.so_far["failed"]
    return f"{counted} ({now} so far, {run.so_far['rows_per_second']:g} rows/s)"
