"""`noetl datasets invalidate|invalidations|reconcile|state`: data that were wrong or missed are made anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from noetl.cli.datasets.changes_show import printed
from noetl.cli.terminal.messages import warn
from noetl.cli.terminal.whoami import BY
from noetl.runtime.commands.pipelines import backfilling, changes_here, opened

if TYPE_CHECKING:
    from noetl.model.catalogue.changes import InvalidationReason
    from noetl.pipelines.changes.engine import Changes
    from noetl.pipelines.changes.invalidations import Invalidation
    from noetl.pipelines.changes.reconciliation import Reconciled
    from noetl.pipelines.pipelines import Pipelines
    from noetl.pipelines.tasks.rows import JobState
    from noetl.runtime.wiring import Runtime

T = TypeVar("T")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
WAIT = click.option("--wait", is_flag=True, help="Work in this process until all that follows is done.")
_REASONS = ("correction", "reorg", "manual", "schema_change")


@click.command()
@click.argument("name")
@click.option(
    "--partition", "partition_key", metavar="KEY", help="The partition that is wrong, such as day=2026-01-31."
)
@click.option("--where", metavar="COLUMN:FROM..TO", help="The rows that are wrong; TO is not among them.")
@click.option("--reason", type=click.Choice(_REASONS), default="manual", show_default=True, help="Why they are wrong.")
@click.option("--note", help="What people should know about it.")
@WAIT
@JSON
@click.pass_context
def invalidate(
    ctx: click.Context,
    name: str,
    partition_key: str | None,
    where: str | None,
    reason: InvalidationReason,
    note: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Say that rows of a dataset are wrong: they are built again, and whatever was made of them follows.

    What a source gave cannot be built here: the jobs that read it run again instead. Work that was done before on equal
    inputs is done nevertheless.

    \b
    Examples:
      noetl datasets invalidate sales_by_region --partition day=2026-01-31 --reason correction --wait
      noetl datasets invalidate orders --where order_id:100..200 --note "the till was wrong"
    """
    from noetl.cli.datasets.changes_show import invalidation_facts, invalidation_sentence

    async def main() -> tuple[Invalidation, str | None]:
        async with changing(wait=wait) as (runtime, pipelines, changes):
            own = changes.invalidations
            one = await own.invalidate(
                runtime.scope, name, partition_key=partition_key, where=where, reason=reason, note=note, by=BY
            )
            if not wait:
                return one, None
            end = await pipelines.finished(one.invalidation_id)
            return await own.show(runtime.scope, one.invalidation_id), end.error

    one, error = _run(main)
    printed(as_json, lambda: {**invalidation_facts(one), "error": error}, lambda: invalidation_sentence(one, error))
    ctx.exit(1 if error else 0)


@click.command()
@click.option("--open", "only_open", is_flag=True, help="Only those that are not worked off yet.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="List at most so many.")
@JSON
def invalidations(only_open: bool, limit: int, as_json: bool) -> None:
    """List what was said to be wrong, the newest first, and how far it is worked off.

    \b
    Examples:
      noetl datasets invalidations --open
    """
    from noetl.cli.datasets.changes_show import invalidation_facts, invalidations_table

    async def main() -> list[Invalidation]:
        async with changing() as (runtime, _, changes):
            return await changes.invalidations.listed(runtime.scope, status="open" if only_open else None, limit=limit)

    found = _run(main)
    printed(as_json, lambda: [invalidation_facts(one) for one in found], lambda: invalidations_table(found))


@click.command()
@click.argument("dag", required=False)
@WAIT
@JSON
@click.pass_context
def reconcile(ctx: click.Context, dag: str | None, wait: bool, as_json: bool) -> None:
    """Find partitions that were missed: what should have been built of what stands, and was not, is built.

    \b
    Examples:
      noetl datasets reconcile
      noetl datasets reconcile shop --wait
    """
    from noetl.cli.datasets.changes_show import reconciled_facts, reconciled_text

    async def main() -> tuple[Reconciled, str | None]:
        async with changing(wait=wait) as (runtime, pipelines, changes):
            found = await changes.reconciling.reconcile(runtime.scope, dag, by=BY)
            runs = [one.execution_id for one in found.dags if one.execution_id is not None] if wait else []
            ends = [await pipelines.finished(run) for run in runs]
            return found, next((end.error for end in ends if end.error), None)

    found, error = _run(main)
    printed(as_json, lambda: {**reconciled_facts(found), "error": error}, lambda: reconciled_text(found))
    if error:
        click.echo(f"error: {error}", err=True)
    ctx.exit(1 if error else 0)


@click.command()
@click.argument("job", metavar="DAG.JOB")
@JSON
def state(job: str, as_json: bool) -> None:
    """Show what the operator of a job keeps between tasks, such as how far a range_aggregator is.

    An invalidation or a backfill of what it builds lets it begin anew.

    \b
    Examples:
      noetl datasets state chain.ranges
    """
    from noetl.cli.datasets.changes_show import state_facts, state_text

    async def main() -> JobState:
        from noetl.pipelines.tasks.rows import job_state

        async with opened(warn, drive=False) as (runtime, _):
            return await job_state(runtime.database, runtime.scope, job)

    found = _run(main)
    printed(as_json, lambda: state_facts(found), lambda: state_text(found))


@asynccontextmanager
async def changing(*, wait: bool = False) -> AsyncIterator[tuple[Runtime, Pipelines, Changes]]:
    """Give what changes data for the time of the block; one that waits also works, and drives backfills."""
    async with opened(warn, drive=wait) as (runtime, pipelines):
        changes = changes_here(runtime, pipelines)
        if not wait:
            yield runtime, pipelines, changes
            return
        async with backfilling(runtime, pipelines, warn):
            yield runtime, pipelines, changes


def _run(main: Callable[[], Awaitable[T]]) -> T:
    from noetl.runtime.service import run_interruptibly

    async def whole() -> T:
        return await main()

    return run_interruptibly(whole())


def run_plainly(main: Callable[[], Any]) -> Any:
    """Run what only looks or changes a row."""
    return asyncio.run(main())
