"""What `noetl projections` says: how far each store is, and what a rebuild found; as text, and as facts for a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.terminal.tables import rendered

if TYPE_CHECKING:
    from noetl.kernel.leases.shards import ShardHolder
    from noetl.kernel.projections.lag import ShardLag
    from noetl.kernel.projections.rebuild import RebuildReport
    from noetl.model.broken_stream import BrokenStream

_COLUMNS = ("shard", "head", "projected", "behind", "waiting", "rows", "holder", "state")


@dataclass(frozen=True)
class StoreStatus:
    """How one store stands; `away` is why nothing is known of it."""

    name: str
    projections: tuple[str, ...]
    lags: list[ShardLag] = field(default_factory=list)
    held: dict[int, ShardHolder] = field(default_factory=dict)
    broken: list[BrokenStream] = field(default_factory=list)
    away: str | None = None


def show_status(first: StoreStatus, others: list[StoreStatus]) -> None:
    """Print the default store, and then every other under its name."""
    _show_store(first)
    for store in others:
        click.echo(f"\nstore {store.name}: {', '.join(store.projections) or 'nothing'}")
        if store.away is None:
            _show_store(store)
        else:
            click.echo(f"away: {store.away}")


def _show_store(store: StoreStatus) -> None:
    lags = store.lags
    click.echo(rendered(_COLUMNS, [_line(lag, store.held) for lag in lags]), nl=False)
    click.echo(
        f"\n{sum(lag.lag_events for lag in lags):,} events behind, {sum(lag.rows for lag in lags):,} rows, "
        f"longest wait {max(lag.lag_seconds for lag in lags):.1f} s"
    )
    for lag in lags:
        if lag.failure is not None:
            since = "" if lag.failure.since is None else f" since {lag.failure.since:%Y-%m-%d %H:%M:%S} UTC"
            click.echo(f"\nshard {lag.shard} stands still{since}: {lag.failure.message}")
            if lag.failure.hint:
                click.echo(f"hint: {lag.failure.hint}")
    for one in store.broken:
        since = "" if one.since is None else f" (since {one.since:%Y-%m-%d %H:%M:%S} UTC)"
        click.echo(f"\n{one.sentence()}{since}")


def _line(lag: ShardLag, held: dict[int, ShardHolder]) -> tuple[str, ...]:
    state = "stands still" if lag.failure else "behind" if lag.lag_events else "ok"
    waiting = f"{lag.lag_seconds:.1f} s" if lag.lag_events else "-"
    head, checkpoint, behind, rows = (f"{n:,}" for n in (lag.head, lag.checkpoint, lag.lag_events, lag.rows))
    holder = held[lag.shard].holder if lag.shard in held else "-"
    return str(lag.shard), head, checkpoint, behind, waiting, rows, holder, state


def status_facts(first: StoreStatus, others: list[StoreStatus]) -> dict[str, Any]:
    """Return the default store as plain values, and the others beside it."""
    return {**_store_facts(first), "stores": [{"store": one.name, **_store_facts(one)} for one in others]}


def _store_facts(store: StoreStatus) -> dict[str, Any]:
    import msgspec

    lags, held = store.lags, store.held
    shards = [
        {**msgspec.to_builtins(lag), "holder": msgspec.to_builtins(held[lag.shard]) if lag.shard in held else None}
        for lag in lags
    ]
    return {
        "projections": list(store.projections),
        "broken_streams": [msgspec.to_builtins(one) | {"event_id": str(one.event_id)} for one in store.broken],
        "away": store.away,
        "lag_events": None if store.away else sum(lag.lag_events for lag in lags),
        "lag_seconds": None if store.away else max(lag.lag_seconds for lag in lags),
        "rows": None if store.away else sum(lag.rows for lag in lags),
        "failing": [lag.shard for lag in lags if lag.failure],
        "shards": shards,
    }


def show_rebuilt(reports: dict[str, RebuildReport]) -> None:
    """Print what a rebuild of stores found."""
    several = len(reports) > 1
    for store, report in reports.items():
        rows = [each.rows for each in report.shards]
        events, after = sum(each.events for each in report.shards), sum(each.after for each in rows)
        click.echo(f"{f'{store}: rebuilt' if several else 'Rebuilt'} {after:,} rows from {events:,} events.")
        changed, added, removed = (
            sum(getattr(each, name) for each in rows) for name in ("changed", "added", "removed")
        )
        if report.changed:
            click.echo(f"{changed:,} rows changed, {added:,} came, {removed:,} went.")
        else:
            click.echo("Every row was as the ledger says.")


def rebuilt_facts(reports: dict[str, RebuildReport]) -> dict[str, Any]:
    """Return what a rebuild found, shard by shard of each store."""
    import msgspec

    shards = [
        {"store": store, "shard": one.shard, "events": one.events} | msgspec.to_builtins(one.rows)
        for store, report in reports.items()
        for one in report.shards
    ]
    return {"differing": sum(report.changed for report in reports.values()), "shards": shards}
