"""`noetl doctor`: shows whether everything NoETL needs is there, and what to do about what is not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check Java, Spark, PostgreSQL, NATS, the object stores and how tasks are isolated; exit 1 if something is missing.

    \b
    Examples:
      noetl doctor
      noetl doctor --json
    """
    from noetl.cli.terminal.tables import rendered
    from noetl.runtime.commands.doctor import examine
    from noetl.runtime.config import load_settings

    findings = asyncio.run(examine(load_settings()))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in findings], indent=2, ensure_ascii=False))
    else:
        rows = [(one.name, "ok" if one.ok else "MISSING", one.found, one.todo) for one in findings]
        click.echo(rendered(("", "", "found", "what to do"), rows), nl=False)
    ctx.exit(0 if all(one.ok for one in findings) else 1)
