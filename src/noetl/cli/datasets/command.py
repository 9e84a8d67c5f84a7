"""`noetl datasets`: lists datasets, shows their rows, files and generations, copies and compares them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.datasets.backfill import backfill, backfills
from noetl.cli.datasets.changes import invalidate, invalidations, reconcile, state
from noetl.cli.datasets.damage import repair, verify
from noetl.errors import InputError
from noetl.runtime.commands.datasets import opened

if TYPE_CHECKING:
    import pyarrow as pa

    from noetl.cli.datasets.show import Shown
    from noetl.pipelines.datasets.comparison import Difference
    from noetl.pipelines.datasets.dataset_reader import Build, ListedDataset, PartitionFile, Seen

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_AS_OF = click.option(
    "--as-of", "point", metavar="POINT", help="As it was then: a mark (m1.…), a time, or an event id."
)
_GENERATION = click.option(
    "--generation",
    metavar="G",
    help="Beginning of a generation's id, `candidate` or `last`; readers' own unless given.",
)
_SHOWN_CHECKS = 5


@click.group()
def datasets() -> None:
    """Look at datasets: rows, files, generations, and what differs between two of them.

    NAME is what a dataset is published as, dag.job.output, or its id.

    \b
    Examples:
      noetl datasets list
      noetl datasets head sales_by_region
      noetl datasets diff sales_by_region
    """


for _command in (invalidate, invalidations, reconcile, state, backfill, backfills, verify, repair):
    datasets.add_command(_command)


@datasets.command("list")
@click.option("--all", "all_", is_flag=True, help="Also those that are not published.")
@_JSON
def list_(all_: bool, as_json: bool) -> None:
    """List what is published, with what stands in it.

    \b
    Examples:
      noetl datasets list
      noetl datasets list --all --json | jq -r '.[].name'
    """
    from noetl.cli.datasets import show as datasets_show

    found = asyncio.run(_list(published_only=not all_))
    if as_json:
        _print_json([datasets_show.listed_facts(one) for one in found])
    else:
        click.echo(datasets_show.listed_table(found), nl=False)
        if not found and not all_:
            click.echo("Nothing is published; --all shows every dataset.", err=True)


@datasets.command()
@click.argument("name")
@_GENERATION
@_AS_OF
@_JSON
def show(name: str, generation: str | None, point: str | None, as_json: bool) -> None:
    """Show a dataset: columns, partitions, generations, the checks of its last commits, and its checksum.

    \b
    Examples:
      noetl datasets show sales_by_region
      noetl datasets show shop.orders.0 --generation candidate
      noetl datasets show sales_by_region --as-of 2026-05-16T12:34:56Z --json
    """
    from noetl.cli.datasets import show as datasets_show

    found = asyncio.run(_show(name, generation, point))
    if as_json:
        _print_json(datasets_show.shown_facts(found))
    else:
        click.echo(datasets_show.shown_text(found), nl=False)


@datasets.command()
@click.argument("name")
@click.option(
    "-n", "--limit", "count", type=click.IntRange(0), default=20, show_default=True, help="How many rows at most."
)
@click.option("--where", "conditions", multiple=True, metavar="COLUMN=VALUE", help="Only such rows; may be repeated.")
@_GENERATION
@_AS_OF
@_JSON
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def head(
    name: str,
    count: int,
    conditions: tuple[str, ...],
    generation: str | None,
    point: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print the first rows. What was read is told on stderr, so that the same can be asked for again.

    \b
    Examples:
      noetl datasets head sales_by_region
      noetl datasets head shop.orders.0 -n 5 --where region=north --csv
      noetl datasets head sales_by_region --as-of m1.AAECAwQFBgcICQoLDA0ODxA --json
    """
    from noetl.cli.datasets import rows as datasets_rows

    if as_json and as_csv:
        raise InputError("--json and --csv are two formats; give one")
    seen, rows = asyncio.run(_head(name, count, conditions, generation, point))
    if as_json:
        _print_json(datasets_rows.as_objects(rows))
    else:
        click.echo(datasets_rows.as_csv(rows) if as_csv else datasets_rows.as_table(rows), nl=False)
    click.echo(_told(seen), err=True)


@datasets.command()
@click.argument("name")
@_GENERATION
@_AS_OF
def path(name: str, generation: str | None, point: str | None) -> None:
    """Print the files a reader sees, one per line.

    \b
    Examples:
      noetl datasets path sales_by_region
    """
    _, addresses = asyncio.run(_path(name, generation, point))
    for one in addresses:
        click.echo(one)


@datasets.command()
@click.argument("name")
@click.argument("directory", type=click.Path(path_type=Path))
@_GENERATION
@_AS_OF
@_JSON
def export(name: str, directory: Path, generation: str | None, point: str | None, as_json: bool) -> None:
    """Copy a dataset into DIRECTORY as Parquet files, each proven by its SHA-256 on the way.

    DIRECTORY must be empty or not be there; it appears when all of it is copied.

    \b
    Examples:
      noetl datasets export sales_by_region /tmp/sales
    """
    seen, copied = asyncio.run(_export(name, directory, generation, point))
    size = sum(part.entry.bytes for part in copied)
    if as_json:
        from noetl.cli.datasets.show import seen_facts

        _print_json({**seen_facts(seen), "directory": str(directory), "files": len(copied), "bytes": size})
        return
    click.echo(f"{len(copied)} files with {seen.view.rows:,} rows ({size:,} bytes) are in {directory}")
    click.echo(_told(seen), err=True)


@datasets.command()
@click.argument("name")
@click.option("--from", "before", metavar="G", help="Generation to compare; the current one unless given.")
@click.option("--to", "after", metavar="G", help="Generation to compare it with; the newest candidate unless given.")
@click.option("--key", metavar="C1,C2", help="Columns that tell rows apart; the job's unique_key unless given.")
@_JSON
def diff(name: str, before: str | None, after: str | None, key: str | None, as_json: bool) -> None:
    """Say what differs between two generations: columns, rows, values. Look before you activate.

    Without a key whole rows are compared.

    \b
    Examples:
      noetl datasets diff sales_by_region
      noetl datasets diff shop.orders.0 --key order_id
      noetl datasets diff sales_by_region --from 3f2a --to 77b1 --json
    """
    from noetl.cli.datasets import diff as datasets_diff

    old, new, found = asyncio.run(_diff(name, before, after, key))
    if as_json:
        _print_json(datasets_diff.facts(name, old, new, found))
    else:
        click.echo(datasets_diff.text(name, old, new, found), nl=False)


@datasets.command()
@click.argument("name")
@click.argument("role")
@_JSON
def grant(name: str, role: str, as_json: bool) -> None:
    """Let the holders of ROLE read a dataset; with the first role nobody else but administrators may.

    \b
    Examples:
      noetl datasets grant sales_by_region analysts
    """
    _told_readers(name, asyncio.run(_grant(name, role)), as_json)


@datasets.command()
@click.argument("name")
@click.argument("role", required=False)
@click.option("--all", "all_", is_flag=True, help="All roles: the whole organization may read it again.")
@_JSON
def revoke(name: str, role: str | None, all_: bool, as_json: bool) -> None:
    """Take a dataset from the holders of ROLE.

    \b
    Examples:
      noetl datasets revoke sales_by_region analysts
      noetl datasets revoke sales_by_region --all
    """
    if (role is None) != all_:
        raise InputError("give a role, or --all")
    _told_readers(name, asyncio.run(_revoke(name, role)), as_json)


async def _list(*, published_only: bool) -> list[ListedDataset]:
    async with opened() as one:
        return await one.reader.listed(published_only=published_only)


async def _show(name: str, generation: str | None, point: str | None) -> Shown:
    from noetl.cli.datasets.show import Shown

    async with opened() as one:
        seen = await one.seen(name, generation, point)
        entries = [part.entry for part in await one.reader.files(seen)]
        await asyncio.to_thread(one.files().checks.unchanged, entries)
        newest = sorted(seen.view.partitions, key=lambda part: part.committed_at, reverse=True)
        tasks = list(dict.fromkeys(part.task_id for part in newest))[:_SHOWN_CHECKS]
        return Shown(
            seen=seen,
            builds=await one.reader.builds(seen.view.dataset),
            checks={task: await one.reader.checks(task) for task in tasks},
            readers=await one.readers().of(one.runtime.scope, seen.view.dataset),
        )


async def _head(
    name: str, count: int, conditions: tuple[str, ...], generation: str | None, point: str | None
) -> tuple[Seen, pa.Table]:
    from noetl.pipelines.datasets.first_rows import first_rows, wanted_values
    from noetl.pipelines.tables.column_types import schema_of

    async with opened() as one:
        seen = await one.seen(name, generation, point)
        schema = schema_of(seen.schema)
        wanted = wanted_values(conditions, schema)
        parts = await one.reader.files(seen)
        return seen, await asyncio.to_thread(first_rows, one.files(), parts, schema, wanted, count)


async def _path(name: str, generation: str | None, point: str | None) -> tuple[Seen, list[str]]:
    async with opened() as one:
        seen = await one.seen(name, generation, point)
        files = one.files()
        return seen, [files.address(part.entry) for part in await one.reader.files(seen)]


async def _export(
    name: str, directory: Path, generation: str | None, point: str | None
) -> tuple[Seen, list[PartitionFile]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from noetl.cli.datasets.show import seen_facts
    from noetl.pipelines.datasets.export import export as copied

    async with opened() as one:
        seen = await one.seen(name, generation, point)
        parts = await one.reader.files(seen)
        columns = (TextColumn(f"copying {name}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("", total=sum(part.entry.bytes for part in parts))
            facts = seen_facts(seen)
            await asyncio.to_thread(copied, one.files(), parts, directory, facts, lambda size: bar.advance(task, size))
    return seen, parts


async def _diff(name: str, before: str | None, after: str | None, key: str | None) -> tuple[Build, Build, Difference]:
    from noetl.pipelines.datasets.comparison import Side, compare
    from noetl.pipelines.datasets.dataset_reader import compared_builds
    from noetl.pipelines.datasets.export import local_copies
    from noetl.pipelines.datasets.scratch import own_scratch

    async with opened() as one:
        mark = await one.mark(None)
        dataset = await one.reader.datasets.find(one.runtime.scope, name)
        old, new = compared_builds(dataset, await one.reader.builds(dataset), before, after)
        chosen = [await one.reader.seen(name, build.generation.dataset_version, mark) for build in (old, new)]
        columns = tuple(key.split(",")) if key is not None else await one.reader.unique_key(chosen[1])
        with own_scratch("noetl-diff-") as scratch:
            sides = []
            for place, seen in enumerate(chosen):
                parts = await one.reader.files(seen)
                paths = await asyncio.to_thread(local_copies, one.files(), parts, scratch / str(place))
                sides.append(Side(fields=seen.schema, files=paths))
            found = await asyncio.to_thread(compare, sides[0], sides[1], columns, insist=key is not None)
    return old, new, found


async def _grant(name: str, role: str) -> tuple[str, ...]:
    async with opened() as one:
        scope = one.runtime.scope
        return await one.readers().grant(scope, await one.reader.datasets.find(scope, name), role, "cli")


async def _revoke(name: str, role: str | None) -> tuple[str, ...]:
    async with opened() as one:
        scope, readers = one.runtime.scope, one.readers()
        dataset = await one.reader.datasets.find(scope, name)
        if role is None:
            return await readers.open_to_all(scope, dataset, "cli")
        return await readers.revoke(scope, dataset, role, "cli")


def _told_readers(name: str, roles: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        _print_json({"name": name, "readers": list(roles)})
    else:
        click.echo(f"{name} is read by {', '.join(roles) if roles else 'everybody in the organization'}")


def _told(seen: Seen) -> str:
    return f"generation {seen.generation.dataset_version[:8]}, checksum {seen.view.checksum}\nas of {seen.mark.token()}"


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
