"""`noetl events`: the events of an execution, as a table or as lines of JSON, now or as they come."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from noetl.runtime.commands.execution import find_execution, must_exist

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.model.event import Event
    from noetl.model.stream import Scope
    from noetl.runtime.wiring import Runtime

_COLUMNS = ("POSITION", "TIME", "TYPE", "STEP", "STATUS", "DETAIL")


@click.command()
@click.argument("execution")
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON.")
@click.option("--follow", is_flag=True, help="Wait for more until the execution has ended.")
@click.option("--type", "types", multiple=True, help="Only events of this type; may be given more than once.")
@click.option("--from-position", type=click.IntRange(1), default=1, help="First position to print.")
@click.option("--limit", type=click.IntRange(1), help="Print at most so many events.")
def events(
    execution: str, as_json: bool, follow: bool, types: tuple[str, ...], from_position: int, limit: int | None
) -> None:
    """Print the events of an execution in the order they were accepted.

    EXECUTION is an id, a locator (noetl://…/execution/<id>) or `last` for the newest execution.

    \b
    Examples:
      noetl events last
      noetl events last --follow
      noetl events 604876797720658689 --type frame.committed --limit 20
      noetl events last --json | jq -r .event_type | sort | uniq -c
    """
    printer = _Printer(types=frozenset(types), limit=limit, show=_show_json if as_json else _Table().show)
    asyncio.run(_events(execution, printer, from_position, follow=follow))


async def _events(execution: str, printer: _Printer, first: int, *, follow: bool) -> None:
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        scope, execution_id = await find_execution(runtime, execution)
        position = first
        async for page in runtime.history.execution_pages(scope, execution_id, first):
            position = page[-1].position + 1
            if printer.print(page):
                return
        if position == first:
            await must_exist(runtime, scope, execution_id)
        if follow:
            await _follow(runtime, scope, execution_id, printer, position)


async def _follow(runtime: Runtime, scope: Scope, execution_id: int, printer: _Printer, position: int) -> None:
    """Print what comes until the execution has ended; what was appended meanwhile is not missed."""
    from noetl.model.mark import Mark
    from noetl.model.stream import execution_stream

    shard = execution_stream(scope, execution_id).shard
    cursor = Mark.zero().with_position(shard, position - 1)
    if printer.ended:
        return
    async for batch in runtime.ledger.subscribe(cursor, scope=scope, shards=[shard]):
        if printer.print([event for event in batch if event.execution_id == execution_id]) or printer.ended:
            return


class _Printer:
    """Prints the events that were asked for, and notes whether the execution has ended."""

    def __init__(self, *, types: frozenset[str], limit: int | None, show: Callable[[list[Event]], None]) -> None:
        self._types = types
        self._left = limit
        self._show = show
        self.ended = False

    def print(self, page: list[Event]) -> bool:
        """Print a page; return whether the limit is reached."""
        from noetl.model.catalogue import ENDING

        self.ended = self.ended or any(event.event_type in ENDING for event in page)
        wanted = [event for event in page if not self._types or event.event_type in self._types]
        if self._left is not None:
            wanted = wanted[: self._left]
            self._left -= len(wanted)
        if wanted:
            self._show(wanted)
        return self._left == 0


def _show_json(page: list[Event]) -> None:
    from noetl.model.event import to_json

    click.echo("\n".join(json.dumps(to_json(event), ensure_ascii=False) for event in page))


class _Table:
    """Prints pages as one table whose columns stay in place; only the first page sets their widths."""

    def __init__(self) -> None:
        self._widths: list[int] | None = None

    def show(self, page: list[Event]) -> None:
        from noetl.cli.terminal.tables import measured, rendered

        rows = [_row(event) for event in page]
        head, self._widths = self._widths is None, self._widths or measured(_COLUMNS, rows)[:-1]
        shown = rendered(_COLUMNS, rows, whole=True, head=head, right=("POSITION",), least=self._widths)
        click.echo(shown, nl=False)


def _row(event: Event) -> list[str]:
    time = event.event_time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return [str(event.position), time, event.event_type, event.node_name or "", event.status or "", _detail(event)]


def _detail(event: Event) -> str:
    """Say in a few words what the event is about besides its type."""
    named: list[str] = [
        f"{name} {value}"
        for name, value in (
            ("loop", event.loop_id),
            ("stage", event.stage_id),
            ("frame", event.frame_id),
            ("shard", event.shard_id),
            ("command", event.command_id),
        )
        if value is not None
    ]
    said: dict[str, Any] = {**event.meta, **event.result.get("context", {})} if event.result else dict(event.meta)
    named += [f"{name}={value}" for name, value in said.items() if isinstance(value, str | int | float)]
    if event.payload_ref is not None:
        named.append(f"payload {event.payload_ref.sha256[:12]} ({event.payload_ref.bytes} bytes)")
    return " ".join([*([event.error] if event.error else []), *named])
