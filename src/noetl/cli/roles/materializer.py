"""`noetl materializer`: writes what the stream acknowledged into the ledger, or compares it there, until told to stop."""

from __future__ import annotations

import click

from noetl.cli.terminal.messages import tell


@click.command()
@click.pass_context
def materializer(ctx: click.Context) -> None:
    """Write published events into the ledger, sharing the shards with other materializers, until SIGTERM or Ctrl-C.

    In the write path `stream` materializers are the only writers of the ledger. In `shadow` they write nothing: they make
    each row and compare it with the one that stands, which `noetl stream divergence` shows.

    \b
    Examples:
      NOETL_EVENT_STORE__WRITE_PATH=stream noetl materializer
      NOETL_EVENT_STORE__WRITE_PATH=shadow noetl materializer
    """
    from noetl.runtime.roles.materializer import run_materializer

    ctx.exit(run_materializer(tell))
