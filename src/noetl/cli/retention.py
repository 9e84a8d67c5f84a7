"""`noetl retention`: show which months of history are kept where, plan and run archiving."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from noetl.ledger.archive.blockers import PartitionTable
    from noetl.ledger.archive.retention import RetentionReport
    from noetl.ledger.archive.rows import ArchiveRow

_KEEP = click.option("--keep-months", type=click.IntRange(1), help="Months kept in the database, over the settings.")
_KEEP_ARCHIVE = click.option(
    "--keep-archive-months", type=click.IntRange(1), help="Months kept in archives, over the settings."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def retention() -> None:
    """Archive and drop history that is old enough.

    A month of events is dropped from the database only when all its executions have ended, all its events are
    projected, and an archive of them in the payload store was read back whole. Replay reads on through archives.
    """


@retention.command()
@_JSON
def status(as_json: bool) -> None:
    """Show which months are in the database, in archives, or gone.

    \b
    Examples:
      noetl retention status
      noetl retention status --json | jq '.archives[] | select(.state == "removed")'
    """
    tables, archives = asyncio.run(_status())
    if as_json:
        click.echo(json.dumps({"partitions": [_table(one) for one in tables], "archives": archives}, indent=2))
        return
    from noetl.cli.tables import rendered

    rows = [
        (one.partition.name, "?" if one.events is None else f"≈ {one.events:,}", f"{one.bytes:,}") for one in tables
    ]
    click.echo(rendered(("in the database", "events", "bytes"), rows), nl=False)
    if archives:
        click.echo()
        shown = [
            (one["partition"], f"{one['tenant_id']}/{one['organization_id']}", f"{one['events']:,}", one["state"])
            for one in archives
        ]
        click.echo(rendered(("archived", "organization", "events", "state"), shown), nl=False)


@retention.command()
@_KEEP
@_KEEP_ARCHIVE
@_JSON
def plan(keep_months: int | None, keep_archive_months: int | None, as_json: bool) -> None:
    """Show what `run` would do, and what stands in its way; exit 1 if something does.

    \b
    Examples:
      noetl retention plan
      noetl retention plan --keep-months 3
    """
    _report(asyncio.run(_retain(keep_months, keep_archive_months, dry_run=True)), as_json)


@retention.command()
@_KEEP
@_KEEP_ARCHIVE
@_JSON
def run(keep_months: int | None, keep_archive_months: int | None, as_json: bool) -> None:
    """Archive and drop what is old enough; exit 1 if some of it had to stay.

    Killed at any point, it leaves nothing half done that the next run does not complete. Without a number of months
    here or in the settings (event_store.retention) history is kept for ever, and only expired keys are deleted.

    \b
    Examples:
      noetl retention run
      noetl retention run --keep-months 3 --keep-archive-months 24
    """
    _report(asyncio.run(_retain(keep_months, keep_archive_months, dry_run=False)), as_json)


async def _status() -> tuple[list[PartitionTable], list[dict[str, Any]]]:
    from noetl.ledger.archive.blockers import partition_tables
    from noetl.ledger.archive.rows import archive_rows
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        tables = await partition_tables(runtime.database)
        async with runtime.database.transaction(None, "retention") as connection:
            return tables, [_archive(row) for row in await archive_rows(connection)]


async def _retain(keep_months: int | None, keep_archive_months: int | None, *, dry_run: bool) -> RetentionReport:
    from noetl.ledger.archive.retention import ensure_partitions, retain
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    settings = load_settings()
    kept = settings.event_store.retention
    async with open_runtime(settings) as runtime:
        if not dry_run:
            await ensure_partitions(runtime.database, settings.event_store.partitions_ahead_months)
        return await retain(
            runtime.database,
            runtime.ledger,
            runtime.payloads,
            mint=runtime.ids.mint,
            keep_months=keep_months or kept.keep_months,
            keep_archive_months=keep_archive_months or kept.keep_archive_months,
            now=datetime.now(UTC),
            dry_run=dry_run,
        )


def _report(report: RetentionReport, as_json: bool) -> None:
    import msgspec

    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        from noetl.cli.tables import rendered

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
            click.echo(
                f"archive {would}removed: {gone.partition} of {gone.scope.tenant_id}/{gone.scope.organization_id}"
            )
        click.echo(f"expired idempotency keys {would}deleted: {report.expired_keys}")
    if report.refused:
        raise SystemExit(1)


def _table(one: PartitionTable) -> dict[str, Any]:
    return {"partition": one.partition.name, "events_estimate": one.events, "bytes": one.bytes}


def _archive(row: ArchiveRow) -> dict[str, Any]:
    return {
        "partition": row.partition.name,
        "tenant_id": row.scope.tenant_id,
        "organization_id": row.scope.organization_id,
        "events": row.events,
        "executions": row.executions,
        "manifest": row.manifest_ref.uri,
        "state": "removed" if row.removed else "archived" if row.dropped else "archived, still in the database",
    }
