"""Whether servers let in who shows no token: people act on tokens, call, and each answer is held against what was done before."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from noetl.errors import Denied, NotFound
from noetl.testing.engines.memory import SCOPE
from noetl.testing.simulation.world.process import Died
from noetl.testing.simulation.world.tokens import Act
from noetl.testing.simulation.world.world import World

SLACK_SECONDS = 5.0
"""How long a server may still answer by what it knew before: it keeps what it looked up for a second, and a look takes time."""


class Gate:
    """People with and without tokens, and what they may expect."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asks_since: float | None = None
        """Since when a token has been there, since the server was last opened on purpose."""

    async def run(self) -> None:
        """Do everything in its time."""
        for act in self._world.scenario.acts:
            await asyncio.sleep(max(0.0, act.at - self._world.loop.time()))
            self._world.watch.tell("people", str(act))
            await self._do(act)

    async def _do(self, act: Act) -> None:
        tokens, now = self._world.tokens, self._world.loop.time()
        match act.kind:
            case "make":
                await tokens.create(SCOPE, "people", "admin", timedelta(seconds=act.seconds) if act.seconds else None)
                self._asks_since = now if self._asks_since is None else self._asks_since
            case "revoke":
                made = [one for one in await tokens.list(SCOPE) if one.revoked_at is None]
                if made:
                    await tokens.revoke(SCOPE, made[0].token_id)
            case "open":
                try:
                    await tokens.open_again(SCOPE)
                    self._asks_since = None
                except (Denied, NotFound):
                    self._world.watch.tell("people", "are refused: a token is live")
            case "call":
                await self._call()

    async def _call(self) -> None:
        watch, began, since = self._world.watch, self._world.loop.time(), self._asks_since
        for door in self._world.doors.values():
            process = door.process
            if not process.is_alive or process.was_frozen:
                continue
            # Apart from who counts as local, which is another question.
            asking = process.spawn(door.admission._asks_for_tokens(), "call")
            try:
                asks = await asking
            except Died:
                continue
            except asyncio.CancelledError:
                if asking.cancelled():
                    continue
                raise
            watch.tell(process.name, "asks for a token" if asks else "lets in whoever calls")
            if not asks and since is not None and began > since + SLACK_SECONDS and self._asks_since == since:
                watch.fail("a server that has had tokens asks for one", f"{process.name} lets in who shows none")
