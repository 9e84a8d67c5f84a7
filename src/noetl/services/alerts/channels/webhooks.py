"""Posts alerts over HTTP: as JSON signed with the channel's secret, or as Slack and those like it take them.

`NoETL-Signature: t=<unix seconds>,v1=<hex>` is the HMAC-SHA256 of `<t>.<body>`. `Idempotency-Key` is the id of the
message, the same in every attempt.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

from noetl.services.alerts.channels.port import Message, SendFailed, first_of, reach_of, timeout_of


class WebhookChannel:
    """Any server that takes JSON."""

    async def send(self, message: Message, declared: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
        """Post one message."""
        # Loaded only where something is sent: its client takes longer to load than all of this.
        from noetl.services.alerts.channels.http_post import post

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


_COLOURS: Final = {"info": "#439FE0", "warning": "#DAA038", "error": "#D00000", "critical": "#8B0000"}
_OVER: Final = "#2EB886"


class SlackChannel:
    """An incoming webhook, whose address is the secret."""

    async def send(self, message: Message, declared: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
        """Post one message."""
        # Loaded only where something is sent: its client takes longer to load than all of this.
        from noetl.services.alerts.channels.http_post import post

        url = declared.get("url") or first_of(secret, "url", "key", "api_key", "value", "token")
        if url is None:
            raise SendFailed("neither the channel nor its credential has a url")
        headline, text = _escaped(message.headline), _escaped(message.text)
        over = message.alert["state"] == "resolved"
        body = {
            "text": headline,
            "attachments": [
                {
                    "color": _OVER if over else _COLOURS.get(message.alert["severity"], _OVER),
                    "fallback": headline,
                    "text": text,
                    "footer": f"noetl {message.delivery_id}",
                }
            ],
        }
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.delivery_id}
        await post(str(url), orjson.dumps(body), headers, reach_of(declared), timeout=timeout_of(declared))


def _escaped(text: str) -> str:
    """Write text so that nothing in it mentions people or becomes a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
