"""`noetl server`: the REST API, the engine that decides, and a projector where there is no other, until told to stop."""

from __future__ import annotations

import click

from noetl.cli.terminal.messages import tell

_HOST = click.option("--host", help="Address to listen on; default: the setting server.host.")
port_option = click.option("--port", type=click.IntRange(0, 65_535), help="Port; default: the setting server.port.")


@click.command()
@_HOST
@port_option
@click.option("--workers-slots", "slots", type=click.IntRange(0), default=0, show_default=True,
              help="Slots of a worker in this process; 0 starts none.")  # fmt: skip
@click.pass_context
def server(ctx: click.Context, host: str | None, port: int | None, slots: int) -> None:
    """Serve the REST API, decide what happens next and keep the projections, until SIGTERM or Ctrl-C.

    The first signal finishes what is under way, the second stops at once. Any other address than the loopback is
    refused as long as the organization has no API token; without one, processes of this account are answered, and whoever shows
    the token that `noetl home` names. Workers are processes of their own: `noetl worker`.

    \b
    Examples:
      noetl server
      noetl server --port 0 --workers-slots 8
      noetl server --host 0.0.0.0 --port 8082
    """
    from noetl.runtime.roles.server import run_server

    ctx.exit(run_server(tell, host=host, port=port, slots=slots))
