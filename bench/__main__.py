"""`python -m bench NAME… [--json]`: measures the named groups or figures, or all; exit 1 when one misses its bar."""

from __future__ import annotations

import importlib
import sys

import click
import uvloop

from bench.figure import Figure, table

GROUPS = {
    "append": ("append.batch100", "append.concurrent64"),
    "backfill": ("backfill.queue", "backfill.preview_s"),
    "bulk-replay": ("bulk-replay.ledger", "bulk-replay.lake", "bulk-replay.growth"),
    "bounds": ("bounds.item_ms",),
    "chain": ("chain.batch100", "chain.concurrent64"),
    "cron": ("cron.tick",),
    "integrity": ("integrity.pages", "integrity.proofs_ms"),
    "lake": ("lake.rate", "lake.lag_p95_ms"),
    "loop": ("loop.item_ms",),
    "pft": (
        "pft.wall",
        "pft.frame_commit",
        "pft.events_per_frame",
        "pft.claims_per_frame",
        "pft.memory_mb",
        "pft.growth",
    ),
    "projector": ("projector.rate", "projector.scaling", "projector.lag_p95_ms"),
    "query": ("query.overhead_ms",),
    "replay": ("replay.full", "replay.snapshot", "replay.memory"),
    "spark-job": ("spark-job.wall", "spark-job.obstore"),
    "spark-task": ("spark-task.wall",),
    "spark-batch": ("spark-batch.wall", "spark-batch.other"),
    "spark-frames": ("spark-frames.wall",),
    "steps": ("steps.sequential", "steps.concurrent", "steps.worker_sequential", "steps.worker_concurrent"),
    "start": ("start.help", "start.embedded"),
    "stream": ("stream.publish", "stream.relay", "stream.ack"),
    "tasks": ("tasks.rate",),
    "views": ("views.batch",),
    "tiers": ("tiers.shm_vs_s3", "tiers.shm_vs_disk", "tiers.write", "tiers.small", "tiers.reduce"),
}
"""Each group, one module of this package, with its figures."""

NAMES = ("all", *GROUPS, *(figure for figures in GROUPS.values() for figure in figures))


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice(NAMES), metavar="NAME...")
@click.option("--facilities", default=10, show_default=True, help="Facilities of the pft group.")
@click.option("--patients", default=1000, show_default=True, help="Patients of each facility of the pft group.")
@click.option("--max-in-flight", default=1, show_default=True, help="Frames at a time in the pft group.")
@click.option("--row-concurrency", default=1, show_default=True, help="Rows of a frame at a time in the pft group.")
@click.option(
    "--rounds", default=3, show_default=True, help="Runs of each kind in the pft group; medians are compared."
)
@click.option(
    "--executions", default=20_000, show_default=True, help="Executions of a hundred events in the bulk-replay group."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per figure and line.")
def main(
    names: tuple[str, ...],
    facilities: int,
    patients: int,
    max_in_flight: int,
    row_concurrency: int,
    rounds: int,
    executions: int,
    as_json: bool,
) -> None:
    """Measure figures beside their bare floors: a group, a figure, or all.

    \b
    Examples:
      python -m bench append
      python -m bench replay.full --json
      python -m bench pft --facilities 1 --patients 100
      python -m bench all --json
    """
    figures: list[Figure] = []
    for group, known in GROUPS.items():
        wanted = known if {"all", group} & set(names) else tuple(name for name in known if name in names)
        if not wanted:
            continue
        module = importlib.import_module(f"bench.{group.replace('-', '_')}")
        sizes: tuple[object, ...] = ()
        if group == "pft":
            sizes = (module.Options(module.Sizes(facilities, patients, max_in_flight, row_concurrency), rounds),)
        if group == "bulk-replay":
            sizes = (executions,)
        for figure in uvloop.run(module.figures(wanted, *sizes)):
            figures.append(figure)
            if as_json:
                click.echo(figure.line())
    if not as_json:
        table(figures)
    sys.exit(0 if all(figure.holds for figure in figures) else 1)


main()
