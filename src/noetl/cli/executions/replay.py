"""`noetl replay`: the state of an execution, or of the whole organization, as of any point in its history."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.ledger.engine_options import Engine, Source, engine_options, refuse_source
from noetl.errors import InputError
from noetl.runtime.commands.execution import find_execution
from noetl.runtime.commands.selection import LAST

if TYPE_CHECKING:
    from noetl.kernel.replay.as_of import AsOf
    from noetl.kernel.replay.replay import ReplayedState

_SHOWN_ROWS = 20


@click.command()
@click.argument("execution", required=False)
@click.option("--organization", is_flag=True, help="Replay everything the organization has, not one execution.")
@click.option(
    "--as-of",
    "point",
    metavar="POINT",
    help="A mark (m1.…), a time, an event id, a position of `noetl events`, or head.",
)
@click.option("--as-of-position", type=click.IntRange(1), help="Up to so many events of the execution, from its first.")
@click.option("--as-of-event", metavar="ID", help="Up to and with this event.")
@click.option("--as-of-time", metavar="TIME", help="Up to what was accepted by this time (2026-05-16T12:34:56Z).")
@click.option(
    "--projection",
    default="execution",
    show_default=True,
    help="execution, stage, frame, loop, fanout, business_object, or all.",
)
@click.option("--limit", type=click.IntRange(1), help="Rows of each projection to return; checksums cover all.")
@click.option("--open-frames", is_flag=True, help="Leave out frames that have ended, which lets snapshots be used.")
@click.option("--resolve-payloads", is_flag=True, help="Also read the payloads the rows refer to.")
@click.option("--no-snapshots", is_flag=True, help="Fold from the first event.")
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def replay(
    execution: str | None,
    organization: bool,
    point: str | None,
    as_of_position: int | None,
    as_of_event: str | None,
    as_of_time: str | None,
    engine: Engine,
    source: Source,
    as_json: bool,
    **options: Any,
) -> None:
    """Rebuild state from the ledger as it was at any point, and print it with its checksums.

    EXECUTION is an id, a locator (noetl://…/execution/<id>) or `last` for the newest execution. The live projections
    are not looked at; `noetl verify` compares them with a replay. `--as-of-position` counts within the execution, whatever
    else the ledger holds; the positions that `noetl events` shows are those of the shard, and stand after `--as-of`. With `--engine spark` a whole organization is folded
    on Spark, shard by shard, to the same checksums; of each projection 1000 rows are returned unless --limit says more.

    \b
    Examples:
      noetl replay last
      noetl replay last --projection all --as-of-time 2026-05-16T12:34:56Z
      noetl replay last --as-of-position 10
      noetl replay 604876797720658689 --as-of 1200 --projection loop --json
      noetl replay --organization --as-of m1.AAECAwQFBgcICQoLDA0ODxA
      noetl replay --organization --as-of-time 2026-05-16T12:34:56Z --projection all --engine spark
    """
    if (execution is None) is not organization:
        raise InputError("name one execution, or give --organization", hint="`noetl replay last` takes the newest")
    as_of = _as_of(point, as_of_position, as_of_event, as_of_time)
    if engine == "spark":
        if execution is not None:
            raise InputError("Spark replays whole organizations, not one execution", hint="leave out --engine spark")
        state = asyncio.run(_replay_on_spark(as_of, source, quiet=as_json, **options))
    else:
        refuse_source(source)
        state = asyncio.run(_replay(execution, as_of, **options))
    if as_json:
        counted = {} if as_of.number is None else {"event_number": as_of.number}
        click.echo(json.dumps(state.to_json() | counted, indent=2, ensure_ascii=False, default=str))
    else:
        _show(state, as_of.number)


def _as_of(point: str | None, position: int | None, event: str | None, time: str | None) -> AsOf:
    from noetl.kernel.replay.as_of import HEAD, AsOf
    from noetl.model.event import parse_time
    from noetl.model.ids import parse_id

    given = [
        name for name, value in (("", point), ("-position", position), ("-event", event), ("-time", time)) if value
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(f'--as-of{name}' for name in given)} name different points; give one")
    if point is not None:
        return AsOf.parse(point)
    if event is not None:
        return HEAD if event == LAST else AsOf(event_id=parse_id(event))
    if time is not None:
        try:
            return AsOf(time=parse_time(time))
        except ValueError as problem:
            raise InputError(f"{time!r} is no time: {problem}", hint="write it like 2026-05-16T12:34:56Z") from None
    return HEAD if position is None else AsOf(number=position)


async def _replay(
    execution: str | None,
    as_of: AsOf,
    *,
    projection: str,
    limit: int | None,
    open_frames: bool,
    resolve_payloads: bool,
    no_snapshots: bool,
) -> ReplayedState:
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        scope, execution_id = runtime.scope, None
        if execution is not None:
            scope, execution_id = await find_execution(runtime, execution)
        return await runtime.replay.state(
            scope,
            execution_id,
            as_of=as_of,
            projection=projection,
            rows="kept" if open_frames else "all",
            limit=limit,
            use_snapshots=not no_snapshots,
            resolve_payloads=resolve_payloads,
        )


async def _replay_on_spark(
    as_of: AsOf,
    source: Source,
    *,
    quiet: bool,
    projection: str,
    limit: int | None,
    resolve_payloads: bool,
    **_options: bool,
) -> ReplayedState:
    from noetl.cli.terminal.progress import position_bar
    from noetl.runtime.config import load_settings
    from noetl.runtime.spark.bulk_replay import open_bulk_replay
    from noetl.runtime.wiring import open_runtime
    from noetl.spark.bulk_replay.state import LIMIT

    with position_bar("replaying", quiet=quiet) as reached:
        async with open_runtime(load_settings()) as runtime, open_bulk_replay(runtime, source) as bulk:
            return await bulk.replay.state(
                runtime.scope,
                as_of=as_of,
                projection=projection,
                limit=limit or LIMIT,
                resolve_payloads=resolve_payloads,
                reached=reached,
            )


def _show(state: ReplayedState, number: int | None) -> None:
    from noetl.cli.terminal.tables import rendered

    where = f"at position {state.position}" if state.mark is None else f"at mark {state.mark}"
    if number is not None:
        where = f"at its event number {number} (position {state.position} of its shard)"
    what = "organization" if state.execution_id is None else f"execution {state.execution_id}"
    begun = "" if state.snapshot is None else f" after the snapshot at position {state.snapshot}"
    click.echo(f"{what} {where}: {state.events} events folded{begun}")
    for warning in state.warnings:
        click.echo(f"warning: {warning}", err=True)
    # A checksum is compared by eye or copied, so its line is never broken as a table's cell would be.
    for name, part in state.checksums.items():
        click.echo(f"{name:<16} {part['rows']:>10} rows  {part['checksum']}")
    click.echo(f"{'all of these':<16} {'':>15}  {state.checksum}")
    for name, rows in state.rows.items():
        for row in rows[:_SHOWN_ROWS]:
            click.echo(f"\n{name} {row['id']}  (positions {row['first_position']} to {row['last_position']})")
            fields = [
                (field, value if isinstance(value, str) else _plain(value)) for field, value in row["row"].items()
            ]
            click.echo(rendered(("field", "value"), fields), nl=False)
        more = len(rows) - _SHOWN_ROWS + state.left_off.get(name, 0)
        if more > 0:
            click.echo(f"\n{name}: {more} more; --json prints all that --limit lets through")
    for digest, payload in state.payloads.items():
        click.echo(f"\npayload {digest}\n{_plain(payload)}")


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
