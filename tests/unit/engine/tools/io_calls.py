"""Calls as a worker makes them, for the tests of the tools that speak to servers and databases."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from noetl.engine.tools.port import Call, Credential
from noetl.errors import NotFound
from noetl.model.stream import Scope


class KnownCredentials:
    """Credentials a test made up."""

    def __init__(self, known: Mapping[str, Credential]) -> None:
        self._known = known

    async def credential(self, name: str) -> Credential:
        if name not in self._known:
            raise NotFound(f"there is no credential {name}")
        return self._known[name]


class SharedResources:
    """What a worker's calls share, closed at the end of the test."""

    def __init__(self) -> None:
        self.kept: dict[tuple[Any, ...], Any] = {}

    async def get(self, key: tuple[Any, ...], make: Callable[[], Awaitable[Any]]) -> Any:
        if key not in self.kept:
            self.kept[key] = await make()
        return self.kept[key]

    async def aclose(self) -> None:
        for resource in self.kept.values():
            closing = (getattr(resource, "aclose", None) or resource.close)()
            if inspect.isawaitable(closing):
                await closing


class NoPayloads:
    """No tool here stores anything."""

    async def store(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is to be stored")

    async def fetch(self, ref: Any) -> bytes:
        raise AssertionError("nothing is to be fetched")


class Caller:
    """Makes calls that share resources."""

    def __init__(self, kind: str, auth: Any = None, credentials: Mapping[str, Credential] | None = None) -> None:
        self.kind, self.auth = kind, auth
        self.credentials = KnownCredentials(credentials or {})
        self.resources = SharedResources()

    def call(
        self,
        *,
        auth: Any = None,
        limit: float | None = None,
        key: str = "key-1",
        execution_id: int = 1,
        **options: Any,
    ) -> Call:
        return Call(
            kind=self.kind,
            options=options,
            input={},
            auth=self.auth if auth is None else auth,
            scope={},
            timeout=limit,
            key=key,
            owner=Scope("acme", "main"),
            execution_id=execution_id,
            credentials=self.credentials,
            payloads=NoPayloads(),
            resources=self.resources,
        )

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.resources.aclose()
