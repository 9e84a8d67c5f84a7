"""Messages of a subscription of Google Pub/Sub: taken by pulling, acknowledged together, or given back.

The client blocks, so it is called in threads. An `endpoint` in the credential, as an emulator has, is spoken to without a log-in.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from noetl.engine.tools.port import Call
from noetl.engine.tools.subscription.batch import Taken, Wanted, client_of, data_of, login_of, needed
from noetl.errors import Denied, InputError, NotFound, Unavailable

_HOLD_SECONDS: Final = 600
"""How long a message taken is kept from others; the longest there is."""
_AT_ONCE: Final = 1_000
_SCOPE: Final = "https://www.googleapis.com/auth/pubsub"


async def take(call: Call, wanted: Wanted) -> Taken:
    """Take messages until there are enough, or a pull finds no more, or the time is over without any."""
    pubsub = client_of("google.pubsub_v1", "pubsub")
    login = await login_of(call, "pubsub")
    place = _place(
        needed(call, "subscription"), call.options.get("project") or login.get("project_id") or login.get("project")
    )
    client = await asyncio.to_thread(_client, pubsub, login)
    received: list[Any] = []
    until = time.monotonic() + wanted.seconds

    async def release() -> None:
        await _deadline(client, place, received, 0)
        await asyncio.to_thread(client.transport.close)

    try:
        while len(received) < wanted.batch and (left := until - time.monotonic()) > 0:
            found = await asyncio.to_thread(_pulled, client, place, min(wanted.batch - len(received), _AT_ONCE), left)
            if not found and received:
                break
            await _deadline(client, place, found, _HOLD_SECONDS)
            received += found
    except BaseException:
        await asyncio.shield(release())
        raise

    async def settle(*, recorded: bool) -> None:
        if not recorded:
            await release()
            return
        for ids in _ids(received):
            await asyncio.to_thread(client.acknowledge, request={"subscription": place, "ack_ids": ids})
        await asyncio.to_thread(client.transport.close)

    return Taken([_message(each) for each in received], settle)


def _place(subscription: str, project: Any) -> str:
    if subscription.startswith("projects/"):
        return subscription
    if not project:
        raise InputError("a subscription of pubsub needs project, there or in the credential, or its full name")
    return f"projects/{project}/subscriptions/{subscription}"


def _client(pubsub: Any, login: Mapping[str, Any]) -> Any:
    endpoint = login.get("endpoint")
    if endpoint:
        grpc = client_of("grpc", "pubsub")
        transports = client_of("google.pubsub_v1.services.subscriber.transports", "pubsub")
        address = str(endpoint).removeprefix("http://")
        channel = grpc.insecure_channel(address)
        return pubsub.SubscriberClient(transport=transports.SubscriberGrpcTransport(channel=channel, host=address))
    given = login.get("service_account_json") or (login if login.get("private_key") else None)
    if given is None:
        return pubsub.SubscriberClient()
    accounts = client_of("google.oauth2.service_account", "pubsub")
    try:
        info = json.loads(given) if isinstance(given, str) else dict(given)
        identity = accounts.Credentials.from_service_account_info(info, scopes=[_SCOPE])
    except ValueError:
        raise InputError("the credential for Pub/Sub is no service account") from None
    return pubsub.SubscriberClient(credentials=identity)


def _pulled(client: Any, place: str, most: int, seconds: float) -> list[Any]:
    failures = client_of("google.api_core.exceptions", "pubsub")
    try:
        answer = client.pull(request={"subscription": place, "max_messages": most}, timeout=seconds, retry=None)
    except failures.DeadlineExceeded:
        return []
    except failures.NotFound:
        raise NotFound(f"Pub/Sub has no subscription {place}") from None
    except (failures.PermissionDenied, failures.Unauthenticated) as problem:
        raise Denied(f"Pub/Sub does not let this identity read {place} ({type(problem).__name__})") from None
    except failures.InvalidArgument:
        raise InputError(f"Pub/Sub refuses the name {place!r} of a subscription") from None
    except failures.GoogleAPIError as problem:
        raise Unavailable(f"Pub/Sub does not give messages of {place}: {type(problem).__name__}") from None
    return list(answer.received_messages)


async def _deadline(client: Any, place: str, received: list[Any], seconds: int) -> None:
    for ids in _ids(received):
        request = {"subscription": place, "ack_ids": ids, "ack_deadline_seconds": seconds}
        await asyncio.to_thread(client.modify_ack_deadline, request=request)


def _ids(received: list[Any]) -> list[list[str]]:
    ids = [each.ack_id for each in received]
    return [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]


def _message(received: Any) -> dict[str, Any]:
    message = received.message
    return {
        "id": message.message_id,
        "data": data_of(message.data),
        "headers": dict(message.attributes),
        "key": message.ordering_key or None,
        "time": message.publish_time,
        "deliveries": received.delivery_attempt or None,
    }
