"""INV-16: a tenant's key is destroyed; its data are gone, and everything that was proven about them stays proven."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from noetl.errors import Erased
from noetl.kernel.payloads.envelope import externalize
from noetl.model.ids import SnowflakeGenerator
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.runtime.config import load_settings
from noetl.runtime.wiring import open_runtime
from noetl.testing.samples.drafts import Drafts

from .conftest import Noetl

pytestmark = pytest.mark.service

SCOPE = Scope("default", "default")


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_PAYLOAD_STORE__ENCRYPTION_AT_REST", "true")


async def record() -> PayloadRef:
    """Record an execution whose event refers to an encrypted payload, and project it."""
    async with open_runtime(load_settings()) as runtime:
        drafts = Drafts(SCOPE, SnowflakeGenerator(5, lambda: time.time_ns() // 1_000_000).mint)
        ref = await runtime.payloads.store(SCOPE, b"a secret of the tenant", "text/plain")
        draft = drafts.execution(drafts.mint(), payload_ref=ref)
        run, stage, frame = draft.execution_id, drafts.mint(), drafts.mint()
        large = drafts.frame(run, stage, frame, context={"cursor": "secret " * 10_000})
        for one in (draft, await externalize(runtime.payloads, large)):
            await runtime.ledger.append(one.stream, [one])
        await runtime.projector().run_until(await runtime.ledger.head())
    return ref


async def cursors() -> list[Any]:
    """Return where the projected frames stand."""
    async with open_runtime(load_settings()) as runtime:
        return [row.folded.row["cursor"] async for row in runtime.projections.query(SCOPE, "frame")]


async def fetch(ref: PayloadRef) -> bytes:
    async with open_runtime(load_settings()) as runtime:
        return await runtime.payloads.fetch(SCOPE, ref)


def test_an_erased_tenants_data_are_gone_and_its_history_still_verifies(noetl: Noetl, encrypted: None) -> None:
    """INV-16, INV-155."""
    ref = asyncio.run(record())
    assert asyncio.run(cursors()) == ["secret " * 10_000]
    assert asyncio.run(fetch(ref)) == b"a secret of the tenant"
    code, out, _ = noetl("payloads", "erase", "--yes")
    assert code == 0
    assert "is erased" in out
    with pytest.raises(Erased):
        asyncio.run(fetch(ref))
    assert asyncio.run(cursors()) == [None]
    assert noetl("payloads", "check")[0] == 0
    assert noetl("verify", "--all", "--payloads")[0] == 0
    code, out, _ = noetl("payloads", "erase", "--yes")
    assert code == 0
    assert "was erased before" in out


def test_without_encryption_there_is_nothing_to_destroy(noetl: Noetl) -> None:
    code, _, err = noetl("payloads", "erase", "--yes")
    assert code == 2
    assert "encryption_at_rest" in err
