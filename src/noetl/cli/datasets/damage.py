"""`noetl datasets verify|repair`: files that are not what was committed are found, and built again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.terminal.progress import hashing_bar
from noetl.cli.terminal.whoami import BY
from noetl.errors import InputError
from noetl.runtime.commands.datasets import opened

if TYPE_CHECKING:
    from noetl.pipelines.damage.finder import FilesReport
    from noetl.pipelines.damage.repair import Repaired

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--generation", metavar="G", help="Beginning of a generation's id, `candidate` or `last`; all unless given."
)
@_JSON
@click.pass_context
def verify(ctx: click.Context, name: str | None, generation: str | None, as_json: bool) -> None:
    """Hash every file that can be read and compare it with its manifest; exit 1 if one is damaged or missing.

    This covers the generations that serve readers, those a rollback can return to, and those a pin or an as-of can reach.
    Without NAME, all datasets are verified. Files that pass are remembered on this node, so queries need not hash them
    again.

    \b
    Examples:
      noetl datasets verify
      noetl datasets verify sales_by_region --generation last
      noetl datasets verify --json | jq -r '.damaged[].path'
    """
    if name is None and generation is not None:
        raise InputError("a generation is one of a dataset", hint="name the dataset too")
    found = asyncio.run(_verify(name, generation, quiet=as_json))
    if as_json:
        click.echo(json.dumps(report_facts(found), indent=2, ensure_ascii=False))
    else:
        for line in report_lines(found):
            click.echo(line)
    ctx.exit(0 if found.clean else 1)


@click.command()
@click.argument("name")
@_JSON
@click.pass_context
def repair(ctx: click.Context, name: str, as_json: bool) -> None:
    """Have the damaged partitions of a dataset built again in this process, and look once more; exit 1 if some stay.

    Their job builds them from its inputs as they are now and commits a version of its own; whatever reads them follows if
    they came out differently. Older versions still name the damaged files: where what was built has the very bytes that
    were committed, these are put back. A source is asked for its partition again. What a job appended cannot be built
    anew: restore such a file from a copy. The lake of events and its facts are refused: `noetl lake rebuild` writes them.

    \b
    Examples:
      noetl datasets repair sales_by_region
    """
    from noetl.runtime.service import run_interruptibly

    done = run_interruptibly(_repair(name))
    if as_json:
        told = {
            "dataset": done.dataset,
            "damaged": report_facts(done.before)["damaged"],
            "partitions": list(done.partitions),
            "restored": list(done.restored),
            "errors": list(done.errors),
            "left": report_facts(done.after)["damaged"],
        }
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        _tell(done)
    ctx.exit(0 if done.after.clean and not done.errors else 1)


def report_facts(found: FilesReport) -> dict[str, Any]:
    """Return what was found as plain values."""
    return {
        "clean": found.clean,
        "files": found.files,
        "bytes": found.bytes,
        "damaged": [
            {
                "dataset": one.dataset,
                "dataset_version": one.dataset_version,
                "partition_key": one.partition_key,
                "versions": list(one.versions),
                "current": one.current,
                "serving": one.serving,
                "path": one.entry.path,
                "why": one.damage.why,
                "expected_bytes": one.damage.expected_bytes,
                "found_bytes": one.damage.found_bytes,
                "expected_sha256": one.damage.expected_sha256,
                "found_sha256": one.damage.found_sha256,
                "job": f"{one.dag}.{one.job}",
                "task_id": one.task_id,
            }
            for one in found.damaged
        ],
        "unreadable": found.unreadable,
    }


def report_lines(found: FilesReport) -> list[str]:
    """Return what was found, a line each."""
    lines = []
    for one in found.damaged:
        lines += [one.sentence(), f"  {one.remedy()}"]
    lines += found.unreadable
    looked = f"{found.files:,} {'file' if found.files == 1 else 'files'} ({found.bytes:,} bytes)"
    if found.clean:
        return [*lines, f"{looked} hashed: all are what was committed."]
    return [*lines, f"{looked} hashed: {len(found.damaged)} damaged or missing."]


def _tell(done: Repaired) -> None:
    if done.before.clean:
        click.echo(f"Nothing of {done.dataset} is damaged.")
        return
    for key in done.partitions:
        click.echo(f"{done.dataset}: {key} is built again")
    for path in done.restored:
        click.echo(f"{path} has the bytes again that were committed")
    for error in done.errors:
        click.echo(f"error: {error}", err=True)
    for line in report_lines(done.after):
        click.echo(line)


async def _verify(name: str | None, generation: str | None, *, quiet: bool) -> FilesReport:
    from noetl.pipelines.datasets.dataset_reader import chosen_build

    async with opened() as one:
        generations = None
        if name is not None:
            dataset = await one.reader.datasets.find(one.runtime.scope, name)
            builds = await one.reader.builds(dataset)
            if generation is not None:
                builds = [chosen_build(dataset, builds, generation)]
            generations = [build.generation.dataset_version for build in builds]
        with hashing_bar(quiet=quiet) as advance:
            return await one.finder().find(generations, progress=advance)


async def _repair(name: str) -> Repaired:
    from noetl.cli.datasets.changes import changing
    from noetl.runtime.commands.datasets import repairs_of

    async with changing(wait=True) as (runtime, pipelines, changes):

        async def finished(run: int) -> str | None:
            return (await pipelines.finished(run)).error

        return await repairs_of(runtime, changes, finished).repair(name, by=BY)
