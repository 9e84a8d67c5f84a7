"""`noetl curated`: views over all tenants for whoever operates the installation. Each read is on record."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.terminal.whoami import BY, ROLE

if TYPE_CHECKING:
    from noetl.model.catalogue.queries import CuratedEngine
    from noetl.services.curated.reads import Answer, Recorded
    from noetl.services.curated.view import CuratedView

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def curated() -> None:
    """Read what declared rules leave of all tenants' facts together.

    These commands act on the database itself, so they are for whoever may take its role noetl_operator; over the API it
    takes a token of the role operator. Every read is an event `curated.read` in the organization that commands act for.
    """


@curated.command("list")
@_JSON
def list_views(as_json: bool) -> None:
    """List the views there are: the built-in ones and those of the setting curated.views.

    \b
    Examples:
      noetl curated list
    """
    found = _views()
    if as_json:
        from noetl.services.curated.view import declared

        click.echo(json.dumps([declared(view) for view in found], indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [(view.name, str(view.version), view.fact.name, str(view.days), view.sentence) for view in found]
    click.echo(rendered(("name", "version", "fact", "days", "what it tells"), rows), nl=False)


@curated.command()
@click.argument("name")
@_JSON
def show(name: str, as_json: bool) -> None:
    """Show what becomes of each field behind a view, and the smallest group it tells.

    \b
    Examples:
      noetl curated show executions_by_day
    """
    from noetl.runtime.assembly.curated import curated_views
    from noetl.runtime.config import load_settings
    from noetl.services.curated.rules import told
    from noetl.services.curated.view import declared

    view = curated_views(load_settings()).get(name)
    if as_json:
        click.echo(json.dumps({**declared(view), "definition_sha256": view.digest}, indent=2))
        return
    least = view.minimum
    click.echo(f"{view.name}, version {view.version}: {view.sentence}")
    click.echo(
        f"of the last {view.days} days and today; groups of at least {least.organizations} organizations, "
        f"{least.tenants} tenants and {least.rows} rows, with at most {least.share:.0%} of one tenant; numbers in "
        f"multiples of {view.round_to}"
    )
    from noetl.cli.terminal.tables import rendered

    fields = view.fact.fields
    rows = [(field, fields[field].kind, told(rule)) for field, rule in view.rules.items()]
    click.echo(rendered((f"field of {view.fact.name}", "kind", "what becomes of it"), rows), nl=False)


@curated.command()
@click.argument("name")
@click.option("--engine", type=click.Choice(("postgres", "spark")), default="postgres", show_default=True,
              help="What computes it; both give the same rows.")  # fmt: skip
@_JSON
def read(name: str, engine: CuratedEngine, as_json: bool) -> None:
    """Read a view; the read is an event in the ledger, with who read which view, and without what it says.

    \b
    Examples:
      noetl curated read executions_by_day
      noetl curated read durations --json | jq .rows
      noetl curated read work_by_size --engine spark
    """
    answer = asyncio.run(_read(name, engine))
    if as_json:
        click.echo(json.dumps(_facts(answer), indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [
        ["-" if one is None else f"{one:,}" if isinstance(one, int) else str(one) for one in row] for row in answer.rows
    ]
    click.echo(rendered(answer.columns, rows), nl=False)
    text = (
        f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'} in {answer.milliseconds:,.0f} ms, read {answer.read_id}"
    )
    if answer.withheld:
        text += "\nthere are groups that are too small to be told"
    click.echo(f"{text}\nas of {answer.mark.token()}", err=True)


@curated.command()
@click.option("-n", "count", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@_JSON
def log(count: int, as_json: bool) -> None:
    """List reads that were recorded in the organization that commands act for, the newest first.

    \b
    Examples:
      noetl curated log
      noetl curated log -n 100 --json
    """
    found = asyncio.run(_log(count))
    if as_json:
        import msgspec

        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [
        (
            one.read_id,
            f"{one.read_at:%Y-%m-%d %H:%M:%S}",
            f"{one.read.view} v{one.read.version}",
            one.read.engine,
            f"{one.read.rows:,}",
            one.read.asked_by,
        )
        for one in found
    ]
    click.echo(rendered(("read", "at", "view", "engine", "rows", "by"), rows), nl=False)


def _views() -> list[CuratedView]:
    from noetl.runtime.assembly.curated import curated_views
    from noetl.runtime.config import load_settings

    return list(curated_views(load_settings()))


def _facts(answer: Answer) -> dict[str, Any]:
    return {
        "read_id": str(answer.read_id),
        "view": answer.view.name,
        "version": answer.view.version,
        "rows": [dict(zip(answer.columns, row, strict=True)) for row in answer.rows],
        "withheld": answer.withheld,
        "as_of": answer.mark.token(),
        "since": answer.since.isoformat(),
        "engine": answer.engine,
    }


async def _read(name: str, engine: CuratedEngine) -> Answer:
    from noetl.runtime.assembly.curated import open_curated
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.services.curated.reads import Reader

    async with open_runtime(load_settings()) as runtime, open_curated(runtime, ROLE) as reads:
        return await reads.read(Reader(runtime.scope, BY), name, engine)


async def _log(count: int) -> list[Recorded]:
    from noetl.runtime.assembly.curated import open_curated
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime, open_curated(runtime, ROLE) as reads:
        return await reads.record.listed(runtime.scope, count)
