"""What `noetl retention plan` and `run` print: what goes, what stays, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from noetl.kernel.ledger.archive.retention import RetentionReport
    from noetl.services.retention.plan import Plan
    from noetl.services.retention.run import Done


@dataclass(frozen=True)
class Outcome:
    """A plan, what came of it if it was carried out, and what became of the ledger's months."""

    plan: Plan
    done: Done | None
    months: RetentionReport | None


def show(outcome: Outcome, *, as_json: bool) -> None:
    """Print everything; leave with 1 if a month is old enough and had to stay."""
    if as_json:
        click.echo(json.dumps(_facts(outcome), indent=2))
    else:
        _show_plan(outcome)
        if outcome.months is not None:
            _show_months(outcome.months)
    if outcome.months is not None and outcome.months.refused:
        raise SystemExit(1)


def _facts(outcome: Outcome) -> dict[str, Any]:
    plan = outcome.plan
    own = {
        "tenant_id": plan.scope.tenant_id,
        "organization_id": plan.scope.organization_id,
        "policy": msgspec.to_builtins(plan.policy),
        "lines": msgspec.to_builtins(plan.lines),
        "removed": None
        if outcome.done is None
        else {kind: {"items": items, "bytes": size} for kind, (items, size) in outcome.done.removed.items()},
    }
    months = {} if outcome.months is None else msgspec.to_builtins(outcome.months)
    return {**months, "dry_run": outcome.done is None, "organization": own}


def _show_plan(outcome: Outcome) -> None:
    from noetl.cli.terminal.tables import rendered

    lines = outcome.plan.lines
    if lines:
        goes = "would go" if outcome.done is None else "goes"
        rows = [
            (
                line.kind,
                line.subject,
                goes if line.action == "remove" else "stays",
                f"{line.items:,}",
                f"{line.bytes:,}" if line.bytes else "",
                line.why,
            )
            for line in lines
        ]
        click.echo(rendered(("kind", "of", "", "items", "bytes", "why"), rows), nl=False)
    if outcome.done is not None:
        gone = ", ".join(
            f"{kind} {items:,}" + (f" ({size:,} bytes)" if size else "")
            for kind, (items, size) in outcome.done.removed.items()
            if items or size
        )
        click.echo(f"Let go: {gone or 'nothing'}.")
    elif not outcome.plan.removes:
        click.echo("Nothing of this organization would go.")


def _show_months(report: RetentionReport) -> None:
    from noetl.cli.terminal.tables import rendered

    would = "would be " if report.dry_run else ""
    if report.partitions:
        rows = [
            (one.partition, one.action, one.reason or (f"{one.events:,} events archived" if one.events else ""))
            for one in report.partitions
        ]
        click.echo(rendered(("partition", "action", "why"), rows), nl=False)
    else:
        click.echo("No partition is old enough to be dropped.")
    for gone in report.removed_archives:
        click.echo(f"archive {would}removed: {gone.partition} of {gone.scope.tenant_id}/{gone.scope.organization_id}")
    for kept in report.kept_archives:
        whose = f"{kept.partition} of {kept.scope.tenant_id}/{kept.scope.organization_id}"
        click.echo(f"archive stays: {whose}: {kept.reason}")
    click.echo(f"expired idempotency keys {would}deleted: {report.expired_keys}")
