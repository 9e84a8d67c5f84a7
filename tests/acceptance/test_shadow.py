"""The shadow as an operator uses it: it compares from its first start on, and the gate passes on nothing less than all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.acceptance.mirroring import mirror_events
from tests.faults.write_path.stream_writer import open_writer, settings_of

from noetl.model.ids import organization_root_id
from noetl.runtime.config import load_settings
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.wiring import Runtime, open_runtime
from noetl.runtime.write_path.movers import open_write_path
from noetl.testing.engines.write_paths import assert_alike
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

Noetl = Callable[..., tuple[int, str, str]]

FACTS = 20


async def append(runtime: Runtime, count: int = FACTS) -> None:
    """Write so many events of one shard."""
    drafts, scope = Drafts(runtime.scope, runtime.ids.mint), runtime.scope
    root = organization_root_id(scope.tenant_id, scope.organization_id)
    for _ in range(count):
        draft = drafts.business("business/thing", root)
        await runtime.ledger.append(draft.stream, [draft])


async def test_a_change_from_the_stream_to_the_shadow_compares_from_the_first_start(
    owner_url: str, tmp_path: Path, nats_url: str, stream_prefix: str
) -> None:
    """INV-128."""
    async with open_writer(settings_of(owner_url, tmp_path, nats_url, stream_prefix)) as writer:
        await writer.write(FACTS, lambda event_id: None)
    settings = settings_of(owner_url, tmp_path, nats_url, stream_prefix, "shadow")
    async with open_runtime(settings) as runtime, open_write_path(runtime, "tests"):
        assert await runtime.ledger.way.look() == "ledger"
        await append(runtime)
    # The process has let its shadow come to the end of what was written, so nobody is waited for here.
    async with open_runtime(settings) as runtime:
        assert await assert_alike(runtime.database) == FACTS


@pytest.fixture
def in_the_shadow(noetl: Noetl, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Noetl:
    """The `noetl` command in the write path `shadow`."""
    mirror_events(monkeypatch, nats_url, stream_prefix)
    monkeypatch.setenv("NOETL_EVENT_STORE__WRITE_PATH", "shadow")
    return noetl


def gate(noetl: Noetl) -> tuple[int, str, int, int]:
    """Return exit code, verdict, and how much was compared of what."""
    code, shown, errors = noetl("stream", "divergence", "--json")
    assert not errors
    told = json.loads(shown)
    assert told["diverges"] == (told["verdict"] == "diverges")
    return code, told["verdict"], told["compared"], told["written"]


async def written(*, moving: bool) -> None:
    """Write in a process with or without a shadow."""
    async with open_runtime(load_settings()) as runtime:
        if not moving:
            await append(runtime)
            return
        async with open_write_path(runtime, "tests"):
            await append(runtime)


def test_the_gate_passes_only_when_all_that_was_written_is_compared(in_the_shadow: Noetl) -> None:
    """INV-128."""
    assert gate(in_the_shadow) == (4, "unproven", 0, 0)
    code, shown, _ = in_the_shadow("stream", "divergence")
    assert (code, "no shadow ran yet" in shown) == (4, True)

    asyncio.run(written(moving=True))
    assert gate(in_the_shadow) == (0, "proven", FACTS, FACTS)
    code, shown, _ = in_the_shadow("stream", "divergence")
    assert (code, f"{FACTS} of {FACTS} events" in shown, "no divergence" in shown) == (0, True, True)

    asyncio.run(written(moving=False))
    assert gate(in_the_shadow) == (4, "unproven", FACTS, 2 * FACTS)
    code, shown, _ = in_the_shadow("stream", "divergence")
    assert (code, f"NOT PROVEN: {FACTS} of {2 * FACTS} events" in shown) == (4, True)

    asyncio.run(written(moving=True))
    assert gate(in_the_shadow) == (0, "proven", 3 * FACTS, 3 * FACTS)


def test_events_that_the_stream_forgot_before_they_were_compared_close_the_gate(in_the_shadow: Noetl) -> None:
    """INV-128."""
    asyncio.run(written(moving=True))
    asyncio.run(written(moving=False))
    # Published, and gone before a shadow reads them.
    assert in_the_shadow("stream", "rebuild", "--yes")[0] == 0
    asyncio.run(emptied())
    asyncio.run(written(moving=True))
    assert gate(in_the_shadow) == (1, "diverges", 2 * FACTS, 3 * FACTS)
    code, shown, _ = in_the_shadow("stream", "divergence")
    assert (code, f"THEY DIVERGE: {FACTS} missing, 0 different" in shown) == (1, True)
    assert "never came through the stream" in shown

    assert in_the_shadow("stream", "divergence", "--anew")[0] == 0
    assert gate(in_the_shadow) == (4, "unproven", 0, 0)
    asyncio.run(written(moving=True))
    assert gate(in_the_shadow) == (0, "proven", FACTS, FACTS)


async def emptied() -> None:
    """Let the stream of events forget what it has."""
    settings = load_settings()
    async with open_runtime(settings) as runtime, open_stream(settings, runtime.database, "events") as events:
        await events.trim((await events.state()).last_sequence)
