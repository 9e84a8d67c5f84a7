"""`noetl stream`: show how far the stream of events is filled and read, fill it anew, and forget readers that are gone."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click
import msgspec

from noetl.cli.ledger.stream.write_path import divergence, lost

if TYPE_CHECKING:
    from noetl.kernel.stream.relay.progress import Reader
    from noetl.runtime.streams.relay import Rebuilt
    from noetl.runtime.streams.status import StreamStatus

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def stream() -> None:
    """Look at the stream of committed events, and fill it anew.

    The stream is a copy for readers: the ledger has every event of it, so it can be wiped and filled again at any time.

    \b
    Examples:
      noetl stream status
      noetl stream rebuild --yes
      noetl stream forget projector-noetl-projector-3
      noetl stream divergence
      noetl stream lost
    """


@stream.command()
@_JSON
def status(as_json: bool) -> None:
    """Show what the stream holds, how far each shard is published to it and by which relay, and how far each reader is.

    Where writes go through a stream, also what of it is not in the ledger yet, and which materializer brings it there.

    \b
    Examples:
      noetl stream status
      noetl stream status --json | jq .lag_events
      noetl stream status --json | jq '.readers[] | select(.lag_messages > 0)'
      noetl stream status --json | jq .writes.waiting_messages
    """
    from noetl.cli.ledger.stream import show

    found = asyncio.run(_status())
    if as_json:
        click.echo(json.dumps(show.facts(found), indent=2))
    else:
        click.echo(show.text(found), nl=False)


@stream.command()
@click.option("--yes", is_flag=True, help="Do not ask before the stream is wiped.")
@_JSON
def rebuild(yes: bool, as_json: bool) -> None:
    """Wipe the stream and fill it again from the first event that is still in the ledger.

    Durable readers are forgotten with it and begin at its start; those that keep their own position pass over what they
    know. Relays that run take part; without one this command does it all.

    \b
    Examples:
      noetl stream rebuild
      noetl stream rebuild --yes --json
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.streams.relay import check_relayed

    check_relayed(load_settings())
    if not yes:
        click.confirm("All messages and durable readers of the stream go. Wipe it and fill it again?", abort=True)
    done = asyncio.run(_rebuild(quiet=as_json))
    if as_json:
        click.echo(json.dumps({"stream": done.stream, "messages": done.messages, "seconds": round(done.seconds, 3)}))
    else:
        click.echo(f"{done.stream} holds {done.messages:,} events again, after {done.seconds:.1f} s.")


@stream.command()
@click.argument("readers", metavar="READER...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask before the readers are forgotten.")
@_JSON
def forget(readers: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Forget durable readers that are gone for good, with their places in the stream.

    READER is a name that `noetl stream status` lists. A reader whose process lives is refused. One that comes back all the
    same is made anew: a projector beside the ledger goes on from its checkpoint, one on the far side of the stream passes
    over what it has projected.

    Exit codes: 0 forgotten, 1 refused or unknown, of several none is forgotten then, 2 wrong input, 3 a server cannot be
    reached.

    \b
    Examples:
      noetl stream forget projector-noetl-projector-3
      noetl stream forget projector-analytics-{0..15} --yes
      noetl stream forget projector-noetl-projector-3 --yes --json | jq '.[].lag_messages'
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.streams.durable_readers import check_readers

    check_readers(load_settings())
    if not yes:
        click.confirm(f"Forget {', '.join(readers)} and how far it came?", abort=True)
    gone = asyncio.run(_forget(readers))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(gone), indent=2))
        return
    for one in gone:
        click.echo(f"{one.durable} is forgotten; it was {one.lag_messages:,} messages behind.")


stream.add_command(divergence)
stream.add_command(lost)


async def _status() -> StreamStatus:
    from noetl.runtime.config import load_settings
    from noetl.runtime.streams.status import stream_status
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        return await stream_status(runtime)


async def _forget(names: tuple[str, ...]) -> list[Reader]:
    from noetl.runtime.config import load_settings
    from noetl.runtime.streams.durable_readers import forget_readers
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        return await forget_readers(runtime, names)


async def _rebuild(*, quiet: bool) -> Rebuilt:
    from noetl.cli.terminal.progress import position_bar
    from noetl.runtime.config import load_settings
    from noetl.runtime.streams import relay
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        with position_bar("relaying", quiet=quiet) as progress:
            return await relay.rebuild(runtime, progress)
