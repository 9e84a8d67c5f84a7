"""Sends what is due: messages are leased, handed to their channels and marked, tried again later, and in the end given up.

A message reaches its channel at least once. It is repeated only if the sender dies, or loses its lease, between the
channel's answer and the record of it; the repeat has the same id, so that receivers can tell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from noetl.engine.dispatch.polling import Backoff, Repeating, Signal
from noetl.engine.tools.port import Credentials
from noetl.errors import LeaseLost, NoetlError
from noetl.faults import reach
from noetl.kernel.leases.heartbeats import Heartbeats
from noetl.kernel.outgoing.guard import Rights, own_rights
from noetl.model.stream import Scope
from noetl.services.alerts.applied_rules import AppliedRules
from noetl.services.alerts.channels.port import ALLOWED, Channel, Message, SendFailed, timeout_of
from noetl.services.alerts.deliveries import Deliveries, Lease, Sending
from noetl.services.credentials.redactor import Redactor
from noetl.services.credentials.secret import guarded, secrets_in

_log = logging.getLogger(__name__)

BACKOFF: Final = Backoff(5.0, 1800.0)
LEASE_SECONDS: Final = 60.0
TOGETHER: Final = 16
"""Messages a sender holds at a time."""


class Sender:
    """Sends for all organizations of one database; any number may run at once."""

    def __init__(
        self,
        deliveries: Deliveries,
        applied: AppliedRules,
        channels: Mapping[str, Channel],
        credentials: Callable[[Scope], Credentials],
        *,
        worker: str,
        backoff: Backoff = BACKOFF,
        lease_seconds: float = LEASE_SECONDS,
        every_seconds: float = 1.0,
        allow_private: bool | None = True,
        rights: Rights = own_rights,
    ) -> None:
        self._deliveries = deliveries
        self._applied = applied
        self._channels = channels
        self._credentials = credentials
        self._worker = worker
        self._backoff = backoff
        self._lease_seconds = lease_seconds
        self._every = every_seconds
        self._allow_private = allow_private
        self._rights = rights
        self._draining: dict[Scope, asyncio.Task[None]] = {}
        self.news = Signal()
        """Touched when messages were made in this process."""
        self._repeating = Repeating(
            "the sender of alerts", self._look_once, every_seconds=every_seconds, news=self.news
        )

    def start(self) -> None:
        """Send again and again until stopped."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop; what is under way is left to whoever leases it next."""
        await self._repeating.stop()
        draining = tuple(self._draining.values())
        for one in draining:
            one.cancel()
        await asyncio.gather(*draining, return_exceptions=True)

    async def _look_once(self) -> float:
        # Nobody waits for another organization's receivers: each is drained on its own, and looked for again meanwhile.
        for scope in await self._deliveries.scopes():
            if scope not in self._draining:
                self._draining[scope] = asyncio.create_task(self._drained(scope), name=f"noetl: alerts of {scope}")
        return self._every

    async def _drained(self, scope: Scope) -> None:
        try:
            while await self.drain_scope(scope):
                pass
        except NoetlError as problem:
            _log.warning("the alerts of %s could not be sent: %s", scope, problem.message)
        except Exception:
            _log.exception("sending the alerts of %s stumbled", scope)
        finally:
            del self._draining[scope]

    async def drain(self) -> int:
        """Send what is due in every organization, once, and return how many messages were taken."""
        taken = await asyncio.gather(*(self.drain_scope(scope) for scope in await self._deliveries.scopes()))
        return sum(taken)

    async def drain_scope(self, scope: Scope) -> int:
        """Send what is due in one organization."""
        leases = await self._deliveries.lease(scope, self._worker, self._lease_seconds, TOGETHER)
        if leases:
            channels = await self._applied.channels(scope)
            beats: Heartbeats[Sending] = Heartbeats(
                self._deliveries, every_seconds=self._lease_seconds / 3, clock=asyncio.get_running_loop().time
            )
            beats.start()
            try:
                await asyncio.gather(*(self._one(scope, one, channels.get(one.row.channel), beats) for one in leases))
            finally:
                await beats.stop()
        return len(leases)

    async def _one(
        self, scope: Scope, lease: Lease, declared: dict[str, Any] | None, beats: Heartbeats[Sending]
    ) -> None:
        lost = f"the lease on delivery {lease.row.delivery_id} was lost"
        try:
            await beats.keeping(lease.sending(scope), lease.seconds, self._sent(scope, lease, declared), lost)
            reach("delivery.after_send")
            await self._deliveries.delivered(scope, lease)
        except SendFailed as problem:
            delay = max(self._backoff.seconds(lease.attempt), problem.after_seconds)
            _log.warning("delivery %s (try %d): %s", lease.row.delivery_id, lease.attempt, problem.message)
            with suppress(LeaseLost):
                await self._deliveries.failed(
                    scope, lease, problem.message, kind=problem.code, permanent=problem.permanent, delay_seconds=delay
                )
        except LeaseLost as problem:
            _log.warning("%s", problem.message)
        except NoetlError as problem:
            # Whoever leases it next tries again; the id of the message tells the receiver.
            _log.warning("delivery %s is left to another sender: %s", lease.row.delivery_id, problem.message)

    async def _sent(self, scope: Scope, lease: Lease, declared: dict[str, Any] | None) -> None:
        if declared is None:
            raise SendFailed(f"there is no channel {lease.row.channel}: apply it, or apply the rules without it")
        channel = self._channels[declared["kind"]]
        secret: dict[str, Any] = {}
        if "credential" in declared:
            try:
                secret = dict((await self._credentials(scope).credential(declared["credential"])).data)
            except NoetlError as problem:
                raise SendFailed(f"the channel's credential cannot be had: {problem.message}") from problem
        granted = (await self._rights(scope)).reach
        private = granted.anywhere if self._allow_private is None else self._allow_private
        wanted = bool(declared.get("allow_private"))
        declared = {**declared, "allow_private": wanted and private, ALLOWED: granted.allowed}
        message = Message(
            delivery_id=lease.row.delivery_id,
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            attempt=lease.attempt,
            alert=lease.row.document,
        )
        redactor = Redactor(secrets_in(guarded(secret)))
        reach("delivery.before_send")
        try:
            async with asyncio.timeout(seconds := timeout_of(declared)):
                await channel.send(message, declared, secret)
        except TimeoutError:
            raise SendFailed(f"it took longer than {seconds:g} seconds") from None
        except SendFailed as problem:
            said = redactor.text(problem.message)
            raise SendFailed(said, permanent=problem.permanent, after_seconds=problem.after_seconds) from None
        except Exception as problem:
            said = redactor.text(f"{type(problem).__name__}: {problem}")
            raise SendFailed(said) from None
