"""What a secret provider promises: the name of a secret goes in, its fields come out as text. Providers keep nothing."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from noetl.errors import InputError, Unsupported
from noetl.kernel.outgoing.guard import ANYWHERE, Reach
from noetl.model.stream import Scope

WHOLE = "value"
"""The field of a secret that is one text and no JSON object."""


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """How to fetch: who asks the provider, in which region, which version, and what only one provider knows."""

    identity: Mapping[str, Any] | None = field(default=None, repr=False)
    """The data of the credential to log in with; None uses the identity of this process."""
    scope: Scope | None = None
    """Whose secret it is: each organization has few fetches under way."""
    reach: Reach = ANYWHERE
    """Where the provider may be."""
    region: str | None = None
    version: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def text(self, name: str) -> str | None:
        """Return one of the further options as text, or None when it is not given."""
        value = self.more.get(name)
        return None if value in (None, "") else str(value)


class SecretProvider(Protocol):
    """A store of secrets outside NoETL."""

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a secret; one that is plain text has the single field `value`.

        `NotFound` when there is none, `Denied` when the identity may not read it, `Unavailable` when the provider does
        not answer, `Unsupported` when its client is not installed. No error ever quotes a secret or what a server said.
        """
        ...


def fields_of(text: str) -> dict[str, str]:
    """Return a secret's text as fields: those of a JSON object, or the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return {WHOLE: text}
    if not isinstance(value, dict) or not value:
        return {WHOLE: text}
    return {key: item if isinstance(item, str) else json.dumps(item) for key, item in value.items()}


def client_library(module: str, extra: str) -> Any:
    """Import the client of a provider, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        # A package within the client that is missing is a broken installation, not a choice.
        if missing.name is None or not (module + ".").startswith(missing.name + "."):
            raise
        raise Unsupported(
            f"secrets of this provider need the package {module.partition('.')[0]!r}, which is not installed",
            hint=f"pip install 'noetl[{extra}]'",
        ) from None


def needed(identity: Mapping[str, Any], *names: str, what: str) -> str:
    """Return the first of some fields that a credential has, or say that it lacks it."""
    for name in names:
        if identity.get(name):
            return str(identity[name])
    raise InputError(f"the credential for {what} has no {names[0]}")
