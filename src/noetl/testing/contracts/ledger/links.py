"""The part of the ledger's contract about links: each call leaves one per shard, and they cover every event as it stands."""

from __future__ import annotations

import asyncio
from typing import Any

from noetl.kernel.ledger.chain.links import NO_LINK, Link
from noetl.kernel.ledger.normalizer import leaf_of
from noetl.model.stream import SHARD_COUNT
from noetl.testing.samples.drafts import Drafts


async def chain_of(ledger: Any, shard: int) -> list[Link]:
    """Return the links of a shard, after proving that they are one chain over the events that stand there."""
    found = [link async for page in ledger.links(shard) for link in page]
    previous, position = NO_LINK, 1
    events = [event async for event in ledger.read_shard(shard)]
    for link in found:
        assert link.is_whole
        assert (link.shard, link.first_position) == (shard, position)
        assert link.link == link.after(previous)
        held = events[position - 1 : link.last_position]
        assert [link.leaf(event.position) for event in held] == [leaf_of(event) for event in held]
        assert [link.ingest_time(event.position) for event in held] == [event.ingest_time for event in held]
        assert list(link.stream_versions()) == [event.stream_version for event in held]
        previous, position = link.link, link.last_position + 1
    assert position == len(events) + 1
    return found


class LinkContract:
    """Tests for any ledger, which must be empty when a test begins."""

    async def test_every_append_leaves_a_link_that_covers_its_events(self, ledger: Any, drafts: Drafts) -> None:
        """INV-203."""
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 3)
        await ledger.append(items[0].stream, items[:2])
        await ledger.append(items[0].stream, items[2:])
        chain = await chain_of(ledger, items[0].stream.shard)
        assert chain[-1].last_position == 3
        within = [link async for page in ledger.links(items[0].stream.shard, 2, 2) for link in page]
        assert len(within) == 1
        assert within[0].first_position <= 2 <= within[0].last_position

    async def test_concurrent_appends_leave_whole_chains(self, ledger: Any, drafts: Drafts) -> None:
        """INV-203."""
        runs = [drafts.loop_items(drafts.mint(), drafts.mint(), 3) for _ in range(12)]
        await asyncio.gather(*(ledger.append(run[0].stream, run) for run in runs))
        chains = [await chain_of(ledger, shard) for shard in range(SHARD_COUNT)]
        assert sum(link.events for chain in chains for link in chain) == 36

    async def test_a_refused_append_leaves_no_link(self, ledger: Any, drafts: Drafts) -> None:
        """INV-203."""
        items = drafts.loop_items(drafts.mint(), drafts.mint(), 4)
        stream = items[0].stream
        await ledger.append(stream, items[:2])
        await asyncio.gather(
            ledger.append(stream, items[2:3], expected_version=7),
            ledger.append(stream, items[3:], expected_version=2),
            return_exceptions=True,
        )
        assert sum(link.events for link in await chain_of(ledger, stream.shard)) == 3
