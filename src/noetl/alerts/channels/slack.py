"""Posts alerts to incoming webhooks as Slack takes them, and Mattermost, Rocket.Chat and others after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from noetl.alerts.channels.port import Message, SendFailed, first_of, reach_of, timeout_of

_COLOURS: Final = {"info": "#439FE0", "warning": "#DAA038", "error": "#D00000", "critical": "#8B0000"}
_OVER: Final = "#2EB886"


class SlackChannel:
    """An incoming webhook, whose address is the secret."""

    async def send(self, message: Message, declared: Mapping[str, Any], secret: Mapping[str, Any]) -> None:
        """Post one message."""
        # Loaded only where something is sent: its client takes longer to load than all of this.
        from noetl.alerts.channels.posting import post

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
