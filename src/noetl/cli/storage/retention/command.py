"""`noetl retention`: say what is kept and why, let go of what is old enough, and pin what must stay."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from noetl.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.cli.storage.retention.show import Outcome
    from noetl.runtime.assembly.retention import Retention
    from noetl.services.retention.plan import Plan

_KINDS = (
    "generations", "versions", "staging", "tasks", "outbox", "slots", "queries", "payloads", "bundles", "archives",
)  # fmt: skip
_KEEP = click.option("--keep-months", type=click.IntRange(1), help="Months kept in the database, over the settings.")
_KEEP_ARCHIVE = click.option(
    "--keep-archive-months", type=click.IntRange(1), help="Months kept in archives, over the settings."
)
_ONLY = click.option(
    "--only", "only", multiple=True, type=click.Choice(_KINDS), help="Only this kind; may be repeated."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_BY = "cli"


@click.group()
def retention() -> None:
    """Let go of what is old enough, and keep what must stay.

    What readers have, candidates and rollback targets need, pins name, tasks read, or the promised days could show always
    stays. A month of events is dropped from the database only when all its executions have ended, all its events are
    projected, and an archive of them in the payload store was read back whole. Replay reads on through archives.

    \b
    Examples:
      noetl retention policy --set as_of_days=30 --set generation_days=14
      noetl retention plan
      noetl retention run --yes
    """


@retention.command()
@_JSON
def status(as_json: bool) -> None:
    """Show which months are in the database, in archives, or gone.

    \b
    Examples:
      noetl retention status
      noetl retention status --json | jq '.archives[] | select(.state == "removed")'
    """
    from noetl.cli.storage.retention import status as retention_status

    asyncio.run(retention_status.show(as_json=as_json))


@retention.command()
@_KEEP
@_KEEP_ARCHIVE
@_ONLY
@_JSON
def plan(keep_months: int | None, keep_archive_months: int | None, only: tuple[str, ...], as_json: bool) -> None:
    """Show what `run` would let go, what stays and why; exit 1 if a month is old enough and must stay.

    \b
    Examples:
      noetl retention plan
      noetl retention plan --only generations --only versions --json
      noetl retention plan --keep-months 3
    """
    from noetl.cli.storage.retention import show

    outcome = asyncio.run(_run(keep_months, keep_archive_months, only, dry_run=True, yes=True))
    show.show(outcome, as_json=as_json)


@retention.command()
@_KEEP
@_KEEP_ARCHIVE
@_ONLY
@click.option("--yes", is_flag=True, help="Do not ask before data go that readers could have asked for.")
@click.option("--dry-run", is_flag=True, help="Only show what would go; the same as `plan`.")
@_JSON
def run(
    keep_months: int | None,
    keep_archive_months: int | None,
    only: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let go of what nothing needs any more; exit 1 if a month is old enough and had to stay.

    It makes a plan and carries out exactly that; a pin, a deploy or a switch that comes meanwhile makes it plan again.
    Killed at any point, it leaves nothing half done that the next run does not complete. Without numbers here, in the
    policy or in the settings everything that was committed is kept for ever.

    \b
    Examples:
      noetl retention run
      noetl retention run --only staging --only outbox
      noetl retention run --keep-months 3 --keep-archive-months 24 --yes
    """
    from noetl.cli.storage.retention import show

    outcome = asyncio.run(_run(keep_months, keep_archive_months, only, dry_run=dry_run, yes=yes))
    show.show(outcome, as_json=as_json)


@retention.command()
@click.argument("target")
@click.option(
    "--at",
    "point",
    metavar="POINT",
    help="The point a dataset is kept at: a mark, a time, an event id; now unless given.",
)
@click.option("--note", default="", help="Why; it is shown wherever the pin keeps something.")
@click.option("--until", metavar="TIME", help="When the pin ends by itself, like 2027-01-01T00:00:00Z.")
@_JSON
def pin(target: str, point: str | None, note: str, until: str | None, as_json: bool) -> None:
    """Keep TARGET whatever its age: a dataset by name, an execution by id, or all datasets at a mark (m1.…).

    An execution may also be named by its locator, or as `last` for the newest one where no dataset is called so.

    A pin of a dataset keeps exactly what a reader saw of it at that point. A pin of an execution keeps its events and
    their payloads.

    \b
    Examples:
      noetl retention pin sales_by_region --note "figures of the annual report"
      noetl retention pin sales_by_region --at 2026-05-16T12:34:56Z
      noetl retention pin 412345678901234567 --until 2027-01-01T00:00:00Z
      noetl retention pin m1.AAECAwQFBgcICQoLDA0ODxA
    """
    from noetl.cli.storage.retention import pins as retention_pins

    asyncio.run(retention_pins.pin(target, point, note, _time(until), by=_BY, as_json=as_json))


@retention.command()
@click.argument("pin_id", metavar="PIN")
def unpin(pin_id: str) -> None:
    """Take a pin away by the beginning of its id, or `last` for the newest; what it kept may go with the next run.

    \b
    Examples:
      noetl retention unpin 1b9d6bcd
    """
    from noetl.cli.storage.retention import pins as retention_pins

    asyncio.run(retention_pins.unpin(pin_id, by=_BY))


@retention.command()
@click.option("--all", "every", is_flag=True, help="Also those that were taken away or have ended.")
@_JSON
def pins(every: bool, as_json: bool) -> None:
    """List the pins that hold.

    \b
    Examples:
      noetl retention pins
      noetl retention pins --all --json | jq -r '.[].note'
    """
    from noetl.cli.storage.retention import pins as retention_pins

    asyncio.run(retention_pins.list_pins(every=every, as_json=as_json))


@retention.command()
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="A number, forever, true, false, or default."
)
@_JSON
def policy(changes: tuple[str, ...], as_json: bool) -> None:
    """Show how long the organization keeps what, or change it.

    \b
    Examples:
      noetl retention policy
      noetl retention policy --set as_of_days=30 --set generation_days=14 --set keep_generations=1
      noetl retention policy --set as_of_days=default
    """
    from noetl.cli.storage.retention import pins as retention_pins

    asyncio.run(retention_pins.policy(_pairs(changes), by=_BY, as_json=as_json))


async def _run(
    keep_months: int | None, keep_archive_months: int | None, only: Sequence[str], *, dry_run: bool, yes: bool
) -> Outcome:
    from noetl.cli.storage.retention.show import Outcome
    from noetl.kernel.ledger.archive.retention import ensure_partitions
    from noetl.runtime.assembly.retention import open_retention
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.services.retention.plan import KINDS

    settings = load_settings()
    kinds = [kind for kind in KINDS if not only or kind in only]
    async with open_runtime(settings) as runtime:
        if not dry_run:
            await ensure_partitions(runtime.database, settings.event_store.partitions_ahead_months)
        retention = open_retention(runtime)
        made = await retention.plan(kinds)
        done = None
        if not dry_run:
            _confirm(made, yes=yes)
            done = await _carried_out(retention, made)
        months = None
        if "archives" in kinds:
            months = await retention.ledger(
                keep_months=keep_months, keep_archive_months=keep_archive_months, dry_run=dry_run
            )
    return Outcome(made, done, months)


async def _carried_out(retention: Retention, made: Plan) -> Any:
    from noetl.runtime.assembly.retention import carried_out
    from noetl.services.retention.run import Changed

    try:
        return await retention.run(made)
    except Changed as changed:
        click.echo(changed.message, err=True)
        return await carried_out(retention, made.kinds)


def _confirm(made: Plan, *, yes: bool) -> None:
    if yes or not made.removes_data:
        return
    generations, versions = made.removed("generations"), made.removed("versions")
    told = (
        f"{generations[0]} generations and {versions[0]} versions of partitions go for good"
        f" ({generations[1] + versions[1]:,} bytes)"
    )
    if not sys.stdin.isatty():
        raise InputError(f"{told}, and nobody is here to be asked", hint="look at `noetl retention plan`, then --yes")
    click.confirm(f"{told}. Go on?", abort=True)


def _time(text: str | None) -> datetime | None:
    from noetl.model.event import parse_time

    if text is None:
        return None
    try:
        return parse_time(text)
    except ValueError as problem:
        raise InputError(f"--until {text!r} is no time: {problem}") from None


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} is not NAME=VALUE", hint="such as --set as_of_days=30")
        found[name.strip()] = value.strip()
    return found
