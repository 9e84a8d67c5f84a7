"""`noetl lineage`: which datasets and columns something is made of, or what is made of it, now or at any point."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from noetl.runtime.commands.datasets import opened

if TYPE_CHECKING:
    from noetl.pipelines.datasets.lineage_tree import Direction, Leaf


class _SubjectFirst(click.Group):
    """Takes what is no subcommand for the name of a dataset."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the subcommand before it."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_SubjectFirst)
def lineage() -> None:
    """Show where data come from: `noetl lineage DATASET[.COLUMN]`, or tell others about it.

    \b
    Examples:
      noetl lineage sales_by_region
      noetl lineage sales_by_region.total --format mermaid
      noetl lineage emit --once
    """


@lineage.command()
@click.argument("what", metavar="DATASET[.COLUMN]")
@click.option("--as-of", "point", metavar="POINT", help="As it was then: a mark (m1.…), a time, or an event id.")
@click.option("--upstream", "direction", flag_value="upstream", default="upstream", help="What it is made of.")
@click.option("--downstream", "direction", flag_value="downstream", help="What is made of it.")
@click.option("--depth", type=click.IntRange(1, 100), default=20, show_default=True, help="Steps to follow.")
@click.option(
    "--format", "form", type=click.Choice(["tree", "mermaid", "json"]), default="tree", show_default=True,
    help="How to print it.",
)  # fmt: skip
def show(what: str, point: str | None, direction: Direction, depth: int, form: str) -> None:
    """Show what a dataset or column is made of, or what is made of it.

    A column is `direct` (the value itself), `transformed` (computed with others of its row), `aggregated` (of many rows)
    or `opaque` (made by code that nobody can look into: it may come from all its inputs).

    \b
    Examples:
      noetl lineage sales_by_region
      noetl lineage sales_by_region.total
      noetl lineage shop.orders.0.amount --downstream --format json
      noetl lineage sales_by_region --as-of 2026-05-16T12:34:56Z
    """
    from noetl.cli.datasets import lineage_show

    tree, mark = asyncio.run(_followed(what, point, direction, depth))
    if form == "json":
        click.echo(json.dumps(lineage_show.facts(tree, direction, mark), indent=2, ensure_ascii=False))
    elif form == "mermaid":
        click.echo(lineage_show.mermaid(tree, direction), nl=False)
    else:
        click.echo(lineage_show.text(tree), nl=False)
        click.echo(f"as of {mark}", err=True)


@lineage.command()
@click.option("--once", is_flag=True, help="Send what there is now and return; otherwise go on until stopped.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def emit(once: bool, as_json: bool) -> None:
    """Send OpenLineage events about tasks to the file or server that the settings name.

    What was sent is remembered, and nothing is left out: after a crash some events may be sent again.

    \b
    Examples:
      noetl lineage emit --once
      NOETL_OPENLINEAGE__TRANSPORT=file noetl lineage emit --once --json
    """
    sent = asyncio.run(_emitted(once))
    if as_json:
        click.echo(json.dumps(sent))
    else:
        click.echo(f"sent {sent['events']} events to {sent['receiver']}")


async def _followed(what: str, point: str | None, direction: Direction, depth: int) -> tuple[Leaf, str]:
    from noetl.pipelines.datasets.lineage_tree import Follow

    async with opened() as one:
        reader = one.lineage()
        mark = await one.mark(point)
        subject = await reader.subject(what, mark)
        follow = Follow(reader, await reader.graph(mark), direction, depth)
        return await follow.tree(subject), mark.token()


async def _emitted(once: bool) -> dict[str, Any]:
    from noetl.runtime.assembly.lineage import open_emitter
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime, open_emitter(runtime) as emitter:
        sent = await emitter.emit() if once else await emitter.follow()
        return {"events": sent, "receiver": emitter.receiver}
