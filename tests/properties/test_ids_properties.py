"""Ids stay unique and growing under any clock; root ids and times keep to their ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import Unavailable
from noetl.model.ids import (
    EPOCH_MS,
    MAX_AHEAD_MS,
    ROOT_ID_LIMIT,
    SnowflakeGenerator,
    organization_root_id,
    parse_id,
    snowflake_at,
    snowflake_time,
    uuid5_of,
)

START_MS = EPOCH_MS + 10**10
steps = st.lists(st.tuples(st.integers(-20_000, 20_000), st.integers(0, 5000)), max_size=30)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2093, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds must be naive


@given(steps)
def test_ids_grow_whatever_the_clock_does_and_never_run_far_ahead(steps: list[tuple[int, int]]) -> None:
    """INV-11."""
    now = START_MS
    generator = SnowflakeGenerator(3, lambda: now)
    last = 0
    for move, count in steps:
        now += move
        try:
            ids = generator.mint_many(count)
        except Unavailable:
            assert (last >> 22) + EPOCH_MS + 2 > now  # refused only because ids are ahead already
            continue
        assert ids == sorted(set(ids))
        assert all(snowflake > last for snowflake in ids[:1])
        if ids:
            last = ids[-1]
            assert (last >> 22) + EPOCH_MS <= now + MAX_AHEAD_MS


@given(st.sets(st.integers(0, 1023), min_size=2, max_size=5), st.integers(1, 6000))
def test_generators_of_different_nodes_never_collide(nodes: set[int], count: int) -> None:
    ids = [snowflake for node in nodes for snowflake in SnowflakeGenerator(node, lambda: START_MS).mint_many(count)]
    assert len(set(ids)) == len(nodes) * count


@given(moments)
def test_the_lowest_id_of_an_instant_has_its_time_to_the_millisecond(moment: datetime) -> None:
    lowest = snowflake_at(moment)
    assert timedelta(0) <= moment - snowflake_time(lowest) < timedelta(milliseconds=1)
    assert lowest == 0 or snowflake_time(lowest - 1) < snowflake_time(lowest)


@given(st.integers(1, 2**63 - 1))
def test_an_id_is_read_back_from_its_decimal_string(snowflake: int) -> None:
    assert parse_id(str(snowflake)) == snowflake


@given(st.text(), st.text())
def test_root_ids_lie_below_every_minted_id(tenant: str, organization: str) -> None:
    root = organization_root_id(tenant, organization)
    assert 1 <= root < ROOT_ID_LIMIT
    assert root == organization_root_id(tenant, organization)


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_two_lists_of_parts_have_one_uuid_only_if_they_are_the_same(one: list[str], other: list[str]) -> None:
    assert (uuid5_of(*one) == uuid5_of(*other)) == (one == other)
