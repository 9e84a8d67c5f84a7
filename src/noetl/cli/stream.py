"""`noetl stream`: show how far the stream of events is filled, and fill it anew."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from noetl.cli.stream_write_path import divergence, lost

if TYPE_CHECKING:
    from noetl.cli.stream_show import StreamStatus
    from noetl.runtime.relay import Rebuilt

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def stream() -> None:
    """Look at the stream of committed events, and fill it anew.

    The stream is a copy for readers: the ledger has every event of it, so it can be wiped and filled again at any time.

    \b
    Examples:
      noetl stream status
      noetl stream rebuild --yes
      noetl stream divergence
      noetl stream lost
    """


@stream.command()
@_JSON
def status(as_json: bool) -> None:
    """Show what the stream holds, how far each shard is published to it and by which relay, and how far each reader is.

    \b
    Examples:
      noetl stream status
      noetl stream status --json | jq .lag_events
      noetl stream status --json | jq '.readers[] | select(.lag_messages > 0)'
    """
    from noetl.cli import stream_show

    found = asyncio.run(_status())
    if as_json:
        click.echo(json.dumps(stream_show.facts(found), indent=2))
    else:
        click.echo(stream_show.text(found), nl=False)


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
    from noetl.runtime.relay import check_relayed

    check_relayed(load_settings())
    if not yes:
        click.confirm("All messages and durable readers of the stream go. Wipe it and fill it again?", abort=True)
    done = asyncio.run(_rebuild(quiet=as_json))
    if as_json:
        click.echo(json.dumps({"stream": done.stream, "messages": done.messages, "seconds": round(done.seconds, 3)}))
    else:
        click.echo(f"{done.stream} holds {done.messages:,} events again, after {done.seconds:.1f} s.")


stream.add_command(divergence)
stream.add_command(lost)


async def _status() -> StreamStatus:
    from noetl.cli import stream_show
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        return await stream_show.read(runtime)


async def _rebuild(*, quiet: bool) -> Rebuilt:
    from noetl.cli.position_progress import position_bar
    from noetl.runtime import relay
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        with position_bar("relaying", quiet=quiet) as progress:
            return await relay.rebuild(runtime, progress)
