"""`python -m bench NAME… [--json]`: measures the named groups or figures, or all; exit 1 when one misses its bar."""

from __future__ import annotations

import importlib
import sys

import click
import uvloop

from bench.figure import Figure, table

GROUPS = {
    "append": ("append.batch100", "append.concurrent64"),
    "loop": ("loop.item_ms",),
    "pft": (
        "pft.wall",
        "pft.frame_commit",
        "pft.events_per_frame",
        "pft.claims_per_frame",
        "pft.memory_mb",
        "pft.growth",
    ),
    "replay": ("replay.full", "replay.snapshot", "replay.memory"),
    "steps": ("steps.sequential", "steps.concurrent"),
    "start": ("start.help", "start.embedded"),
}
"""Each group, one module of this package, with its figures."""

NAMES = ("all", *GROUPS, *(figure for figures in GROUPS.values() for figure in figures))


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice(NAMES), metavar="NAME...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per figure and line.")
def main(names: tuple[str, ...], as_json: bool) -> None:
    """Measure figures beside their bare floors: a group (append, replay, start), a figure, or all.

    \b
    Examples:
      python -m bench append
      python -m bench replay.full --json
      python -m bench all --json
    """
    figures: list[Figure] = []
    for group, known in GROUPS.items():
        wanted = known if {"all", group} & set(names) else tuple(name for name in known if name in names)
        if not wanted:
            continue
        for figure in uvloop.run(importlib.import_module(f"bench.{group}").figures(wanted)):
            figures.append(figure)
            if as_json:
                click.echo(figure.line())
    if not as_json:
        table(figures)
    sys.exit(0 if all(figure.holds for figure in figures) else 1)


main()
