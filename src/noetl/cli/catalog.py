"""`noetl catalog`: registers playbooks and looks at what is registered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.errors import InputError
from noetl.runtime.commands.catalog import opened

if TYPE_CHECKING:
    from noetl.engine.catalog.playbooks import Entry, Registered
    from noetl.language.playbook.checked_playbook import CheckedPlaybook

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def catalog() -> None:
    """Register playbooks and look at what is registered."""


@catalog.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@_JSON
def register(files: tuple[Path, ...], as_json: bool) -> None:
    """Register playbooks, each under the path it names; a text that stands there already gives no new version.

    All files are checked first: with an error in one of them nothing is registered, and the exit code is 2.

    \b
    Examples:
      noetl catalog register playbook.yaml
      noetl catalog register playbooks/*.yaml --json
    """
    from noetl.runtime.commands.catalog import read_playbook

    read = [read_playbook(file) for file in files]
    answers = asyncio.run(_register(read))
    if as_json:
        shown = [
            {**_facts(answer.entry), "created": answer.created, "file": file.file, "warnings": file.warnings}
            for file, answer in zip(read, answers, strict=True)
        ]
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    for file, answer in zip(read, answers, strict=True):
        for warning in file.warnings:
            click.echo(f"warning: {warning}", err=True)
        click.echo(registered_sentence(file, answer))


def registered_sentence(read: CheckedPlaybook, answer: Registered) -> str:
    """Say what came of a registration."""
    word = "registered as" if answer.created else "stands already as"
    return f"{read.file}: {word} {answer.entry.path} version {answer.entry.version}"


@catalog.command("list")
@click.argument("prefix", default="")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Paths to list, at most.")
@_JSON
def list_(prefix: str, limit: int, as_json: bool) -> None:
    """List the newest version of each path, or of the paths that begin with PREFIX.

    \b
    Examples:
      noetl catalog list
      noetl catalog list etl/ --limit 20
      noetl catalog list --json | jq -r '.[].path'
    """
    found = asyncio.run(_list(prefix, limit))
    if as_json:
        click.echo(json.dumps([_facts(entry) for entry in found], indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [(one.path, str(one.version), f"{one.registered_at:%Y-%m-%d %H:%M:%S}", one.digest[:12]) for one in found]
    click.echo(rendered(("path", "version", "registered", "digest"), rows), nl=False)


@catalog.command()
@click.argument("reference", metavar="PATH[@VERSION]")
@_JSON
def get(reference: str, as_json: bool) -> None:
    """Print a playbook as it was registered, its newest version unless one is named.

    \b
    Examples:
      noetl catalog get etl/orders > orders.yaml
      noetl catalog get etl/orders@2 --json | jq .digest
    """
    entry = asyncio.run(_get(reference))
    if as_json:
        click.echo(json.dumps({**_facts(entry), "content": entry.content}, indent=2, ensure_ascii=False))
    else:
        click.echo(entry.content, nl=not entry.content.endswith("\n"))


@catalog.command()
@click.argument("reference", metavar="PATH@VERSION")
@_JSON
def remove(reference: str, as_json: bool) -> None:
    """Take a version out of use: nothing new starts from it, what ran or runs with it stays as it is.

    \b
    Examples:
      noetl catalog remove etl/orders@2
    """
    _use(reference, removed=True, as_json=as_json)


@catalog.command()
@click.argument("reference", metavar="PATH@VERSION")
@_JSON
def restore(reference: str, as_json: bool) -> None:
    """Take a removed version into use again.

    \b
    Examples:
      noetl catalog restore etl/orders@2
    """
    _use(reference, removed=False, as_json=as_json)


def _use(reference: str, *, removed: bool, as_json: bool) -> None:
    path, version = reference_of(reference)
    if version is None:
        raise InputError(f"{reference} names no version", hint=f"such as {path}@1; `noetl catalog get {path} --json`")
    entry = asyncio.run(_set_removed(path, version, removed=removed))
    state = "removed" if entry.removed else "in use"
    click.echo(json.dumps(_facts(entry), indent=2) if as_json else f"{entry.path} version {entry.version} is {state}.")


def reference_of(text: str) -> tuple[str, int | None]:
    """Read PATH or PATH@VERSION, with or without `catalog://` in front."""
    path, _, version = text.removeprefix("catalog://").partition("@")
    if version and not version.isdecimal():
        raise InputError(f"{version!r} is no version of {path}", hint="versions are numbers, such as PATH@2")
    return path, int(version) if version else None


def _facts(entry: Entry) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(entry)
    del facts["content"]
    return facts


async def _register(files: list[CheckedPlaybook]) -> list[Registered]:
    async with opened() as (found, scope):
        return [await found.register_checked(scope, file) for file in files]


async def _list(prefix: str, limit: int) -> list[Entry]:
    async with opened() as (found, scope):
        return await found.newest(scope, prefix, limit=limit)


async def _get(reference: str) -> Entry:
    path, version = reference_of(reference)
    async with opened() as (found, scope):
        return await found.get(scope, path, version, with_removed=version is not None)


async def _set_removed(path: str, version: int, *, removed: bool) -> Entry:
    async with opened() as (found, scope):
        return (await found.set_removed(scope, path, version, removed=removed)).entry
