"""What a tool promises: a rendered call goes in, an outcome comes out. Tools know nothing of steps, leases or events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import msgspec

from noetl.engine.tools.outcome import Outcome
from noetl.language.playbook.model import KeychainEntry
from noetl.language.templates.result_view import View
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope


@dataclass(frozen=True)
class Credential:
    """A named secret, readable only here: `repr` and errors never show its data."""

    name: str
    type: str
    data: Mapping[str, Any] = field(repr=False)


class Credentials(Protocol):
    """Where tools get credentials from."""

    async def credential(self, name: str) -> Credential:
        """Return a credential of this organization by name; `NotFound` when there is none."""
        ...


ReadSecret = Callable[[KeychainEntry], Awaitable[Mapping[str, Any]]]
"""Returns the fields of a secret outside NoETL; they are redacted from everything that leaves the worker from then on."""


class Settle(Protocol):
    """Settles something outside; called once."""

    async def __call__(self, *, recorded: bool) -> None:
        """Do so: `recorded` if the step ended well and that is in the ledger, not so whatever else became of it."""
        ...


class Settling(Protocol):
    """What tasks leave to be done outside after the end of their step."""

    def add(self, settle: Settle) -> None:
        """Have something settled then."""
        ...


class Payloads(Protocol):
    """The payload store, bound to the organization of the call."""

    async def store(
        self, data: bytes, media_type: str, *, rows: int | None = None, schema_digest: str | None = None
    ) -> PayloadRef:
        """Keep bytes and return their reference."""
        ...

    async def fetch(self, ref: PayloadRef) -> bytes:
        """Return the bytes of a reference."""
        ...

    async def view(self, ref: PayloadRef) -> memoryview:
        """Return the bytes of a reference where they lie, for use in this process."""
        ...

    async def find(self, locator: str) -> PayloadRef:
        """Return the reference that `noetl://tenant/…/payloads/sha256/…` stands for.

        InputError for what is no payload of this organization, NotFound where no event refers to it.
        """
        ...


class Resources(Protocol):
    """What a worker's tools share and the worker closes at its end, such as connection pools, by a key of the tool's own."""

    async def get(self, key: tuple[Any, ...], make: Any) -> Any:
        """Return the resource under a key; the first asker's `make()` (a coroutine function) makes it, once.

        A resource with an `aclose()` or `close()` is closed with the worker.
        """
        ...


class Held(View):
    """A name of the scope of which only a part is at hand; code that asks for it gets the whole, fetched then."""

    __slots__ = ("_fetch", "_whole")

    def __init__(self, part: View, fetch: Callable[[], Awaitable[View]]) -> None:
        super().__init__(part.value, before=part.before, beside=part.beside)
        self._fetch = fetch
        self._whole: View | None = None

    async def whole(self) -> View:
        """Return all of it."""
        if self._whole is None:
            self._whole = await self._fetch()
        return self._whole


class Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One try at a task with everything rendered.

    `options` are the task's own fields, `input` its bindings, `views` those of them that are results as a whole, with the
    names beside them, `scope` the names templates see (for code that asks for
    them by name; one may be `Held`). `key` names the effect: the same for every try at the same task of the same row, so a tool whose
    target understands idempotency keys can pass it on. `timeout` is in seconds and binding for the caller too: a tool
    still running then is cancelled, unless it says that it keeps the time by itself.
    """

    kind: str
    options: Mapping[str, Any]
    input: Mapping[str, Any]
    auth: Any
    scope: Mapping[str, Any]
    timeout: float | None
    key: str
    owner: Scope
    execution_id: int
    credentials: Credentials
    payloads: Payloads
    resources: Resources
    views: Mapping[str, View] = MappingProxyType({})
    secret: ReadSecret | None = None
    settling: Settling | None = None
    """What is to be done once the end of the step is recorded; None in a loop, whose rows have no end of their own."""


class Tool(Protocol):
    """One kind of task. Instances are shared by all calls of a worker and hold no state of a call.

    One whose `keeps_time` is true always ends within the timeout of its call and says so in words of its own.
    """

    kind: ClassVar[str]

    async def run(self, call: Call) -> Outcome:
        """Do the work and say how it ended.

        Whatever the outside world does wrong is an outcome with a problem, never an exception; an exception is a
        defect of the tool and becomes the problem `unknown`. When cancelled, stop the work for real (close the
        connection, cancel the query, kill the process) and let `CancelledError` through. Never block the event loop.
        """
        ...
