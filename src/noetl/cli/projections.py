"""`noetl projections`: show how far they are, catch up with the ledger, and build them anew."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from noetl.ledger.shard_leases import ShardHolder
    from noetl.project.projector import Projector
    from noetl.project.rebuild import Progress, RebuildReport
    from noetl.project.shards import ShardLag
    from noetl.runtime.wiring import Runtime

Holders = dict[int, "ShardHolder"]
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def projections() -> None:
    """Inspect, rebuild and catch up projections.

    Projections are what the ledger's events add up to: executions, stages, frames, loops and your business objects.
    They can be deleted and built again at any time; `noetl verify` proves that they equal the ledger.
    """


@projections.command()
@_JSON
def status(as_json: bool) -> None:
    """Show how far each shard is projected, who holds it, and what stops it if something does.

    A shard has a holder while projectors of their own live (`noetl projector`); without one, servers project it.

    \b
    Examples:
      noetl projections status
      noetl projections status --json | jq '.shards[] | select(.failure)'
    """
    lags, held = asyncio.run(_status())
    if as_json:
        click.echo(json.dumps(_facts(lags, held), indent=2))
        return
    from noetl.cli.tables import rendered

    columns = ("shard", "head", "projected", "behind", "waiting", "rows", "holder", "state")
    click.echo(rendered(columns, [_line(lag, held) for lag in lags]), nl=False)
    click.echo(
        f"\n{sum(lag.lag_events for lag in lags):,} events behind, {sum(lag.rows for lag in lags):,} rows, "
        f"longest wait {max(lag.lag_seconds for lag in lags):.1f} s"
    )
    for lag in lags:
        if lag.failure is not None:
            since = "" if lag.failure.since is None else f" since {lag.failure.since:%Y-%m-%d %H:%M:%S} UTC"
            click.echo(f"\nshard {lag.shard} stands still{since}: {lag.failure.message}")
            if lag.failure.hint:
                click.echo(f"hint: {lag.failure.hint}")


@projections.command()
@click.option("--follow", is_flag=True, help="Keep running until interrupted.")
def run(follow: bool) -> None:
    """Project what the ledger has, once or for ever.

    \b
    Examples:
      noetl projections run
      noetl projections run --follow
    """
    events = asyncio.run(_run(follow=follow))
    click.echo("Stopped." if follow else f"Projected {events:,} events.")


@projections.command()
@click.option("--shard", type=click.IntRange(0), help="Only this shard.")
@_JSON
def rebuild(shard: int | None, as_json: bool) -> None:
    """Build projections anew from the whole history, archives included.

    Readers see the old rows until a shard is done, and a running projector then goes on from there. Needed after a
    fold was added, removed or got another version; otherwise it changes nothing.

    \b
    Examples:
      noetl projections rebuild
      noetl projections rebuild --shard 3
    """
    report = asyncio.run(_rebuild(shard))
    if as_json:
        click.echo(json.dumps(_report(report), indent=2))
        return
    rows = [each.rows for each in report.shards]
    click.echo(
        f"Rebuilt {sum(each.after for each in rows):,} rows from {sum(each.events for each in report.shards):,} events."
    )
    changed, added, removed = (sum(getattr(each, name) for each in rows) for name in ("changed", "added", "removed"))
    if report.changed:
        click.echo(f"{changed:,} rows changed, {added:,} came, {removed:,} went.")
    else:
        click.echo("Every row was as the ledger says.")


async def _status() -> tuple[list[ShardLag], Holders]:
    from noetl.ledger.shard_leases import holders
    from noetl.project.shards import shard_lags

    async with _runtime() as runtime:
        held = {one.shard: one for one in await holders(runtime.database) if one.role == "projector"}
        return await shard_lags(runtime.ledger, runtime.projections), held


async def _run(*, follow: bool) -> int:
    async with _runtime() as runtime:
        projector = runtime.projector()
        if follow:
            await _follow(projector)
            return 0
        before, head = await runtime.projections.checkpoints(), await runtime.ledger.head()
        await projector.run_until(head)
        after = await runtime.projections.checkpoints()
        return sum(after.positions) - sum(before.positions)


async def _follow(projector: Projector) -> None:
    """Run until the process is interrupted or told to end; a second signal ends it at once."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, told.set)
    await projector.start()
    click.echo("Projecting; interrupt to stop.", err=True)
    await told.wait()
    for each in signals:
        loop.remove_signal_handler(each)
    await projector.stop()


async def _rebuild(shard: int | None) -> RebuildReport:
    from noetl.errors import InputError
    from noetl.project import rebuild as building

    async with _runtime() as runtime:
        head = await runtime.ledger.head()
        if shard is not None and shard >= len(head.positions):
            raise InputError(f"there is no shard {shard}; shards are 0 to {len(head.positions) - 1}")
        shards = list(range(len(head.positions))) if shard is None else [shard]
        with _bar({each: head.positions[each] for each in shards}) as progress:
            return await building.rebuild(
                runtime.history, runtime.projections, runtime.folds, runtime.upcasters, shards=shards, progress=progress
            )


def _runtime() -> AbstractAsyncContextManager[Runtime]:
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    return open_runtime(load_settings())


@contextmanager
def _bar(targets: dict[int, int]) -> Iterator[Progress]:
    """Show on the terminal how far a rebuild is; elsewhere show nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("events", total=sum(targets.values()))
        reached = dict.fromkeys(targets, 0)

        def progress(shard: int, position: int, upto: int) -> None:
            reached[shard], targets[shard] = position, upto
            bar.update(task, description=f"shard {shard}", completed=sum(reached.values()), total=sum(targets.values()))

        yield progress


def _line(lag: ShardLag, held: Holders) -> tuple[str, ...]:
    state = "stands still" if lag.failure else "behind" if lag.lag_events else "ok"
    waiting = f"{lag.lag_seconds:.1f} s" if lag.lag_events else "-"
    head, checkpoint, behind, rows = (f"{n:,}" for n in (lag.head, lag.checkpoint, lag.lag_events, lag.rows))
    holder = held[lag.shard].holder if lag.shard in held else "-"
    return str(lag.shard), head, checkpoint, behind, waiting, rows, holder, state


def _facts(lags: list[ShardLag], held: Holders) -> dict[str, Any]:
    import msgspec

    shards = [
        {**msgspec.to_builtins(lag), "holder": msgspec.to_builtins(held[lag.shard]) if lag.shard in held else None}
        for lag in lags
    ]
    return {
        "lag_events": sum(lag.lag_events for lag in lags),
        "lag_seconds": max(lag.lag_seconds for lag in lags),
        "rows": sum(lag.rows for lag in lags),
        "failing": [lag.shard for lag in lags if lag.failure],
        "shards": shards,
    }


def _report(report: RebuildReport) -> dict[str, Any]:
    import msgspec

    shards = [{"shard": one.shard, "events": one.events} | msgspec.to_builtins(one.rows) for one in report.shards]
    return {"differing": report.changed, "shards": shards}
