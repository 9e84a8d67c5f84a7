"""`noetl node-broker`: keeps tables in anonymous memory for the processes of a node, until it is told to stop."""

from __future__ import annotations

import click

from noetl.cli.terminal.messages import tell


@click.command("node-broker")
@click.pass_context
def node_broker(ctx: click.Context) -> None:
    """Hand out shared memory between the processes of a node, until SIGTERM or Ctrl-C.

    For pods whose processes share a socket but no /dev/shm: set payload_store.cache.tier_15_carrier to memfd and
    tier_15_broker to a socket all of them see. Only processes of the same user are answered. Whoever does not find the
    broker reads the next tier.

    \b
    Examples:
      noetl node-broker
      NOETL_PAYLOAD_STORE__CACHE__TIER_15_BROKER=/run/noetl/broker.sock noetl node-broker
    """
    from noetl.runtime.roles.node_broker import run_node_broker

    ctx.exit(run_node_broker(tell))
