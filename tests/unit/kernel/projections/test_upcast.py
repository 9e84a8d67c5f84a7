"""Upcasters: old schemas become the newest, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from tests.properties.histories import NOTE_ADDED, Chronicle, changed

from noetl.errors import InputError, Unsupported
from noetl.kernel.projections.upcast import Upcasters
from noetl.model.event import Event

NOTE = "acme.note"


@pytest.fixture
def note() -> Event:
    return Chronicle().add(NOTE_ADDED, schema_name=NOTE, meta={"text": "hello"})


def step(event: Event, **fields: Any) -> Event:
    return changed(event, schema_version=event.schema_version + 1, **fields)


def test_steps_are_taken_in_order_whatever_the_order_of_registration(note: Event) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 2, lambda event: step(event, meta={**event.meta, "path": event.meta["path"] + "-3"}))
    upcasters.register(NOTE, 1, lambda event: step(event, meta={**event.meta, "path": "1-2"}))
    upcasters.check()
    newest = upcasters.upcast(note)
    assert (newest.schema_version, newest.meta) == (3, {"text": "hello", "path": "1-2-3"})
    assert upcasters.upcast(newest) is newest


def test_events_start_at_their_own_version(note: Event) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 1, lambda event: step(event, error="never taken"))
    upcasters.register(NOTE, 2, step)
    assert upcasters.upcast(changed(note, schema_version=2)).error is None


def test_a_schema_without_upcasters_passes_untouched(note: Event) -> None:
    assert Upcasters().upcast(note) is note
    newer = changed(note, schema_version=7)
    assert Upcasters().upcast(newer) is newer


def test_a_gap_is_found_by_the_check_and_on_use(note: Event) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 3, step)
    with pytest.raises(InputError, match=r"missing: acme\.note from version 1, acme\.note from version 2"):
        upcasters.check()
    with pytest.raises(Unsupported, match="no upcaster leads from there"):
        upcasters.upcast(note)


def test_no_upcasters_have_no_gaps() -> None:
    Upcasters().check()


def test_a_version_newer_than_known_is_refused(note: Event) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 1, step)
    with pytest.raises(Unsupported, match=r"acme\.note version 9, and this build knows it up to version 2"):
        upcasters.upcast(changed(note, schema_version=9))


@pytest.mark.parametrize(
    ("schema", "version", "why"),
    [
        (NOTE, 0, "versions start at 1"),
        (NOTE, 1, "already one from version 1"),
        ("noetl.frame.committed", 1, "version 1 is the newest"),
    ],
)
def test_a_registration_that_cannot_work_is_refused(schema: str, version: int, why: str) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 1, step)
    with pytest.raises(InputError, match=why):
        upcasters.register(schema, version, step)


def test_an_upcaster_must_return_the_next_version(note: Event) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 1, lambda event: event)
    with pytest.raises(InputError, match="returned version 1") as caught:
        upcasters.upcast(note)
    assert caught.value.hint == "set schema_version=2 in what it returns"


def test_an_upcaster_may_not_move_an_event(note: Event) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 1, lambda event: step(event, position=event.position + 1))
    with pytest.raises(InputError, match="changed position"):
        upcasters.upcast(note)


def test_an_upcaster_that_raises_is_named_with_its_event(note: Event) -> None:
    upcasters = Upcasters()
    upcasters.register(NOTE, 1, lambda event: step(event, error=event.meta["missing"]))
    with pytest.raises(
        InputError, match=f"raised KeyError: 'missing', on event {note.event_id} at position 1"
    ) as caught:
        upcasters.upcast(note)
    assert caught.value.details == {"event_id": str(note.event_id), "shard": note.shard, "position": 1}


def test_the_digest_tells_registrations_apart_and_not_their_order() -> None:
    one, other, more = Upcasters(), Upcasters(), Upcasters()
    for upcasters, versions in ((one, (1, 2)), (other, (2, 1)), (more, (1, 2, 3))):
        for version in versions:
            upcasters.register(NOTE, version, step)
    assert one.digest() == other.digest()
    assert len({one.digest(), more.digest(), Upcasters().digest()}) == 3
