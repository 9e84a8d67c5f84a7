"""What `noetl retention status` prints: the months of the ledger, in the database and in archives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from noetl.kernel.ledger.archive.deletion import PartitionTable
    from noetl.kernel.ledger.archive.rows import ArchiveRow


async def show(*, as_json: bool) -> None:
    """Print both lists."""
    tables, archives = await _read()
    if as_json:
        click.echo(json.dumps({"partitions": [_table(one) for one in tables], "archives": archives}, indent=2))
        return
    from noetl.cli.terminal.tables import rendered

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


async def _read() -> tuple[list[PartitionTable], list[dict[str, Any]]]:
    from noetl.kernel.ledger.archive.deletion import partition_tables
    from noetl.kernel.ledger.archive.rows import archive_rows
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        tables = await partition_tables(runtime.database)
        async with runtime.database.transaction(None, "retention") as connection:
            return tables, [_archive(row) for row in await archive_rows(connection)]


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
