"""Messages that nobody of this installation signed: they are counted, and never written, and nothing waits behind them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.faults.write_path.stream_writer import open_writer, settings_of

from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.stream.encoding import fact_message
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.nats.stream import NatsStream, StreamLimits
from noetl.kernel.stream.port import WRITES, Message
from noetl.kernel.stream.signed import HEADER, MacKey, SignedStream, signed
from noetl.runtime.nats.login import nats_connection
from noetl.runtime.streams.opening import stream_name
from noetl.runtime.write_path.message_keys import StreamKeys

OURS, OLD, THEIRS = MacKey("ours", b"1" * 32), MacKey("old", b"2" * 32), MacKey("ours", b"3" * 32)


class Keys:
    """Two keys, the newer one first."""

    def signing(self) -> MacKey:
        return OURS

    def named(self, name: str) -> MacKey | None:
        return {"ours": OURS, "old": OLD}.get(name)


def message(number: int, shard: int = 3) -> Message:
    return Message("default", 7, shard, f"m{number}", b'{"event_id": %d}' % number)


def moved(one: Message, **changes: object) -> Message:
    return msgspec.structs.replace(one, **changes)


async def test_only_what_a_key_of_ours_signed_for_this_place_is_given_with_its_body() -> None:
    """INV-199."""
    inner, refused = MemoryStream(WRITES), list[int]()
    stream = SignedStream(inner, Keys(), refused.append)
    await stream.open()
    await stream.publish([message(1)])
    genuine = signed(WRITES, message(2), OURS)
    forged = [
        message(3),
        moved(message(4), headers={HEADER: "ours " + "0" * 64}),
        moved(message(5), headers={HEADER: "nobody " + "0" * 64}),
        signed(WRITES, message(6), THEIRS),
        signed("noetl_events", message(7), OURS),
        moved(genuine, message_id="m8", body=b'{"event_id": 8}'),
        moved(genuine, message_id="m9"),
        moved(genuine, message_id="m2", shard=4),
    ]
    await inner.publish([*forged, signed(WRITES, message(10), OLD)])
    reader = await stream.subscribe("reader")
    given = await reader.fetch(100, 1.0)
    assert len(given) == len(forged) + 2
    assert {one.message.body for one in given if one.message.body} == {b'{"event_id": 1}', b'{"event_id": 10}'}
    assert refused == [len(forged)]
    await reader.acknowledge(given)
    assert await reader.lag() == 0


@pytest.mark.service
async def test_a_forged_event_is_not_written_and_the_next_one_is(
    owner_url: str,
    tmp_path: Path,
    nats_url: str,
    stream_prefix: str,
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INV-199: an attacker who can publish to the server's stream adds nothing to the ledger."""
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix)
    connection = nats_connection(settings)
    attacker = NatsStream(connection, stream_name(settings, "writes"), StreamLimits())
    async with open_writer(settings) as writer:
        forged, genuine = writer.fact("forged"), writer.fact("genuine")
        body = fact_message(forged.stream, forged.stream.shard, forged)
        other = MacKey(StreamKeys(settings).signing().name, b"x" * 32)
        await attacker.publish([moved(body, message_id="a"), signed(attacker.name, moved(body, message_id="b"), other)])
        broken = moved(body, message_id="c", body=b"no row at all")
        await attacker.publish([broken, moved(body, message_id="d", shard=genuine.stream.shard)])
        await writer.facts.record(genuine)
    # At its end a writer waits until all that was acknowledged is in the ledger.
    assert await _written(database) == [genuine.event_id]
    assert "carry no MAC of this installation" in caplog.text
    await connection.close()


async def _written(database: Database) -> list[int]:
    async with database.transaction(None, "projector") as connection:
        rows = await connection.fetch("SELECT event_id FROM noetl.event WHERE event_type LIKE 'business.%'")
    return [row["event_id"] for row in rows]
