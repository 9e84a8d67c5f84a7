"""Binds a task's `params` to `$1`, `%s`, `:name` or `%(name)s`: values travel as text and the server reads them as its own types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asyncpg.types import Type

from noetl.engine.tools.postgres.pools import Pool
from noetl.engine.tools.postgres.problems import BadCommand
from noetl.engine.tools.postgres.target import Connection
from noetl.engine.tools.postgres.values import text_of, types_of
from noetl.engine.tools.sql_split import replace_placeholders


@dataclass(frozen=True)
class Bound:
    """A statement ready to be sent again and again: its text, and for each place the parameter's name and shape."""

    text: str
    names: tuple[str, ...]
    arrays: tuple[bool, ...]
    types: dict[str, str]
    """Those of its columns, as far as JSON cannot tell them."""

    def values(self, params: Mapping[str, Any]) -> list[str | None]:
        """Return the parameters' texts in the order of their places."""
        pairs = zip(self.names, self.arrays, strict=True)
        try:
            return [text_of(params[name], array=array) for name, array in pairs]
        except KeyError:
            raise _without([name for name in self.names if name not in params]) from None


def named(params: Any) -> dict[str, Any]:
    """Return a task's `params` by name; those of a list are called by their numbers."""
    if isinstance(params, Mapping):
        return {str(name): value for name, value in params.items()}
    if isinstance(params, Sequence) and not isinstance(params, str | bytes):
        return {str(place): value for place, value in enumerate(params, 1)}
    raise BadCommand("`params` of a postgres task is a list (for $1, $2) or a mapping (for :name)")


def _without(names: Sequence[str]) -> BadCommand:
    return BadCommand(f"`params` of the postgres task has no value for {', '.join(names)}")


async def bind(connection: Connection, pool: Pool, text: str, params: Mapping[str, Any], *, listed: bool) -> Bound:
    """Return the statement with its placeholders made the server's; asks the server for their types the first time."""
    key = f"{'list' if listed else 'names'} {text}"
    found: Bound | None = pool.bound.get(key)
    if found is None:
        names: list[str] = []
        numbered = _numbered(text, names, listed=listed)
        types: Sequence[Type] = ()
        columns: dict[str, str] = {}
        if names:
            missing = [name for name in names if name not in params]
            if missing:
                raise _without(missing)
            prepared = await connection.prepare(numbered, name="")
            types, columns = prepared.get_parameters(), types_of(prepared.get_attributes())
        casts = [_cast(kind) for kind in types]
        sent = replace_placeholders(numbered, lambda match: _replaced_number(match, casts))
        found = Bound(sent, tuple(names), tuple(kind.kind == "array" for kind in types), columns)
        if len(pool.bound) >= 1000:
            pool.bound.clear()
        pool.bound[key] = found
    return found


def _numbered(text: str, names: list[str], *, listed: bool) -> str:
    """Return the text with `$n` for every placeholder, and fill in the names in the order of their numbers."""
    following = 0

    def number(match: re.Match[str]) -> str:
        nonlocal following
        name = match["number"] if listed else match["colon"] or match["percent"]
        if listed and match["next"]:
            following += 1
            name = str(following)
        if name is None:
            return match.group()
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return replace_placeholders(text, number)


def _replaced_number(match: re.Match[str], casts: Sequence[str]) -> str:
    number = match["number"]
    if number is None or int(number) > len(casts):
        return match.group()
    return casts[int(number) - 1].format(f"${number}::text")


def _cast(kind: Type) -> str:
    if kind.schema == "pg_catalog" and kind.name in ("text", "varchar", "unknown"):
        return "{}"
    if kind.name == "bytea":
        return "decode({}, 'base64')"
    array = kind.kind == "array"
    name = (
        (kind.name.removesuffix("[]") if array else kind.name).replace('"', '""').replace("{", "{{").replace("}", "}}")
    )
    return f'{{}}::"{kind.schema}"."{name}"' + ("[]" if array else "")
