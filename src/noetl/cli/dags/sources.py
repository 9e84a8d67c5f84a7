"""`noetl dag emit`, `pause` and `resume`: sources of a DAG that serves, started by hand, stopped and let go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.terminal.messages import warn
from noetl.cli.terminal.whoami import BY
from noetl.runtime.commands.pipelines import opened, turns_of, working

if TYPE_CHECKING:
    from noetl.pipelines.tasks.runs import RunEnd

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
_DAG = click.argument("dag")
_JOB = click.argument("job")


@click.command()
@_DAG
@_JOB
@click.option("--wait", is_flag=True, help="Work in this process and wait until all that follows is done.")
@click.option("--key", help="Name of the request: asked for again, it gives the run it started the first time.")
@_JSON
@click.pass_context
def emit(ctx: click.Context, dag: str, job: str, wait: bool, key: str | None, as_json: bool) -> None:
    """Start a source job of the version that serves readers; whatever reads it follows.

    Without --wait the workers of a server do the work.

    \b
    Examples:
      noetl dag emit shop orders --wait
      noetl dag emit shop orders --key 2026-01-31
    """
    from noetl.cli.dags.show import end_sentence, task_line
    from noetl.runtime.service import run_interruptibly

    def say(text: str) -> None:
        if not as_json:
            click.echo(text)

    async def main() -> tuple[int, RunEnd | None]:
        async with opened(warn) as (runtime, pipelines):
            run = await pipelines.engine.runs.emit(runtime.scope, dag, job, requested_by=BY, key=key)
            if not wait:
                return run, None
            async with working(runtime, pipelines, warn, lambda *told: say(task_line(*told))):
                return run, await pipelines.finished(run)

    run, end = run_interruptibly(main())
    if as_json:
        told: dict[str, Any] = {"dag": dag, "job": job, "execution_id": str(run)}
        told |= {"status": "open", "error": None} if end is None else {"status": end.status, "error": end.error}
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(f"{dag}.{job} runs as execution {run}" if end is None else end_sentence("the run", end))
    ctx.exit(0 if end is None or end.status == "completed" else 1)


@click.command()
@_DAG
@_JOB
def pause(dag: str, job: str) -> None:
    """Stop a source that is kept running: its turn is asked to end, and none follows until it is resumed.

    \b
    Examples:
      noetl dag pause shop clicks
    """
    import asyncio

    async def main() -> None:
        async with opened(warn) as (runtime, pipelines):
            await turns_of(runtime, pipelines).pause(runtime.scope, dag, job, by=BY)

    asyncio.run(main())
    click.echo(f"{dag}.{job} is paused; `noetl dag resume {dag} {job}` lets it go on")


@click.command()
@_DAG
@_JOB
def resume(dag: str, job: str) -> None:
    """Let a source that was paused go on where it stopped.

    \b
    Examples:
      noetl dag resume shop clicks
    """
    import asyncio

    async def main() -> None:
        async with opened(warn) as (runtime, pipelines):
            await turns_of(runtime, pipelines).resume(runtime.scope, dag, job, by=BY)

    asyncio.run(main())
    click.echo(f"{dag}.{job} goes on")
