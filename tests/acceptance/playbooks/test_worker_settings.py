"""What the settings bound in a worker: how many frames it has in hand, and how large a result stands in its event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.worker.worker import Worker
from noetl.runtime.assembly.engine import open_worker
from noetl.runtime.settings.declaration import Settings
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.engines.short_leases import until

LOOP = playbook(
    """
    workload: {url: ""}
    workflow:
      - step: begin
        tool: {kind: noop}
        next: {arcs: [{step: each}]}
      - step: each
        loop: {in: "{{ range(12) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 5, frame: {max_rows: 1}}}
        tool: {kind: http, url: "{{ workload.url }}"}
    """,
    path="tests/loop",
)
SINGLE = playbook("workflow:\n  - step: only\n    tool: {kind: noop}\n", path="tests/single")
BYTES = playbook(
    """
    workload: {bytes: 0}
    workflow:
      - step: one
        tool:
          kind: python
          input: {n: "{{ workload.bytes }}"}
          code: "result = 'x' * n"
          output: {inline_max_bytes: 2000}
    """,
    path="tests/bytes",
)


class Door:
    """An API that lets nobody through until it is opened, and knows how many stood before it at once."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.inside = 0
        self.most = 0

    async def enter(self, _: web.Request) -> web.Response:
        """Wait for the opening."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.opened.wait()
        finally:
            self.inside -= 1
        return web.Response(text="in")


@asynccontextmanager
async def worker_with(playbooks: Playbooks, settings: dict[str, Any], slots: int = 8) -> AsyncIterator[Worker]:
    """Give a worker with settings of its own."""
    merged = {**settings, "runtime": {"home": playbooks.home, **settings.get("runtime", {})}}
    runtime = replace(playbooks.runtime, settings=Settings.model_validate(merged))
    async with open_worker(runtime, playbooks.engine.dispatch(playbooks.scope), slots=slots) as worker:
        yield worker


async def started(playbooks: Playbooks, text: str, workload: dict[str, Any] | None = None) -> int:
    """Start a playbook."""
    entry = await playbooks.register(text)
    return (await playbooks.engine.start(playbooks.scope, entry, workload, requested_by="tests")).execution_id


async def test_a_worker_has_no_more_frames_in_hand_than_its_settings_allow(playbooks: Playbooks) -> None:
    door, app = Door(), web.Application()
    app.router.add_get("/", door.enter)
    bound = {"runtime": {"scheduler": {"max_inflight_frames_per_worker": 2}}}
    async with TestServer(app) as server, worker_with(playbooks, bound):
        execution_id = await started(playbooks, LOOP, {"url": str(server.make_url("/"))})

        async def full() -> bool:
            return door.inside == 2

        await until(full, "two rows at the door")
        # The loop's other slots wait, and there is room for single steps.
        for _ in range(3):
            assert (await playbooks.finished(await started(playbooks, SINGLE))).status == "COMPLETED"
        assert door.inside == 2
        door.opened.set()
        state = await playbooks.finished(execution_id)
    assert (state.status, state.results["each"].data["completed"]) == ("COMPLETED", 12)
    assert door.most == 2


async def test_without_a_bound_loops_take_all_slots(playbooks: Playbooks) -> None:
    door, app = Door(), web.Application()
    app.router.add_get("/", door.enter)
    async with TestServer(app) as server, worker_with(playbooks, {}):
        execution_id = await started(playbooks, LOOP, {"url": str(server.make_url("/"))})

        async def full() -> bool:
            return door.inside == 5

        await until(full, "five rows at the door")
        door.opened.set()
        assert (await playbooks.finished(execution_id)).status == "COMPLETED"


async def test_the_settings_lower_what_stays_inline(playbooks: Playbooks) -> None:
    async with worker_with(playbooks, {"payload_store": {"threshold_bytes": 500}}):
        for size, inline in ((498, True), (499, False)):
            state = await playbooks.finished(await started(playbooks, BYTES, {"bytes": size}))
            assert (state.status, state.results["one"].ref is None) == ("COMPLETED", inline)
