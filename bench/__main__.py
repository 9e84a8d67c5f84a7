"""`python -m bench NAME… [--json]`: measures the named groups, or all; exit 1 when a figure misses its bar."""

from __future__ import annotations

import importlib
import sys

import click
import uvloop

from bench.figure import Figure, table

GROUPS = ("append", "replay", "start")


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice([*GROUPS, "all"]))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per figure and line.")
def main(names: tuple[str, ...], as_json: bool) -> None:
    """Measure figures beside their bare floors.

    \b
    Examples:
      python -m bench append
      python -m bench all --json
    """
    figures: list[Figure] = []
    for name in GROUPS if "all" in names else dict.fromkeys(names):
        for figure in uvloop.run(importlib.import_module(f"bench.{name}").figures()):
            figures.append(figure)
            if as_json:
                click.echo(figure.line())
    if not as_json:
        table(figures)
    sys.exit(0 if all(figure.holds for figure in figures) else 1)


main()
