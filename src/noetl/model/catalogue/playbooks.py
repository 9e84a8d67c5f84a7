"""The event types of the catalog of playbooks. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.model.event_type import EventType


class CatalogRegistered(msgspec.Struct, frozen=True):
    """Which version of what was registered."""

    path: str
    version: int
    kind: str
    digest: str


PLAYBOOK_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="catalog.registered",
        sentence="A new version of a playbook was registered under its path.",
        aggregate="catalog",
        needs=("catalog_id", "payload_ref"),
        meta=CatalogRegistered,
        opens=("catalog",),
    ),
    EventType(
        name="catalog.removed",
        sentence="A version was taken out of use; executions of it go on.",
        aggregate="catalog",
        needs=("catalog_id",),
        changes=("catalog",),
    ),
    EventType(
        name="catalog.restored",
        sentence="A version that was taken out of use may be used again.",
        aggregate="catalog",
        needs=("catalog_id",),
        changes=("catalog",),
    ),
)
"""In the order a version meets them."""
