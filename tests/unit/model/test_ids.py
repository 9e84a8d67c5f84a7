"""Ids: they only grow, whatever the clock does, and carry the time they were made."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest

from noetl.errors import ConfigError, InputError, Unavailable
from noetl.model.ids import (
    EPOCH,
    EPOCH_MS,
    MAX_AHEAD_MS,
    MAX_ID,
    MAX_NODE,
    ROOT_ID_LIMIT,
    SnowflakeGenerator,
    organization_root_id,
    parse_id,
    snowflake_at,
    snowflake_time,
    uuid5_of,
)

NOON = datetime(2026, 5, 16, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, ms: int = NOON_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def test_an_id_is_milliseconds_node_and_sequence() -> None:
    generator = SnowflakeGenerator(5, Clock(EPOCH_MS + 1_000_000))
    assert generator.mint() == 1_000_000 << 22 | 5 << 12 | 0
    assert generator.mint() == 1_000_000 << 22 | 5 << 12 | 1


def test_the_epoch_is_the_start_of_2024() -> None:
    assert EPOCH.timestamp() * 1000 == EPOCH_MS
    assert EPOCH.isoformat() == "2024-01-01T00:00:00+00:00"


def test_a_new_millisecond_starts_a_new_sequence() -> None:
    clock = Clock()
    generator = SnowflakeGenerator(0, clock)
    generator.mint_many(3)
    clock.ms += 1
    assert generator.mint() == (NOON_MS + 1 - EPOCH_MS) << 22


def test_a_full_millisecond_borrows_from_the_next_one() -> None:
    ids = SnowflakeGenerator(7, Clock()).mint_many(4097)
    assert snowflake_time(ids[4095]) == NOON
    assert ids[4096] == (NOON_MS + 1 - EPOCH_MS) << 22 | 7 << 12


def test_a_clock_set_back_gives_larger_ids_all_the_same() -> None:
    clock = Clock()
    generator = SnowflakeGenerator(0, clock)
    before = generator.mint()
    clock.ms -= MAX_AHEAD_MS
    assert generator.mint() == before + 1


def test_a_clock_set_back_too_far_is_an_error_until_it_has_caught_up() -> None:
    clock = Clock()
    generator = SnowflakeGenerator(0, clock)
    before = generator.mint()
    clock.ms -= MAX_AHEAD_MS + 1
    with pytest.raises(Unavailable, match=r"1 ids would run 10001 ms ahead of the clock"):
        generator.mint()
    clock.ms += 1
    assert generator.mint() == before + 1


def test_asking_for_too_many_ids_reserves_none_of_them() -> None:
    generator = SnowflakeGenerator(0, Clock())
    first = generator.mint()
    with pytest.raises(Unavailable):
        generator.mint_many((MAX_AHEAD_MS + 1) * 4096)
    assert generator.mint() == first + 1


def test_no_ids_may_be_asked_for_but_not_fewer() -> None:
    generator = SnowflakeGenerator(0, Clock())
    assert generator.mint_many(0) == []
    with pytest.raises(ValueError, match="cannot mint -1 ids"):
        generator.mint_many(-1)


def test_threads_sharing_a_generator_never_get_the_same_id() -> None:
    generator = SnowflakeGenerator(1, Clock())
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [generator.mint() for _ in range(500)] + generator.mint_many(50), range(16)))
    assert len({snowflake for batch in batches for snowflake in batch}) == 16 * 550
    assert all(batch == sorted(batch) for batch in batches)


@pytest.mark.parametrize("node", [-1, MAX_NODE + 1])
def test_a_node_out_of_range_is_refused(node: int) -> None:
    with pytest.raises(ConfigError, match=f"node {node} is not between 0 and 1023"):
        SnowflakeGenerator(node, Clock())


@pytest.mark.parametrize(
    "ms", [0, EPOCH_MS - 1, EPOCH_MS + (ROOT_ID_LIMIT >> 22) - 1, EPOCH_MS + (1 << 41) - MAX_AHEAD_MS]
)
def test_a_clock_outside_the_range_of_ids_is_refused(ms: int) -> None:
    with pytest.raises(ConfigError, match="ids exist only from 2024 to 2093"):
        SnowflakeGenerator(0, Clock(ms)).mint()


def test_the_first_id_that_can_be_minted_is_above_every_root_id() -> None:
    assert SnowflakeGenerator(0, Clock(EPOCH_MS + (ROOT_ID_LIMIT >> 22))).mint() == ROOT_ID_LIMIT


def test_the_last_id_that_can_be_minted_fits_a_bigint() -> None:
    generator = SnowflakeGenerator(MAX_NODE, Clock(EPOCH_MS + (1 << 41) - 1 - MAX_AHEAD_MS))
    assert generator.mint_many((MAX_AHEAD_MS + 1) * 4096 // 1000)[-1] <= MAX_ID


def test_an_instant_before_2024_is_before_every_id() -> None:
    assert snowflake_at(datetime(2020, 1, 1, tzinfo=UTC)) == 0


def test_an_instant_in_another_time_zone_is_the_same_instant() -> None:
    assert snowflake_at(NOON.astimezone(timezone(timedelta(hours=9)))) == snowflake_at(NOON)


def test_an_instant_without_time_zone_is_refused() -> None:
    with pytest.raises(
        InputError, match="2026-05-16T12:00:00 has no time zone; write for example 2026-05-16T12:00:00Z"
    ):
        snowflake_at(NOON.replace(tzinfo=None))


def test_an_instant_after_the_last_id_is_refused() -> None:
    with pytest.raises(InputError, match="later than any id"):
        snowflake_at(datetime(2094, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("number", [-1, MAX_ID + 1])
def test_the_time_of_a_number_that_is_no_id_is_refused(number: int) -> None:
    with pytest.raises(InputError, match="is not an id"):
        snowflake_time(number)


def test_an_id_is_read_from_its_decimal_string() -> None:
    assert parse_id("1") == 1
    assert parse_id(str(MAX_ID)) == MAX_ID


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "+1", "01", " 1", "1\n", "1_0", "1e3", "0x1", "\uff11\uff12", "abc", str(MAX_ID + 1), "9" * 500],
)
def test_text_that_is_no_decimal_id_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an id: it must be a decimal number from 1 to 9223372036854775807"):
        parse_id(text)


@pytest.mark.parametrize("value", [1, 1.0, None, True])
def test_an_id_that_is_no_string_is_refused_with_the_reason(value: object) -> None:
    with pytest.raises(InputError, match=r"an id is a string of digits, not .*: JSON numbers lose its last digits"):
        parse_id(value)


def test_the_root_id_of_an_organization_never_changes() -> None:
    assert organization_root_id("default", "default") == 660027938900
    assert organization_root_id("acme", "care-network") == 519629817294


def test_the_root_id_depends_on_where_the_names_part() -> None:
    assert organization_root_id("ab", "c") != organization_root_id("a", "bc")


def test_the_uuid_of_the_same_parts_never_changes() -> None:
    assert uuid5_of("a", "b") == UUID("f04307f6-f2da-5196-b295-f60dd5bcdf60")


def test_the_uuid_of_parts_can_be_made_in_any_language() -> None:
    assert uuid5_of("dataset", 'p"1') == uuid5(uuid5(NAMESPACE_URL, "noetl://"), r'["dataset","p\"1"]')
