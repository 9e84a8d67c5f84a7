"""The books that a subscription keeps over one shard's consumer: what was asked for, came, and is acknowledged."""

from __future__ import annotations

import time

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as Inbox

from noetl.kernel.stream.port import Delivery, Message
from noetl.kernel.stream.subjects import parts

PULL_SECONDS = 5.0
"""How long a request for messages stands at the server."""

_OVERDUE_SECONDS = 3.0
_ACKNOWLEDGE = "$JS.ACK."
_PLAIN_TOKENS = 9
"""Parts of the subject to acknowledge to; servers that name domain and account there have more."""
_PENDING = "Nats-Pending-Messages"


class Lane:
    """What one subscription knows of one shard: the books over one making of the shard's consumer."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.consumer = ""
        """The name of the consumer as it was made last."""
        self.making = -1
        """The connection the consumer was made over; -1 when it must be made again."""
        self.made = 0
        """Counts the makings of the consumer by this subscription."""
        self.inbox: Inbox | None = None
        self.acknowledged = 0
        self.buffered: dict[int, Delivery] = {}
        self.replies: dict[int, str] = {}
        """Where to acknowledge each message that came and is not acknowledged."""
        self._asked = 0
        self._asked_at = 0.0
        self._given_before = 0
        self._expected = 1

    def begin(self, making: int, inbox: Inbox, floor: int, given_before: int) -> None:
        """Take the news that the consumer was made, to give what follows `floor`."""
        self.making = making
        self.inbox = inbox
        self.acknowledged = floor
        self.buffered.clear()
        self.replies.clear()
        self._asked = 0
        self._given_before = given_before
        self._expected = 1

    def ask(self, ahead: int) -> int:
        """Return how many messages to ask for now."""
        now = time.monotonic()
        if self._asked and now - self._asked_at > PULL_SECONDS + _OVERDUE_SECONDS:
            self.making = -1  # the server forgot a request
        wanted = ahead - self._asked - len(self.buffered)
        if wanted * 2 < ahead:
            return 0
        self._asked += wanted
        self._asked_at = now
        return wanted

    def take(self, message: Msg) -> None:
        """Take a message, or what the server says of a request."""
        if not message.reply.startswith(_ACKNOWLEDGE):
            self._told(message.headers or {})
            return
        tokens = message.reply.split(".")
        times, sequence_text, number = tokens[4:7] if len(tokens) == _PLAIN_TOKENS else tokens[6:9]
        self._asked -= 1
        if int(number) != self._expected:
            self.making = -1
            return
        self._expected += 1
        sequence = int(sequence_text)
        if sequence <= self.acknowledged or sequence in self.buffered:
            return
        self.replies[sequence] = message.reply
        again = times != "1" or sequence <= self._given_before
        self.buffered[sequence] = _delivery(message, sequence, redelivered=again)

    def done(self, sequence: int) -> None:
        """Take the news that all up to a sequence is acknowledged."""
        self.acknowledged = sequence
        for earlier in [known for known in self.replies if known <= sequence]:
            del self.replies[earlier]

    def _told(self, headers: dict[str, str]) -> None:
        status = headers.get("Status")
        if status in {"404", "408"}:
            self._asked -= int(headers.get(_PENDING, self._asked))
        elif status != "100":
            self.making = -1


def _delivery(message: Msg, sequence: int, *, redelivered: bool) -> Delivery:
    tenant_id, execution_id, shard = parts(message.subject)
    headers = message.headers or {}
    return Delivery(
        Message(
            tenant_id,
            execution_id,
            shard,
            headers.get("Nats-Msg-Id", ""),
            message.data,
            {name: value for name, value in headers.items() if not name.startswith("Nats-")},
        ),
        sequence,
        redelivered,
    )
