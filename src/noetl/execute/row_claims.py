"""Claims the rows of a loop's next frame in the user's database; the claim lasts only once the ledger names the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from noetl.dispatch.grants import ClaimedRows, CommandGrant, FrameGrant
from noetl.execute.calls import call_maker
from noetl.execute.compiled import CompiledStep
from noetl.execute.outcome import Problem
from noetl.execute.services import Services
from noetl.execute.tools.port import Call
from noetl.execute.tools.postgres_claim import Claim, ClaimFailed, open_claim
from noetl.faults import reach
from noetl.payloads.codec import JSON, encode_json
from noetl.payloads.origin import producing
from noetl.playbook.model import Step
from noetl.playbook.scopes import Names
from noetl.playbook.templates import compile_value

QUICK_SECONDS = 1.0
"""How long a frame that is done waits for the claim of the next one before it is committed without."""
FRESH_SECONDS = 30.0
"""How long rows claimed ahead are good for: a server may cut off a transaction that stands still for minutes."""


@dataclass(frozen=True)
class Held:
    """Rows that are claimed until the end of a block, unless the claim is made to last."""

    rows: list[Any]
    claimed: ClaimedRows
    claim: Claim

    def became(self, frame: FrameGrant) -> bool:
        """Tell whether a frame was made of these rows."""
        return frame.attempt == 1 and frame.rows_ref == self.claimed.rows

    async def keep(self) -> None:
        """Make the claim last, now that the ledger names its rows."""
        reach("rows.after_dispatch")
        await self.claim.commit()


class ClaimAhead:
    """The claim of the next frame's rows, made while the last rows of a frame are worked off; rolled back unless it lasts."""

    def __init__(self, claims: RowClaims, names: Names) -> None:
        self._claims = claims
        self._names = names
        self._stack = AsyncExitStack()
        self._claiming: asyncio.Task[Held | None] | None = None
        self._began = 0.0

    async def __aenter__(self) -> ClaimAhead:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._claiming is not None:
            if not self._claiming.done():
                self._claiming.cancel()
                await asyncio.wait([self._claiming])
            if not self._claiming.cancelled():
                self._claiming.exception()  # told already, or of no interest any more
        await self._stack.aclose()

    def begin(self) -> None:
        """Begin to claim, unless that has begun."""
        if self._claiming is None:
            loop = asyncio.get_running_loop()
            self._began = loop.time()
            self._claiming = loop.create_task(self._stack.enter_async_context(self._claims.held(self._names)))

    async def held(self) -> Held | None:
        """Return what was claimed, unless nothing was or it is held for too long already; `TimeoutError` if it takes long."""
        self.begin()
        assert self._claiming is not None
        async with asyncio.timeout(QUICK_SECONDS):
            held = await asyncio.shield(self._claiming)
        return held if asyncio.get_running_loop().time() - self._began < FRESH_SECONDS else None


class RowClaims:
    """The claims of one slot."""

    def __init__(self, services: Services, grant: CommandGrant, step: Step, compiled: CompiledStep) -> None:
        cursor = step.loop and step.loop.cursor
        assert cursor
        assert grant.loop
        self._services = services
        self._grant = grant
        self._kind = cursor.kind
        self._written = compile_value(
            {"claim": cursor.claim, "auth": cursor.auth, "options": cursor.options},
            f"step {step.name}, field loop.cursor",
        )
        self._most = grant.loop.frame["max_rows"]
        self._proves = bool(grant.loop.frame.get("verify_ipc"))
        self._task = msgspec.structs.replace(compiled.tasks[0], name="claim")
        self.made = 0
        """How many claims returned rows."""

    @asynccontextmanager
    async def held(self, names: Names) -> AsyncIterator[Held | None]:
        """Claim rows for the length of the block and write them down; None when there are none left."""
        if self._kind != "postgres":
            raise ClaimFailed(Problem(kind="schema", message=f"a cursor of kind {self._kind!r} is not supported"))
        async with open_claim(self._call(names)) as claim:
            rows = await claim.rows()
            if not rows:
                await claim.commit()
                yield None
                return
            self.made += 1
            reach("rows.after_claim")
            # In the name of the command: the frame they are to be has no name yet.
            with producing(self._grant.execution_id, 0, self._grant.lease_seconds, proves=self._proves):
                ref = await self._services.store.store(self._services.scope, encode_json(rows), JSON, rows=len(rows))
            yield Held(rows, ClaimedRows(rows=ref, row_count=len(rows)), claim)

    def _call(self, names: Names) -> Call:
        seen = names.for_run(__frame_max_rows=self._most)
        rendered = self._written.render(seen)
        return call_maker(self._services, self._grant, "claim")(
            task=self._task,
            run=1,
            kind="postgres",
            options={"command": rendered["claim"]},
            input={},
            auth=rendered["auth"],
            scope=seen,
            timeout=None,
        )
