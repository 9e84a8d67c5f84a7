"""`noetl verify`: proves that projections and inline rows equal what the ledger says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.ledger.engine_options import Engine, Source, engine_options, refuse_source
from noetl.cli.terminal.progress import hashing_bar
from noetl.errors import InputError
from noetl.runtime.commands.datasets import with_files
from noetl.runtime.commands.execution import find_execution

if TYPE_CHECKING:
    from noetl.kernel.replay.chain import ChainReport
    from noetl.kernel.replay.report import Difference, VerifyReport
    from noetl.runtime.wiring import Runtime

    Found = tuple[list[VerifyReport], list[Difference], list[str], ChainReport]

WRITES_SECONDS = 10.0
"""How long what a stream acknowledged is waited for."""


@click.command()
@click.argument("execution", required=False)
@click.option("--all", "everything", is_flag=True, help="Verify every organization of every tenant, and the shards.")
@click.option(
    "--payloads",
    is_flag=True,
    help="Also prove the stored bytes of every payload, without keys.",
)
@click.option(
    "--no-hash",
    "no_hash",
    is_flag=True,
    help="Compare files of datasets by size and time or ETag, and hash only those that differ in it.",
)
@click.option(
    "--head",
    "heads",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="A file of signed heads that you kept; by default those that were published here.",
)
@click.option(
    "--key", type=click.Path(dir_okay=False, path_type=Path), help="The public key that must have signed them."
)
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def verify(
    ctx: click.Context,
    execution: str | None,
    everything: bool,
    payloads: bool,
    no_hash: bool,
    heads: tuple[Path, ...],
    key: Path | None,
    engine: Engine,
    source: Source,
    as_json: bool,
) -> None:
    """Fold the ledger anew and compare what is stored with it; exit 1 if anything differs.

    EXECUTION is an id, a locator (noetl://…/execution/<id>) or `last`; without it the organization is verified.
    Projections are compared at their checkpoints, so a projector that lags behind is no difference. Facts that a stream
    acknowledged must be in the ledger; those on their way there are waited for, and told if they do not come. Events are held
    against their leaves, leaves against the links of their shard, and links against signed heads. Of an organization, every file of
    every generation that can still be read is hashed and compared with its manifest; `--no-hash` is quicker, misses bytes that
    changed under the same size and time, and says so. With `--engine spark` whole organizations are folded on Spark, shard by
    shard; events are held against their leaves in this process, with the same outcome.

    Of an execution, all links and heads of its shard are checked, and the leaves of its own events. Where an archive was removed for
    good, nothing can be folded or held against its leaves: both are said, with the number of positions, and are no difference as
    long as the ledger's own events tell of the removal.

    \b
    Examples:
      noetl verify
      noetl verify last
      noetl verify --all --payloads
      noetl verify --no-hash
      noetl verify --all --head kept/heads.jsonl --key kept/notary.pub
      noetl verify --all --engine spark --from lake
      noetl verify --json | jq '.reports[].differences'
    """
    if execution is not None and everything:
        raise InputError("an execution and --all are two questions; ask one")
    if execution is not None and no_hash:
        raise InputError("files of datasets are not looked at for one execution", hint="leave out --no-hash")
    if engine == "spark":
        if execution is not None or payloads:
            raise InputError(
                "Spark verifies whole organizations, not one execution and not payloads",
                hint="leave out --engine spark",
            )
        work = _verify_on_spark(heads, key, everything=everything, hashed=not no_hash, source=source, quiet=as_json)
    else:
        refuse_source(source)
        work = _verify(
            execution, heads, key, everything=everything, payloads=payloads, hashed=not no_hash, quiet=as_json
        )
    reports, shards, writes, chain = asyncio.run(work)
    shards = [*shards, *chain.differences]
    clean = not shards and not writes and all(report.clean for report in reports)
    if as_json:
        plain = _plain(reports, shards, clean=clean) | {"writes": writes, "chain": _chain(chain)}
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        _show(reports, shards, writes, chain)
    ctx.exit(0 if clean else 1)


async def _verify(
    execution: str | None,
    heads: tuple[Path, ...],
    key: Path | None,
    *,
    everything: bool,
    payloads: bool,
    hashed: bool,
    quiet: bool,
) -> Found:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from noetl.runtime.config import load_settings
    from noetl.runtime.notary import chain_check
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path.losses import not_in_the_ledger

    async with open_runtime(load_settings()) as runtime:
        verifier = runtime.verifier
        scopes, execution_id = [runtime.scope], None
        if execution is not None:
            scope, execution_id = await find_execution(runtime, execution)
            scopes = [scope]
        elif everything:
            scopes = await verifier.scopes()
        columns = (TextColumn("verifying"), BarColumn(), TextColumn("{task.completed} events"), TimeElapsedColumn())
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
            task = progress.add_task("events", total=None)
            reports = [
                await verifier.verify(
                    scope,
                    execution_id,
                    check_payloads=payloads,
                    progress=lambda count: progress.advance(task, count),
                )
                for scope in scopes
            ]
        if execution is None:
            reports = await _with_files(runtime, reports, hashed=hashed, quiet=quiet)
        writes = [] if execution is not None else await not_in_the_ledger(runtime, WRITES_SECONDS)
        check = await chain_check(runtime, heads, key)
        if execution_id is not None:
            chain = await check.execution(scopes[0], execution_id)
        else:
            chain = await check.shards(None if everything else runtime.scope)
        return reports, await verifier.shards() if everything else [], writes, chain


async def _verify_on_spark(
    heads: tuple[Path, ...], key: Path | None, *, everything: bool, hashed: bool, source: Source, quiet: bool
) -> Found:
    from noetl.cli.terminal.progress import position_bar
    from noetl.runtime.config import load_settings
    from noetl.runtime.notary import chain_check
    from noetl.runtime.spark.bulk_replay import open_bulk_replay
    from noetl.runtime.wiring import open_runtime
    from noetl.runtime.write_path.losses import not_in_the_ledger

    with position_bar("verifying", quiet=quiet) as reached:
        async with (
            open_runtime(load_settings()) as runtime,
            open_bulk_replay(runtime, source, reached=reached) as bulk,
        ):
            verifier = bulk.verifier
            scopes = await verifier.scopes() if everything else [runtime.scope]
            reports = [await verifier.verify(scope) for scope in scopes]
            reports = await _with_files(runtime, reports, hashed=hashed, quiet=True)  # one bar at a time
            writes = await not_in_the_ledger(runtime, WRITES_SECONDS)
            chain = await (await chain_check(runtime, heads, key)).shards(None if everything else runtime.scope)
            return reports, await verifier.shards() if everything else [], writes, chain


async def _with_files(
    runtime: Runtime, reports: list[VerifyReport], *, hashed: bool, quiet: bool
) -> list[VerifyReport]:
    """Add the files of datasets that are not what was committed."""
    with hashing_bar(quiet=quiet) as advance:
        return [await with_files(runtime, report, hashed=hashed, progress=advance) for report in reports]


def _plain(reports: list[VerifyReport], shards: list[Difference], *, clean: bool) -> dict[str, Any]:
    import msgspec

    return {
        "clean": clean,
        "reports": [report.to_json() for report in reports],
        "shards": msgspec.to_builtins(shards),
    }


def _chain(chain: ChainReport) -> dict[str, int]:
    return {
        "events": chain.events,
        "before": chain.before,
        "away": chain.away,
        "links": chain.links,
        "heads": chain.heads,
    }


def _show(reports: list[VerifyReport], shards: list[Difference], writes: list[str], chain: ChainReport) -> None:
    for report in reports:
        name = f"{report.scope.tenant_id}/{report.scope.organization_id}"
        what = name if report.execution_id is None else f"execution {report.execution_id} of {name}"
        if report.not_folded is not None:
            click.echo(f"{what}: NOT COMPARED with its events: {report.not_folded}")
        else:
            click.echo(f"{what}: {report.events} events folded up to mark {report.mark}")
        for store in report.stores:
            click.echo(f"store {store.store}: {store.events} events folded up to mark {store.mark}")
        for part in report.projections:
            verdict = "equal" if part.equal else "DIFFERS"
            where = f" in {part.store}" if report.stores else ""
            click.echo(f"{part.projection:<16} {part.expected_rows:>10} rows  {part.expected}  {verdict}{where}")
        if report.payloads is not None:
            click.echo(f"{report.payloads} payloads proven")
        if report.files:
            how = "hashed" if report.files_hashed else "compared by size and time or ETag, NOT hashed (--no-hash)"
            click.echo(f"{report.files} files of datasets ({report.file_bytes} bytes) {how}")
        if report.lag:
            click.echo(f"{report.lag} events are not projected yet and were not compared")
    click.echo(
        f"chain: {chain.events} events held against their leaves, {chain.links} links, {chain.heads} signed heads"
    )
    if chain.before:
        click.echo(f"{chain.before} events were recorded before links were kept; nothing proves them")
    if chain.away:
        click.echo(
            f"{chain.away} positions have their events in archives that were removed, or in those of other organizations;"
            " nothing was held against their leaves"
        )
    if not chain.heads:
        click.echo(
            "NOT CHECKED: signed heads, as there are none; whoever can write the whole database could have made it anew"
        )
    differences = [*(difference for report in reports for difference in report.differences), *shards]
    found = [*(difference.sentence() for difference in differences), *writes]
    for sentence in found:
        click.echo(sentence)
    click.echo("Nothing differs." if not found else f"{len(found)} differences shown; the first is the place to look.")
