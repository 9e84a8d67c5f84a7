"""`noetl executions plot`: draws when which worker had which frames of an execution, as PNG and SVG."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.errors import InputError, NotFound
from noetl.runtime.commands.execution import find_execution, must_exist

if TYPE_CHECKING:
    from noetl.cli.executions_timeline import Timeline


@click.command()
@click.argument("execution")
@click.option(
    "-o", "--output", "outputs", multiple=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Where to draw it, as .png or .svg; may be given more than once.  [default: execution-ID.png and .svg]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print what was drawn as JSON.")
def plot(execution: str, outputs: tuple[Path, ...], as_json: bool) -> None:
    """Draw the frames of an execution by stage and worker, or its commands if it has no frames.

    Each bar is one attempt with its number of rows; its colour says how it ended. `last` is the newest run of a playbook.

    \b
    Examples:
      noetl executions plot last
      noetl executions plot 604876797720658689 -o run.svg
    """
    for file in outputs:
        _refuse_other_formats(file)
    timeline = asyncio.run(_timeline(execution))
    files = outputs or tuple(Path(f"execution-{timeline.execution_id}.{ending}") for ending in ("png", "svg"))
    from noetl.cli.executions_drawing import draw

    for file in files:
        try:
            draw(timeline, file)
        except OSError as problem:
            raise InputError(f"{file} cannot be written: {problem.strerror}") from problem
    if as_json:
        facts = {
            "execution_id": str(timeline.execution_id),
            "shown": timeline.what,
            "attempts": len(timeline.spans),
            "lanes": len(timeline.lanes),
            "files": [str(file) for file in files],
        }
        click.echo(json.dumps(facts, indent=2))
    else:
        drawn = f"{len(timeline.spans)} attempts at {timeline.what} in {len(timeline.lanes)} lanes"
        click.echo(f"{', '.join(map(str, files))}: {drawn}")


def _refuse_other_formats(file: Path) -> None:
    from noetl.cli.executions_drawing import FORMATS

    if file.suffix[1:] not in FORMATS:
        raise InputError(f"{file} ends neither in .png nor in .svg", hint="the end of the name says what is drawn")


async def _timeline(execution: str) -> Timeline:
    from noetl.cli.executions_timeline import Watching
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        scope, execution_id = await find_execution(runtime, execution, with_commands=True)
        watching = Watching(execution_id)
        async for page in runtime.history.execution_pages(scope, execution_id):
            for event in page:
                watching.add(event)
        timeline = watching.timeline()
        if timeline is None:
            await must_exist(runtime, scope, execution_id)
            raise NotFound(
                f"nobody has worked on a frame or command of execution {execution_id} yet",
                hint="the run of a DAG works by tasks: plot the executions of its playbooks",
            )
        return timeline
