"""`noetl run`: runs one playbook to its end in this process, shows how it gets on and tells what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.catalog import reference_of
from noetl.cli.run.workload import given_payload, payload_option, set_option, unknown_fields
from noetl.errors import InputError, NotFound

if TYPE_CHECKING:
    from noetl.cli.run.display import Display
    from noetl.engine.catalog.playbooks import Entry
    from noetl.engine.dispatch.engine import Engine
    from noetl.language.playbook.checked_playbook import CheckedPlaybook
    from noetl.runtime.commands.run import RunResult
    from noetl.runtime.wiring import Runtime


@click.command()
@click.argument("reference", metavar="FILE|PATH")
@set_option
@payload_option
@click.option("--slots", type=click.IntRange(1), help="Commands to work on at a time.")
@click.option("--dry-run", is_flag=True, help="Only check the playbook and show the workload it would run with.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the end.")
@click.option("--json", "as_json", is_flag=True, help="Print the end as JSON, and nothing else.")
@click.pass_context
def run(
    ctx: click.Context,
    reference: str,
    sets: tuple[str, ...],
    payload: str | None,
    slots: int | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a playbook to its end in this process.

    FILE is registered in the catalog first, which changes nothing if the same text stands there already. PATH is what
    the catalog has, its newest version unless one is named: PATH@3. No server is needed: without a configured database
    the embedded one is started. Values given with --set are JSON or YAML where they read as such, else text.

    Exit codes: 0 completed, 1 failed or cancelled, 2 wrong input, 3 a server cannot be reached, 130 interrupted; what
    was begun is then cancelled.

    \b
    Examples:
      noetl run playbook.yaml
      noetl run playbook.yaml --set count=3 --set source.url=https://example.org/data
      noetl run etl/orders@2 --payload @values.json
      noetl run playbook.yaml --dry-run --set count=3
      noetl run playbook.yaml --json | jq .result
    """
    given = given_payload(payload, sets)
    # A file is read before anything is started: what is wrong in it is told at once.
    file = _file(reference)
    if dry_run:
        _dry_run(reference, file, given, as_json=as_json)
        return
    from noetl.cli.run.display import display_for
    from noetl.cli.run.ending import finish

    display = display_for(as_json=as_json, quiet=quiet)
    if file is not None:
        display.warn([*file.warnings, *unknown_fields(file.playbook.workload, given)])
    ctx.exit(finish(display, _run(reference, file, given, slots, display), as_json=as_json))


async def _run(
    reference: str, file: CheckedPlaybook | None, given: dict[str, Any], slots: int | None, display: Display
) -> RunResult:
    from noetl.runtime.commands.run import RUN_SLOTS, open_run, run_entry
    from noetl.runtime.config import load_settings

    async with open_run(load_settings(), lambda said: display.warn([said])) as (runtime, engine):
        if file is None:
            entry = await _registered(runtime, engine, reference)
            workload = (await engine.catalog.plan(runtime.scope, entry.catalog_id)).playbook.workload
            display.warn(list(unknown_fields(workload, given)))
        else:
            entry = (await engine.catalog.register_checked(runtime.scope, file)).entry
        async with display.following():
            return await run_entry(runtime, engine, entry, given, slots=slots or RUN_SLOTS, watcher=display)


async def _registered(runtime: Runtime, engine: Engine, reference: str) -> Entry:
    path, version = reference_of(reference)
    try:
        return await engine.catalog.get(runtime.scope, path, version)
    except NotFound as problem:
        hint = problem.hint or "`noetl catalog list` shows what is registered"
        raise InputError(f"there is no file {reference}, and {problem.message}", hint=hint) from None


def _file(reference: str) -> CheckedPlaybook | None:
    """Read and check the file; None when a path of the catalog is meant."""
    file = Path(reference)
    if file.is_file():
        from noetl.runtime.commands.catalog import read_playbook

        return read_playbook(file)
    if file.is_dir():
        raise InputError(
            f"{reference} is a directory", hint="give one of its files, or the path of a registered playbook"
        )
    if file.suffix in (".yaml", ".yml"):
        raise InputError(f"there is no file {reference}", hint="give a file, or the path of a registered playbook")
    return None


def _dry_run(reference: str, file: CheckedPlaybook | None, given: dict[str, Any], *, as_json: bool) -> None:
    import json

    from noetl.engine.plan.workload import Workload

    if file is None:
        raise InputError(f"{reference} is no file", hint="what the catalog has was checked when it was registered")
    warnings = [*file.warnings, *unknown_fields(file.playbook.workload, given)]
    # Nothing is started, so there is no id to render defaults with.
    workload = Workload(file.playbook).in_force(given, execution_id="<execution_id>", catalog_id="<catalog_id>")
    if as_json:
        shown = {"path": file.playbook.path, "workload": workload, "warnings": warnings}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"{reference} has no errors; {file.playbook.path} would run with this workload:")
    click.echo(json.dumps(workload, indent=2, ensure_ascii=False))
