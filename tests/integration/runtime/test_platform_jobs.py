"""The platform's own jobs over all organizations: one that fails keeps none of the others waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from noetl.errors import NotFound, Unavailable
from noetl.model.stream import Scope
from noetl.runtime.assembly import platform_jobs
from noetl.services.schedule.handlers.port import SlotRun
from noetl.testing.engines.playbooks import Playbooks


async def test_retention_goes_on_after_an_organization_where_it_failed(
    playbooks: Playbooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def run_retention(_runtime: Any, scope: Scope) -> dict[str, Any]:
        seen.append(scope.organization_id)
        if scope.organization_id == "a":
            raise NotFound("its lake is gone")
        return {"ran": True}

    organizations = "SELECT * FROM (VALUES ('t', 'a'), ('t', 'b')) AS o (tenant_id, organization_id)"
    monkeypatch.setattr(platform_jobs, "_ORGANIZATIONS", organizations)
    monkeypatch.setattr(platform_jobs, "run_retention", run_retention)
    slot = SlotRun(
        scope=playbooks.scope, schedule_id="s", name="retention", target={}, plan_time=datetime.now(UTC), attempt=1,
        key="k", runner="r",
    )  # fmt: skip
    with pytest.raises(Unavailable, match="t/a: its lake is gone"):
        await platform_jobs._Retention(playbooks.runtime)(slot)
    assert seen[-2:] == ["a", "b"]
