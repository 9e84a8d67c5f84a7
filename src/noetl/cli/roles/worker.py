"""`noetl worker`: takes commands and does them, on the database itself or for a server, until it is told to stop."""

from __future__ import annotations

import click

from noetl.cli.terminal.messages import tell


@click.command()
@click.option("--slots", type=click.IntRange(1), help="Commands to work on at a time; default: worker.slots.")
@click.option("--server", "url", metavar="URL", help="Server to work for; without it, the configured database.")
@click.option("--token", help="Token of the role worker; better given as NOETL_WORKER__TOKEN, which nobody sees.")
@click.pass_context
def worker(ctx: click.Context, slots: int | None, url: str | None, token: str | None) -> None:
    """Work on what executions ask for, until SIGTERM or Ctrl-C.

    A server that does not answer yet, or no longer, is waited for; an address that cannot be one and a token that it
    refuses are errors at once. The first signal finishes what is under way and takes nothing new, the second stops at once: what was under way is
    then done by another worker once its lease has ended. The payload store of the settings must be the server's.

    \b
    Examples:
      noetl worker --slots 8
      noetl worker --server http://127.0.0.1:8082
      NOETL_WORKER__TOKEN=noetl_… noetl worker --server https://noetl.example.org --slots 32
    """
    from noetl.runtime.roles.worker import run_worker

    ctx.exit(run_worker(tell, slots=slots, url=url, token=token))
