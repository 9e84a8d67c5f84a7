"""Only what decides nothing may become durable in the stream alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.model.sound import DRAFTS, SCOPE, sound

from noetl.kernel.stream.write_path.facts import decides_nothing
from noetl.model.catalogue import EVENT_TYPES
from noetl.model.event import Draft


def posted(stream_id: str = "business/invoice/1", **fields: Any) -> Draft:
    return DRAFTS.draft(SCOPE.stream(stream_id), "business.invoice.posted", 7, **fields)


@pytest.mark.parametrize("stream_id", ["business/invoice/1", "execution/7/business/invoice/1"])
def test_a_fact_of_the_users_own_decides_nothing(stream_id: str) -> None:
    assert decides_nothing(posted(stream_id))


@pytest.mark.parametrize("fact", [posted("execution/7"), posted("task/1"), posted(idempotency_key="k")])
def test_it_may_where_others_decide_or_a_key_does(fact: Draft) -> None:
    assert not decides_nothing(fact)


@pytest.mark.parametrize("kind", [kind for kind in EVENT_TYPES if not kind.observed], ids=lambda kind: kind.name)
def test_a_decided_type_decides_wherever_it_stands(kind: Any) -> None:
    assert not decides_nothing(sound(kind, stream_id="business/invoice/1", idempotency_key=None))


def test_a_type_that_is_not_declared_is_not_taken() -> None:
    assert not decides_nothing(posted(event_type="invoice.posted"))
