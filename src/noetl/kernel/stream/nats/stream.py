"""The stream in NATS JetStream: a file-backed stream per name, read by one pull consumer per durable and shard."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec
import nats.errors
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from noetl.errors import NotFound, Unsupported
from noetl.kernel.stream.nats import message_lookup
from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.kernel.stream.nats.consumers import all_makings, makings, remove, waiting_for
from noetl.kernel.stream.nats.publisher import Publisher
from noetl.kernel.stream.nats.subscription import NatsSubscription
from noetl.kernel.stream.port import DurableLag, Message, Place, Published, StreamState
from noetl.kernel.stream.subjects import all_of, checked_durable, of_shard
from noetl.model.stream import SHARD_COUNT

_ATOMIC_FROM = (2, 12, 1)
"""The first server whose atomic batches know message ids."""


class StreamLimits(msgspec.Struct, frozen=True):
    """How a stream is made. `discard` says what a full stream does: forget the oldest messages or refuse new ones."""

    replicas: int = 1
    max_age_hours: float = 72.0
    max_bytes: int | None = None
    discard: Literal["old", "new"] = "old"
    duplicate_seconds: float = 120.0


class NatsStream:
    """One JetStream stream. The connection may be shared with others and is closed by whoever made it."""

    def __init__(self, connection: NatsConnection, name: str, limits: StreamLimits | None = None) -> None:
        self.name = name
        self.connection = connection
        self._limits = limits or StreamLimits()
        self._publisher = Publisher(connection, name)
        self._subscriptions: list[NatsSubscription] = []

    async def open(self) -> StreamState:
        """Make the stream if it is absent, check it if it is there."""
        with self.connection.translated():
            jetstream = await self.connection.jetstream()
            try:
                info = await jetstream.stream_info(self.name)
            except NotFoundError:
                info = await jetstream.add_stream(await self._wanted())
        self._check(info.config)
        self._publisher.atomic = bool(info.config.allow_atomic)
        return _state(info)

    async def publish(self, messages: Sequence[Message]) -> list[Published]:
        """Store the messages; all are acknowledged when this returns."""
        with self.connection.translated():
            try:
                return await self._publisher.publish(messages)
            except nats.errors.NoRespondersError:
                await self.state()  # says `NotFound` when the stream is what is missing
                raise

    async def subscribe(
        self,
        durable: str,
        shards: Sequence[int] | None = None,
        *,
        from_sequence: int | None = None,
        ack_wait_seconds: float = 30.0,
    ) -> NatsSubscription:
        """Read as a durable."""
        wanted = range(SHARD_COUNT) if shards is None else sorted(set(shards))
        subscription = NatsSubscription(self.connection, self.name, checked_durable(durable), wanted, ack_wait_seconds)
        await subscription.open(from_sequence)
        self._subscriptions = [*(each for each in self._subscriptions if not each.closed), subscription]
        return subscription

    async def state(self) -> StreamState:
        """Return identity and extent."""
        with self.connection.translated():
            jetstream = await self.connection.jetstream()
            try:
                return _state(await jetstream.stream_info(self.name))
            except NotFoundError:
                raise NotFound(
                    f"there is no stream {self.name} on NATS at {self.connection.place}", hint="`noetl relay` makes it"
                ) from None

    async def ids_at(self, places: Sequence[Place]) -> dict[Place, str]:
        """Ask the stream's leader for each message."""
        with self.connection.translated():
            return await message_lookup.ids_at(await self.connection.jetstream(), self.name, places)

    async def ends(self) -> dict[Place, str]:
        """Ask the stream's leader for the last message of each shard."""
        with self.connection.translated():
            return await message_lookup.ends(await self.connection.jetstream(), self.name)

    async def lags(self) -> list[DurableLag]:
        """Ask the consumers that were made last."""
        with self.connection.translated():
            known = await all_makings(await self.connection.jetstream(), self.name)
        return [
            DurableLag(durable, shard, waiting_for(infos[-1]))
            for durable, shards in sorted(known.items())
            for shard, infos in sorted(shards.items())
        ]

    async def came_at(self, shard: int, after: int) -> datetime | None:
        """Ask for the first message behind."""
        with self.connection.translated():
            jetstream = await self.connection.jetstream()
            try:
                found = await jetstream.get_msg(self.name, seq=after + 1, subject=of_shard(self.name, shard), next=True)
            except NotFoundError:
                await self.state()  # says `NotFound` when the stream is what is missing
                return None
        return found.time

    async def readers(self) -> set[str]:
        """Ask which consumers have requests for messages standing."""
        with self.connection.translated():
            known = await all_makings(await self.connection.jetstream(), self.name)
        return {durable for durable, shards in known.items() if any(infos[-1].num_waiting for infos in shards.values())}

    async def forget(self, durable: str) -> None:
        """Remove the consumers of a durable."""
        checked_durable(durable)
        with self.connection.translated():
            jetstream = await self.connection.jetstream()
            for infos in (await makings(jetstream, self.name, durable)).values():
                await remove(jetstream, self.name, infos)

    async def trim(self, upto: int) -> None:
        """Purge the oldest messages."""
        with self.connection.translated():
            jetstream = await self.connection.jetstream()
            await jetstream.purge_stream(self.name, seq=upto + 1)

    async def wipe(self) -> None:
        """Delete the stream with its consumers and make it anew."""
        with self.connection.translated():
            jetstream = await self.connection.jetstream()
            with contextlib.suppress(NotFoundError):
                await jetstream.delete_stream(self.name)
            await jetstream.add_stream(await self._wanted())

    async def close(self) -> None:
        """End subscriptions and publishing; the connection stays."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()
        await self._publisher.close()

    async def _wanted(self) -> StreamConfig:
        client = await self.connection.client()
        version = client.connected_server_version
        limits = self._limits
        return StreamConfig(
            name=self.name,
            subjects=[all_of(self.name)],
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy(limits.discard),
            storage=StorageType.FILE,
            num_replicas=limits.replicas,
            max_age=limits.max_age_hours * 3600,
            max_bytes=limits.max_bytes,
            duplicate_window=min(limits.duplicate_seconds, limits.max_age_hours * 3600),
            allow_direct=True,
            allow_atomic=True if (version.major, version.minor, version.patch) >= _ATOMIC_FROM else None,
        )

    def _check(self, found: StreamConfig) -> None:
        """Refuse a stream that would lose or mix up messages; how long and how often it keeps them is the operator's."""
        wanted: dict[str, object] = {
            "subjects": [all_of(self.name)],
            "retention": RetentionPolicy.LIMITS.value,
            "discard": self._limits.discard,
            "storage": StorageType.FILE.value,
            "max_msgs_per_subject": -1,
            "no_ack": False,
            "sealed": False,
        }
        for field, right in wanted.items():
            value = getattr(found, field)
            if value != right:
                raise Unsupported(
                    f"the stream {self.name} on NATS at {self.connection.place} has {field} {value!r}; wanted is {right!r}",
                    hint="change it there, or delete the stream: opening makes it anew, and the ledger fills it",
                )


def _state(info: StreamInfo) -> StreamState:
    assert info.config.name is not None
    assert info.created is not None
    state = info.state
    return StreamState(
        name=info.config.name,
        created=info.created.isoformat(),
        first_sequence=state.first_seq if state.messages else state.last_seq + 1,
        last_sequence=state.last_seq,
        messages=state.messages,
        bytes=state.bytes,
    )
