"""The event types of streaming views: deployed, taken by a runner, put into use, dropped. Joined to the others by `catalogue`.

All of a view stands in one stream, `view/<name>`. The rows of a view and its barriers are in none of them: they follow
from the events that the view reads.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.model.event_type import EventType

VIEW_STREAM: Final = "view/"
"""How the streams of views begin; the view's name follows."""


class ViewDeployed(msgspec.Struct, frozen=True):
    """Which version of which view, and up to where it has to come before it is put into use."""

    view: str
    version_id: str
    digest: str
    build: int
    sink: str
    target: str
    code_digest: str = ""
    by: str = ""


class ViewDocument(msgspec.Struct, frozen=True):
    """The view as it was written."""

    document: dict[str, Any]


class ViewActivated(msgspec.Struct, frozen=True):
    """Which version serves, and at which mark it took over."""

    version_id: str
    mark: str


class ViewClaimed(msgspec.Struct, frozen=True):
    """Who runs the version, for how long without a heartbeat."""

    version_id: str
    attempt: int
    worker: str
    lease_token: str
    lease_seconds: int | float


class ViewAttempt(msgspec.Struct, frozen=True):
    """Which run of the version this is about."""

    version_id: str
    attempt: int
    delay_seconds: int | float = 0


class ViewDropped(msgspec.Struct, frozen=True):
    """Who dropped it."""

    view: str
    by: str = ""


VIEWS_TYPES: Final[tuple[EventType, ...]] = (
    EventType(
        name="view.deployed",
        sentence="A version of a view was deployed, to be built beside the one that serves.",
        aggregate="view",
        meta=ViewDeployed,
        context=ViewDocument,
        opens=("view_version",),
        changes=("view_version",),
    ),
    EventType(
        name="view.claimed",
        sentence="A process took the lease to run a version of a view.",
        aggregate="view",
        meta=ViewClaimed,
        changes=("view_version",),
    ),
    EventType(
        name="view.activated",
        sentence="A version of a view took the place of the one that served.",
        aggregate="view",
        meta=ViewActivated,
        changes=("view_version",),
    ),
    EventType(
        name="view.released",
        sentence="A process ended its run of a view in good order.",
        aggregate="view",
        meta=ViewAttempt,
        changes=("view_version",),
    ),
    EventType(
        name="view.attempt_failed",
        sentence="A run of a view failed, and why; another follows.",
        aggregate="view",
        meta=ViewAttempt,
        changes=("view_version",),
    ),
    EventType(
        name="view.dropped",
        sentence="A view was dropped with all its versions.",
        aggregate="view",
        meta=ViewDropped,
        changes=("view_version",),
    ),
)
"""In the order they are met."""
