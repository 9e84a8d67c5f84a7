"""`noetl executions plot`: draws which worker had which frames of an execution when, as PNG or SVG. Needs no display."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.errors import InputError, NotFound
from noetl.runtime.commands.execution import find_execution, must_exist

if TYPE_CHECKING:
    from noetl.cli.executions.timeline import Timeline
import warnings
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.executions.timeline import OUTCOMES, Lane, Outcome, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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

    if file.suffix[1:] not in FORMATS:
        raise InputError(f"{file} ends neither in .png nor in .svg", hint="the end of the name says what is drawn")


async def _timeline(execution: str) -> Timeline:
    from noetl.cli.executions.timeline import Watching
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


FORMATS: Final = ("png", "svg")
_COLOURS: Final[dict[Outcome, str]] = {
    "done": "#2a7ab8",
    "done with failed rows": "#e39a1f",
    "failed": "#c62f2f",
    "lost": "#7d3c98",
    "stopped": "#8d949b",
    "running": "#9fc6e4",
}
_MOST_LABELS: Final = 60
"""Lanes and spans are written upon up to this number; beyond it writing would only cover them."""
_LANE_INCHES: Final = 0.32
_MOST_INCHES: Final = 60.0
_BAR: Final = 0.72


def draw(timeline: Timeline, file: Path) -> None:
    """Draw a timeline into a file; the end of its name says as what."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    inches = min(_MOST_INCHES, 1.6 + _LANE_INCHES * len(timeline.lanes))
    # The same events give the same bytes: no date, and names within the picture that are not drawn by chance.
    with mpl.rc_context({"svg.hashsalt": str(timeline.execution_id), "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=(12.0, inches), layout="constrained")
        FigureCanvasAgg(figure)
        _axes(figure, timeline)
        metadata: dict[str, Any] = {"Title": timeline.title}
        if file.suffix == ".svg":
            metadata["Date"] = None
        with warnings.catch_warnings():
            # A letter the font lacks is drawn as a box; that is nothing to warn a person about.
            warnings.filterwarnings("ignore", category=UserWarning, message="Glyph")
            figure.savefig(file, format=file.suffix[1:], dpi=110, metadata=metadata)


def _axes(figure: Figure, timeline: Timeline) -> None:
    axes = figure.subplots()
    for number, lane in enumerate(timeline.lanes):
        _bars(axes, number, lane, timeline)
    axes.set_ylim(len(timeline.lanes) - 0.4, -0.6)
    if len(timeline.lanes) <= _MOST_LABELS:
        axes.set_yticks(range(len(timeline.lanes)), [_label(timeline, number) for number in range(len(timeline.lanes))])
    else:
        firsts = [number for number in range(len(timeline.lanes)) if _begins_step(timeline, number)]
        axes.set_yticks(firsts, [timeline.lanes[number].step for number in firsts])
    for number in range(1, len(timeline.lanes)):
        if _begins_step(timeline, number):
            axes.axhline(number - 0.5, color="#d0d4d8", linewidth=0.8)
    axes.set_xlabel(f"seconds since the first of its {timeline.what}, {timeline.began:%Y-%m-%d %H:%M:%S} UTC")
    axes.set_title(timeline.title, fontsize=10, loc="left")
    axes.grid(axis="x", color="#e6e8ea", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(left=0)
    _legend(figure, timeline)


def _bars(axes: Axes, number: int, lane: Lane, timeline: Timeline) -> None:
    for outcome in OUTCOMES:
        chosen = [span for span in lane.spans if span.outcome == outcome]
        if not chosen:
            continue
        ranges = [
            (
                (span.began - timeline.began).total_seconds(),
                ((span.ended or timeline.ended) - span.began).total_seconds(),
            )
            for span in chosen
        ]
        axes.broken_barh(
            ranges, (number - _BAR / 2, _BAR), facecolors=_COLOURS[outcome], edgecolors="white", linewidth=0.5
        )
        if len(timeline.spans) <= _MOST_LABELS:
            for span, (left, width) in zip(chosen, ranges, strict=True):
                axes.text(
                    left + width / 2, number, _written(span.rows, span.attempt), ha="center", va="center", fontsize=6.5,
                    color="white", clip_on=True,
                )  # fmt: skip


def _written(rows: int | None, attempt: int) -> str:
    """Say how many rows an attempt had, and which attempt it is if it is not the first."""
    return " ".join([*([] if rows is None else [str(rows)]), *([f"#{attempt}"] if attempt > 1 else [])])


def _label(timeline: Timeline, number: int) -> str:
    lane = timeline.lanes[number]
    return f"{lane.step} · {_short(lane.worker)}" if _begins_step(timeline, number) else _short(lane.worker)


def _short(worker: str) -> str:
    """Return the end of a worker's locator: its name, and the process it is."""
    parts = worker.split("/")
    process = parts[parts.index("process") + 1] if "process" in parts[:-1] else ""
    return " ".join(filter(None, (parts[-1], process))) or "worker"


def _begins_step(timeline: Timeline, number: int) -> bool:
    return number == 0 or timeline.lanes[number].step != timeline.lanes[number - 1].step


def _legend(figure: Figure, timeline: Timeline) -> None:
    from matplotlib.patches import Patch

    counted = {outcome: sum(span.outcome == outcome for span in timeline.spans) for outcome in OUTCOMES}
    patches = [
        Patch(facecolor=_COLOURS[outcome], label=f"{count} {outcome}") for outcome, count in counted.items() if count
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8, frameon=False)
