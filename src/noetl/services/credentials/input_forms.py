"""Credentials as users write them: a JSON file, a JSON object or single fields go in, one form comes out.

Errors say where a text is wrong, never what it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from noetl.errors import InputError

_KNOWN = frozenset({"name", "type", "data", "description", "tags", "meta"})


class GivenCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential before it is kept; `repr` does not show its data."""

    name: str
    type: str
    data: dict[str, Any]
    description: str | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"GivenCredential({self.name!r}, {self.type!r})"


def parse_object(text: str, place: str) -> dict[str, Any]:
    """Return the JSON object in a text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        raise InputError(f"{place} is not JSON: line {problem.lineno}, column {problem.colno}") from None
    if not isinstance(value, dict):
        raise InputError(f"{place} is not a JSON object")
    return value


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return fields that were given as FIELD=VALUE."""
    found = {}
    for pair in pairs:
        field, sign, value = pair.partition("=")
        if not sign or not field:
            raise InputError(
                "a field is given as FIELD=VALUE", hint="the value may be empty, the sign may not be left out"
            )
        found[field] = value
    return found


def given_credential(written: dict[str, Any], **instead: Any) -> GivenCredential:
    """Return a credential from a user's object; what is given apart from it comes first."""
    unknown = sorted(set(written) - _KNOWN)
    if unknown:
        raise InputError(
            f"a credential has no {', '.join(unknown)}",
            hint=f"its parts are {', '.join(sorted(_KNOWN))}; secrets go into data",
        )
    values = {**written, **{key: value for key, value in instead.items() if value}}
    missing = [part for part in ("name", "type", "data") if not values.get(part)]
    if missing:
        raise InputError(f"the credential has no {' and no '.join(missing)}")
    if isinstance(values.get("tags"), str):
        values["tags"] = [values["tags"]]
    shapes = {"name": str, "type": str, "data": dict, "description": str, "tags": list | tuple, "meta": dict}
    wrong = [
        part for part, shape in shapes.items() if values.get(part) is not None and not isinstance(values[part], shape)
    ]
    if wrong:
        raise InputError(
            f"the credential's {', '.join(wrong)} is of the wrong kind", hint="data and meta are objects, tags a list"
        )
    values["tags"] = tuple(str(tag) for tag in values.get("tags") or ())
    return GivenCredential(**values)
