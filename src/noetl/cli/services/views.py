"""`noetl views`: deploy streaming views, run them, read their rows, and prove that they equal what the ledger says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.cli.terminal.messages import tell
from noetl.cli.terminal.whoami import BY, ROLE
from noetl.errors import InputError, NotFound

if TYPE_CHECKING:
    from noetl.runtime.assembly.views import ViewParts
    from noetl.runtime.service import Stopping
    from noetl.runtime.wiring import Runtime
    from noetl.services.views.verification import Verified
    from noetl.services.views.versions import Version

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def views() -> None:
    """Keep tables up to date with the ledger, and prove that they are."""


@views.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@_JSON
def deploy(files: tuple[Path, ...], as_json: bool) -> None:
    """Deploy views: a new one is built beside the one that serves and takes its place when it has caught up.

    What stands already is left alone. Servers run deployed views by themselves; `noetl views run` does so here.

    \b
    Examples:
      noetl views deploy views/running_frames.yaml
    """
    from noetl.language.view.document import parse_view
    from noetl.pipelines.catalog.dags.bundles import files_beside

    documents = [parse_view(_read(file), file=str(file), files=files_beside(file)) for file in files]

    async def write() -> list[dict[str, Any]]:
        from noetl.runtime.assembly.views import versions_of

        async with _runtime() as runtime:
            versions = versions_of(runtime, ROLE)
            told = []
            for document in documents:
                version, new = await versions.deploy(runtime.scope, document, BY)
                told.append({"view": version.view, "version": version.version_id, "new": new, "status": version.status})
            return told

    for one in _said(asyncio.run(write()), as_json):
        done = "is being built" if one["new"] else f"stands already, {one['status']}"
        click.echo(f"{one['view']}: version {one['version'][:8]} {done}")


@views.command("list")
@_JSON
def list_views(as_json: bool) -> None:
    """List views: which version serves, who runs it, and how far it is.

    \b
    Examples:
      noetl views list
    """
    from noetl.cli.services import views_show

    async def read() -> list[dict[str, Any]]:
        async with _opened() as (runtime, parts):
            found = [one for one in await parts.versions.listed(runtime.scope) if one.status in ("building", "current")]
            head = await runtime.ledger.head()
            return [await views_show.facts_of(parts, runtime.scope, one, head) for one in found]

    found = asyncio.run(read())
    if as_json:
        _print_json(found)
    elif found:
        click.echo(views_show.table(found), nl=False)
    else:
        click.echo("There are no views; `noetl views deploy FILE` makes one.")


@views.command()
@click.argument("name")
@_JSON
def status(name: str, as_json: bool) -> None:
    """Tell how far a view is: its barrier, the mark it covers, what came too late, and why a run failed.

    \b
    Examples:
      noetl views status running_frames
    """
    from noetl.cli.services import views_show

    async def read() -> list[dict[str, Any]]:
        async with _opened() as (runtime, parts):
            found = [
                one for one in await parts.versions.of(runtime.scope, name) if one.status in ("building", "current")
            ]
            if not found:
                raise NotFound(f"there is no view {name}", hint="`noetl views list` lists them")
            head = await runtime.ledger.head()
            return [await views_show.facts_of(parts, runtime.scope, one, head) for one in found]

    found = asyncio.run(read())
    if as_json:
        _print_json(found)
    else:
        click.echo("\n".join(map(views_show.text, found)), nl=False)


@views.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Rows to show at most.")
@_JSON
def rows(name: str, limit: int, as_json: bool) -> None:
    """Show the rows of a view that is kept in NoETL's database or in a table, with the mark they cover.

    \b
    Examples:
      noetl views rows running_frames
      noetl views rows running_frames --json | jq '.rows[].running'
    """
    from noetl.cli.services import views_show

    async def read() -> dict[str, Any]:
        async with _opened() as (runtime, parts):
            version = await parts.versions.serving(runtime.scope, name)
            if version.sink == "dataset":
                dataset = version.definition.target_dataset
                raise InputError(
                    f"view {name} is the dataset {dataset}", hint=f"`noetl datasets rows {dataset}` shows it"
                )
            sink = parts.around.sink_of(runtime.scope, version, None)
            try:
                held = await sink.held()
            finally:
                await sink.close()
            barrier = held.barrier
            return {
                "view": name,
                "status": version.status,
                "keys": list(version.definition.keys),
                "mark": None if barrier is None else barrier.mark,
                "at": None if barrier is None else barrier.at,
                "rows": list(held.rows.values())[:limit],
                "total": len(held.rows),
            }

    found = asyncio.run(read())
    if as_json:
        _print_json(found)
    else:
        click.echo(views_show.rows_text(found), nl=False)


@views.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option("--once", is_flag=True, help="Bring them up to now, and end.")
@_JSON
@click.pass_context
def run(ctx: click.Context, names: tuple[str, ...], once: bool, as_json: bool) -> None:
    """Run views, all of them unless named, until interrupted; any number of processes may, and one has each view.

    It survives restarts of PostgreSQL and of Spark: a run that fails is tried again after a while.

    \b
    Examples:
      noetl views run
      noetl views run running_frames --once
    """
    if once:
        for one in _said(asyncio.run(_run_once(names)), as_json):
            click.echo(f"{one['view']}: {one['status']}, as of {one['mark']}")
        return
    from noetl.runtime.config import load_settings
    from noetl.runtime.service import run_role

    settings = load_settings()

    @asynccontextmanager
    async def start(stopping: Stopping) -> AsyncIterator[None]:
        from noetl.runtime.assembly.views import keeping_of, open_views
        from noetl.runtime.wiring import open_runtime

        async with open_runtime(settings) as runtime, open_views(runtime) as parts:
            keeping = keeping_of(runtime, parts, scope=runtime.scope, names=names)
            keeping.start()
            try:
                yield
            finally:
                await keeping.stop()

    ctx.exit(run_role(start, partial(tell, err=True)))


@views.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@_JSON
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Compute views again in one go at the mark they stand at, and compare row by row; exit 1 if one differs.

    Events that came too late are left out alike, and their number is told.

    \b
    Examples:
      noetl views verify
      noetl views verify running_frames --json
    """
    from noetl.cli.services import views_show

    async def work() -> list[Verified]:
        async with _opened() as (runtime, parts):
            found = []
            for number, one in enumerate(await _chosen(runtime, parts, names), 1):
                try:
                    found.append(await parts.verifying.verify(runtime.scope, one, number))
                except NotFound as problem:
                    if names:
                        raise
                    click.echo(problem.message, err=True)
            return found

    import msgspec

    found = asyncio.run(work())
    if as_json:
        _print_json(msgspec.to_builtins(found))
    else:
        for one in found:
            click.echo(views_show.verified_text(one))
    ctx.exit(1 if any(one.differences for one in found) else 0)


@views.command()
@click.argument("name")
@_JSON
def rebuild(name: str, as_json: bool) -> None:
    """Build a view anew from the first event on, beside what serves; it takes its place when it has caught up.

    \b
    Examples:
      noetl views rebuild running_frames
    """

    async def write() -> list[dict[str, Any]]:
        async with _opened() as (runtime, parts):
            version = await parts.versions.rebuild(runtime.scope, name, BY)
            return [{"view": name, "version": version.version_id, "status": version.status}]

    for one in _said(asyncio.run(write()), as_json):
        click.echo(f"{one['view']}: version {one['version'][:8]} is being built")


@views.command()
@click.argument("name")
def drop(name: str) -> None:
    """Drop a view with all its rows.

    \b
    Examples:
      noetl views drop running_frames
    """

    async def write() -> None:
        from noetl.services.views.checkpoints import forget_checkpoint

        async with _opened() as (runtime, parts):
            found = await parts.versions.drop(runtime.scope, name, BY)
            sink = parts.around.sink_of(runtime.scope, found[-1], None)
            try:
                await sink.clear([one.version_id for one in found])
                for one in found:
                    forget_checkpoint(parts.around.checkpoint, runtime.scope, one)
            finally:
                await sink.close()

    asyncio.run(write())
    click.echo(f"{name} is dropped")


async def _run_once(names: tuple[str, ...]) -> list[dict[str, Any]]:
    from noetl.runtime.assembly.views import keeping_of

    async with _opened() as (runtime, parts):
        told = []
        for one in await _chosen(runtime, parts, names, newest=True):
            keeping = keeping_of(runtime, parts, scope=runtime.scope)
            upto = await runtime.ledger.head()
            barrier = await keeping.once(runtime.scope, one, upto)
            version = await parts.versions.serving(runtime.scope, one.view)
            told.append({"view": one.view, "status": version.status, "mark": None if barrier is None else barrier.mark})
        return told


async def _chosen(runtime: Runtime, parts: ViewParts, names: tuple[str, ...], *, newest: bool = False) -> list[Version]:
    found = [one for one in await parts.versions.listed(runtime.scope) if one.status in ("building", "current")]
    known = {one.view for one in found}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no view {name}", hint="`noetl views list` lists them")
    chosen: dict[str, Version] = {}
    for one in found:
        # In the order of age: the newest is the one that is being built, if there is one.
        if newest or one.view not in chosen or one.status == "current":
            chosen[one.view] = one
    return [one for name, one in chosen.items() if not names or name in names]


@asynccontextmanager
async def _runtime() -> AsyncIterator[Runtime]:
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        yield runtime


@asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Runtime, ViewParts]]:
    from noetl.runtime.assembly.views import open_views

    async with _runtime() as runtime, open_views(runtime, role=ROLE) as parts:
        yield runtime, parts


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}", hint="name a file that exists") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{file} is not UTF-8 text: byte {problem.start} cannot be decoded") from None


def _said(told: list[dict[str, Any]], as_json: bool) -> list[dict[str, Any]]:
    """Print what happened as JSON if that is wanted; return what is left to be said in words."""
    if as_json:
        _print_json(told)
        return []
    return told


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
