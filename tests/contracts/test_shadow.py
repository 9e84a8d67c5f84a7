"""What counts as a proof in the shadow: everything compared and alike; what never came, or came otherwise, is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import msgspec
import pytest

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.stream.encoding import message_of
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.port import EVENTS
from noetl.kernel.stream.write_path.shadow import Divergence, begin_anew, begin_comparing, divergence, verdict
from noetl.model.event import Event
from noetl.model.ids import organization_root_id
from noetl.model.stream import Scope
from noetl.testing.contracts.ledger.contract import IDS
from noetl.testing.engines.short_leases import until
from noetl.testing.engines.write_paths import COMPARE_SECONDS, assert_alike, comparing
from noetl.testing.samples.drafts import PRODUCER, Drafts

pytestmark = pytest.mark.service

SCOPE = Scope("acme", "care")
STREAM = SCOPE.stream("business/thing")


@pytest.fixture
async def mirror() -> AsyncIterator[MemoryStream]:
    """A stream that has what the test puts there; no relay fills it."""
    stream = MemoryStream(EVENTS)
    await stream.open()
    yield stream
    await stream.close()


async def written(ledger: PostgresLedger, count: int) -> list[Event]:
    """Write so many events of one shard and return them as they stand."""
    drafts, root = Drafts(SCOPE, IDS.mint), organization_root_id(SCOPE.tenant_id, SCOPE.organization_id)
    for _ in range(count):
        await ledger.append(STREAM, [drafts.business(STREAM.stream_id, root)])
    return [event async for event in ledger.read(STREAM)][-count:]


async def publish(mirror: MemoryStream, events: Iterable[Event]) -> None:
    await mirror.publish([message_of(event) for event in events])


async def of_the_shard(database: Database) -> Divergence:
    """Return what was found where the test wrote, once the shadow has come to its end."""
    found = await divergence(database, COMPARE_SECONDS)
    return next(one for one in found if one.shard == STREAM.shard)


async def test_nothing_compared_proves_nothing(database: Database, ledger: PostgresLedger) -> None:
    """INV-128."""
    assert await divergence(database) == []
    assert verdict([]) == "unproven"
    await written(ledger, 2)
    await begin_comparing(database)
    found = await divergence(database)
    assert (sum(one.written for one in found), verdict(found)) == (0, "unproven")
    await written(ledger, 3)
    found = await divergence(database)
    assert sum(one.written for one in found) == sum(one.behind for one in found) == 3
    assert verdict(found) == "unproven"


async def test_a_part_of_what_was_written_proves_nothing_until_the_rest_is_compared(
    database: Database, ledger: PostgresLedger, mirror: MemoryStream
) -> None:
    """INV-128."""
    async with comparing(database, mirror):
        events = await written(ledger, 5)
        await publish(mirror, events[:3])

        async def three() -> bool:
            return sum(one.compared for one in await divergence(database)) == 3

        await until(three, "three events being compared")
        found = await divergence(database)
        assert (sum(one.written for one in found), sum(one.behind for one in found)) == (5, 2)
        assert verdict(found) == "unproven"
        await publish(mirror, events[3:])
        assert await assert_alike(database) == 5


@pytest.mark.parametrize("left_out", [{0, 1}, {2}, {1, 3, 4}], ids=["the first ones", "one between", "several"])
async def test_each_event_that_never_came_is_counted_as_missing(
    left_out: set[int], database: Database, ledger: PostgresLedger, mirror: MemoryStream
) -> None:
    """INV-128."""
    async with comparing(database, mirror):
        events = await written(ledger, 6)
        await publish(mirror, [event for number, event in enumerate(events) if number not in left_out])
        found = await of_the_shard(database)
    assert (found.missing, found.equal, found.compared) == (len(left_out), 6 - len(left_out), 6 - len(left_out))
    assert (found.written, found.behind) == (6, 0)
    assert verdict([found]) == "diverges"
    assert found.first is not None
    assert "never came through the stream" in found.first["what"]


async def test_other_bytes_and_events_that_the_ledger_lacks_are_told(
    database: Database, ledger: PostgresLedger, mirror: MemoryStream
) -> None:
    async with comparing(database, mirror):
        first, second, third = await written(ledger, 3)
        other = msgspec.structs.replace(second, producer=f"{PRODUCER}/somebody")
        unknown = msgspec.structs.replace(third, event_id=IDS.mint())
        await publish(mirror, [first, other, unknown])
        found = await of_the_shard(database)
    assert (found.equal, found.different, found.missing, found.compared) == (1, 1, 1, 3)
    assert verdict([found]) == "diverges"
    assert found.first is not None
    assert (found.first["event_id"], found.first["what"]) == (str(second.event_id), "other bytes in producer")


async def test_what_came_twice_is_compared_once(
    database: Database, ledger: PostgresLedger, mirror: MemoryStream
) -> None:
    async with comparing(database, mirror):
        events = await written(ledger, 4)
        await publish(mirror, events)
        assert await assert_alike(database) == 4
        await mirror.wipe()
        await publish(mirror, [*events, *await written(ledger, 1)])
        found = await of_the_shard(database)
        assert (found.redelivered, found.seen, found.compared) == (4, 9, 5)
        assert await assert_alike(database) == 5


async def test_what_was_there_before_the_shadow_began_is_no_miss_and_no_proof(
    database: Database, ledger: PostgresLedger, mirror: MemoryStream
) -> None:
    """INV-128."""
    before = await written(ledger, 4)
    async with comparing(database, mirror):
        # As a stream that forgets its oldest messages has them.
        await publish(mirror, before[2:])

        async def seen() -> bool:
            return sum(one.seen for one in await divergence(database)) == 2

        await until(seen, "what was there before being seen")
        assert verdict(await divergence(database)) == "unproven"
        await publish(mirror, await written(ledger, 2))
        assert await assert_alike(database) == 2
        assert (await of_the_shard(database)).equal == 4


async def test_a_shadow_that_begins_anew_forgets_what_it_found_and_goes_on(
    database: Database, ledger: PostgresLedger, mirror: MemoryStream
) -> None:
    async with comparing(database, mirror):
        events = await written(ledger, 3)
        await publish(mirror, events[1:])
        assert (await of_the_shard(database)).missing == 1
        await begin_anew(database)
        assert verdict(await divergence(database)) == "unproven"
        await publish(mirror, await written(ledger, 2))
        assert await assert_alike(database) == 2
    # A later one goes on where the last began.
    async with comparing(database, mirror):
        assert await assert_alike(database) == 2
