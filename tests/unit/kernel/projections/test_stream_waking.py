"""A stream that wakes a projector: news in, acknowledged once projected, and polling while the stream is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noetl.errors import Unavailable
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.projections.wakeups import StreamListener, StreamWaking, durable_of, far_durables_of
from noetl.kernel.stream.encoding import message_of
from noetl.kernel.stream.memory import MemoryStream
from noetl.kernel.stream.port import EventStream, StreamState
from noetl.kernel.stream.subjects import checked_durable
from noetl.model.mark import Mark
from noetl.model.stream import SHARD_COUNT
from noetl.testing.samples.projected_ledger import HOME, a_run, record


class Quiet:
    """Says that it is time to look, as often as it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def wait(self) -> set[int] | None:
        self.asked += 1
        return None


class Away(MemoryStream):
    """A stream whose server does not answer."""

    async def open(self) -> StreamState:
        raise Unavailable("nobody there")


@asynccontextmanager
async def waking(
    stream: EventStream, at: list[int], quiet: Quiet
) -> AsyncIterator[tuple[StreamWaking, StreamListener]]:
    @asynccontextmanager
    async def otherwise() -> AsyncIterator[Quiet]:
        yield quiet

    async def checkpoints() -> Mark:
        return Mark(at)

    made = StreamWaking(stream, durable_of("noetl-projector-0"), checkpoints, otherwise)
    async with made.listen() as listener:
        yield made, listener


async def published(stream: EventStream) -> int:
    """Publish the events of a run as a relay does and return the run's shard."""
    ledger, run = MemoryLedger(), a_run(HOME)
    run = [draft for draft in run if draft.stream_id.startswith("execution/")]
    await record(ledger, run)
    shard = run[0].stream.shard
    await stream.publish([message_of(event) async for event in ledger.read_shard(shard)])
    return shard


async def test_news_of_held_shards_wakes_and_is_acknowledged_once_projected() -> None:
    stream, at, quiet = MemoryStream("noetl_events"), [0] * 16, Quiet()
    await stream.open()
    async with waking(stream, at, quiet) as (made, listener):
        assert (await listener.wait(), quiet.asked) == (None, 1), "without shards there is nothing to hear of"
        made.hold(range(16))
        listener._poll_seconds = 0.01
        assert await listener.wait() is None, "it hears from now on"
        shard = await published(stream)
        assert await listener.wait() == {shard}
        assert await listener.wait() is None
        own = listener._subscription
        assert own is not None
        assert await own.lag() == 13, "nothing of it is projected yet"
        at[shard] = 4
        await listener.wait()
        assert await own.lag() == 9
        at[shard] = 100
        await listener.wait()
        assert await own.lag() == 0


async def test_a_stream_that_is_away_leaves_the_waking_to_others() -> None:
    quiet = Quiet()
    async with waking(Away("noetl_events"), [0] * 16, quiet) as (made, listener):
        made.hold({1, 2})
        assert await listener.wait() is None
        assert quiet.asked == 0
        assert await listener.wait() is None
        assert quiet.asked == 1, "for a while it is not even tried"


@pytest.mark.parametrize(
    ("name", "durable"),
    [
        ("noetl-projector-0", "projector-noetl-projector-0"),
        ("a.b:c", "projector-a_2eb_3ac"),
        ("a_b", "projector-a_5fb"),
        ("größe", "projector-gr_c3_b6_c3_9fe"),
    ],
)
def test_a_projector_has_one_durable_name(name: str, durable: str) -> None:
    assert durable_of(name) == durable


NAMES = st.text("ab.:_-2e5f", min_size=1, max_size=128)
OWNERS = st.one_of(
    st.tuples(st.just("projector"), NAMES, st.none() | NAMES),
    st.tuples(st.just("far"), NAMES, st.integers(0, SHARD_COUNT - 1)),
)


def reader_of(owner: tuple[str, str, str | int | None]) -> str:
    """Return the durable of a projector's store, or of a far side's shard."""
    role, name, part = owner
    if role == "far":
        return f"{far_durables_of(name)}-{part}"
    assert not isinstance(part, int)
    return durable_of(name, part)


@example({("projector", "x.y", None), ("projector", "x_y", None), ("projector", "x:y", None)})
@example({("projector", "p-x", None), ("projector", "p", "x"), ("projector", "p_x", None)})
@example({("projector", "west-3", None), ("far", "west", 3), ("projector", "far-west-3", None)})
@example({("projector", "n" * 127 + "a", None), ("projector", "n" * 127 + "b", None), ("far", "." * 128, 15)})
@given(st.sets(OWNERS, min_size=2))
def test_no_two_share_a_durable_and_every_stream_takes_its_name(
    owners: set[tuple[str, str, str | int | None]],
) -> None:
    """INV-146."""
    durables = {reader_of(owner) for owner in owners}
    assert len(durables) == len(owners)
    assert all(checked_durable(durable) for durable in durables)
