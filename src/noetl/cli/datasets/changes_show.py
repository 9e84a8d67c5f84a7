"""What the commands that change data say: invalidations, backfills and what was missed, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.terminal.tables import rendered

if TYPE_CHECKING:
    from noetl.pipelines.changes.backfills.preview import BackfillPlan
    from noetl.pipelines.changes.backfills.rows import Backfill, Progress
    from noetl.pipelines.changes.invalidations import Invalidation
    from noetl.pipelines.changes.reconciliation import Reconciled
    from noetl.pipelines.tasks.rows import JobState

_SHOWN = 20


def printed(as_json: bool, facts: Callable[[], Any], text: Callable[[], str]) -> None:
    """Print JSON or text."""
    if as_json:
        click.echo(json.dumps(facts(), indent=2, ensure_ascii=False, default=str))
    else:
        click.echo(text().rstrip("\n"))


def invalidation_facts(one: Invalidation) -> dict[str, Any]:
    """Return an invalidation as JSON has it."""
    import msgspec

    return {**msgspec.to_builtins(one), "invalidation_id": str(one.invalidation_id)}


def invalidation_sentence(one: Invalidation, error: str | None) -> str:
    """Say what was said to be wrong and what follows."""
    where = one.partition_key or ", ".join(_bounds(column, given) for column, given in (one.row_filter or {}).items())
    tasks = sum(one.dependents.values())
    if not tasks:
        return f"{where} of {one.dataset} is noted as wrong; nothing is made by it or of it, so nothing follows"
    jobs = ", ".join(sorted(one.jobs.values()))
    said = f"{where} of {one.dataset} is wrong: {_count(tasks, 'task')} of {jobs} follow (run {one.invalidation_id})"
    if error:
        return f"{said}\nfailed: {error}\nhint: `noetl tasks list --status failed`, then `noetl tasks retry TASK`"
    return said if one.status == "open" else f"{said}; all are done"


def invalidations_table(found: Sequence[Invalidation]) -> str:
    """Return invalidations as a table."""
    rows = [
        (
            str(one.invalidation_id),
            one.dataset or one.dataset_uuid[:8],
            one.partition_key or ", ".join(_bounds(name, given) for name, given in (one.row_filter or {}).items()),
            one.reason,
            one.status,
            f"{sum(one.processed_by.values())}/{sum(one.dependents.values())}",
            f"{one.created_at:%Y-%m-%d %H:%M}",
            one.closed_because or one.note or "",
        )
        for one in found
    ]
    return rendered(("invalidation", "dataset", "wrong", "reason", "status", "done", "said", "note"), rows)


def reconciled_facts(found: Reconciled) -> dict[str, Any]:
    """Return what was missed as JSON has it."""
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(found)
    for one in facts["dags"]:
        one["execution_id"] = None if one["execution_id"] is None else str(one["execution_id"])
    return {**facts, "closed": [str(one) for one in found.closed], "missed": found.missed}


def reconciled_text(found: Reconciled) -> str:
    """Say what was missed."""
    lines = []
    for one in found.dags:
        if one.execution_id is None:
            lines.append(f"{one.dag}: nothing was missed")
            continue
        lines.append(f"{one.dag}: {_count(len(one.partitions), 'task')} were missed (run {one.execution_id})")
        lines += [f"  {job} [{key}]" for job, key in one.partitions[:_SHOWN]]
        if len(one.partitions) > _SHOWN:
            lines.append(f"  and {len(one.partitions) - _SHOWN:,} more")
    lines += [f"invalidation {one} is closed: nobody uses what it asked for" for one in found.closed]
    if found.undelivered:
        lines.append(f"{found.undelivered} changes could not be routed: see `noetl tasks outbox`")
    return "\n".join(lines) or "no DAG serves readers yet"


def state_facts(found: JobState) -> dict[str, Any]:
    """Return what an operator keeps as JSON has it."""
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(found)
    return facts


def state_text(found: JobState) -> str:
    """Say what an operator keeps."""
    head = f"{found.dag}.{found.job} ({found.operator}, generation {found.generation[:8]})"
    if not found.states:
        return f"{head} keeps nothing"
    return "\n".join([f"{head} keeps:", *(f"  {one.state_key}: {json.dumps(one.state)}" for one in found.states)])


def plan_facts(plan: BackfillPlan) -> dict[str, Any]:
    """Return a plan as JSON has it, without the partitions between the first and the last."""
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(plan)
    del facts["keys"]
    return facts


def plan_text(plan: BackfillPlan) -> str:
    """Say what a backfill does."""
    kind = "source" if plan.is_source else "job"
    if not plan.total:
        return f"{plan.dataset}: there is nothing to build from {plan.selection.start} to {plan.selection.end}"
    lines = [f"{plan.dataset}: {_count(plan.total, 'partition')} to build again by the {kind} {plan.dag}.{plan.job}"]
    if plan.whole:
        lines = [f"{plan.dataset}: the job {plan.dag}.{plan.job} is worked whole, so one task builds all of it again"]
    else:
        lines.append(f"  from {plan.first} to {plan.last}")
    lines.append(f"  built before: {plan.standing:,}")
    if plan.without_input:
        lines.append(f"  left out, since inputs have nothing for them: {plan.without_input:,}")
    if plan.following:
        lines.append(f"  followed by: {', '.join(plan.following)}")
    known = "" if plan.seconds is None else f", about {_duration(plan.seconds)} for these alone"
    lines.append(f"  at most {plan.max_in_flight} at a time{known}")
    return "\n".join(lines)


def backfill_facts(one: Backfill, progress: Progress | None = None) -> dict[str, Any]:
    """Return a backfill as JSON has it."""
    import msgspec

    facts: dict[str, Any] = {**msgspec.to_builtins(one), "backfill_id": str(one.backfill_id)}
    return facts if progress is None else {**facts, "progress": msgspec.to_builtins(progress)}


def backfill_text(one: Backfill, progress: Progress) -> str:
    """Say how far a backfill is."""
    asked = one.selection
    fixed = "".join(f", {name}={value}" for name, value in asked.get("fixed", {}).items())
    lines = [
        f"backfill {one.backfill_id} of {one.dag}.{one.job}: {one.status}",
        f"  {asked.get('column')} from {asked.get('start')} to {asked.get('end')}{fixed}, asked for by {one.requested_by}",
        f"  {one.made:,} of {one.total:,} partitions given out, {progress.built:,} built, {progress.failed:,} failed",
        f"  {progress.open:,} tasks under way of at most {one.max_in_flight}, {progress.following:,} follow",
    ]
    if one.error:
        lines.append(f"  {one.error}")
    return "\n".join(lines)


def backfills_table(found: Sequence[Backfill]) -> str:
    """Return backfills as a table."""
    rows = [
        (
            str(one.backfill_id),
            f"{one.dag}.{one.job}",
            f"{one.selection.get('start')}..{one.selection.get('end')}",
            one.status,
            f"{one.made}/{one.total}",
            f"{one.created_at:%Y-%m-%d %H:%M}",
            one.error or "",
        )
        for one in found
    ]
    return rendered(("backfill", "job", "range", "status", "made", "requested", "error"), rows)


def _bounds(column: str, given: dict[str, Any]) -> str:
    return f"{column}:{given.get('gte', '')}..{given.get('lt', '')}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
