"""`noetl stream divergence` and `noetl stream lost`: does the stream say what the ledger says, and what is gone."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click
import msgspec

from noetl.cli.tables import rendered

if TYPE_CHECKING:
    from noetl.stream.loss import Lost
    from noetl.stream.shadow import Divergence

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@_JSON
def divergence(as_json: bool) -> None:
    """Show what a materializer in `shadow` found: rows it would write alike, misses and differences. Exit 1 on any.

    \b
    Examples:
      noetl stream divergence
      noetl stream divergence --json
    """
    found = asyncio.run(_divergence())
    diverges = any(one.diverges for one in found)
    if as_json:
        click.echo(json.dumps({"diverges": diverges, "shards": msgspec.to_builtins(found)}, indent=2))
    elif not found:
        click.echo("Nothing is compared yet: set event_store.write_path to shadow and run some work.")
    else:
        columns = ("shard", "compared up to", "head", "alike", "missing", "different", "again", "first")
        click.echo(rendered(columns, [_line(one) for one in found]))
        seen, alike = sum(one.seen for one in found), sum(one.equal for one in found)
        click.echo(
            f"{alike:,} of {seen:,} messages would be written as they stand; "
            + ("THEY DIVERGE" if diverges else "no divergence")
            + "."
        )
    if diverges:
        raise SystemExit(1)


@click.command()
@_JSON
def lost(as_json: bool) -> None:
    """List facts that the stream acknowledged and no longer has, and that are not in the ledger. Exit 1 on any.

    Every server notes beside itself what was acknowledged. A stream that lost its disk is thereby known by exactly the
    facts that are gone; decided changes are never among them, they wait in PostgreSQL and are published again.

    \b
    Examples:
      noetl stream lost
      noetl stream lost --json
    """
    found = asyncio.run(_lost())
    if as_json:
        click.echo(json.dumps({"lost": [one.told() for one in found]}, indent=2))
    elif not found:
        click.echo("Every acknowledged fact is in the ledger or in the stream.")
    else:
        columns = ("event", "execution", "tenant", "organization", "shard", "sequence", "read token")
        lines = [tuple(str(one.told()[name]) for name in
                       ("event_id", "execution_id", "tenant_id", "organization_id", "shard", "sequence", "read_token"))
                 for one in found]  # fmt: skip
        click.echo(rendered(columns, lines))
        click.echo(f"{len(found):,} acknowledged facts are gone.")
    if found:
        raise SystemExit(1)


def _line(one: Divergence) -> tuple[str, ...]:
    what = "-" if one.first is None else f"event {one.first['event_id']}: {one.first['what']}"
    return (
        str(one.shard), f"{one.position:,}", f"{one.head:,}", f"{one.equal:,}", f"{one.missing:,}", f"{one.different:,}",
        f"{one.redelivered:,}", what,
    )  # fmt: skip


async def _divergence() -> list[Divergence]:
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.stream.shadow import divergence as report

    async with open_runtime(load_settings()) as runtime:
        return await report(runtime.database)


async def _lost() -> list[Lost]:
    from noetl.runtime.config import load_settings
    from noetl.runtime.streams import open_stream
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path import journal_directory
    from noetl.stream.loss import lost_facts

    settings = load_settings()
    async with open_runtime(settings) as runtime, open_stream(settings, runtime.database, "writes") as writes:
        return await lost_facts(runtime.database, writes, journal_directory(settings))
