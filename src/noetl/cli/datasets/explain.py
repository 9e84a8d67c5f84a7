"""`noetl explain`: where a row comes from: commit, task, code, inputs, and what caused it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from noetl.runtime.commands.datasets import opened

if TYPE_CHECKING:
    from noetl.pipelines.explain.values import Explained


@click.command()
@click.argument("dataset")
@click.option("--where", "where", required=True, metavar="CONDITIONS", help='Which rows: "column = value AND …".')
@click.option("--as-of", "point", metavar="POINT", help="As it was then: a mark (m1.…), a time, or an event id.")
@click.option(
    "--generation", metavar="G", help="Beginning of a generation's id, or `candidate`; readers' own unless given."
)
@click.option(
    "-n", "--limit", "most", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many rows at most."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(dataset: str, where: str, point: str | None, generation: str | None, most: int, as_json: bool) -> None:
    """Tell where rows of a DATASET come from, back to what asked for them.

    CONDITIONS compare columns with values: =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL, IS NOT NULL, joined by AND.

    \b
    Examples:
      noetl explain sales_by_region --where "region = 'north'"
      noetl explain shop.orders.0 --where "order_id = 7 AND day >= '2026-01-01'" --json
    """
    from noetl.cli.datasets import explain_show

    found = asyncio.run(_explained(dataset, where, point, generation, most))
    if as_json:
        click.echo(json.dumps(explain_show.facts(found), indent=2, ensure_ascii=False, default=str))
        return
    click.echo(explain_show.text(found), nl=False)
    click.echo(f"looked into {found.opened} of {found.files} files; as of {found.as_of}", err=True)


async def _explained(dataset: str, where: str, point: str | None, generation: str | None, most: int) -> Explained:
    async with opened() as one:
        seen = await one.seen(dataset, generation, point)
        return await one.explaining().explain(seen, where, most)
