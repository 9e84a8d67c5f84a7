"""`noetl dev`: a server and a worker in one process, which register playbooks again whenever their files change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.cli.catalog import registered_sentence
from noetl.cli.roles.server import port_option
from noetl.cli.terminal.messages import tell

if TYPE_CHECKING:
    from noetl.engine.catalog.playbooks import Registered
    from noetl.language.playbook.checked_playbook import CheckedPlaybook


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH…]")
@port_option
@click.option("--slots", type=click.IntRange(1), help="Commands to work on at a time; default: worker.slots.")
@click.option("--nats", is_flag=True, help="Start a NATS server of our own beside it.")
@click.pass_context
def dev(ctx: click.Context, paths: tuple[Path, ...], port: int | None, slots: int | None, nats: bool) -> None:
    """Serve, work and register playbooks as they change, all in one process on this machine alone.

    PATHs are playbooks, or directories that hold them; without any, the current directory is watched. Files that are no
    playbooks are left alone. A playbook with errors is told about and not registered; the version before stays in use.

    With --nats events are mirrored to a NATS server that is started here, and every `event_store.write_path` can be tried out.
    Its streams are in `nats` in `runtime.home` and stay there. It listens on the port of `event_store.connection.url`, which
    must be one of this machine, or else on any that is free.

    \b
    Examples:
      noetl dev
      noetl dev playbooks/ --port 8090
      noetl dev --nats
      NOETL_EVENT_STORE__WRITE_PATH=stream noetl dev --nats
    """
    from noetl.runtime.roles.dev import run_dev

    ctx.exit(run_dev(tell, _show, paths or (Path(),), port=port, slots=slots, nats=nats))


def _show(read: CheckedPlaybook, answer: Registered) -> None:
    for warning in read.warnings:
        tell(f"warning: {warning}")
    tell(registered_sentence(read, answer))
