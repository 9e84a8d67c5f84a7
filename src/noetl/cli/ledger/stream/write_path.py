"""`noetl stream divergence` and `noetl stream lost`: does the stream say what the ledger says, and what is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from noetl.cli.terminal.tables import rendered

if TYPE_CHECKING:
    from noetl.kernel.stream.write_path.shadow import Divergence, Verdict
    from noetl.runtime.write_path.losses import Losses

EXIT_UNPROVEN: Final = 4
_WAIT_SECONDS: Final = 10.0
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.option("--anew", is_flag=True, help="Forget what was found; the shadow begins at the ledger's end.")
@_JSON
def divergence(anew: bool, as_json: bool) -> None:
    """Show what a materializer in `shadow` found: how much it compared, rows it would write alike, misses, differences.

    Exit 0 only where every event since the shadow began was compared and is alike; 1 where anything is missing or different;
    4 where nothing was compared yet, or not all of it. A shadow that runs is given ten seconds to come to the end.

    \b
    Examples:
      noetl stream divergence
      noetl stream divergence --json
      noetl stream divergence --anew
    """
    from noetl.kernel.stream.write_path.shadow import verdict

    found = asyncio.run(_divergence(anew=anew))
    answer = verdict(found)
    if as_json:
        click.echo(json.dumps(_told(found, answer), indent=2))
    else:
        if found:
            columns = ("shard", "began at", "compared up to", "head", "alike", "missing", "different", "again", "first")
            click.echo(rendered(columns, [_line(one) for one in found]))
        click.echo(_sentence(found, answer))
    if not anew and answer != "proven":
        raise SystemExit(1 if answer == "diverges" else EXIT_UNPROVEN)


@click.command()
@click.option("--forget", is_flag=True, help="Tell of what is listed for the last time; alerts on it end.")
@_JSON
def lost(forget: bool, as_json: bool) -> None:
    """List facts that the stream acknowledged and no longer has, and that are not in the ledger. Exit 1 on any.

    Every server notes beside itself what was acknowledged. A stream that lost its disk, or its last messages, is thereby
    known by exactly the facts that are gone; decided changes are never among them, they wait in PostgreSQL and are
    published again. The notes of this node are looked at anew; what servers of other nodes found is in the database, and
    listed as well. Facts that are in the stream alone are counted, too: a process with a connection to it writes them into
    the ledger. With --forget the loss is acknowledged for all nodes: the list is printed once more, servers count it no
    longer, and the exit code is 0.

    \b
    Examples:
      noetl stream lost
      noetl stream lost --json
      noetl stream lost --forget --json > lost.json
    """
    found = asyncio.run(_losses(forget=forget))
    if as_json:
        click.echo(json.dumps(_lost_facts(found), indent=2))
    else:
        _show(found)
        if forget and found.lost:
            click.echo("From now on nobody tells of them.")
    if (found.lost and not forget) or found.unlooked:
        raise SystemExit(1)


def _lost_facts(found: Losses) -> dict[str, Any]:
    return {
        "lost": [one.told() for one in found.lost],
        "in_stream": [one.told() for one in found.in_stream],
        "noted": found.noted,
        "acknowledged": found.acknowledged,
        "unlooked": found.unlooked,
    }


def _show(found: Losses) -> None:
    if found.lost:
        columns = ("event", "execution", "tenant", "organization", "shard", "sequence", "read token")
        lines = [tuple(str(one.told()[name]) for name in
                       ("event_id", "execution_id", "tenant_id", "organization_id", "shard", "sequence", "read_token"))
                 for one in found.lost]  # fmt: skip
        click.echo(rendered(columns, lines, whole=True))
        click.echo(f"{len(found.lost):,} acknowledged facts are gone.")
    if found.in_stream:
        click.echo(
            f"{len(found.in_stream):,} acknowledged facts are in the stream and not in the ledger yet; "
            "a process with a connection to NATS writes them."
        )
    if found.unlooked:
        click.echo(
            f"{found.unlooked:,} facts noted on this node are not in the ledger, and the settings name no NATS server to look "
            "for them: set event_store.distribution_backend to nats-jetstream and event_store.connection.url."
        )
    if not found.lost and not found.in_stream and not found.unlooked:
        told = "no node has recorded a loss"
        if found.acknowledged:
            told = f"{found.acknowledged:,} facts were acknowledged as lost, and no node has recorded another loss"
        click.echo(f"Every fact noted on this node ({found.noted:,}) is in the ledger; {told}.")


def _told(found: Sequence[Divergence], answer: Verdict) -> dict[str, Any]:
    return {
        "verdict": answer,
        "diverges": answer == "diverges",
        "compared": sum(one.compared for one in found),
        "written": sum(one.written for one in found),
        "shards": msgspec.to_builtins(found),
    }


def _sentence(found: Sequence[Divergence], answer: Verdict) -> str:
    compared, written = sum(one.compared for one in found), sum(one.written for one in found)
    if not found:
        return "NOT PROVEN: nothing was compared, for no shadow ran yet; set event_store.write_path to shadow and run some work."
    if not written:
        return "NOT PROVEN: nothing was compared, for nothing was written since the shadow began; run some work."
    covered = f"{compared:,} of {written:,} events written since the shadow began were compared"
    if answer == "unproven":
        return f"NOT PROVEN: {covered}; let a process with event_store.write_path shadow run until it has caught up."
    if answer == "proven":
        return f"{covered}; no divergence."
    missing, different = sum(one.missing for one in found), sum(one.different for one in found)
    return f"{covered}; THEY DIVERGE: {missing:,} missing, {different:,} different."


def _line(one: Divergence) -> tuple[str, ...]:
    what = "-" if one.first is None else f"event {one.first['event_id']}: {one.first['what']}"
    return (
        str(one.shard), f"{one.began:,}", f"{one.position:,}", f"{one.head:,}", f"{one.equal:,}", f"{one.missing:,}",
        f"{one.different:,}", f"{one.redelivered:,}", what,
    )  # fmt: skip


async def _divergence(*, anew: bool) -> list[Divergence]:
    from noetl.kernel.stream.write_path.shadow import begin_anew
    from noetl.kernel.stream.write_path.shadow import divergence as report
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        if anew:
            await begin_anew(runtime.database)
        return await report(runtime.database, 0.0 if anew else _WAIT_SECONDS)


async def _losses(*, forget: bool) -> Losses:
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path.losses import read_losses

    async with open_runtime(load_settings()) as runtime:
        return await read_losses(runtime, forget=forget)
