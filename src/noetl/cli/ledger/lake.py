"""`noetl lake`: keeps all events as a dataset, says how far it is, proves it equal to the ledger, builds it anew."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from noetl.runtime.spark.event_lake.lake import EventLake

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def lake() -> None:
    """Keep all events of the organization as the dataset noetl_events: Parquet files by tenant, organization and day.

    It follows from the ledger, so it can be dropped and built again at will, and is asked like any other dataset.

    \b
    Examples:
      noetl lake sync
      noetl query "SELECT event_type, count(*) FROM noetl_events GROUP BY 1"
      noetl lake verify
    """


@lake.command()
@click.option(
    "--follow", is_flag=True, help="Go on until SIGTERM or Ctrl-C, with a batch every event_lake.trigger_seconds."
)
@_JSON
def sync(follow: bool, as_json: bool) -> None:
    """Write what the lake lacks, up to the head of the ledger as it is now, and bring its facts up to date.

    Each batch is committed with the range of positions it covers: one that is killed, or done twice, changes nothing.

    \b
    Examples:
      noetl lake sync
      noetl lake sync --follow
      noetl lake sync --json | jq .rows
    """
    with _Progress(quiet=as_json, follow=follow) as progress:
        found = asyncio.run(_synced(follow=follow, told=progress.told))
    if as_json:
        _print_json(found)
        return
    if not found["batches"]:
        click.echo("The lake has everything already.")
    else:
        click.echo(_written(found))


@lake.command()
@_JSON
def status(as_json: bool) -> None:
    """Say how far the lake has come, and what it consists of.

    \b
    Examples:
      noetl lake status
      noetl lake status --json | jq -r .mark
    """
    from noetl.cli.terminal.tables import rendered

    found = asyncio.run(_opened(lambda one: one.status()))
    if as_json:
        _print_json(found)
        return
    if found["mark"] is None:
        click.echo("There is no event lake yet: noetl lake sync")
        return
    news = "has every event" if found["current"] else f"is up to {found['behind']} positions behind"
    click.echo(f"The lake {news}.\nmark        {found['mark']}\nhead        {found['head']}")
    click.echo(f"generation  {found['generation']}\ncommits     {found['commits']}\n")
    rows = [[day["day"], str(day["rows"]), str(day["bytes"]), str(day["version"])] for day in found["days"]]
    click.echo(rendered(("day", "events", "bytes", "version"), rows), nl=False)


@lake.command()
@click.option("--upto", "point", metavar="POINT", help="Only so far: a mark (m1.…), a time, or an event id.")
@_JSON
@click.pass_context
def verify(ctx: click.Context, point: str | None, as_json: bool) -> None:
    """Compare counts and checksums of lake and ledger, shard by shard and range by range; exit 1 if anything differs.

    Of what differs, the first event is looked up and told.

    \b
    Examples:
      noetl lake verify
      noetl lake verify --upto 2026-05-16T12:34:56Z
      noetl lake verify --json | jq .difference
    """
    found = asyncio.run(_verified(point))
    if as_json:
        _print_json(found)
    else:
        _show_verified(found)
    ctx.exit(0 if found["equal"] else 1)


@lake.command()
@_JSON
def compact(as_json: bool) -> None:
    """Put the small files of each day together; rows and checksums stay the same.

    \b
    Examples:
      noetl lake compact
    """
    with _Progress(quiet=as_json) as progress:
        found = asyncio.run(_opened(lambda one: one.compact(told=progress.told)))
    if as_json:
        _print_json(found)
    else:
        days = "1 day" if found["days"] == 1 else f"{found['days']} days"
        said = (
            f"{found['files']} files became {found['left']}, in {days}." if found["days"] else "No day has small files."
        )
        click.echo(said)


@lake.command()
@_JSON
def rebuild(as_json: bool) -> None:
    """Write the lake anew beside the one that serves readers, which it replaces when it is whole.

    \b
    Examples:
      noetl lake rebuild && noetl lake verify
    """
    with _Progress(quiet=as_json) as progress:
        found = asyncio.run(_opened(lambda one: one.rebuild(told=progress.told)))
    if as_json:
        _print_json(found)
    else:
        click.echo(_written(found))


@lake.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@_JSON
def drop(yes: bool, as_json: bool) -> None:
    """Let go of all rows and files of the lake. The ledger is not touched: `noetl lake sync` writes it again.

    \b
    Examples:
      noetl lake drop --yes && noetl lake sync
    """
    if not yes:
        click.confirm("Drop all rows and files of the event lake?", abort=True, err=True)
    found = asyncio.run(_opened(lambda one: one.drop()))
    if as_json:
        _print_json(found)
    else:
        days = "1 day" if found["partitions"] == 1 else f"{found['partitions']} days"
        click.echo(f"{found['files']} files of {days} ({found['bytes']} bytes) are gone.")


@lake.command("as-of")
@click.argument("point")
@_JSON
def as_of(point: str, as_json: bool) -> None:
    """Print the SQL condition for the events up to POINT: a mark (m1.…), a time, or an event id.

    It depends on nothing but positions, so it means the same whenever the lake was written, in Spark and in queries.

    \b
    Examples:
      noetl query "SELECT count(*) FROM noetl_events WHERE $(noetl lake as-of 2026-05-16T12:34:56Z)"
      noetl lake as-of m1.AAAAAAAAAAAAAAAAAAAAAB6I
    """
    mark, text = asyncio.run(_condition(point))
    if as_json:
        _print_json({"mark": mark, "condition": text})
    else:
        click.echo(text)


@asynccontextmanager
async def _lake() -> AsyncIterator[EventLake]:
    from noetl.runtime.config import load_settings
    from noetl.runtime.spark.event_lake.lake import open_event_lake
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime, open_event_lake(runtime) as one:
        yield one


async def _opened(work: Callable[[EventLake], Any]) -> dict[str, Any]:
    async with _lake() as one:
        found: dict[str, Any] = await work(one)
        return found


async def _synced(*, follow: bool, told: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with _lake() as one:
        if follow:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
        return await one.sync(follow=follow, told=told, stop=stop)


async def _verified(point: str | None) -> dict[str, Any]:
    async with _lake() as one:
        return await one.verify(None if point is None else await one.mark(point))


async def _condition(point: str) -> tuple[str, str]:
    from noetl.spark.event_lake.definition import condition

    async with _lake() as one:
        mark = await one.mark(point)
        return mark.token(), condition(mark)


def _show_verified(found: dict[str, Any]) -> None:
    from noetl.cli.terminal.tables import rendered

    rows = [
        [
            str(one["shard"]), str(one["ledger"]["rows"]), str(one["lake"]["rows"]), one["ledger"]["checksum"],
            "equal" if one["ledger"] == one["lake"] else "DIFFERS",
        ]
        for one in found["shards"]
    ]  # fmt: skip
    click.echo(rendered(("shard", "ledger", "lake", "checksum", ""), rows), nl=False)
    click.echo(f"{found['lake']['rows']} events in {found['ranges']} ranges up to {found['mark']}")
    click.echo(f"checksum {found['lake']['checksum']}")
    difference = found["difference"]
    if difference is None:
        click.echo("Nothing differs.")
        return
    click.echo(f"{found['differing']} ranges differ. The first difference is at position {difference['position']} of "
               f"shard {difference['shard']}: {difference['what']}.")  # fmt: skip
    if "column" in difference:
        click.echo(f"  ledger: {difference['ledger']}\n  lake:   {difference['lake']}")
    click.echo("hint: noetl lake rebuild", err=True)


def _written(found: dict[str, Any]) -> str:
    batches = "1 batch" if found["batches"] == 1 else f"{found['batches']} batches"
    return f"{found['rows']} events in {batches}; the lake stands at {found['mark']}."


class _Progress:
    """One line about how far a program is, on a terminal alone; while following, a line for each batch."""

    def __init__(self, *, quiet: bool, follow: bool = False) -> None:
        self._quiet = quiet
        self._follow = follow
        self._rows = 0
        self._began = time.monotonic()
        self._status: Any = None

    def __enter__(self) -> _Progress:
        from rich.console import Console

        console = Console(stderr=True)
        if not self._quiet and not self._follow and console.is_terminal:
            self._status = console.status("Spark starts")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def told(self, progress: dict[str, Any]) -> None:
        """Show how far it is."""
        self._rows += progress.get("rows", 0)
        seconds = time.monotonic() - self._began
        if "partition" in progress:
            said = f"{progress['partition']}: {progress['files']} files became {progress['left']}"
        else:
            said = f"{self._rows} events in {seconds:.0f} s, up to {progress.get('mark')}"
        if self._status is not None:
            self._status.update(said)
        elif self._follow and not self._quiet:
            click.echo(f"{progress.get('rows', 0)} events, up to {progress.get('mark')}", err=True)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
