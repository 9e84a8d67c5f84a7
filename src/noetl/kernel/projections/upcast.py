"""Upcasters: an event in an old schema goes in, the same fact in the newest schema comes out. Pure, step by step.

The ledger is never rewritten. A schema that changes gets the next version and a function from the version before, and
everything that reads events sees only the newest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.errors import InputError, Unsupported
from noetl.model.canonical import digest_of
from noetl.model.catalogue import EVENT_TYPES
from noetl.model.event import FIXED_FIELDS, Event

Upcaster = Callable[[Event], Event]

_BUILT_IN: Final = {kind.schema_name: kind.version for kind in EVENT_TYPES}


class Upcasters:
    """The registered upcasters, by schema name and version."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcaster] = {}
        # The newest version of each schema whose versions are known; a user's schema without upcasters is not.
        self._newest = dict(_BUILT_IN)

    def register(self, schema_name: str, from_version: int, upcaster: Upcaster) -> None:
        """Add the step from one version of a schema to the next."""
        if from_version < 1:
            raise InputError(f"upcaster of {schema_name}: there is no version {from_version}; versions start at 1")
        if (schema_name, from_version) in self._steps:
            raise InputError(f"upcaster of {schema_name}: there is already one from version {from_version}")
        newest = _BUILT_IN.get(schema_name)
        if newest is not None and from_version >= newest:
            raise InputError(f"upcaster of {schema_name}: version {newest} is the newest, so none can start there")
        self._steps[schema_name, from_version] = upcaster
        self._newest[schema_name] = max(self._newest.get(schema_name, 0), from_version + 1)

    def check(self) -> None:
        """Refuse gaps: every old version of a schema that has upcasters must lead to the newest."""
        gaps = [
            f"{name} from version {version}"
            for name in sorted({name for name, _ in self._steps})
            for version in range(1, self._newest[name])
            if (name, version) not in self._steps
        ]
        if gaps:
            raise InputError(f"upcasters are missing: {', '.join(gaps)}")

    def upcast(self, event: Event) -> Event:
        """Return the event in the newest version of its schema."""
        newest = self._newest.get(event.schema_name)
        if newest is None or newest == event.schema_version:
            return event
        if event.schema_version > newest:
            raise Unsupported(
                f"event {event.event_id} has schema {event.schema_name} version {event.schema_version}, "
                f"and this build knows it up to version {newest}",
                hint="upgrade NoETL, or register the upcasters of your newer code here too",
                **_named(event),
            )
        for version in range(event.schema_version, newest):
            event = self._step(event, version)
        return event

    def digest(self) -> str:
        """Return a digest of the registered steps; snapshots carry it, since other steps may give other rows."""
        return digest_of([[name, version, version + 1] for name, version in sorted(self._steps)])

    def _step(self, event: Event, version: int) -> Event:
        upcaster = self._steps.get((event.schema_name, version))
        if upcaster is None:
            raise Unsupported(
                f"event {event.event_id} has schema {event.schema_name} version {version}, "
                "and no upcaster leads from there to the newest",
                **_named(event),
            )
        try:
            changed = upcaster(event)
        except Exception as problem:
            raise InputError(
                f"upcaster of {event.schema_name} from version {version} raised {type(problem).__name__}: {problem}, "
                f"on event {event.event_id} at position {event.position} of shard {event.shard}",
                **_named(event),
            ) from problem
        for field in FIXED_FIELDS:
            if getattr(changed, field) != getattr(event, field):
                raise InputError(
                    f"upcaster of {event.schema_name} from version {version} changed {field}", **_named(event)
                )
        if changed.schema_version != version + 1:
            raise InputError(
                f"upcaster of {event.schema_name} from version {version} returned version {changed.schema_version}",
                hint=f"set schema_version={version + 1} in what it returns",
                **_named(event),
            )
        return changed


def _named(event: Event) -> dict[str, Any]:
    """Return what an error about the event must say of it."""
    return {"event_id": str(event.event_id), "shard": event.shard, "position": event.position}
