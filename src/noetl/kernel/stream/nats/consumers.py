"""The consumers that stand for a durable: one per shard, made anew for every reader, named `<durable>-<shard>-<making>`.

A consumer is made before the former ones of its shard are removed, so what was acknowledged is never without a keeper,
wherever a reader dies. The one made last counts, and who made it holds the shard for the durable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import uuid4

from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from noetl.errors import LeaseLost, NotFound
from noetl.kernel.stream.subjects import of_shard

_HOLDER = "noetl-holder"
_NAME = re.compile(r"(?P<durable>.+)-(?P<shard>\d\d)-[0-9a-f]{8}")
_PAGE = 256
"""Consumers that a server lists at a time."""

Makings = dict[int, list[ConsumerInfo]]
"""The consumers of a durable by shard, those made last at the end."""


async def makings(jetstream: JetStreamContext, stream: str, durable: str) -> Makings:
    """Return all consumers of a durable."""
    return (await all_makings(jetstream, stream)).get(durable, {})


async def all_makings(jetstream: JetStreamContext, stream: str) -> dict[str, Makings]:
    """Return all consumers of all durables."""
    found: dict[str, Makings] = {}
    for info in await _listed(jetstream, stream):
        named = _NAME.fullmatch(info.name)
        if named is not None:
            found.setdefault(named["durable"], {}).setdefault(int(named["shard"]), []).append(info)
    for shards in found.values():
        for infos in shards.values():
            infos.sort(key=lambda info: info.created)
    return found


async def remove(jetstream: JetStreamContext, stream: str, infos: Iterable[ConsumerInfo]) -> None:
    """Remove consumers, whoever else does so too."""
    for info in infos:
        with suppress(NotFoundError):
            await jetstream.delete_consumer(stream, info.name)


class Consumers:
    """Makes the consumers of one durable for one reader."""

    def __init__(self, stream: str, durable: str, ack_wait_seconds: float) -> None:
        self._stream = stream
        self._durable = durable
        self._ack_wait_seconds = ack_wait_seconds
        self._holder = uuid4().hex

    async def known(self, jetstream: JetStreamContext) -> Makings:
        """Return what stands for the durable now."""
        return await makings(jetstream, self._stream, self._durable)

    def held(self, infos: Sequence[ConsumerInfo] | None) -> ConsumerInfo:
        """Return the consumer of a shard that this reader made, or say who has it now."""
        if not infos:
            raise NotFound(
                f"the durable {self._durable} of the stream {self._stream} is gone",
                hint="subscribe again: it was forgotten, or the stream was made anew",
            )
        if (infos[-1].config.metadata or {}).get(_HOLDER) != self._holder:
            raise LeaseLost(f"another reader took over the durable {self._durable} of the stream {self._stream}")
        return infos[-1]

    async def make(self, jetstream: JetStreamContext, shard: int, floor: int, former: Sequence[ConsumerInfo]) -> str:
        """Make the consumer that gives what follows `floor`, remove the former ones, and return its name."""
        name = f"{self._durable}-{shard:02d}-{uuid4().hex[:8]}"
        await jetstream.add_consumer(
            self._stream,
            ConsumerConfig(
                durable_name=name,
                ack_policy=AckPolicy.ALL,
                ack_wait=self._ack_wait_seconds,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=floor + 1,
                filter_subject=of_shard(self._stream, shard),
                max_ack_pending=-1,
                metadata={_HOLDER: self._holder},
            ),
        )
        await remove(jetstream, self._stream, former)
        return name


def floor_of(infos: Iterable[ConsumerInfo]) -> int:
    """Return up to where any of these saw acknowledgements."""
    return max((info.ack_floor.stream_seq for info in infos if info.ack_floor is not None), default=0)


def waiting_for(info: ConsumerInfo) -> int:
    """Return how many messages a consumer has not given, or not seen acknowledged."""
    return (info.num_pending or 0) + (info.num_ack_pending or 0)


def given_by(infos: Iterable[ConsumerInfo]) -> int:
    """Return up to where any of these gave messages."""
    return max((info.delivered.stream_seq for info in infos if info.delivered is not None), default=0)


async def _listed(jetstream: JetStreamContext, stream: str) -> list[ConsumerInfo]:
    found: list[ConsumerInfo] = []
    while True:
        page = await jetstream.consumers_info(stream, offset=len(found))
        found += page
        if len(page) < _PAGE:
            return found
