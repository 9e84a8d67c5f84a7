"""`noetl executions`: lists executions, shows one, cancels and runs them again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.executions.events import events
from noetl.cli.executions.plot import plot
from noetl.cli.run.workload import given_payload, payload_option, set_option
from noetl.runtime.commands.execution import deciding, find_execution

if TYPE_CHECKING:
    from noetl.cli.executions.show import Shown
    from noetl.cli.run.display import Display
    from noetl.runtime.commands.run import RunResult

_SHOWN = 20
"""Executions that are named one by one when many are cancelled; --json names all."""
_STATUSES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def executions() -> None:
    """List executions, show one, cancel and re-run them.

    EXECUTION is an id, a locator (noetl://…/execution/<id>) or `last` for the newest execution.
    """


executions.add_command(events)
executions.add_command(plot)


@executions.command("list")
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only those with this status.")
@click.option("--path", metavar="PREFIX", help="Only those of playbooks or DAGs (dag/...) whose path begins so.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="List at most so many.")
@_JSON
def list_(status: str | None, path: str | None, limit: int, as_json: bool) -> None:
    """List executions, the newest first.

    \b
    Examples:
      noetl executions list
      noetl executions list --status failed --path etl/
      noetl executions list --json | jq -r '.[].execution_id'
    """
    found = asyncio.run(_list(status, path, limit))
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False, default=str))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [
        (
            one["execution_id"],
            one["status"],
            one["path"] or "",
            f"{one['start_time']:%Y-%m-%d %H:%M:%S}" if one["start_time"] else "",
            "" if one["seconds"] is None else f"{one['seconds']:.3f} s",
            one["error"] or "",
        )
        for one in found
    ]
    click.echo(rendered(("execution", "status", "path", "started", "took", "error"), rows), nl=False)


@executions.command()
@click.argument("execution")
@_JSON
def show(execution: str, as_json: bool) -> None:
    """Show an execution: how it stands, its steps, their tries and times, its loops, its result and its errors.

    Rows of loops are those that are committed. Where servers share hints, rows of frames in hand are told beside them.

    \b
    Examples:
      noetl executions show last
      noetl executions show 604876797720658689 --json | jq '.steps[] | select(.status == "failed")'
    """
    found = asyncio.run(_show(execution))
    from noetl.cli.executions import show as executions_show

    if as_json:
        click.echo(json.dumps(executions_show.facts_of(found), indent=2, ensure_ascii=False, default=str))
    else:
        executions_show.show(found)


@executions.command()
@click.argument("execution")
@click.option("--reason", default="cancelled by hand", show_default=True, help="Why; it is recorded.")
@click.option("--no-cascade", is_flag=True, help="Let executions go on that this one started.")
@_JSON
@click.pass_context
def cancel(ctx: click.Context, execution: str, reason: str, no_cascade: bool, as_json: bool) -> None:
    """Cancel an execution and what it started; exit 1 if all of that had ended already.

    Of an execution that has ended itself, what it started and still runs is cancelled. Workers stop what they do for it at
    their next heartbeat. No server is needed.

    \b
    Examples:
      noetl executions cancel last --reason "wrong input"
      noetl executions cancel 604876797720658689 --no-cascade
    """
    asked, cancelled, status = asyncio.run(_cancel(execution, reason, cascade=not no_cascade))
    if as_json:
        facts = {"execution_id": str(asked), "status": status, "cancelled": [str(one) for one in cancelled]}
        click.echo(json.dumps(facts, indent=2))
    else:
        _tell_cancelled(asked, cancelled, status)
    ctx.exit(0 if cancelled else 1)


def _tell_cancelled(asked: int, cancelled: list[int], status: str) -> None:
    for one in cancelled[:_SHOWN]:
        click.echo(f"execution {one} is cancelled")
    if len(cancelled) > _SHOWN:
        click.echo(f"and {len(cancelled) - _SHOWN} more")
    if asked not in cancelled:
        ended = f"execution {asked} has ended already: {status}"
        ran = f"{len(cancelled)} {'execution' if len(cancelled) == 1 else 'executions'} below it still ran"
        click.echo(f"{ended}; {ran}, and stopped now" if cancelled else ended, err=True)


@executions.command()
@click.argument("execution")
@click.option("--from", "from_step", metavar="STEP", help="Begin at this step, with what the steps before it came to.")
@set_option
@payload_option
@click.option("--slots", type=click.IntRange(1), help="Commands to work on at a time.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the end.")
@click.option("--json", "as_json", is_flag=True, help="Print the end as JSON, and nothing else.")
@click.pass_context
def rerun(
    ctx: click.Context,
    execution: str,
    from_step: str | None,
    sets: tuple[str, ...],
    payload: str | None,
    slots: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the same playbook version with the same workload again, to its end, in this process.

    It is a new execution that names the old one. Exit codes are those of `noetl run`.

    \b
    Examples:
      noetl executions rerun last
      noetl executions rerun last --from load --set batch_size=50
    """
    from noetl.cli.run.display import display_for
    from noetl.cli.run.ending import finish

    given = given_payload(payload, sets)
    display = display_for(as_json=as_json, quiet=quiet)
    ctx.exit(finish(display, _rerun(execution, from_step, given, slots, display), as_json=as_json))


async def _list(status: str | None, path: str | None, limit: int) -> list[dict[str, Any]]:
    from noetl.runtime.commands.execution_list import listed_executions
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        return await listed_executions(runtime, status and status.upper(), path, limit)


async def _show(execution: str) -> Shown:
    from noetl.cli.executions.show import shown_execution
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        scope, execution_id = await find_execution(runtime, execution)
        return await shown_execution(runtime, scope, execution_id)


async def _cancel(execution: str, reason: str, *, cascade: bool) -> tuple[int, list[int], str]:
    async with deciding("cancel") as (runtime, engine):
        scope, execution_id = await find_execution(runtime, execution)
        cancelled = await engine.cancel(scope, execution_id, reason=reason, by="cli", cascade=cascade)
        if execution_id in cancelled:
            return execution_id, cancelled, "CANCELLED"
        return execution_id, cancelled, (await engine.executions.state(scope, execution_id)).status


async def _rerun(
    execution: str, from_step: str | None, given: dict[str, Any], slots: int | None, display: Display
) -> RunResult:
    from noetl.runtime.commands.run import RUN_SLOTS, rerun_execution
    from noetl.runtime.confinement import confine_tasks

    async with deciding("run") as (runtime, engine):
        await asyncio.to_thread(confine_tasks, runtime.settings, lambda said: display.warn([said]), shared=False)
        scope, execution_id = await find_execution(runtime, execution)
        async with display.following():
            return await rerun_execution(
                replace(runtime, scope=scope), engine, execution_id, given,
                from_step=from_step, slots=slots or RUN_SLOTS, watcher=display,
            )  # fmt: skip
