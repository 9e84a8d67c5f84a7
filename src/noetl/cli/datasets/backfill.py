"""`noetl datasets backfill` and `noetl datasets backfills`: ranges of partitions are built again, and looked after."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.datasets.changes import JSON, WAIT, changing, run_plainly
from noetl.cli.datasets.changes_show import printed
from noetl.cli.terminal.messages import warn
from noetl.cli.terminal.whoami import BY
from noetl.errors import InputError, NotFound
from noetl.runtime.commands.pipelines import backfilling, changes_here, opened
from noetl.runtime.commands.selection import LAST

if TYPE_CHECKING:
    from noetl.model.stream import Scope
    from noetl.pipelines.changes.backfills.preview import BackfillPlan
    from noetl.pipelines.changes.backfills.requests import Backfills
    from noetl.pipelines.changes.backfills.rows import Backfill, Progress
    from noetl.pipelines.changes.engine import Changes

_ID = click.argument("backfill", metavar="ID")
_STATUSES = ("queueing", "running", "paused", "cancelled", "completed", "failed")


@click.command()
@click.argument("name")
@click.option("--from", "start", required=True, help="Where the range begins: 2026-01-31, 2026-01-31T23 or 42.")
@click.option("--to", "end", required=True, help="Where it ends, which is not part of it.")
@click.option("--step", help="1d, 6h, 15m or a number. For sources a day, an hour or 1 unless given.")
@click.option("--partition", "fixed", multiple=True, metavar="COLUMN=VALUE", help="Value of another partition column.")
@click.option("--max-in-flight", type=click.IntRange(1), help="Tasks of it that may be under way.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@WAIT
@JSON
@click.pass_context
def backfill(
    ctx: click.Context,
    name: str,
    start: str,
    end: str,
    step: str | None,
    fixed: tuple[str, ...],
    max_in_flight: int | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Build the partitions of a range again, a few at a time, behind whatever is new; what reads them follows.

    A source makes each partition of the range, told by its task which one. Of other jobs those partitions are built that
    inputs have something for. Times are UTC.

    \b
    Examples:
      noetl datasets backfill orders --from 2026-01-01 --to 2026-02-01 --dry-run
      noetl datasets backfill orders --from 2026-01-01 --to 2026-02-01 --yes --wait
      noetl datasets backfill visits --from 2026-01-01T00 --to 2026-01-02T00 --partition region=eu --yes
    """
    from noetl.cli.datasets.changes_show import backfill_facts, backfill_text, plan_facts, plan_text
    from noetl.runtime.service import run_interruptibly

    async def main() -> tuple[BackfillPlan, Backfill | None, Progress | None]:
        async with opened(warn, drive=wait and not dry_run) as (runtime, pipelines):
            changes, scope = changes_here(runtime, pipelines), runtime.scope
            found, plan = await changes.plan_backfill(
                scope, name, start=start, end=end, step=step, fixed=_pairs(fixed), max_in_flight=max_in_flight
            )
            if not as_json:
                click.echo(plan_text(plan))
            if dry_run or not _agreed(yes=yes, total=plan.total):
                return plan, None, None
            one = await changes.backfills.request(scope, found, plan, by=BY)
            if wait:
                async with backfilling(runtime, pipelines, warn):
                    await _watched(changes, scope, one)
                    await pipelines.finished(one.backfill_id)
            return plan, *(await changes.backfills.progress(scope, one.backfill_id))

    plan, one, progress = run_interruptibly(main())
    if one is None or progress is None:
        if as_json:
            printed(as_json, lambda: plan_facts(plan), lambda: "")
        ctx.exit(0)
    printed(
        as_json,
        lambda: {**backfill_facts(one, progress), "plan": plan_facts(plan)},
        lambda: backfill_text(one, progress),
    )
    if not wait and not as_json:
        click.echo(f"see how far it is: noetl datasets backfills show {one.backfill_id}", err=True)
    ctx.exit(1 if one.status == "failed" else 0)


@click.group()
def backfills() -> None:
    """Look after backfills: list and show them, pause, resume and cancel them by their ids, or `last` for the newest.

    \b
    Examples:
      noetl datasets backfills list --status running
      noetl datasets backfills show 380620881539780608
      noetl datasets backfills pause 380620881539780608
    """


@backfills.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those with this status.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="List at most so many.")
@JSON
def list_(status: str | None, limit: int, as_json: bool) -> None:
    """List backfills, the newest first.

    \b
    Examples:
      noetl datasets backfills list
    """
    from noetl.cli.datasets.changes_show import backfill_facts, backfills_table

    async def main() -> list[Backfill]:
        async with changing() as (runtime, _, changes):
            return await changes.backfills.listed(runtime.scope, status=status, limit=limit)

    found: list[Backfill] = run_plainly(main)
    printed(as_json, lambda: [backfill_facts(one) for one in found], lambda: backfills_table(found))


@backfills.command()
@_ID
@JSON
def show(backfill: str, as_json: bool) -> None:
    """Show how far a backfill is.

    \b
    Examples:
      noetl datasets backfills show 380620881539780608
    """

    async def look(own: Backfills, scope: Scope, backfill_id: int) -> None:
        del own, scope, backfill_id

    _changed(backfill, look, as_json=as_json)


@backfills.command()
@_ID
@click.option("--reason", help="Why.")
@JSON
def pause(backfill: str, reason: str | None, as_json: bool) -> None:
    """Give out no further partitions for a while; tasks under way go on.

    \b
    Examples:
      noetl datasets backfills pause 380620881539780608
    """
    _changed(backfill, lambda own, scope, known: own.pause(scope, known, by=BY, reason=reason), as_json=as_json)


@backfills.command()
@_ID
@WAIT
@JSON
def resume(backfill: str, wait: bool, as_json: bool) -> None:
    """Go on with a backfill that was paused.

    \b
    Examples:
      noetl datasets backfills resume 380620881539780608 --wait
    """
    _changed(backfill, lambda own, scope, known: own.resume(scope, known, by=BY), as_json=as_json, wait=wait)


@backfills.command()
@_ID
@click.option("--reason", help="Why.")
@JSON
def cancel(backfill: str, reason: str | None, as_json: bool) -> None:
    """Give a backfill up: what waits is not built, what runs is stopped, what was built stays.

    \b
    Examples:
      noetl datasets backfills cancel 380620881539780608 --reason "the wrong month"
    """
    _changed(backfill, lambda own, scope, known: own.cancel(scope, known, by=BY, reason=reason), as_json=as_json)


def _changed(
    backfill: str, change: Callable[[Backfills, Scope, int], Awaitable[Any]], *, as_json: bool, wait: bool = False
) -> None:
    from noetl.cli.datasets.changes_show import backfill_facts, backfill_text

    async def main() -> tuple[Backfill, Progress]:
        async with changing(wait=wait) as (runtime, _, changes):
            backfill_id = await _named(changes, runtime.scope, backfill)
            await change(changes.backfills, runtime.scope, backfill_id)
            if wait:
                await _watched(changes, runtime.scope, await changes.backfills.show(runtime.scope, backfill_id))
            return await changes.backfills.progress(runtime.scope, backfill_id)

    one, progress = run_plainly(main)
    printed(as_json, lambda: backfill_facts(one, progress), lambda: backfill_text(one, progress))


async def _named(changes: Changes, scope: Scope, text: str) -> int:
    """Read the id of a backfill; `last` is the one asked for last."""
    from noetl.model.ids import parse_id

    if text != LAST:
        return parse_id(text)
    newest = await changes.backfills.listed(scope, limit=1)
    if not newest:
        raise NotFound("there is no backfill yet", hint="`noetl datasets backfill NAME` asks for one")
    return newest[0].backfill_id


async def _watched(changes: Changes, scope: Scope, one: Backfill) -> None:
    """Show a bar until a backfill has nothing left to do."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"building {one.dag}.{one.job}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=one.total)
        while True:
            now, done = await changes.backfills.progress(scope, one.backfill_id)
            bar.update(task, completed=done.built + done.failed + done.cancelled)
            if not now.open:
                return
            await changes.backfills.news(0.5)


def _agreed(*, yes: bool, total: int) -> bool:
    if yes or not total:
        return bool(total)
    if not sys.stdin.isatty():
        raise InputError("nobody is there to be asked", hint="give --yes to go on, or --dry-run to look")
    return click.confirm("Build them again?", abort=True)


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in given:
        column, equals, value = one.partition("=")
        if not equals:
            raise InputError(f"{one!r} names no value", hint="write it as COLUMN=VALUE")
        found[column] = value
    return found
