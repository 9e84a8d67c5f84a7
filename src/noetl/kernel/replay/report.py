"""What a verification found: the sums of both sides, the first differences, and how far the projections have come."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.model.mark import Mark
from noetl.model.stream import Scope


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as the events say."""

    where: str
    """A projection, or what else was compared: `stream`, `shard`, `idempotency_key`, `event_archive`, `payload`, `dataset`."""
    id: str
    field: str
    expected: Any
    """What follows from the events."""
    found: Any

    def sentence(self) -> str:
        """Say it to a person."""
        return f"{self.where} {self.id}: {self.field} should be {_shown(self.expected)} and is {_shown(self.found)}"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One projection, folded from the ledger and as it is stored."""

    projection: str
    expected_rows: int
    found_rows: int
    expected: str
    found: str
    equal: bool
    store: str = "default"
    """The projection store it is kept in."""


class StoreCompared(msgspec.Struct, frozen=True, kw_only=True):
    """A projection store beside the default one, and where it was compared."""

    store: str
    mark: Mark
    events: int
    lag: int


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one verification."""

    scope: Scope
    execution_id: int | None
    mark: Mark
    """The checkpoints of the projections that were compared, in the default store."""
    events: int
    """Events folded."""
    lag: int
    """Events of all organizations that were not projected yet, where most are missing; they were not compared."""
    projections: list[Compared]
    differences: list[Difference]
    payloads: int | None = None
    """Payloads whose stored bytes were proven, when that was asked for."""
    files: int | None = None
    """Files of datasets that were looked at; none where one execution was verified."""
    file_bytes: int = 0
    files_hashed: bool = False
    """Whether every file was hashed; otherwise size and time or ETag were compared, and those hashed that differ in it."""
    stores: list[StoreCompared] = []
    """The stores beside the default one, each compared at its own checkpoints."""
    not_folded: str | None = None
    """Why no projection was compared, where the history that they follow from was removed for good."""

    @property
    def clean(self) -> bool:
        """Whether everything is as the events say."""
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values, ids as text."""
        return {
            "tenant_id": self.scope.tenant_id,
            "organization_id": self.scope.organization_id,
            "execution_id": None if self.execution_id is None else str(self.execution_id),
            "clean": self.clean,
            "mark": self.mark.token(),
            "events": self.events,
            "lag": self.lag,
            "not_folded": self.not_folded,
            "payloads": self.payloads,
            "files": self.files,
            "file_bytes": self.file_bytes,
            "files_hashed": self.files_hashed,
            "projections": msgspec.to_builtins(self.projections),
            "stores": [
                {"store": one.store, "mark": one.mark.token(), "events": one.events, "lag": one.lag}
                for one in self.stores
            ],
            "differences": msgspec.to_builtins(self.differences),
        }


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:197]}..."
