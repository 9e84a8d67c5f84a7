"""What `noetl retention pin`, `unpin`, `pins` and `policy` do and print."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl.errors import InputError
from noetl.runtime.commands.selection import LAST, chosen

if TYPE_CHECKING:
    from noetl.model.mark import Mark
    from noetl.runtime.assembly.retention import Retention
    from noetl.services.retention.pins import Pin

_EXECUTION = re.compile(r"[1-9][0-9]{14,18}|noetl://.*")


async def pin(target: str, point: str | None, note: str, until: datetime | None, *, by: str, as_json: bool) -> None:
    """Pin what TARGET names and print the pin."""
    async with _opened() as retention:
        made = await _pinned(retention, target, point, {"note": note, "until": until, "by": by})
    if as_json:
        click.echo(json.dumps(_facts(made), indent=2))
    else:
        click.echo(f"{made.pin_id} keeps {_what(made)}.")


async def unpin(pin_id: str, *, by: str) -> None:
    """Take a pin away."""
    async with _opened() as retention:
        newest_first = list(reversed(await retention.pins.listed(retention.scope)))
        found = chosen(newest_first, pin_id, lambda one: one.pin_id, "pin that holds", "noetl retention pins")
        gone = await retention.pins.release(retention.scope, found.pin_id, by)
    click.echo(f"{gone.pin_id} no longer keeps {_what(gone)}.")


async def list_pins(*, every: bool, as_json: bool) -> None:
    """Print pins."""
    async with _opened() as retention:
        found = await retention.pins.listed(retention.scope, every=every)
    if as_json:
        click.echo(json.dumps([_facts(one) for one in found], indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [
        (one.pin_id[:8], _what(one), "" if one.until is None else f"{one.until:%Y-%m-%d %H:%M}", _state(one), one.note)
        for one in found
    ]
    click.echo(rendered(("pin", "keeps", "until", "state", "note"), rows), nl=False)


async def policy(changes: dict[str, str], *, by: str, as_json: bool) -> None:
    """Change the policy if told to, and print what holds."""
    async with _opened() as retention:
        if changes:
            await retention.pins.set_policy(retention.scope, changes, by)
        own = await retention.pins.policy(retention.scope)
        holds: dict[str, Any] = msgspec.to_builtins(await retention.policy())
    if as_json:
        click.echo(json.dumps({"policy": holds, "own": own}, indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [
        (name, _value(name, value), "the organization" if name in own else "the settings")
        for name, value in holds.items()
    ]
    click.echo(rendered(("policy", "value", "decided by"), rows), nl=False)


@asynccontextmanager
async def _opened() -> AsyncIterator[Retention]:
    from noetl.runtime.assembly.retention import open_retention
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        yield open_retention(runtime)


async def _pinned(retention: Retention, target: str, point: str | None, fields: dict[str, Any]) -> Pin:
    from noetl.runtime.commands.execution import find_execution

    pins, scope = retention.pins, retention.scope
    execution = bool(_EXECUTION.fullmatch(target)) or (target == LAST and not await _is_dataset(retention, target))
    if target.startswith("m1.") or execution:
        if point is not None:
            raise InputError("--at is for datasets; a mark or an execution is one point already")
        if target.startswith("m1."):
            return await pins.pin_mark(scope, await _mark(retention, target), **fields)
        scope, execution_id = await find_execution(retention.runtime, target)
        return await pins.pin_execution(scope, execution_id, **fields)
    return await pins.pin_dataset(scope, target, await _mark(retention, point), **fields)


async def _is_dataset(retention: Retention, name: str) -> bool:
    async with retention.runtime.database.transaction(retention.scope) as connection:
        return bool(await connection.fetchval("SELECT EXISTS (SELECT FROM noetl.dataset WHERE name = $1)", name))


async def _mark(retention: Retention, point: str | None) -> Mark:
    from noetl.kernel.replay.as_of import HEAD, AsOf, resolve_organization

    runtime = retention.runtime
    as_of = HEAD if point is None else AsOf.parse(point)
    return await resolve_organization(runtime.history, runtime.database, retention.scope, as_of)


def _what(one: Pin) -> str:
    if one.kind == "execution":
        return f"execution {one.execution_id}"
    return f"{'all datasets' if one.kind == 'mark' else f'dataset {one.dataset}'} at {one.mark}"


def _state(one: Pin) -> str:
    return "holds" if one.holds else "taken away" if one.released_at is not None else "ended"


def _facts(one: Pin) -> dict[str, Any]:
    known: dict[str, Any] = msgspec.to_builtins(one)
    return {**known, "execution_id": None if one.execution_id is None else str(one.execution_id), "state": _state(one)}


def _value(name: str, value: Any) -> str:
    if value is None:
        return "as in the settings" if name in ("payload_grace_hours", "archive_months") else "for ever"
    return str(value).lower()
