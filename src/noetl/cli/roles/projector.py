"""`noetl projector`: keeps projections up to date for the shards it holds, until it is told to stop."""

from __future__ import annotations

import click

from noetl.cli.terminal.messages import tell


@click.command()
@click.option("--from-stream", is_flag=True, help="Project what the stream brings, into a database without a ledger.")
@click.pass_context
def projector(ctx: click.Context, from_stream: bool) -> None:
    """Keep projections up to date, sharing the shards with the other projectors, until SIGTERM or Ctrl-C.

    Projectors divide the shards among themselves and take over from one that falls silent for longer than
    `projections.lease_seconds`. While one lives, servers write no projections. Each has a name that stays the same when
    it is started again: the setting `runtime.shard_id`, or NOETL_SHARD_ID.

    With --from-stream it reads no ledger: events come from `event_store.connection`, and rows and checkpoints go to its
    own `database.url`, which `noetl db migrate` has prepared.

    \b
    Examples:
      noetl projector
      NOETL_SHARD_ID=noetl-projector-0 noetl projector
      NOETL_DATABASE_URL=postgresql://… noetl projector --from-stream
    """
    from noetl.runtime.roles.projector import run_projector

    ctx.exit(run_projector(tell, from_stream=from_stream))
