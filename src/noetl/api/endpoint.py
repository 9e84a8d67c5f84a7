"""Declarations of routes: a handler's signature goes in, and what the server, the admission and the OpenAPI page need comes out.

A handler takes `call`, the parameters of its path by name, and, where it has them, `query` and `body`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_type_hints
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from noetl.api.services import Services
from noetl.errors import InputError, NotFound
from noetl.model.stream import Scope
from noetl.pipelines.pipelines import Pipelines
from noetl.services.credentials.secret import Secret
from noetl.services.credentials.tokens import OrganizationRole, Role

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

ANYONE: frozenset[Role] = frozenset(get_args(OrganizationRole))
"""Whoever has a role in an organization; an operator has none."""
READERS: frozenset[Role] = frozenset({"reader", "writer", "admin"})
WRITERS: frozenset[Role] = frozenset({"writer", "admin"})
ADMINS: frozenset[Role] = frozenset({"admin"})
WORKERS: frozenset[Role] = frozenset({"worker", "admin"})
ONLY_WORKERS: frozenset[Role] = frozenset({"worker"})
"""For what has sealed secrets in its answer, which no person is given."""
OPERATORS: frozenset[Role] = frozenset({"operator"})

READ_TOKEN = "noetl-read-token"  # noqa: S105 - the name of a header
"""The header in which a read names the write that it must see."""

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_LONGEST_KEY = 200


@dataclass(frozen=True)
class Caller:
    """Who calls: an organization, what it may do, and its name in the events it causes."""

    scope: Scope
    roles: frozenset[Role]
    name: str
    token_id: UUID | None = None
    """The token that was shown, if one was."""
    shared: Secret | None = None
    """What nobody but the caller and this server knows, to seal secrets with."""


@dataclass(frozen=True)
class Call:
    """One request after admission."""

    services: Services
    caller: Caller
    request: Request
    still_admitted: Callable[[], Awaitable[None]]
    """Refuses the caller if it would not be admitted any more: tokens are made and end while a request waits."""

    @property
    def scope(self) -> Scope:
        """The caller's organization; nothing in a request can name another."""
        return self.caller.scope

    def pipelines(self) -> Pipelines:
        """Return the pipelines of the caller's organization, or refuse where this server has none."""
        known = self.services.pipelines
        if known is None:
            raise NotFound("this server builds no datasets", hint="ask one that was started with pipelines")
        return Pipelines(self.scope, known.dags, known.datasets, known.engine)

    @property
    def key(self) -> str | None:
        """The caller's idempotency key."""
        key = self.request.headers.get("idempotency-key")
        if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isprintable() and key.isascii()):
            raise InputError(f"Idempotency-Key must be 1 to {_LONGEST_KEY} printable ASCII characters")
        return key


@dataclass(frozen=True)
class Answer:
    """A handler's value with a status or headers of its own."""

    value: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One route."""

    method: str
    path: str
    noun: str
    handle: Callable[..., Awaitable[Any]]
    roles: frozenset[Role] | None
    """Who may call it; None where nobody is asked for a token."""
    parameters: dict[str, type]
    query: Any
    body: Any
    answer: Any
    """The type of what it answers with: what is encoded, and described in OpenAPI."""
    status: int
    keyed: bool
    """Whether it heeds an Idempotency-Key."""
    repeatable: bool
    """Whether the same request again comes to the same, so that a key has nothing to add."""
    body_optional: bool
    waits: bool
    """Whether it may wait for long, so that its caller is looked at again before it is answered."""
    media_type: str
    reads_body: bool
    """Whether the handler reads the body itself, as bytes."""

    @property
    def refuses_key(self) -> bool:
        """Whether a key would not keep a request from being done twice, and is refused for that."""
        return not (self.keyed or self.repeatable)

    @property
    def needs_proof(self) -> bool:
        """Whether it gives rights or secrets away, for which it is not enough to be a process of the server's account."""
        return self.roles == ADMINS and self.method != "GET"

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return _PARAMETER.sub(r"{\1}", self.path)

    @property
    def name(self) -> str:
        """The operation's id."""
        return self.handle.__name__

    @property
    def sentence(self) -> str:
        """What it does, from the handler's docstring."""
        return inspect.getdoc(self.handle) or ""


class Routes:
    """The routes of one noun, in the order of their declaration."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.endpoints: list[Endpoint] = []

    def get(self, path: str, roles: frozenset[Role] | None, **options: Any) -> Callable[[Handler], Handler]:
        """Declare a GET."""
        return self._declare("GET", path, roles, **options)

    def post(self, path: str, roles: frozenset[Role] | None, **options: Any) -> Callable[[Handler], Handler]:
        """Declare a POST."""
        return self._declare("POST", path, roles, **options)

    def delete(self, path: str, roles: frozenset[Role] | None, **options: Any) -> Callable[[Handler], Handler]:
        """Declare a DELETE."""
        return self._declare("DELETE", path, roles, **options)

    def _declare(
        self,
        method: str,
        path: str,
        roles: frozenset[Role] | None,
        *,
        status: int = 200,
        keyed: bool = False,
        repeatable: bool = False,
        waits: bool = False,
        media_type: str = "application/json",
        reads_body: bool = False,
    ) -> Callable[[Handler], Handler]:
        def declare(handle: Handler) -> Handler:
            hints = get_type_hints(handle, include_extras=True)
            names = _PARAMETER.findall(path)
            signature = inspect.signature(handle)
            self.endpoints.append(
                Endpoint(
                    method=method,
                    path=path,
                    noun=self.noun,
                    handle=handle,
                    roles=roles,
                    parameters={name: hints[name] for name in names},
                    query=hints.get("query"),
                    body=_only(hints.get("body"), type(None)),
                    answer=_only(hints.get("return"), Answer, Response),
                    status=status,
                    keyed=keyed,
                    # What a worker sends twice is fenced by its lease, and what GET and DELETE do stays done.
                    repeatable=repeatable or method != "POST" or roles in (WORKERS, ONLY_WORKERS),
                    body_optional="body" in hints and signature.parameters["body"].default is None,
                    waits=waits,
                    media_type=media_type,
                    reads_body=reads_body,
                )
            )
            return handle

        return declare


def _only(kind: Any, *others: type) -> Any:
    """Return what a union has besides a body that is left out, or an answer with a status or bytes of its own."""
    return next((option for option in get_args(kind) if option not in others), kind)
