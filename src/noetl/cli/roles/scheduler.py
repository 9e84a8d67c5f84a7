"""`noetl scheduler`: runs what is due, on the database itself, until it is told to stop."""

from __future__ import annotations

import click

from noetl.cli.terminal.messages import tell


@click.command()
@click.pass_context
def scheduler(ctx: click.Context) -> None:
    """Start what schedules plan, and do what the platform does from time to time, until SIGTERM or Ctrl-C.

    A server does the same by itself; schedulers of their own share the work with it, and any number may run at once: of
    those that see a moment come, one takes it. The first signal finishes what is under way, the second stops at once:
    what was under way is then done by another once its lease has ended.

    \b
    Examples:
      noetl scheduler
    """
    from noetl.runtime.roles.scheduler import run_scheduler

    ctx.exit(run_scheduler(tell))
