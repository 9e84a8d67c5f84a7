"""`noetl credentials`: keep, list and remove credentials, change their master key, and hand out API tokens.

Secrets are read and never printed; a new token is, once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.errors import InputError
from noetl.runtime.commands.credentials import opened_credentials, opened_tokens

if TYPE_CHECKING:
    from noetl.services.credentials.input_forms import GivenCredential
    from noetl.services.credentials.rotation import Rotation
    from noetl.services.credentials.store import CredentialInfo
    from noetl.services.credentials.tokens import Role, TokenInfo

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_ROLES = ("reader", "writer", "admin", "worker", "operator")


@click.group()
def credentials() -> None:
    """Keep credentials for playbooks, and hand out API tokens.

    Credentials are encrypted with the master key in NOETL_SECRET_KEY, or with the key files in `keys/credentials` under
    the home directory.
    """


@credentials.command()
@click.argument("name", required=False)
@click.option("--type", "type_name", help="Type of the credential, such as postgres or bearer.")
@click.option("--data", help="The data as a JSON object; - reads it from standard input.")
@click.option("--file", "file", help="A JSON file {name, type, data, description, tags}; - reads standard input.")
@click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One field; may be given several times.")
@click.option("--description", help="What it is for; not encrypted.")
@click.option("--tag", "tags", multiple=True, help="May be given several times; not encrypted.")
@_JSON
def put(
    name: str | None,
    type_name: str | None,
    data: str | None,
    file: str | None,
    pairs: tuple[str, ...],
    description: str | None,
    tags: tuple[str, ...],
    as_json: bool,
) -> None:
    """Keep a credential, in place of one of the same name.

    A value on the command line can be seen by other users and stays in the shell's history: prefer --file or -.

    \b
    Examples:
      noetl credentials put --file pg_local.json
      noetl credentials put crm --type bearer --data - < token.json
      noetl credentials put shop --type basic --set username=ann --set password="$PASSWORD"
    """
    if sum(map(bool, (data, file, pairs))) != 1:
        raise click.UsageError("give the credential by one of --data, --file and --set")
    from noetl.services.credentials.input_forms import given_credential, parse_object, parse_pairs

    if file:
        written = parse_object(_read(file), "standard input" if file == "-" else file)
    elif data:
        written = {"data": parse_object(_read("-") if data == "-" else data, "--data")}
    else:
        written = {"data": parse_pairs(pairs)}
    given = given_credential(written, name=name, type=type_name, description=description, tags=list(tags))
    info = asyncio.run(_put(given))
    _print(_facts(info), as_json, f"Credential {info.name} ({info.type}) is kept: {', '.join(info.fields)}.")


@credentials.command("list")
@click.option("--type", "type_name", help="Only credentials of this type.")
@_JSON
def list_credentials(type_name: str | None, as_json: bool) -> None:
    """List the organization's credentials, without their data.

    \b
    Examples:
      noetl credentials list
      noetl credentials list --type postgres --json
    """
    found = asyncio.run(_list(type_name))
    if as_json:
        click.echo(json.dumps([_facts(one) for one in found], indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [(one.name, one.type, _instant(one.updated_at), one.description or "") for one in found]
    click.echo(rendered(("name", "type", "changed", "description"), rows), nl=False)


@credentials.command()
@click.argument("name")
@_JSON
def show(name: str, as_json: bool) -> None:
    """Show a credential with its fields masked.

    \b
    Examples:
      noetl credentials show pg_local
    """
    info = asyncio.run(_describe(name))
    if as_json:
        click.echo(json.dumps(_facts(info), indent=2))
        return
    lines = [("name", info.name), ("type", info.type), *((f"data.{field}", "***") for field in info.fields)]
    lines += [("description", info.description or ""), ("tags", ", ".join(info.tags)), ("key", info.key_id)]
    lines += [("created", _instant(info.created_at)), ("changed", _instant(info.updated_at))]
    for label, value in lines:
        click.echo(f"{label:<24} {value}".rstrip())


@credentials.command()
@click.argument("name")
@_JSON
def remove(name: str, as_json: bool) -> None:
    """Remove a credential.

    \b
    Examples:
      noetl credentials remove pg_old
    """
    asyncio.run(_remove(name))
    _print({"name": name, "removed": True}, as_json, f"Credential {name} is removed.")


@credentials.command()
@click.option("--keep-old-keys", is_flag=True, help="Keep key files that no row needs, for instance for old backups.")
@_JSON
def rotate(keep_old_keys: bool, as_json: bool) -> None:
    """Encrypt everything under a new master key, in all organizations; exit 1 if a row could not be read.

    With key files, a new key is made, and old ones are removed once no row needs them. With NOETL_SECRET_KEY, put the
    new key in front first (NEW,OLD) and take the old one away afterwards.

    \b
    Examples:
      noetl credentials rotate
      NOETL_SECRET_KEY="$NEW,$OLD" noetl credentials rotate
    """
    done = asyncio.run(_rotate(keep_old_keys=keep_old_keys))
    import msgspec

    lines = [f"{done.credentials} credentials and {done.keychain} keychain entries went over to key {done.key_id}."]
    lines += [f"Key {key} is removed." for key in done.removed_keys]
    lines += [f"Key {key} is not needed any more." for key in done.unused_keys]
    lines += [f"Not readable, so left as it is: {row}" for row in done.unreadable]
    _print(msgspec.to_builtins(done), as_json, "\n".join(lines))
    if done.unreadable:
        raise SystemExit(1)


@credentials.group()
def token() -> None:
    """Hand out, list and revoke API tokens, and open a server that needs none any more."""


@token.command()
@click.option("--name", required=True, help="Who holds it.")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What it may do.")
@click.option("--expires", type=click.IntRange(1), metavar="DAYS", help="Days it is good for; for ever without.")
@click.option("--user", metavar="EMAIL", help="Person it belongs to, whose roles say which datasets it reads.")
@_JSON
def create(name: str, role: Role, expires: int | None, user: str | None, as_json: bool) -> None:
    """Make a token and print it, this once.

    \b
    Examples:
      noetl credentials token create --name ci --role writer --expires 90
      TOKEN=$(noetl credentials token create --name ci --role reader --json | jq -r .token)
    """
    text, info = asyncio.run(_create_token(name, role, expires, user))
    end = "never expires" if info.expires_at is None else f"expires {_instant(info.expires_at)}"
    if not as_json:
        click.echo(f"Token {info.token_id} ({info.role}, {end}). It is shown only now:", err=True)
    _print({**_token_facts(info), "token": text}, as_json, text)


@token.command("list")
@_JSON
def list_tokens(as_json: bool) -> None:
    """List the organization's tokens.

    \b
    Examples:
      noetl credentials token list
    """
    found = [_token_facts(one) for one in asyncio.run(_list_tokens())]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    columns = ("token_id", "role", "state", "created_at", "last_used_at", "name")
    rows = [[str(one[column] or "never") for column in columns] for one in found]
    click.echo(rendered(("id", "role", "state", "made", "last used", "name"), rows), nl=False)


@token.command()
@click.argument("token_id", metavar="ID")
@_JSON
def revoke(token_id: str, as_json: bool) -> None:
    """End a token at once: by its id, the beginning of it, or `last` for the newest that is not revoked.

    \b
    Examples:
      noetl credentials token revoke 1b4e28ba-2fa1-4d2e-883f-0016d3cca427
    """
    info = asyncio.run(_revoke(token_id))
    _print(_token_facts(info), as_json, f"Token {info.token_id} ({info.name}) is revoked.")


@token.command("open")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_JSON
def open_again(yes: bool, as_json: bool) -> None:
    """Let this account in again, without a token.

    A server that listens on the loopback asks for no token until the organization has one. From then on it does, also after
    the last token was revoked or has expired. This command ends that, until the next token is made. It is refused while a
    token is live. `server.require_tokens: true` asks for tokens all the same.

    \b
    Examples:
      noetl credentials token open
      noetl credentials token open --yes --json
    """
    if not yes:
        click.confirm("Whoever runs as the server's account may then do everything. Go on?", abort=True)
    ended = asyncio.run(_open_again())
    was = f"Ended tokens that no longer count: {ended}." if ended else "It was open already."
    _print({"ended_tokens": ended}, as_json, f"No token is asked for on the loopback until the next is made. {was}")


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise click.UsageError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or 'not UTF-8'}") from None


def _facts(info: CredentialInfo) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(info)
    return facts


def _token_facts(info: TokenInfo) -> dict[str, Any]:
    import msgspec

    return {**msgspec.to_builtins(info), "state": info.state(datetime.now(UTC))}


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _print(facts: dict[str, Any], as_json: bool, sentence: str) -> None:
    click.echo(json.dumps(facts, indent=2) if as_json else sentence)


async def _put(given: GivenCredential) -> CredentialInfo:
    async with opened_credentials() as (store, scope):
        return await store.put(
            scope,
            given.name,
            given.type,
            given.data,
            description=given.description,
            tags=given.tags,
            meta=given.meta,
        )


async def _list(type_name: str | None) -> Sequence[CredentialInfo]:
    async with opened_credentials() as (store, scope):
        return await store.list(scope, type_name)


async def _describe(name: str) -> CredentialInfo:
    async with opened_credentials() as (store, scope):
        return await store.describe(scope, name)


async def _remove(name: str) -> None:
    async with opened_credentials() as (store, scope):
        await store.delete(scope, name)


async def _rotate(*, keep_old_keys: bool) -> Rotation:
    from noetl.services.credentials.keyring import VARIABLE

    async with opened_credentials() as (store, _):
        return await store.rotate(new_key=not os.environ.get(VARIABLE), keep_old_keys=keep_old_keys)


async def _create_token(name: str, role: Role, days: int | None, user: str | None) -> tuple[str, TokenInfo]:
    async with opened_tokens() as (tokens, scope):
        secret, info = await tokens.create(scope, name, role, None if days is None else timedelta(days=days), user)
        return secret.reveal(), info


async def _list_tokens() -> Sequence[TokenInfo]:
    async with opened_tokens() as (tokens, scope):
        return await tokens.list(scope)


async def _open_again() -> int:
    async with opened_tokens() as (tokens, scope):
        return await tokens.open_again(scope)


async def _revoke(token_id: str) -> TokenInfo:
    from noetl.runtime.commands.selection import LAST, chosen

    if token_id != LAST and not re.fullmatch(r"[0-9a-fA-F-]+", token_id):
        raise InputError(
            f"{token_id!r} is no id of a token", hint="`noetl credentials token list` shows those there are"
        )
    async with opened_tokens() as (tokens, scope):
        newest_first = list(reversed(await tokens.list(scope)))
        if token_id == LAST:
            newest_first = [one for one in newest_first if one.revoked_at is None]
        hint = "`noetl credentials token list` shows those there are"
        one = chosen(newest_first, token_id, lambda one: str(one.token_id), "token", hint)
        return await tokens.revoke(scope, one.token_id)
