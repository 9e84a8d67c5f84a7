"""Messages of a Kafka topic, by a consumer group: taken by polling, acknowledged by committing the group's offsets.

The client blocks, so it lives in a thread; it stays in its group until the step's end is recorded and the offsets committed.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from noetl.engine.tools.port import Call
from noetl.engine.tools.subscription.batch import Taken, Wanted, client_of, data_of, login_of, needed, text_of
from noetl.errors import Denied, InputError, NotFound, Unavailable

_POLL_SECONDS: Final = 0.2
_SETTINGS: Final = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_username": "sasl.username",
    "username": "sasl.username",
    "sasl_password": "sasl.password",
    "password": "sasl.password",
    "ssl_ca": "ssl.ca.pem",
    "ssl_certificate": "ssl.certificate.pem",
    "ssl_key": "ssl.key.pem",
    "client_id": "client.id",
}


async def take(call: Call, wanted: Wanted) -> Taken:
    """Take messages until there are enough, or the ends of all partitions are reached, or the time is over without any."""
    kafka = client_of("confluent_kafka", "kafka")
    login = await login_of(call, "kafka")
    topic, group = needed(call, "topic"), call.options.get("group") or login.get("group_id")
    if not group:
        raise InputError("a subscription of kafka needs group, the consumer group whose offsets are committed")
    drain = _Drain(kafka, _settings(call, login, str(group)), topic, wanted)
    work = asyncio.create_task(asyncio.to_thread(drain.run))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        drain.stop.set()
        await asyncio.wait([work])
        _ = work.exception()
        await asyncio.to_thread(drain.close)
        raise
    except BaseException:
        await asyncio.to_thread(drain.close)
        raise

    async def settle(*, recorded: bool) -> None:
        await asyncio.to_thread(drain.commit if recorded else drain.close)

    return Taken([_message(each) for each in drain.messages], settle)


def _settings(call: Call, login: Mapping[str, Any], group: str) -> dict[str, Any]:
    brokers = login.get("bootstrap_servers") or login.get("brokers") or call.options.get("brokers")
    if not brokers:
        raise InputError("a subscription of kafka needs brokers: auth with a credential of type kafka, or brokers")
    return {
        **{name: str(login[key]) for key, name in _SETTINGS.items() if login.get(key)},
        "bootstrap.servers": brokers if isinstance(brokers, str) else ",".join(map(str, brokers)),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "log_level": 2,
    }


class _Drain:
    """One batch, and the consumer it was taken by. Everything but `stop` runs in threads, one after the other."""

    def __init__(self, kafka: Any, settings: dict[str, Any], topic: str, wanted: Wanted) -> None:
        self._kafka, self._topic, self._wanted = kafka, topic, wanted
        self._consumer = kafka.Consumer({**settings, "error_cb": self._noted})
        self._is_member = False
        self._last: Any = None
        self._at_end: set[int] = set()
        self.messages: list[Any] = []
        self.stop = threading.Event()

    def run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._joined)
        until = time.monotonic() + self._wanted.seconds
        while not self.stop.is_set() and len(self.messages) < self._wanted.batch:
            left = until - time.monotonic()
            if left <= 0 or self._is_drained():
                break
            message = self._consumer.poll(min(left, _POLL_SECONDS))
            if message is None:
                continue
            if message.error() is None:
                self.messages.append(message)
                self._at_end.discard(message.partition())
            elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
                self._at_end.add(message.partition())
            else:
                raise self._problem(message.error())

        if not self._is_member and not self.stop.is_set():
            # Nothing was looked at, which is another thing than nothing being there.
            if self._last is not None:
                raise self._problem(self._last)
            raise Unavailable(f"the consumer group was not joined within {self._wanted.seconds:g} seconds")

    def _joined(self, _consumer: Any, _partitions: Any) -> None:
        self._is_member = True

    def _noted(self, error: Any) -> None:
        self._last = error

    def _is_drained(self) -> bool:
        if not self.messages:
            return False
        assigned = {each.partition for each in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._at_end

    def commit(self) -> None:
        after: dict[int, int] = {}
        for message in self.messages:
            after[message.partition()] = max(after.get(message.partition(), 0), message.offset() + 1)
        offsets = [self._kafka.TopicPartition(self._topic, partition, offset) for partition, offset in after.items()]
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        finally:
            self.close()

    def close(self) -> None:
        self._consumer.close()

    def _problem(self, error: Any) -> Exception:
        known, name = self._kafka.KafkaError, error.name()
        if error.code() in (known.UNKNOWN_TOPIC_OR_PART, known._UNKNOWN_TOPIC):
            return NotFound(f"Kafka has no topic {self._topic}")
        if "AUTH" in name:
            return Denied(f"Kafka refuses the log-in or the group of the topic {self._topic}: {name}")
        return Unavailable(f"Kafka does not give messages of {self._topic}: {name}")


def _message(message: Any) -> dict[str, Any]:
    key, (_, milliseconds) = message.key(), message.timestamp()
    at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC) if milliseconds > 0 else None
    return {
        "id": f"{message.topic()}:{message.partition()}:{message.offset()}",
        "data": data_of(message.value()),
        "key": None if key is None else text_of(key),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "headers": {name: text_of(value or b"") for name, value in message.headers() or ()},
        "time": at,
    }
