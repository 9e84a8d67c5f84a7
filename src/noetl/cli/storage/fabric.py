"""`noetl fabric`: shows what the payload tiers of this node hold and how well they serve."""

from __future__ import annotations

import json
from typing import Any

import click

from noetl.cli.terminal.tables import rendered

_TIERS = {"memory": "1 memory", "ipc": "1.5 shared memory", "disk": "2 disk", "object": "3 store"}


@click.group()
def fabric() -> None:
    """Look at the tiers between workers and the payload store.

    \b
    Examples:
      noetl fabric status
      noetl fabric sweep
    """


@fabric.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Show what the tiers of this node hold, and who was served by which.

    Counts are of all processes of this node and user since it started; a process tells its own once a second.

    \b
    Examples:
      noetl fabric status
      noetl fabric status --json | jq .tier15_bytes_in_use
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.payloads.tier_status import node_status

    found = node_status(load_settings())
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    _show(found)


@fabric.command()
def sweep() -> None:
    """Remove the shared memory of processes that died; what living ones use is never touched.

    Every process that stores payloads does this by itself when it starts.

    \b
    Examples:
      noetl fabric sweep
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.payloads.tiers import sweep_node

    count = sweep_node(load_settings())
    click.echo(f"{count} {'region' if count == 1 else 'regions'} removed")


def _show(found: dict[str, Any]) -> None:
    used, limit = found["tier15_bytes_in_use"], found["limits"]["ipc"]
    click.echo(
        f"Node {found['node']}: shared memory ({found['carrier']}) {_size(used)} of {_size(limit)} in"
        f" {found['tier15_regions']} regions; budget used up {found['tier15_budget_exhaustion_total']} times\n"
    )
    moved = found["noetl_payload_bytes_total"]
    tiers = [
        (name, str(found["tier_hits_total"][tier]), _size(moved["read"][tier]), _size(moved["written"][tier]))
        for tier, name in _TIERS.items()
    ]
    click.echo(rendered(("tier", "hits", "read", "written"), tiers))
    if found["consumers"]:
        columns = ("consumer", "reads", *_TIERS.values(), "tier 1.5", "above the store")
        click.echo(rendered(columns, [_reader(one) for one in found["consumers"]]))
    for words, count in sorted(found["tier_passed_total"].items()):
        tier, _, reason = words.partition(":")
        click.echo(f"{_TIERS[tier]} passed over {count} times: {reason}")


def _reader(one: dict[str, Any]) -> list[str]:
    hits = [str(one["hits"][tier]) for tier in _TIERS]
    ratios = [f"{one['tier15_hit_ratio']:.0%}", f"{one['near_hit_ratio']:.0%}"]
    return [one["consumer"], str(one["reads"]), *hits, *ratios]


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"
