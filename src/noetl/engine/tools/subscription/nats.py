"""Messages of a JetStream stream, by a durable consumer: taken by pulling, acknowledged one by one, or given back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from nats import errors
from nats.aio.msg import Msg
from nats.js.client import JetStreamContext

from noetl.engine.tools.nats.connection import client_of
from noetl.engine.tools.port import Call
from noetl.engine.tools.subscription.batch import Taken, Wanted, data_of, needed

_ANSWER_SECONDS = 5.0


async def take(call: Call, wanted: Wanted) -> Taken:
    """Take messages until there are enough, or no more, or the time is over without any."""
    client = await client_of(call)
    stream, consumer = needed(call, "stream"), needed(call, "consumer")
    context = client.jetstream(timeout=_ANSWER_SECONDS)
    subject = str(call.options.get("subject") or "")
    pulled = await _subscribed(context, stream, consumer, subject)
    messages: list[Msg] = []
    until = asyncio.get_running_loop().time() + wanted.seconds
    try:
        while len(messages) < wanted.batch:
            left = until - asyncio.get_running_loop().time()
            if left <= 0 or (messages and messages[-1].metadata.num_pending == 0):
                break
            with suppress(errors.TimeoutError):
                messages += await pulled.fetch(wanted.batch - len(messages), timeout=left)
    except BaseException:
        await _given_back(messages)
        raise
    finally:
        with suppress(errors.Error):
            await pulled.unsubscribe()
            # Until the server knows, it may hand the next message to a request that nobody waits for any more.
            await client.flush()

    async def settle(*, recorded: bool) -> None:
        if recorded:
            for message in messages:
                await message.ack_sync(timeout=_ANSWER_SECONDS)
        else:
            await _given_back(messages)

    return Taken([_message(each) for each in messages], settle)


async def _subscribed(context: JetStreamContext, stream: str, consumer: str, subject: str) -> Any:
    """Return a subscription of the durable consumer, which is made if it is not there."""
    try:
        await context.consumer_info(stream, consumer)
    except errors.Error:
        if not subject:
            subject = ">"
        return await context.pull_subscribe(subject, durable=consumer, stream=stream)
    return await context.pull_subscribe_bind(consumer, stream=stream)


async def _given_back(messages: list[Msg]) -> None:
    """Let others have messages at once; without it they would when the consumer's time for acknowledging is over."""
    with suppress(errors.Error, OSError):
        for message in messages:
            await message.nak()


def _message(message: Msg) -> dict[str, Any]:
    told = message.metadata
    return {
        "id": f"{told.stream}:{told.sequence.stream}",
        "data": data_of(message.data),
        "subject": message.subject,
        "headers": dict(message.headers or {}),
        "time": told.timestamp,
        "sequence": told.sequence.stream,
        "deliveries": told.num_delivered,
    }
