"""`noetl alerts`: applies rules and channels, lists alerts and the messages about them, and tries channels out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.errors import InputError

if TYPE_CHECKING:
    from noetl.language.alert.document import AlertsDocument
    from noetl.runtime.wiring import Runtime
    from noetl.services.alerts.alerts import Alerts
    from noetl.services.alerts.applied_rules import Applied
    from noetl.services.alerts.deliveries import DeliveryRow
    from noetl.services.alerts.evaluation import Evaluated
    from noetl.services.alerts.findings import AlertRow

BY = "cli"
_SEVERITIES = ("info", "warning", "error", "critical")
_STATUSES = ("Pending", "Sending", "Delivered", "Dead")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_LIMIT = click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="List at most so many.")


@click.group("alerts")
def alerts() -> None:
    """Rules over runs and data, the alerts they raise, and the channels that are told.

    ALERT is an id, the beginning of one, or `last` for the one raised last.

    \b
    Examples:
      noetl alerts apply alerts.yaml
      noetl alerts list --status open
      noetl alerts test team
      noetl alerts deliveries --status dead
    """


@alerts.command("list")
@click.option("--status", type=click.Choice(("open", "resolved")), help="Only those that are so.")
@click.option("--rule", help="Only those of rules of this name.")
@click.option("--severity", type=click.Choice(_SEVERITIES), help="Only those of this severity.")
@_LIMIT
@_JSON
def list_(status: str | None, rule: str | None, severity: str | None, limit: int, as_json: bool) -> None:
    """List alerts, those raised last first.

    \b
    Examples:
      noetl alerts list --status open
      noetl alerts list --rule nightly_failed --json | jq '.[].title'
    """
    from noetl.cli.services import alerts_show

    async def read() -> list[AlertRow]:
        async with _opened() as (runtime, own):
            return await own.reading.listed(runtime.scope, status=status, rule=rule, severity=severity, limit=limit)

    found = asyncio.run(read())
    if as_json:
        _print_json([alerts_show.facts_of(one) for one in found])
    elif found:
        click.echo(alerts_show.alerts_table(found), nl=False)
    else:
        click.echo("There is no such alert.")


@alerts.command()
@click.argument("alert")
@_JSON
def show(alert: str, as_json: bool) -> None:
    """Show an alert, and what became of the messages about it.

    \b
    Examples:
      noetl alerts show last
      noetl alerts show 3f2a --json | jq '.deliveries[].error'
    """
    from noetl.cli.services import alerts_show

    async def read() -> tuple[AlertRow, list[DeliveryRow]]:
        async with _opened() as (runtime, own):
            found = await own.reading.show(runtime.scope, alert)
            return found, await own.deliveries.listed(runtime.scope, alert_id=found.alert_id)

    found, told = asyncio.run(read())
    if as_json:
        _print_json({**alerts_show.facts_of(found), "deliveries": [alerts_show.facts_of(one) for one in told]})
    else:
        click.echo(alerts_show.alert_text(found, told), nl=False)


@alerts.command()
@_JSON
def rules(as_json: bool) -> None:
    """List the rules and channels that are applied.

    \b
    Examples:
      noetl alerts rules
      noetl alerts rules --json | jq '.[].rules[].name'
    """
    from noetl.cli.services import alerts_show

    async def read() -> list[Applied]:
        async with _opened() as (runtime, own):
            return await own.applied.listed(runtime.scope)

    found = asyncio.run(read())
    if as_json:
        _print_json([alerts_show.rules_facts(one) for one in found])
    elif found:
        click.echo(alerts_show.rules_text(found), nl=False)
    else:
        click.echo("No rules are applied; `noetl alerts apply FILE` does it.")


@alerts.command()
@click.argument("file", type=click.Path(path_type=Path))
@_JSON
def apply(file: Path, as_json: bool) -> None:
    """Put the rules and channels of a file into use, in place of those of the same name.

    \b
    Examples:
      noetl alerts apply alerts.yaml
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{file} is not UTF-8 text: byte {problem.start} cannot be decoded") from None

    async def write() -> tuple[AlertsDocument, bool]:
        async with _opened() as (runtime, own):
            return await own.applied.apply(runtime.scope, text, file=str(file))

    document, changed = asyncio.run(write())
    if as_json:
        counts = {"rules": len(document.rules), "channels": len(document.channels)}
        _print_json({"name": document.name, "changed": changed, **counts})
        return
    held = f"{_count(len(document.rules), 'rule')} and {_count(len(document.channels), 'channel')}"
    click.echo(f"{document.name}: {held} {'are in use' if changed else 'were in use already'}")


@alerts.command()
@click.argument("name")
def remove(name: str) -> None:
    """Take the rules and channels of a name out of use; their open alerts are resolved.

    \b
    Examples:
      noetl alerts remove operations
    """

    async def write() -> None:
        async with _opened() as (runtime, own):
            await own.applied.remove(runtime.scope, name)

    asyncio.run(write())
    click.echo(f"{name} is no longer in use")


@alerts.command()
@_JSON
def evaluate(as_json: bool) -> None:
    """Evaluate the rules of this organization now, and send what is due; a server does so by itself each minute.

    \b
    Examples:
      noetl alerts evaluate
    """

    async def work() -> Evaluated:
        from noetl.runtime.assembly.alerts import sender_of
        from noetl.runtime.projections.projector import catch_up

        async with _opened() as (runtime, own):
            await catch_up(runtime)
            done = await own.evaluating.scope(runtime.scope, f"cli/{runtime.ids.mint()}")
            sender = sender_of(runtime)
            while await sender.drain_scope(runtime.scope):
                pass
            return done

    done = asyncio.run(work())
    if as_json:
        import msgspec

        _print_json(msgspec.to_builtins(done))
        return
    click.echo(f"{_count(done.rules, 'rule')} evaluated: {done.raised} raised, {done.resolved} resolved")
    if done.failed:
        click.echo(f"{_count(done.failed, 'rule')} could not be evaluated; the log says why", err=True)


@alerts.command("test")
@click.argument("channel")
@click.pass_context
def try_out(ctx: click.Context, channel: str) -> None:
    """Send a test message through a channel; exit 1 if it was not taken.

    \b
    Examples:
      noetl alerts test team
    """

    async def send() -> DeliveryRow:
        from noetl.runtime.assembly.alerts import sender_of

        async with _opened() as (runtime, own):
            delivery_id = await own.trying.make(runtime.scope, channel)
            await sender_of(runtime).drain_scope(runtime.scope)
            return await own.deliveries.show(runtime.scope, delivery_id)

    row = asyncio.run(send())
    if row.status == "Delivered":
        click.echo(f"the channel {channel} took the message {row.delivery_id}")
        return
    click.echo(f"error: the channel {channel} did not take the message: {row.error}", err=True)
    ctx.exit(1)


@alerts.group(invoke_without_command=True)
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only those with this status.")
@_LIMIT
@_JSON
@click.pass_context
def deliveries(ctx: click.Context, status: str | None, limit: int, as_json: bool) -> None:
    """List messages about alerts, the newest first; those that are dead were given up.

    \b
    Examples:
      noetl alerts deliveries --status dead
      noetl alerts deliveries retry 3f2a
    """
    if ctx.invoked_subcommand is not None:
        return
    from noetl.cli.services import alerts_show

    async def read() -> list[DeliveryRow]:
        async with _opened() as (runtime, own):
            return await own.deliveries.listed(runtime.scope, status=status, limit=limit)

    found = asyncio.run(read())
    if as_json:
        _print_json([alerts_show.facts_of(one) for one in found])
    elif found:
        click.echo(alerts_show.deliveries_table(found), nl=False)
    else:
        click.echo("There is no such message.")


@deliveries.command()
@click.argument("delivery")
@click.pass_context
def retry(ctx: click.Context, delivery: str) -> None:
    """Have a message sent after all that was given up; exit 1 if it is not taken now.

    DELIVERY is an id, the beginning of one, or `last` for the newest that was given up. It is sent here and now, and by servers if that fails.

    \b
    Examples:
      noetl alerts deliveries retry 3f2a
    """

    async def send() -> DeliveryRow:
        from noetl.runtime.assembly.alerts import sender_of
        from noetl.runtime.commands.selection import chosen

        async with _opened() as (runtime, own):
            dead = await own.deliveries.listed(runtime.scope, status="Dead", limit=10_000)
            hint = "`noetl alerts deliveries --status dead` lists them"
            one = chosen(dead, delivery, lambda row: row.delivery_id, "message that was given up", hint)
            await own.deliveries.rearm(runtime.scope, one.delivery_id, by=BY)
            await sender_of(runtime).drain_scope(runtime.scope)
            return await own.deliveries.show(runtime.scope, one.delivery_id)

    row = asyncio.run(send())
    if row.status == "Delivered":
        click.echo(f"the channel {row.channel} took the message {row.delivery_id}")
        return
    click.echo(f"error: the channel {row.channel} did not take the message yet: {row.error}", err=True)
    ctx.exit(1)


@asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Runtime, Alerts]]:
    from noetl.runtime.assembly.alerts import alerts_of
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        yield runtime, alerts_of(runtime, BY)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
