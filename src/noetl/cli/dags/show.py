"""What `noetl dag` says to a person: plans, progress, ends and tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noetl.cli.terminal.tables import first_line, rendered

if TYPE_CHECKING:
    from noetl.model.task import TaskGrant
    from noetl.pipelines.catalog.dags.rows import DagVersion
    from noetl.pipelines.pipelines import Cutover
    from noetl.pipelines.plan.deploy.values import DeployPlan
    from noetl.pipelines.tasks.runs import RunEnd

_SIGNS = {"create": "+", "rebuild": "~", "reuse": "=", "keep": " "}


def plan_text(plan: DeployPlan) -> str:
    """Say what a deploy does: each job with its sign, what becomes of it and why."""
    if plan.changes_nothing:
        return f"{plan.dag}: these files are what serves already (version {plan.dag_version_id[:8]}); nothing to do"
    width = max((len(job.name) for job in plan.jobs), default=0)
    lines = [f"{plan.dag}: version {plan.dag_version_id[:8]}"]
    for job in plan.jobs:
        why = "; ".join(job.reasons)
        lines.append(f"  {_SIGNS[job.action]} {job.name:<{width}}  {job.action}{': ' + why if why else ''}")
    lines += [f"  - {name:<{width}}  removed" for name in plan.removed]
    lines += [f"  {change.change}: {change.name}" for change in plan.names]
    lines += [f"  warning: {warning}" for warning in plan.warnings]
    lines += [f"  problem: {problem}" for problem in plan.problems]
    return "\n".join(lines)


def task_line(grant: TaskGrant, status: str, error: str | None = None) -> str:
    """Say what became of an attempt at a task."""
    where = "" if grant.partition_key == "all" else f" [{grant.partition_key}]"
    again = "" if grant.lease.attempt == 1 else f" (attempt {grant.lease.attempt})"
    why = f": {first_line(error)}" if error else ""
    return f"  {status.lower():<9} {grant.job}{where}{again}{why}"


def end_sentence(what: str, end: RunEnd) -> str:
    """Say how a run ended."""
    said = f"{what} {end.status} (execution {end.execution_id})"
    return said if end.error is None else f"{said}: {end.error}"


def activated_sentence(cutover: Cutover) -> str:
    """Say which version serves now."""
    switched = cutover.switched
    if not switched.changed:
        return f"version {switched.dag_version_id[:8]} of {switched.dag} serves already"
    before = f", instead of {switched.previous[:8]}" if switched.previous else ""
    said = [f"version {switched.dag_version_id[:8]} of {switched.dag} serves readers now{before}"]
    if cutover.cancelled:
        said.append(f"{len(cutover.cancelled)} tasks that nobody needs any more were cancelled")
    if cutover.caught_up is not None:
        said.append(f"what came in meanwhile is worked off by execution {cutover.caught_up}")
    return "; ".join(said)


def status_text(found: dict[str, Any]) -> str:
    """Return a version job by job."""
    from noetl.cli.datasets.show import size_text

    version = found["version"]
    serving = " and serves readers" if found["current"] == version["dag_version_id"] else ""
    head = f"{version['dag']} version {version['dag_version_id'][:8]} is {version['status']}{serving}\n"
    rows = [
        (
            job["name"],
            job["source"] or "reactive",
            job["state"] or "-",
            ", ".join(f"{count} {status.lower()}" for status, count in sorted(job["tasks"].items())) or "-",
            str(job["partitions"]),
            f"{job['rows']:,}",
            size_text(job["bytes"]),
            first_line(job["last_error"]),
        )
        for job in found["jobs"]
    ]
    obstacles = "".join(f"not ready: {one}\n" for one in found["obstacles"])
    return (
        head
        + rendered(("job", "started by", "state", "tasks", "partitions", "rows", "size", "last error"), rows)
        + obstacles
    )


def versions_table(versions: Sequence[DagVersion]) -> str:
    """Return versions as a table."""
    rows = [
        (
            one.dag,
            one.dag_version_id[:8],
            one.status,
            f"{one.created_at:%Y-%m-%d %H:%M:%S}",
            f"{one.activated_at:%Y-%m-%d %H:%M:%S}" if one.activated_at else "-",
            ", ".join(one.built) or "nothing",
        )
        for one in versions
    ]
    return rendered(("dag", "version", "status", "deployed", "activated", "built"), rows)
