"""`noetl relay`: brings committed events to the stream for the shards it holds, until it is told to stop."""

from __future__ import annotations

import click

from noetl.cli.terminal.messages import tell


@click.command()
@click.pass_context
def relay(ctx: click.Context) -> None:
    """Publish committed events to the stream, sharing the shards with the other relays, until SIGTERM or Ctrl-C.

    Each shard is published by one relay at a time, in the order of its positions, from where the last one stopped. A
    stream that was wiped is filled again from the ledger. The first signal finishes the batch under way, the second
    stops at once: nothing is lost then, some events are published again and recognised by their ids.

    \b
    Examples:
      noetl relay
      noetl stream status
    """
    from noetl.runtime.roles.relay import run_relay

    ctx.exit(run_relay(tell))
