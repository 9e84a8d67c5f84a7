"""Shards: the same names fall into the same shard for ever."""

from __future__ import annotations

from collections import Counter

import pytest

from noetl.model.stream import SHARD_COUNT, shard_of


@pytest.mark.parametrize(
    ("tenant", "organization", "key", "shard"),
    [
        ("default", "default", "1", 7),
        ("default", "default", "348912345678901248", 6),
        ("acme", "care-network", "987654321", 7),
        ("acme", "care-network", "dataset/patients", 13),
        ("acme", "", "x", 6),
        ("müller", "医院", "schedule/nightly", 7),
    ],
)
def test_the_shard_of_a_name_never_changes(tenant: str, organization: str, key: str, shard: int) -> None:
    assert shard_of(tenant, organization, key) == shard


def test_there_are_sixteen_shards() -> None:
    assert SHARD_COUNT == 16


def test_the_shard_count_may_be_another() -> None:
    assert shard_of("acme", "care-network", "987654321", 1000) == 183


def test_the_boundaries_between_the_names_count() -> None:
    shards = {shard_of(*names, 2**62) for names in (("a", "b", "c"), ("ab", "", "c"), ("a", "bc", ""), ("", "ab", "c"))}
    assert len(shards) == 4


def test_executions_spread_evenly_over_the_shards() -> None:
    load = Counter(shard_of("acme", "care-network", str(number)) for number in range(16_000))
    assert set(load) == set(range(16))
    assert max(load.values()) < 1.2 * min(load.values())


def test_no_shards_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one shard, not 0"):
        shard_of("acme", "care-network", "1", 0)
