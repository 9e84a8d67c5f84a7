"""Claims the rows of a loop's next frame in the user's database; the claim lasts only once the ledger names the rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.tools.outcome import Problem
from noetl.engine.tools.port import Call
from noetl.engine.tools.postgres.claim import ClaimFailed, open_claim
from noetl.engine.worker.compiled_step import CompiledStep
from noetl.engine.worker.services import Services, call_maker
from noetl.faults import reach
from noetl.kernel.payloads.codec import JSON, encode_json
from noetl.kernel.payloads.consumers import producing
from noetl.language.playbook.model import Step
from noetl.language.templates.scopes import Names
from noetl.model.payload_ref import PayloadRef


@dataclass(frozen=True)
class Claimed:
    """Rows that are claimed until the end of a block, unless the claim is made to last."""

    rows: list[Any]
    ref: PayloadRef
    """Where they are written down."""
    keep: Callable[[], Awaitable[None]]
    """Makes the claim last."""


class RowClaims:
    """The claims of one slot."""

    def __init__(self, services: Services, grant: CommandGrant, step: Step, compiled: CompiledStep) -> None:
        cursor = step.loop and step.loop.cursor
        assert cursor
        assert grant.loop
        self._services = services
        self._grant = grant
        self._kind = cursor.kind
        assert compiled.claim
        self._written = compiled.claim
        self._most = grant.loop.frame["max_rows"]
        self._proves = bool(grant.loop.frame.get("verify_ipc"))
        self._task = msgspec.structs.replace(compiled.tasks[0], name="claim")
        self.made = 0
        """How many claims returned rows."""

    @asynccontextmanager
    async def open(self, names: Names) -> AsyncIterator[Claimed | None]:
        """Claim rows for the length of the block and write them down; None when there are none left."""
        if self._kind != "postgres":
            raise ClaimFailed(Problem(kind="schema", message=f"a cursor of kind {self._kind!r} is not supported"))
        async with open_claim(await self._call(names)) as claim:
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
            yield Claimed(rows, ref, claim.commit)

    async def _call(self, names: Names) -> Call:
        seen = names.for_run(__frame_max_rows=self._most)
        services = self._services
        rendered = await services.evaluating.run(services.scope, lambda: self._written.render(seen))
        return call_maker(self._services, self._grant, "claim")(
            task=self._task,
            run=1,
            kind="postgres",
            options={"command": rendered["claim"], "pool": {"size": rendered["options"].get("pool_size")}},
            input={},
            auth=rendered["auth"],
            scope=seen,
            timeout=None,
        )
