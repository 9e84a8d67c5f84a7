"""A file of the lake goes only when no version names it and nobody who may still commit can have written it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InputError
from noetl.model.stream import Scope
from noetl.services.retention.lake_prefix import LakeFile, LakePrefixes
from noetl.services.retention.summary import CLOCKS_APART, leftovers
from noetl.spark.lake.storage import Lake

NOW = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)

ages = st.integers(0, 400)


@given(
    files=st.dictionaries(st.sampled_from([f"p/commit={n}/f" for n in range(6)]), ages),
    named=st.sets(st.sampled_from([f"p/commit={n}/f" for n in range(6)])),
    running=st.lists(ages, max_size=3),
    age=st.none() | st.integers(0, 300),
)
def test_only_files_that_nobody_can_name_go(
    files: dict[str, int], named: set[str], running: list[int], age: int | None
) -> None:
    """INV-81."""
    listed = [LakeFile(path, 1, NOW - hours * HOUR) for path, hours in files.items()]
    since = [NOW - hours * HOUR for hours in running]
    for fate in leftovers(listed, named, since, NOW, None if age is None else age * HOUR):
        path, written = fate.file.path, fate.file.modified
        may_be_named = any(written >= begun - CLOCKS_APART for begun in since)
        old = age is not None and NOW - written > age * HOUR
        assert fate.kept == (path in named or may_be_named or not old)


def test_a_checksum_beside_a_file_shares_its_fate() -> None:
    listed = [LakeFile(path, 1, NOW - 90 * HOUR) for path in ("p/a.parquet", "p/.a.parquet.crc", "p/.b.parquet.crc")]
    fates = leftovers(listed, {"p/a.parquet"}, [], NOW, HOUR)
    assert [fate.kept for fate in fates] == [True, True, False]


@pytest.mark.parametrize(
    "location",
    [
        "acme/other/datasets/d/gen=1/",
        "acme/care/datasets/d/",
        "acme/care/datasets/../../other/datasets/d/gen=1/",
        "acme/careful/datasets/d/gen=1/",
        "",
        "/",
    ],
)
async def test_no_prefix_but_a_generation_of_the_organization_is_ever_touched(location: str) -> None:
    """INV-83."""
    prefixes = LakePrefixes(Lake("/nowhere"), Scope("acme", "care"))
    with pytest.raises(InputError, match="is no generation below acme/care/datasets/"):
        await prefixes.files(location)
    with pytest.raises(InputError):
        await prefixes.delete(location, [f"{location}x"])


@pytest.mark.parametrize("path", ["acme/care/datasets/d/gen=2/x", "acme/care/datasets/d/gen=1/../gen=2/x", "x"])
async def test_no_file_outside_its_prefix_is_ever_deleted(path: str) -> None:
    """INV-83."""
    prefixes = LakePrefixes(Lake("/nowhere"), Scope("acme", "care"))
    with pytest.raises(InputError, match="is not below"):
        await prefixes.delete("acme/care/datasets/d/gen=1/", [path])
