"""`noetl notary`: signs heads of the ledger until it is told to stop, or once."""

from __future__ import annotations

import asyncio

import click

from noetl.cli.terminal.messages import tell


@click.command()
@click.option("--once", is_flag=True, help="Sign what there is now, and end.")
@click.pass_context
def notary(ctx: click.Context, once: bool) -> None:
    """Build the Merkle trees of the ledger's shards and publish signed heads, until SIGTERM or Ctrl-C.

    Heads go to the files of `event_store.heads.path` and, if a bucket is named, to S3 under object lock. A head binds
    everything up to its size: whoever keeps it elsewhere finds every later change. Servers do this by themselves unless
    `event_store.heads.in_server` is false; the key then needs to be on the notary's machine alone.

    \b
    Examples:
      noetl notary --once
      noetl notary
    """
    from noetl.runtime.roles.notary import run_notary, sign_once

    if not once:
        ctx.exit(run_notary(tell))
    heads = asyncio.run(sign_once())
    for head in heads:
        click.echo(f"shard {head.shard}: {head.size} event{'' if head.size == 1 else 's'} under root {head.root}")
    click.echo(f"{len(heads)} head{'' if len(heads) == 1 else 's'} signed.")
