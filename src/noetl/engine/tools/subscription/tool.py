"""The `subscription` tool: a bounded batch of a broker's messages comes out; they are acknowledged once that is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, ClassVar, Final

from noetl.engine.tools.outcome import Outcome, failed, refusal
from noetl.engine.tools.plain import plain
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import ahead_of
from noetl.engine.tools.subscription.batch import Taken, Wanted, wanted_by
from noetl.errors import InputError, NoetlError

Take = Callable[[Call, Wanted], Awaitable[Taken]]

_SOURCES: Final = ("nats", "kafka", "pubsub")
_NEVER: Final = frozenset({"false", "none", "never", "manual"})
_AFTER: Final = frozenset({"true", "on_success"})


class SubscriptionTool:
    """Takes messages of NATS JetStream, Kafka and Google Pub/Sub."""

    kind: ClassVar[str] = "subscription"

    async def run(self, call: Call) -> Outcome:
        """Take one batch and leave it to be acknowledged when the step's end is recorded."""
        source = str(call.options.get("source"))
        try:
            if source not in _SOURCES:
                raise InputError(f"source: {source!r} is none of {', '.join(_SOURCES)}")
            wanted, acknowledges = wanted_by(call), _acknowledges(call)
            take: Take = import_module(f"noetl.engine.tools.subscription.{source}").take
            async with asyncio.timeout(ahead_of(call.timeout)):
                taken = await take(call, wanted)
        except NoetlError as error:
            return refusal(error, self.kind)
        except TimeoutError:
            message = f"the subscription of {source} did not answer within {call.timeout or 0:g} seconds"
            return failed("timeout", message, source=self.kind, retryable=True)
        except Exception as error:
            return _problem(error, source)
        await _left(call, taken, acknowledges=acknowledges)
        count = len(taken.messages)
        return Outcome(
            data=plain(
                {"source": source, "messages": taken.messages, "count": count, "acked": acknowledges and count > 0}
            )
        )


def _acknowledges(call: Call) -> bool:
    given = str(call.options.get("ack", "on_success")).lower()
    if given not in _NEVER | _AFTER:
        raise InputError(f"ack: {given!r} is none of {', '.join(sorted(_NEVER | _AFTER))}")
    if given in _AFTER and call.settling is None:
        raise InputError(
            "a subscription in a loop has no end of a step to be acknowledged at; take the batch in a step of its own",
            hint="and loop over its messages",
        )
    return given in _AFTER


async def _left(call: Call, taken: Taken, *, acknowledges: bool) -> None:
    if acknowledges and call.settling is not None:
        call.settling.add(taken.settle)
    else:
        await taken.settle(recorded=False)


def _problem(error: Exception, source: str) -> Outcome:
    """Return the failure that an error of a client stands for; its words may quote an address with a password in it."""
    name = type(error).__name__
    module = type(error).__module__.partition(".")[0]
    if not isinstance(error, OSError) and module not in ("nats", "confluent_kafka", "cimpl", "google", "grpc"):
        raise error
    told: dict[str, Any] = {"source": SubscriptionTool.kind, "exception_type": name}
    if "Auth" in name or "Credential" in name:
        return failed("auth", f"{source} refuses who asks: {name}", **told)
    if "NotFound" in name:
        return failed("not_found", f"{source} has no such stream or consumer: {name}", **told)
    return failed("connection", f"{source} does not answer: {name}", retryable=True, **told)
