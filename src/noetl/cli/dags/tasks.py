"""`noetl tasks`: lists the tasks of dataset jobs, shows one with its attempts and logs, retries and cancels them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.terminal.messages import warn
from noetl.cli.terminal.whoami import BY
from noetl.errors import InputError, NoetlError, NotFound
from noetl.runtime.commands.pipelines import opened

if TYPE_CHECKING:
    from noetl.cli.dags.tasks_show import Shown
    from noetl.pipelines.pipelines import Pipelines
    from noetl.pipelines.tasks.outbox import DeadRow
    from noetl.pipelines.tasks.rows import TaskRow
    from noetl.runtime.wiring import Runtime

_STATUSES = ("Queued", "Running", "Completed", "Skipped", "Failed", "Canceled")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_TASKS = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")


@click.group("tasks")
def tasks() -> None:
    """List, show, retry and cancel the tasks of dataset jobs.

    TASK is an id, the beginning of one, or `last` for the newest task.

    \b
    Examples:
      noetl tasks list --status failed
      noetl tasks show last
      noetl tasks logs 3f2a
    """


@tasks.command("list")
@click.option("--dag", help="Only those of this DAG.")
@click.option("--job", help="Only those of jobs of this name.")
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only those with this status.")
@click.option("--execution", metavar="ID", help="Only those of this run; `last` is the newest execution.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="List at most so many.")
@_JSON
def list_(
    dag: str | None, job: str | None, status: str | None, execution: str | None, limit: int, as_json: bool
) -> None:
    """List tasks, the newest first.

    \b
    Examples:
      noetl tasks list
      noetl tasks list --dag shop --status failed
      noetl tasks list --json | jq -r '.[].task_id'
    """
    from noetl.cli.dags import tasks_show

    found = asyncio.run(_list(dag, job, status, execution, limit))
    if as_json:
        _print_json([tasks_show.task_facts(one) for one in found])
    else:
        click.echo(tasks_show.tasks_table(found), nl=False)


@tasks.command()
@click.argument("task")
@_JSON
def show(task: str, as_json: bool) -> None:
    """Show a task: what it reads and made, its attempts with their times and places, checks, and errors.

    \b
    Examples:
      noetl tasks show last
      noetl tasks show 3f2a --json | jq '.attempts[].error'
    """
    from noetl.cli.dags import tasks_show

    found = asyncio.run(_show(task))
    if as_json:
        _print_json(tasks_show.shown_facts(found))
    else:
        click.echo(tasks_show.shown_text(found), nl=False)


@tasks.command()
@click.argument("task")
@click.option("--attempt", type=click.IntRange(1), help="Which attempt; the last that left a log unless given.")
def logs(task: str, attempt: int | None) -> None:
    """Print what an attempt left as its log: prints of the job, Spark's own lines, tracebacks.

    \b
    Examples:
      noetl tasks logs last
      noetl tasks logs 3f2a --attempt 1
    """
    click.echo(asyncio.run(_logs(task, attempt)), nl=False)


@tasks.command()
@_TASKS
@click.pass_context
def retry(ctx: click.Context, tasks: tuple[str, ...]) -> None:
    """Let tasks be tried again that failed for good or were cancelled; a worker takes them up.

    \b
    Examples:
      noetl tasks retry 3f2a 77b1
    """

    async def one(runtime: Runtime, pipelines: Pipelines, task: TaskRow) -> str:
        await pipelines.engine.by_hand.retry(runtime.scope, task.task_id, by=BY)
        return f"task {task.task_id} of job {task.job} waits to be tried again"

    ctx.exit(asyncio.run(_each(tasks, one)))


@tasks.command()
@_TASKS
@click.option("--reason", default="cancelled by hand", show_default=True, help="Why; it is recorded.")
@click.pass_context
def cancel(ctx: click.Context, tasks: tuple[str, ...], reason: str) -> None:
    """Cancel tasks; exit 1 if one had ended already.

    One that runs is asked to stop, which its worker hears with its next heartbeat.

    \b
    Examples:
      noetl tasks cancel 3f2a --reason "wrong input"
    """

    async def one(runtime: Runtime, pipelines: Pipelines, task: TaskRow) -> str:
        status = await pipelines.engine.by_hand.cancel(runtime.scope, task.task_id, reason=reason, by=BY)
        said = "is asked to stop" if status == "Running" else "is cancelled"
        return f"task {task.task_id} of job {task.job} {said}"

    ctx.exit(asyncio.run(_each(tasks, one)))


@tasks.command()
@click.option("--rearm", "rearmed", metavar="ID", help="Deliver it again: an id, the beginning of one, or last.")
@click.option("--rearm-all", is_flag=True, help="Let all of them be delivered again.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="List at most so many.")
@_JSON
def outbox(rearmed: str | None, rearm_all: bool, limit: int, as_json: bool) -> None:
    """List what had to follow from events and could not be done; let it be tried again.

    \b
    Examples:
      noetl tasks outbox
      noetl tasks outbox --rearm-all
    """
    from noetl.cli.dags import tasks_show

    if rearmed is not None and rearm_all:
        raise InputError("--rearm names one and --rearm-all takes all; give one of them")
    count, dead = asyncio.run(_outbox(rearmed, limit, rearm_all=rearm_all))
    if as_json:
        _print_json({"rearmed": count, "dead": [tasks_show.dead_facts(one) for one in dead]})
        return
    if rearmed is not None or rearm_all:
        click.echo(f"{count} {'row is' if count == 1 else 'rows are'} armed again")
    if dead:
        click.echo(tasks_show.dead_table(dead), nl=False)
    else:
        click.echo("No row of the outbox is dead.")


async def _list(
    dag: str | None, job: str | None, status: str | None, execution: str | None, limit: int
) -> list[TaskRow]:
    from noetl.runtime.commands.execution import find_execution

    async with opened(warn, drive=False) as (runtime, pipelines):
        execution_id = None if execution is None else (await find_execution(runtime, execution))[1]
        chosen: Any = status
        return await pipelines.engine.by_hand.listed(
            runtime.scope, dag=dag, job=job, status=chosen, execution_id=execution_id, limit=limit
        )


async def _show(text: str) -> Shown:
    from noetl.cli.dags.tasks_show import Shown
    from noetl.runtime.commands.selection import find_task

    async with opened(warn, drive=False) as (runtime, pipelines):
        task = await find_task(runtime, pipelines, text)
        inputs = task.inputs
        if task.inputs_ref is not None and task.inputs:
            parts = json.loads(await runtime.payloads.fetch(runtime.scope, task.inputs_ref))
            inputs = [{**entry, "parts": parts[entry["alias"]]} for entry in inputs]
        names = {one.dataset_uuid: one.name for one in await pipelines.datasets.registered(runtime.scope)}
        attempts = await pipelines.engine.by_hand.history(runtime.scope, task.task_id)
        return Shown(task=task, inputs=inputs, attempts=attempts, names=names)


async def _logs(text: str, attempt: int | None) -> str:
    from noetl.runtime.commands.selection import find_task

    async with opened(warn, drive=False) as (runtime, pipelines):
        task = await find_task(runtime, pipelines, text)
        attempts = await pipelines.engine.by_hand.history(runtime.scope, task.task_id)
        chosen = [one for one in attempts if one.logs is not None and attempt in (None, one.attempt)]
        if not chosen or chosen[-1].logs is None:
            which = "no attempt at it" if attempt is None else f"its attempt {attempt}, if there was one,"
            raise NotFound(
                f"there is no log of task {task.task_id}: {which} left {'any' if attempt is None else 'none'}",
                hint=f"`noetl tasks show {task.task_id[:8]}` tells of each attempt",
            )
        return (await runtime.payloads.fetch(runtime.scope, chosen[-1].logs)).decode(errors="replace")


async def _each(texts: tuple[str, ...], change: Callable[[Runtime, Pipelines, TaskRow], Awaitable[str]]) -> int:
    """Change each task, whatever becomes of the others, and return the exit code."""
    from noetl.cli.main import exit_code
    from noetl.runtime.commands.selection import find_task

    code = 0
    async with opened(warn, drive=False) as (runtime, pipelines):
        for text in texts:
            try:
                click.echo(await change(runtime, pipelines, await find_task(runtime, pipelines, text)))
            except NoetlError as problem:
                click.echo(f"error: {problem.message}", err=True)
                code = max(code, exit_code(problem))
    return code


async def _outbox(text: str | None, limit: int, *, rearm_all: bool) -> tuple[int, list[DeadRow]]:
    from noetl.runtime.commands.selection import chosen

    async with opened(warn, drive=False) as (runtime, pipelines):
        box, scope, count = pipelines.engine.outbox, runtime.scope, 0
        if rearm_all:
            count = await box.rearm(scope)
        elif text is not None:
            newest_first = list(reversed(await box.list_dead(scope, 10_000)))
            hint = "`noetl tasks outbox` lists them"
            found = chosen(newest_first, text, lambda one: one.outbox_id, "dead row of the outbox", hint)
            count = await box.rearm(scope, found.outbox_id)
        # Done here and now, for there may be no server that would.
        while count and await box.drain_scope(scope):
            pass
        return count, await box.list_dead(scope, limit)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
