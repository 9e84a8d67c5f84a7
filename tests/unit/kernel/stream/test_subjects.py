from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InputError
from noetl.kernel.stream.subjects import all_of, checked_durable, escape, of_shard, parts, root, subject, unescape

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(TEXT)
def test_a_tenant_is_one_token_without_wildcards_and_reads_back(tenant: str) -> None:
    token = escape(tenant)
    assert token
    assert not set(token) & set(".*> \t\r\n")
    assert token.isascii()
    assert unescape(token) == tenant


@given(TEXT, TEXT)
def test_two_tenants_never_share_a_token(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@given(TEXT, st.integers(1, 2**63 - 1), st.integers(0, 15))
def test_a_subject_says_tenant_execution_and_shard(tenant: str, execution: int, shard: int) -> None:
    assert parts(subject("noetl_events", tenant, execution, shard)) == (tenant, execution, shard)


def test_subjects_look_as_documented() -> None:
    assert subject("noetl_events", "acme", 17, 3) == "noetl.events.acme.17.3"
    assert subject("my_firm_writes", "a.b", 17, 3) == "my_firm.writes.a%2Eb.17.3"
    assert all_of("noetl_events") == "noetl.events.*.*.*"
    assert of_shard("noetl_events", 15) == "noetl.events.*.*.15"


@pytest.mark.parametrize("name", ["", "events", "noetl.events", "noetl_", "_events", "noetl events", "noetl_ev*"])
def test_a_name_that_makes_no_subject_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        root(name)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ä", "a" * 129])
def test_a_name_that_is_no_durable_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        checked_durable(name)
