"""`noetl schedule`: makes schedules of playbooks, shows what all schedules did and will do, runs, pauses and resumes them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.run.workload import given_payload, payload_option, set_option, unknown_fields
from noetl.cli.terminal.messages import warn
from noetl.errors import InputError
from noetl.runtime.commands.schedules import opened, playbook_of, run_now

if TYPE_CHECKING:
    from noetl.cli.services.schedule_show import Shown
    from noetl.services.schedule.rows import ScheduleRow, SlotRow
    from noetl.services.schedule.spec import Definition

BY = "cli"
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_PLATFORM = click.option("--platform", is_flag=True, help="Look at the schedules of the platform itself.")
_NAME = click.argument("name", metavar="NAME")
_SECONDS = click.FloatRange(min=0)


@click.group("schedule")
def schedule() -> None:
    """Start playbooks at times, and see what schedules did and will do.

    A server runs what is due, and so does `noetl scheduler`. Sources of DAGs with `kind: cron` have schedules as well,
    which come and go with the version that serves; they are called after their DAG and job, as in shop.orders.

    \b
    Examples:
      noetl schedule create nightly --playbook jobs/nightly --cron "0 6 * * *" --timezone Europe/Berlin
      noetl schedule list
      noetl schedule show nightly
      noetl schedule run nightly
    """


@schedule.command("list")
@click.option("--kind", type=click.Choice(("playbook", "source", "platform")), help="Only those of this kind.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="List at most so many.")
@_PLATFORM
@_JSON
def list_(kind: str | None, limit: int, platform: bool, as_json: bool) -> None:
    """List schedules by name, with their next run and how the last one ended.

    \b
    Examples:
      noetl schedule list
      noetl schedule list --platform
      noetl schedule list --json | jq -r '.[] | select(.paused) | .name'
    """
    from noetl.cli.services import schedule_show

    chosen: Any = kind

    async def main() -> list[tuple[ScheduleRow, SlotRow | None]]:
        async with opened(platform=platform) as (_, schedules, scope):
            return await schedules.listed(scope, chosen, limit=limit)

    found = asyncio.run(main())
    if as_json:
        _print_json([schedule_show.schedule_facts(row, last) for row, last in found])
    elif not found:
        click.echo("There are no schedules.")
    else:
        click.echo(schedule_show.schedules_table(found), nl=False)


@schedule.command()
@_NAME
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Past runs to show.")
@click.option("--next", "ahead", type=click.IntRange(0, 1000), default=5, show_default=True, help="Next runs to show.")
@_PLATFORM
@_JSON
def show(name: str, limit: int, ahead: int, platform: bool, as_json: bool) -> None:
    """Show a schedule: what it starts, its next runs, and its past ones with what they started and came to.

    \b
    Examples:
      noetl schedule show nightly
      noetl schedule show shop.orders --limit 50
      noetl schedule show nightly --json | jq '.past[0].error'
    """
    from noetl.cli.services import schedule_show

    async def main() -> Shown:
        async with opened(platform=platform) as (runtime, schedules, scope):
            return await schedule_show.shown(runtime, schedules, scope, name, limit, ahead)

    found = asyncio.run(main())
    if as_json:
        _print_json(schedule_show.shown_facts(found))
    else:
        click.echo(schedule_show.shown_text(found), nl=False)


@schedule.command()
@_NAME
@click.option("--playbook", "path", metavar="PATH", required=True, help="The registered playbook to start.")
@click.option("--version", type=click.IntRange(1), help="Which version; the newest at each time unless given.")
@click.option(
    "--cron", metavar="FIELDS", help='Cron fields, such as "0 6 * * *" (six: seconds first), or @daily and its like.'
)
@click.option("--every", metavar="TIME", help='Instead of --cron: such as "5 minutes", counted in UTC.')
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Zone that cron fields mean.")
@click.option("--mode", type=click.Choice(("latest_only", "every_plan")), default="latest_only", show_default=True,
              help="What becomes of runs that were missed: only the newest, or all of them.")  # fmt: skip
@click.option("--catch-up", type=_SECONDS, default=86_400.0, show_default=True, metavar="SECONDS",
              help="Missed runs that are longer ago are skipped.")  # fmt: skip
@click.option("--delay", type=_SECONDS, default=0.0, show_default=True, metavar="SECONDS", help="Start so much later.")
@click.option("--attempts", type=click.IntRange(1), default=3, show_default=True, help="Tries to start it.")
@set_option
@payload_option
@_JSON
def create(
    name: str,
    path: str,
    version: int | None,
    cron: str | None,
    every: str | None,
    timezone: str,
    mode: str,
    catch_up: float,
    delay: float,
    attempts: int,
    sets: tuple[str, ...],
    payload: str | None,
    as_json: bool,
) -> None:
    """Start a playbook at times from now on; the schedule of the same name is changed, if there is one.

    The playbook finds the moment it was planned for in its workload, as schedule.plan_time.

    \b
    Examples:
      noetl schedule create nightly --playbook jobs/nightly --cron "0 6 * * *" --timezone Europe/Berlin
      noetl schedule create poll --playbook jobs/poll --every "5 minutes" --set limit=100
      noetl schedule create load --playbook jobs/load --cron "0 * * * *" --mode every_plan
    """
    from noetl.cli.services import schedule_show
    from noetl.services.schedule.spec import Definition, Named, Spec

    if (cron is None) == (every is None):
        raise InputError("a schedule needs either --cron or --every", hint='such as --cron "0 6 * * *"')
    chosen: Any = mode
    target = {"path": path, "workload": given_payload(payload, sets)}
    definition = Definition(
        named=Named(name=name),
        kind="playbook",
        target=target if version is None else {**target, "version": version},
        spec=Spec(
            expression=cron or f"rate({every})",
            timezone=timezone,
            mode=chosen,
            delay_seconds=delay,
            catch_up_seconds=catch_up,
            max_attempts=attempts,
        ),
    )
    row, changed = asyncio.run(_put(definition))
    if as_json:
        _print_json({**schedule_show.schedule_facts(row, None), "changed": changed})
    else:
        click.echo(schedule_show.put_sentence(row, changed=changed))


@schedule.command()
@_NAME
@click.option("--detach", is_flag=True, help="Only start it; a server or worker does the rest.")
@_PLATFORM
@_JSON
@click.pass_context
def run(ctx: click.Context, name: str, detach: bool, platform: bool, as_json: bool) -> None:
    """Run a schedule now, whatever its time, and wait for the end; its plan stays as it is. Exit 1 if it fails.

    What it starts is done by this process, which needs no server, unless it is detached.

    \b
    Examples:
      noetl schedule run nightly
      noetl schedule run shop.orders --detach
      noetl schedule run prune_slots --platform
    """
    from noetl.cli.services import schedule_show
    from noetl.runtime.service import run_interruptibly

    slot, ended = run_interruptibly(run_now(name, warn, platform=platform, detach=detach))
    if as_json:
        _print_json({**schedule_show.slot_facts(slot), "run_status": ended})
    else:
        click.echo(schedule_show.ran_sentence(name, slot, ended))
    ctx.exit(0 if slot.status == "SUCCESS" and ended in (None, "started", "COMPLETED") else 1)


@schedule.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_PLATFORM
def pause(names: tuple[str, ...], platform: bool) -> None:
    """Let schedules start nothing until they are resumed; what they started goes on.

    \b
    Examples:
      noetl schedule pause nightly
    """

    async def main() -> None:
        async with opened(platform=platform) as (_, schedules, scope):
            for name in names:
                await schedules.pause(scope, name, by=BY)
                click.echo(f"{name} is paused")

    asyncio.run(main())


@schedule.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_PLATFORM
def resume(names: tuple[str, ...], platform: bool) -> None:
    """Let schedules go on with their next time; what they missed while they were paused is not caught up.

    \b
    Examples:
      noetl schedule resume nightly
    """
    from noetl.cli.services import schedule_show

    async def main() -> None:
        async with opened(platform=platform) as (_, schedules, scope):
            for name in names:
                row = await schedules.resume(scope, name, by=BY)
                click.echo(f"{name} goes on; next run {schedule_show.moment_text(row.next_plan, row.spec.timezone)}")

    asyncio.run(main())


@schedule.command()
@_NAME
def remove(name: str) -> None:
    """Remove the schedule of a playbook; what it started goes on, and its past runs stay for as long as they are kept.

    \b
    Examples:
      noetl schedule remove nightly
    """

    async def main() -> None:
        async with opened() as (_, schedules, scope):
            await schedules.remove(scope, name, "playbook", by=BY)

    asyncio.run(main())
    click.echo(f"{name} is removed")


async def _put(definition: Definition) -> tuple[ScheduleRow, bool]:
    async with opened() as (runtime, schedules, scope):
        target = definition.target
        playbook = await playbook_of(runtime, scope, target["path"], target.get("version"))
        for warning in unknown_fields(playbook.workload, target["workload"]):
            click.echo(f"warning: {warning}", err=True)
        return await schedules.put(scope, definition, by=BY)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
