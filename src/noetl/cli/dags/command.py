"""`noetl dag`: DAGs of jobs from their files to served datasets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.dags.sources import emit, pause, resume
from noetl.cli.terminal.messages import warn
from noetl.cli.terminal.whoami import BY
from noetl.errors import InputError, NotFound
from noetl.runtime.commands.pipelines import opened, working
from noetl.runtime.commands.selection import LAST

if TYPE_CHECKING:
    from noetl.pipelines.catalog.dags.bundles import Bundle
    from noetl.pipelines.catalog.dags.registry import Deployed
    from noetl.pipelines.pipelines import Cutover, Pipelines
    from noetl.pipelines.tasks.runs import RunEnd

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
_FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")


@click.group()
def dag() -> None:
    """Build and serve versioned datasets from DAGs of jobs.

    \b
    Examples:
      noetl dag init shop && noetl dag run shop/dag.yaml
      noetl dag plan dag.yaml
      noetl dag deploy dag.yaml --wait --activate
      noetl dag rollback shop
      noetl dag emit shop orders --wait
    """


dag.add_command(emit)
dag.add_command(pause)
dag.add_command(resume)


@dag.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
def init(directory: Path) -> None:
    """Write a small project to begin with: a DAG, its SQL and Python. Nothing that is there is changed.

    \b
    Examples:
      noetl dag init shop
    """
    from noetl.language.dag.starter import starter_files

    directory.mkdir(parents=True, exist_ok=True)
    files = starter_files(directory.resolve().name)
    there = sorted(name for name in files if (directory / name).exists())
    if there:
        raise InputError(f"{directory} has {', '.join(there)} already", hint="give a directory without them")
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
        click.echo(f"wrote {directory / name}")
    click.echo(f"Now run it: noetl dag run {directory / 'dag.yaml'}")


@dag.command()
@_FILE
@_JSON
@click.pass_context
def run(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Deploy a DAG, serve it once it is built, and run it until nothing is left to do.

    Files that are deployed already are not deployed again: then the jobs without inputs run once more, and whatever
    reads them follows. No server is needed.

    \b
    Examples:
      noetl dag run dag.yaml
      noetl dag run dag.yaml --json
    """
    from noetl.cli.dags.show import end_sentence, plan_text, task_line
    from noetl.runtime.service import run_interruptibly

    bundle = _bundle(file)
    say = _quiet if as_json else click.echo

    async def main() -> tuple[RunEnd, dict[str, Any]]:
        async with opened(warn) as (runtime, pipelines):
            deployed = await pipelines.deploy(bundle, BY)
            name = bundle.dag.name
            async with working(runtime, pipelines, warn, lambda *told: say(task_line(*told)), warm=_on_spark(bundle)):
                if not deployed.plan.changes_nothing:
                    say(plan_text(deployed.plan))
                    end = await _built(pipelines, deployed, say, activate=True)
                else:
                    say(f"version {deployed.dag_version_id[:8]} of {name} serves already; its sources run once more")
                    end = await _all(pipelines, await pipelines.emit(name, (), BY))
                    say(end_sentence("the run", end))
            return end, await _status(pipelines, name, deployed.dag_version_id)

    end, status = run_interruptibly(main())
    _show_status(status, as_json=as_json)
    ctx.exit(0 if end.status == "completed" else 1)


@dag.command()
@_FILE
@_JSON
def plan(file: Path, as_json: bool) -> None:
    """Say what a deploy would create, rebuild and keep, and why. Nothing is changed.

    \b
    Examples:
      noetl dag plan dag.yaml
    """
    import asyncio

    import msgspec

    from noetl.cli.dags.show import plan_text

    bundle = _bundle(file)

    async def main() -> Any:
        async with opened(warn, drive=False) as (_, pipelines):
            return await pipelines.plan(bundle)

    found = asyncio.run(main())
    click.echo(json.dumps(msgspec.to_builtins(found), indent=2) if as_json else plan_text(found))
    if found.problems:
        raise InputError(f"DAG {found.dag} cannot be deployed", hint="; ".join(found.problems))


@dag.command()
@_FILE
@click.option("--wait", is_flag=True, help="Build in this process and wait for the end.")
@click.option("--activate", "activates", is_flag=True, help="Serve it once it is built; waits.")
@_JSON
@click.pass_context
def deploy(ctx: click.Context, file: Path, wait: bool, activates: bool, as_json: bool) -> None:
    """Make a new version of a DAG: edited jobs and what reads them are built anew while the old version serves.

    The same files deploy to nothing. Without --wait the workers of a server build it.

    \b
    Examples:
      noetl dag deploy dag.yaml --wait
      noetl dag deploy dag.yaml --activate
    """
    from noetl.cli.dags.show import plan_text, task_line
    from noetl.runtime.service import run_interruptibly

    bundle = _bundle(file)
    say = _quiet if as_json else click.echo

    async def main() -> dict[str, Any]:
        async with opened(warn) as (runtime, pipelines):
            deployed = await pipelines.deploy(bundle, BY)
            say(plan_text(deployed.plan))
            end: RunEnd | None = None
            if wait or activates:
                warm = _on_spark(bundle) and bool(deployed.plan.built) and not deployed.plan.changes_nothing
                async with working(runtime, pipelines, warn, lambda *told: say(task_line(*told)), warm=warm):
                    end = await _built(pipelines, deployed, say, activate=activates)
            return {
                "dag": bundle.dag.name,
                "dag_version_id": deployed.dag_version_id,
                "execution_id": str(deployed.execution_id),
                "created": deployed.created,
                "status": None if end is None else end.status,
                "error": None if end is None else end.error,
            }

    answer = run_interruptibly(main())
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    ctx.exit(0 if answer["status"] in (None, "completed") else 1)


@dag.command()
@click.argument("name")
@click.argument("version", required=False)
def ready(name: str, version: str | None) -> None:
    """Say that a version is built whole; refused while something of it is missing.

    A build that ends well is marked by itself: this is for one whose failed tasks were mended by hand.

    \b
    Examples:
      noetl dag ready shop 3f2a
    """
    import asyncio

    async def main() -> str:
        async with opened(warn, drive=False) as (runtime, pipelines):
            chosen = await _named(pipelines, name, version) or await pipelines.newest_unready(name)
            return (await pipelines.dags.mark_ready(runtime.scope, name, chosen, by=BY)).dag_version_id

    click.echo(f"version {asyncio.run(main())[:8]} of {name} is ready: noetl dag activate {name}")


@dag.command()
@click.argument("name")
@click.argument("version", required=False)
@_JSON
def activate(name: str, version: str | None, as_json: bool) -> None:
    """Let a version serve readers, all its datasets at once: the newest that is ready unless one is named.

    \b
    Examples:
      noetl dag activate shop
      noetl dag activate shop 3f2a
    """

    async def cut_over(pipelines: Pipelines) -> Cutover:
        return await pipelines.activate(name, await _named(pipelines, name, version), BY)

    _cut_over(cut_over, as_json=as_json)


@dag.command()
@click.argument("name")
@click.option("--to", "version", help="Version to go back to; the one that served before unless named.")
@_JSON
def rollback(name: str, version: str | None, as_json: bool) -> None:
    """Let an earlier version serve readers again, at once: its data still stand.

    \b
    Examples:
      noetl dag rollback shop
      noetl dag rollback shop --to 3f2a
    """

    async def cut_over(pipelines: Pipelines) -> Cutover:
        return await pipelines.rollback(name, await _named(pipelines, name, version), BY)

    _cut_over(cut_over, as_json=as_json)


@dag.command()
@click.argument("name")
@click.option("--version", help="Version to look at: the newest under way, else the current one, unless named.")
@_JSON
def status(name: str, version: str | None, as_json: bool) -> None:
    """Show how far a version is, job by job.

    \b
    Examples:
      noetl dag status shop
    """
    import asyncio

    async def main() -> dict[str, Any]:
        async with opened(warn, drive=False) as (_, pipelines):
            return await _status(pipelines, name, await _named(pipelines, name, version))

    _show_status(asyncio.run(main()), as_json=as_json)


@dag.command("list")
@click.argument("name", required=False)
@_JSON
def list_(name: str | None, as_json: bool) -> None:
    """List the DAGs, or the versions of one.

    \b
    Examples:
      noetl dag list
      noetl dag list shop
    """
    import asyncio

    import msgspec

    from noetl.cli.dags.show import versions_table

    async def main() -> list[Any]:
        async with opened(warn, drive=False) as (runtime, pipelines):
            names = [name] if name else await pipelines.dags.names(runtime.scope)
            return [one for each in names for one in await pipelines.dags.versions(runtime.scope, each)]

    found = asyncio.run(main())
    if name and not found:
        raise NotFound(f"there is no DAG {name}", hint="`noetl dag list` shows what is deployed")
    if as_json:
        shown = [{**msgspec.to_builtins(one), "deploy_execution_id": str(one.deploy_execution_id)} for one in found]
        click.echo(json.dumps(shown, indent=2))
    else:
        click.echo(versions_table(found), nl=False)


def _cut_over(change: Any, *, as_json: bool) -> None:
    import asyncio

    import msgspec

    from noetl.cli.dags.show import activated_sentence

    async def main() -> Cutover:
        async with opened(warn) as (_, pipelines):
            found: Cutover = await change(pipelines)
            return found

    cutover = asyncio.run(main())
    if as_json:
        run = None if cutover.caught_up is None else str(cutover.caught_up)
        click.echo(json.dumps({**msgspec.to_builtins(cutover), "caught_up": run}, indent=2))
    else:
        click.echo(activated_sentence(cutover))


def _bundle(file: Path) -> Bundle:
    from noetl.pipelines.catalog.dags.bundles import read_bundle

    bundle = read_bundle(file)
    for warning in bundle.warnings:
        click.echo(str(warning), err=True)
    return bundle


def _on_spark(bundle: Bundle) -> bool:
    return any(job.runtime == "spark" for job in bundle.dag.jobs)


async def _built(pipelines: Pipelines, deployed: Deployed, say: Callable[[str], None], *, activate: bool) -> RunEnd:
    """Wait for a build, let it serve if asked, and work off what came in meanwhile; return the last end."""
    from noetl.cli.dags.show import activated_sentence, end_sentence

    end = await pipelines.finished(deployed.execution_id)
    say(end_sentence("the build", end))
    if activate and end.status == "completed":
        cutover = await pipelines.activate(deployed.plan.dag, deployed.dag_version_id, BY)
        say(activated_sentence(cutover))
        if cutover.caught_up is not None:
            end = await pipelines.finished(cutover.caught_up)
            say(end_sentence("catching up", end))
    return end


async def _all(pipelines: Pipelines, runs: dict[str, int]) -> RunEnd:
    """Wait for runs and return the first that failed, else the last."""
    if not runs:
        raise InputError("no job of this DAG is started by hand", hint="its schedules or its inputs start it")
    ends = [await pipelines.finished(execution_id) for execution_id in runs.values()]
    return next((end for end in ends if end.status != "completed"), ends[-1])


async def _named(pipelines: Pipelines, name: str, version: str | None) -> str | None:
    """Return which version is meant: `last` is the newest of all, whatever became of it."""
    return (await pipelines.newest(name)).dag_version_id if version == LAST else version


async def _status(pipelines: Pipelines, name: str, version: str | None = None) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(await pipelines.status(name, version))
    found["version"]["deploy_execution_id"] = str(found["version"]["deploy_execution_id"])
    return found


def _show_status(found: dict[str, Any], *, as_json: bool) -> None:
    from noetl.cli.dags.show import status_text

    click.echo(json.dumps(found, indent=2) if as_json else status_text(found), nl=as_json)


def _quiet(_: str) -> None:
    """Say nothing."""
