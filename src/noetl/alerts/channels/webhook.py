"""Posts alerts as JSON, signed with the channel's secret where it has one.

`NoETL-Signature: t=<unix seconds>,v1=<hex>` is the HMAC-SHA256 of `<t>.<body>`. `Idempotency-Key` is the id of the
message, the same in every attempt.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

import orjson

from noetl.alerts.channels.port import Message, SendFailed, first_of, reach_of, timeout_of


class WebhookChannel:
    """Any server that takes JSON."""

    async def send(self, message: Message, declared: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
        """Post one message."""
        # Loaded only where something is sent: its client takes longer to load than all of this.
        from noetl.alerts.channels.posting import post

        url = declared.get("url") or first_of(secret, "url")
        if url is None:
            raise SendFailed("neither the channel nor its credential has a url")
        body = orjson.dumps(
            {
                "delivery_id": message.delivery_id,
                "tenant_id": message.tenant_id,
                "organization_id": message.organization_id,
                "alert": message.alert,
            }
        )
        headers = {
            **declared.get("headers", {}),
            "Content-Type": "application/json",
            "User-Agent": "noetl",
            "Idempotency-Key": message.delivery_id,
            "NoETL-Attempt": str(message.attempt),
        }
        key = first_of(secret, "secret", "key", "api_key", "value", "token")
        if key is not None:
            headers["NoETL-Signature"] = signature(key, int(time.time()), body)
        await post(str(url), body, headers, reach_of(declared), timeout=timeout_of(declared))


def signature(key: str, at: int, body: bytes) -> str:
    """Return what proves that a body comes from who knows the key, and when it was sent."""
    return f"t={at},v1={hmac.new(key.encode(), f'{at}.'.encode() + body, hashlib.sha256).hexdigest()}"
