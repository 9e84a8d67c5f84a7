"""`noetl retention` and `noetl payloads` on a real database and a local payload store, as a user types them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noetl.model.ids import SnowflakeGenerator, snowflake_at
from noetl.model.stream import Scope
from noetl.runtime.config import load_settings
from noetl.runtime.wiring import open_runtime
from noetl.testing.samples.drafts import Drafts

pytestmark = pytest.mark.service

SCOPE = Scope("default", "default")
OLD = snowflake_at(datetime(2025, 2, 3, tzinfo=UTC))
IDS = SnowflakeGenerator(11, lambda: time.time_ns() // 1_000_000)

Noetl = Callable[..., tuple[int, str, str]]


def recorded(*, ends: bool = True) -> str:
    """Record an old execution with a payload and return the payload's digest."""

    async def record() -> str:
        async with open_runtime(load_settings()) as runtime:
            drafts = Drafts(SCOPE, IDS.mint)
            ref = await runtime.payloads.store(SCOPE, b"result", "text/plain")
            made = [drafts.execution(OLD, payload_ref=ref)]
            if ends:
                made.append(drafts.execution(OLD, "playbook.completed"))
            await runtime.ledger.append(made[0].stream, made)
            async with runtime.database.transaction(None, "projector") as connection:
                await connection.execute("UPDATE noetl.projection_checkpoint SET position = 1000")
            return ref.sha256

    return asyncio.run(record())


def parsed(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def test_a_month_is_planned_archived_and_shown(noetl: Noetl) -> None:
    recorded()
    code, out, _ = noetl("retention", "plan", "--keep-months", "3")
    assert (code, "event_2025_02" in out, "would drop" in out) == (0, True, True)
    (outcome,) = parsed(noetl("retention", "run", "--keep-months", "3", "--json"))["partitions"]
    assert (outcome["action"], outcome["events"]) == ("dropped", 2)
    shown = parsed(noetl("retention", "status", "--json"))
    assert [(one["partition"], one["events"], one["state"]) for one in shown["archives"]] == [
        ("event_2025_02", 2, "archived")
    ]
    assert "event_2025_02" not in [one["partition"] for one in shown["partitions"]]
    code, out, _ = noetl("retention", "status")
    assert (code, "default/default" in out) == (0, True)


def test_a_month_that_must_stay_is_explained_and_exits_1(noetl: Noetl) -> None:
    recorded(ends=False)
    code, out, _ = noetl("retention", "run", "--keep-months", "3")
    assert code == 1
    assert f"1 execution has not ended ({OLD})" in out


def test_without_settings_history_is_kept_for_ever(noetl: Noetl) -> None:
    recorded()
    code, out, _ = noetl("retention", "run")
    assert code == 0
    assert out.endswith(
        "Let go: nothing.\nNo partition is old enough to be dropped.\nexpired idempotency keys deleted: 0\n"
    )


def test_payloads_of_archived_events_are_listed_explained_and_kept(noetl: Noetl) -> None:
    sha256 = recorded()
    noetl("retention", "run", "--keep-months", "3")
    listed = {one["sha256"]: one["references"] for one in parsed(noetl("payloads", "list", "--json"))}
    assert (len(listed), listed[sha256]) == (3, 1)
    code, out, _ = noetl("payloads", "explain", sha256)
    assert (code, "archive of event_2025_02 (a payload of its events)" in out) == (0, True)
    code, out, _ = noetl("payloads", "collect")
    assert (code, out) == (0, "3 objects, 0 removed (0 bytes), 3 kept.\n")


def test_a_damaged_payload_is_found_by_check_for_the_organization_and_the_execution(
    noetl: Noetl, tmp_path: Path
) -> None:
    sha256 = recorded()
    assert parsed(noetl("payloads", "check", "--json")) == {"checked": 1, "problems": []}
    noetl("retention", "run", "--keep-months", "3")
    assert parsed(noetl("payloads", "check", "--json"))["checked"] == 3
    (stored,) = (tmp_path / ".noetl").rglob(sha256)
    stored.chmod(0o600)
    stored.write_bytes(b"other")
    for arguments in ((), (str(OLD),)):
        code, _, errors = noetl("payloads", "check", *arguments)
        assert (code, sha256 in errors) == (1, True)


def test_a_missing_payload_exits_1_and_a_wrong_digest_2(noetl: Noetl) -> None:
    assert noetl("payloads", "explain", "ab" * 32)[0] == 1
    code, _, errors = noetl("payloads", "explain", "nonsense")
    assert (code, "not a SHA-256" in errors) == (2, True)
    assert noetl("payloads", "check", "12x")[0] == 2
