"""Appends are checked in full: all of them in tests, some of them in production, where nothing is lost for it."""

from __future__ import annotations

import logging

import pytest

from noetl.errors import EventInvalid
from noetl.kernel.ledger.claim_checks import STRICT, Checks
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.model.event import Draft
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.runtime.metrics.process import Metrics
from noetl.testing.samples.drafts import Drafts

DRAFTS = Drafts(Scope("acme", "care"), SnowflakeGenerator(1, lambda: 1_790_000_000_000).mint)


def unsound() -> Draft:
    return DRAFTS.execution(DRAFTS.mint(), producer="noetl://tenant/acme/org/care/server")


@pytest.fixture
def in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STRICT)


@pytest.mark.usefixtures("in_production")
async def test_production_records_an_unsound_event_counts_it_and_names_its_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INV-157."""
    ledger, metrics, draft = MemoryLedger(), Metrics("1"), unsound()
    metrics.watch_checks(ledger.checks)
    with caplog.at_level(logging.ERROR):
        await ledger.append(draft.stream, [draft])
    assert [event.event_id async for event in ledger.read(draft.stream)] == [draft.event_id]
    assert f"event {draft.event_id} (playbook.initialized): producer:" in caplog.text
    assert metrics.registry.get_sample_value("noetl_unsound_events_total") == 1


@pytest.mark.usefixtures("in_production")
@pytest.mark.parametrize(("every", "found"), [(0, 0), (1, 10), (3, 4), (1000, 1)])
def test_the_first_append_is_checked_and_every_so_many_th_after_it(every: int, found: int) -> None:
    checks = Checks(every)
    for _ in range(10):
        checks.look([unsound()])
    assert checks.unsound == found


def test_tests_check_every_append_whatever_the_settings_say() -> None:
    checks = Checks(0)
    checks.look([DRAFTS.execution(DRAFTS.mint())])
    with pytest.raises(EventInvalid, match=r"\(playbook.initialized\): producer: .* is no locator"):
        checks.look([DRAFTS.execution(DRAFTS.mint()), unsound()])
