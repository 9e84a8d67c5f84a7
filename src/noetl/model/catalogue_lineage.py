"""The event types of which column comes from which. Joined to the others by `catalogue`."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.model.event_type import EventType
from noetl.model.lineage import How


class LineageSet(msgspec.Struct, frozen=True):
    """Whose lineage it is, and who said so."""

    dataset_uuid: str
    dataset_version: str
    lineage_hash: str
    how: How
    version: int
    """Counted from 1 within the generation."""


LINEAGE_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="dataset.lineage_set",
        sentence="It was recorded which columns of a generation come from which.",
        aggregate="dataset",
        needs=("node_name",),
        meta=LineageSet,
    ),
)
"""In the order they are met."""
