"""`noetl projections`: show how far they are, catch up with the ledger, and build them anew."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING

import click

from noetl.errors import InputError, NoetlError

if TYPE_CHECKING:
    from noetl.cli.ledger.projections_show import StoreStatus
    from noetl.kernel.projections.projector import Projector
    from noetl.kernel.projections.rebuild import Progress, RebuildReport
    from noetl.kernel.projections.stores.by_type import StoreLine
    from noetl.runtime.wiring import Runtime

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
    """Show how far each shard is projected in each store, who holds it, and what stops it if something does.

    A shard has a holder while projectors of their own live (`noetl projector`); without one, servers project it.

    \b
    Examples:
      noetl projections status
      noetl projections status --json | jq '.shards[] | select(.failure)'
    """
    from noetl.cli.ledger.projections_show import show_status, status_facts

    first, *others = asyncio.run(_status())
    if as_json:
        click.echo(json.dumps(status_facts(first, others), indent=2))
    else:
        show_status(first, others)


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
@click.option("--store", help="Only this projection store.")
@_JSON
def rebuild(shard: int | None, store: str | None, as_json: bool) -> None:
    """Build projections anew from the whole history, archives included.

    Readers see the old rows until a shard is done, and a running projector then goes on from there. Needed after a
    fold was added, removed, got another version or went to another store; otherwise it changes nothing.

    \b
    Examples:
      noetl projections rebuild
      noetl projections rebuild --shard 3
      noetl projections rebuild --store analytics
    """
    from noetl.cli.ledger.projections_show import rebuilt_facts, show_rebuilt

    reports = asyncio.run(_rebuild(shard, store))
    if as_json:
        click.echo(json.dumps(rebuilt_facts(reports), indent=2))
    else:
        show_rebuilt(reports)


async def _status() -> list[StoreStatus]:
    from noetl.cli.ledger.projections_show import StoreStatus
    from noetl.kernel.projections.stores.by_type import DEFAULT

    async with _runtime() as runtime:
        found = []
        for line in runtime.projections.lines:
            try:
                found.append(await _standing(runtime, line))
            except NoetlError as problem:
                if line.name == DEFAULT:
                    raise
                found.append(StoreStatus(line.name, line.projections, away=problem.message))
        return found


async def _standing(runtime: Runtime, line: StoreLine) -> StoreStatus:
    from noetl.cli.ledger.projections_show import StoreStatus
    from noetl.kernel.leases.shards import holders
    from noetl.kernel.projections.lag import shard_lags
    from noetl.kernel.projections.stores.by_type import of_store

    with of_store(line.name):
        held = {one.shard: one for one in await holders(line.database) if one.role == "projector"}
        lags = await shard_lags(runtime.ledger, line.store)
        return StoreStatus(line.name, line.projections, lags, held, await line.store.broken_streams())


async def _run(*, follow: bool) -> int:
    from noetl.kernel.projections.stores.by_type import of_store

    async with _runtime() as runtime:
        lines = runtime.projections.lines
        if follow:
            await _follow([runtime.projector(line=line) for line in lines])
            return 0
        head, projected, problems = await runtime.ledger.head(), [], list[NoetlError]()
        for line in lines:
            try:
                with of_store(line.name):
                    before = await line.store.checkpoints()
                    await runtime.projector(line=line).run_until(head)
                    projected.append(sum((await line.store.checkpoints()).positions) - sum(before.positions))
            except NoetlError as problem:
                problems.append(problem)
        # One store's trouble keeps no other from being projected.
        if problems:
            raise problems[0]
        return max(projected)


async def _follow(projectors: list[Projector]) -> None:
    """Run until the process is interrupted or told to end; a second signal ends it at once."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, told.set)
    await asyncio.gather(*(projector.start() for projector in projectors))
    click.echo("Projecting; interrupt to stop.", err=True)
    await told.wait()
    for each in signals:
        loop.remove_signal_handler(each)
    await asyncio.gather(*(projector.stop() for projector in projectors))


async def _rebuild(shard: int | None, store: str | None) -> dict[str, RebuildReport]:
    from noetl.kernel.projections import rebuild as building
    from noetl.kernel.projections.stores.by_type import of_store

    async with _runtime() as runtime:
        head = await runtime.ledger.head()
        if shard is not None and shard >= len(head.positions):
            raise InputError(f"there is no shard {shard}; shards are 0 to {len(head.positions) - 1}")
        known = {line.name: line for line in runtime.projections.lines}
        if store is not None and store not in known:
            raise InputError(f"there is no projection store {store!r}; there are {', '.join(known)}")
        shards = list(range(len(head.positions))) if shard is None else [shard]
        reports = {}
        for name in known if store is None else [store]:
            with of_store(name), _bar({each: head.positions[each] for each in shards}) as progress:
                reports[name] = await building.rebuild(
                    runtime.history, known[name].store, known[name].folds, runtime.upcasters, shards=shards,
                    progress=progress, payloads=runtime.payloads, erasures=runtime.erasures,
                )  # fmt: skip
        return reports


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
