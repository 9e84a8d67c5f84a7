"""`noetl payloads`: list stored payloads, say why each is kept, check them, and collect those nobody needs."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from noetl.kernel.payloads.garbage_collection import CollectReport
    from noetl.runtime.settings.declaration import Settings

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_BATCH = 500


@click.group()
def payloads() -> None:
    """Look at stored payloads and collect unused ones."""


@payloads.command("list")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many to show at most.")
@_JSON
def list_payloads(limit: int, as_json: bool) -> None:
    """List the organization's stored objects with how much refers to each.

    \b
    Examples:
      noetl payloads list
      noetl payloads list --limit 100000 --json | jq '[.[] | select(.references == 0)] | length'
    """
    found = asyncio.run(_list(limit))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [(one["sha256"], f"{one['stored_bytes']:,}", one["modified"], str(one["references"])) for one in found]
    click.echo(rendered(("sha256", "bytes", "written", "referred to"), rows), nl=False)
    if len(found) == limit:
        click.echo(f"The first {limit}; --limit shows more.", err=True)


@payloads.command()
@click.argument("sha256")
@_JSON
def explain(sha256: str, as_json: bool) -> None:
    """Say why a payload is kept or would be collected, and what refers to it; exit 1 if there is none.

    \b
    Examples:
      noetl payloads explain 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    """
    verdict, referring = asyncio.run(_explain(sha256))
    if as_json:
        click.echo(json.dumps({"sha256": sha256, "verdict": verdict, "referring": referring}, indent=2))
    else:
        click.echo(verdict)
        for name in referring:
            click.echo(f"  {name}")
    if verdict.startswith("missing"):
        raise SystemExit(1)


@payloads.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@_JSON
def collect(dry_run: bool, as_json: bool) -> None:
    """Remove objects that nothing refers to and that are older than the grace time.

    \b
    Examples:
      noetl payloads collect --dry-run
      noetl payloads collect
    """
    report = asyncio.run(_collect(dry_run=dry_run))
    if as_json:
        import msgspec

        click.echo(json.dumps(msgspec.to_builtins(report), indent=2))
        return
    gone = [one for one in report.decisions if one.action != "kept"]
    if gone:
        from noetl.cli.terminal.tables import rendered

        rows = [(one.sha256, f"{one.stored_bytes:,}", one.reason) for one in gone]
        click.echo(rendered(("sha256", "bytes", "why"), rows), nl=False)
    would = "would be " if dry_run else ""
    click.echo(
        f"{len(report.decisions)} objects, {report.removed} {would}removed ({report.removed_bytes:,} bytes),"
        f" {len(report.decisions) - len(gone)} kept."
    )


@payloads.command()
@click.argument("execution", required=False)
@_JSON
def check(execution: str | None, as_json: bool) -> None:
    """Prove every payload that EXECUTION, or the whole organization, refers to; exit 1 if one is missing or damaged.

    EXECUTION is an id, a locator (noetl://…/execution/<id>) or `last` for the newest execution. Objects are proven by the
    digest of what is stored, so no tenant's key is needed.

    \b
    Examples:
      noetl payloads check
      noetl payloads check last
      noetl payloads check 412345678901234567
    """
    count, problems = asyncio.run(_check(execution))
    if as_json:
        click.echo(json.dumps({"checked": count, "problems": problems}, indent=2))
    else:
        for problem in problems:
            click.echo(f"{problem['sha256']} ({problem['holder']}): {problem['problem']}", err=True)
        click.echo(f"{count} payloads checked, {len(problems)} of them missing or damaged.")
    if problems:
        raise SystemExit(1)


@payloads.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase(yes: bool) -> None:
    """Destroy the tenant's key: none of its payloads can ever be read again, in copies and backups neither.

    Events, digests and checksums stay and still verify. Rows of projections that were folded from such payloads are
    folded anew: a business object becomes {"erased": true}. Needs payload_store.encryption_at_rest.

    \b
    Examples:
      noetl payloads erase
      NOETL_TENANT_ID=acme noetl payloads erase --yes
    """
    asyncio.run(_erase(yes=yes))


async def _erase(*, yes: bool) -> None:
    from noetl.runtime.config import load_settings
    from noetl.runtime.payloads.erasure import erase_tenant, fold_anew
    from noetl.runtime.projections.projector import catch_up
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        tenant = runtime.scope.tenant_id
        if not yes:
            click.confirm(f"All payloads of tenant {tenant} will be unreadable for ever. Go on?", abort=True)
        answer = await erase_tenant(runtime)
        streams = await fold_anew(runtime)
        await catch_up(runtime)
    done = "was erased before" if answer.repeated else "is erased"
    click.echo(f"Tenant {tenant} {done}, recorded as event {answer.event_ids[0]}.")
    if streams:
        click.echo(f"Rows of {streams} streams are folded anew, without what their events had in the payload store.")


async def _list(limit: int) -> list[dict[str, Any]]:
    from contextlib import aclosing

    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    found = []
    async with open_runtime(load_settings()) as runtime:
        async with aclosing(runtime.payloads.objects(runtime.scope)) as objects:  # type: ignore[type-var]
            async for one in objects:
                found.append(one)
                if len(found) == limit:
                    break
        counts: dict[str, int] = {}
        for start in range(0, len(found), _BATCH):
            batch = [one.sha256 for one in found[start : start + _BATCH]]
            counts |= await runtime.references.count(runtime.scope, batch)
    return [
        {
            "sha256": one.sha256,
            "stored_bytes": one.stored_bytes,
            "modified": f"{one.modified.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "references": counts[one.sha256],
        }
        for one in found
    ]


async def _explain(sha256: str) -> tuple[str, list[str]]:
    from noetl.kernel.payloads.garbage_collection import explain as verdict_of
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    settings = load_settings()
    async with open_runtime(settings) as runtime:
        verdict = await verdict_of(runtime.payloads, runtime.references, runtime.scope, sha256, **_policy(settings))
        return verdict, await runtime.references.explain(runtime.scope, sha256)


async def _collect(*, dry_run: bool) -> CollectReport:
    from noetl.kernel.payloads.garbage_collection import collect as collect_payloads
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    settings = load_settings()
    async with open_runtime(settings) as runtime:
        return await collect_payloads(
            runtime.payloads, runtime.references, runtime.scope, dry_run=dry_run, **_policy(settings)
        )


async def _check(execution: str | None) -> tuple[int, list[dict[str, str]]]:
    from noetl.errors import Corrupt, PayloadMissing
    from noetl.kernel.ledger.held_payloads import held_by_execution, held_by_organization
    from noetl.runtime.commands.execution import find_execution
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    seen: set[bytes] = set()
    problems = []
    async with open_runtime(load_settings()) as runtime:
        scope = runtime.scope
        if execution is None:
            held = held_by_organization(runtime.database, runtime.ledger, runtime.payloads, scope)
        else:
            scope, execution_id = await find_execution(runtime, execution)
            held = held_by_execution(runtime.history, scope, execution_id)
        async for ref, holder in held:
            digest = bytes.fromhex(ref.sha256)
            if digest in seen:
                continue
            seen.add(digest)
            try:
                await runtime.payloads.check(scope, ref)
            except (PayloadMissing, Corrupt) as problem:
                problems.append({"sha256": ref.sha256, "holder": holder, "problem": problem.message})
    return len(seen), problems


def _policy(settings: Settings) -> dict[str, Any]:
    chosen = settings.payload_store.gc
    return {
        "now": datetime.now(UTC),
        "grace": timedelta(hours=chosen.grace_hours),
        "ttl": timedelta(days=chosen.ttl_days) if chosen.strategy == "ttl" else None,
    }
