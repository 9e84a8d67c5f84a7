"""The file of signed heads: each line is whole or not there, whatever the disk does."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noetl.errors import Unavailable
from noetl.ledger.chain.head_file import HeadFile
from noetl.ledger.chain.heads import Head


def head(size: int) -> Head:
    return Head(
        ledger="a ledger", shard=3, first_position=1, size=size, root="ab" * 32, link="cd" * 32,
        signed_at="2026-01-01T00:00:00Z", key="0123456789abcdef", signature="e" * 88,
    )  # fmt: skip


@pytest.fixture
def heads(tmp_path: Path) -> HeadFile:
    return HeadFile(tmp_path / "heads", "a ledger")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: a write that does is cut short, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_head_that_does_not_fit_on_the_disk_is_not_published_in_part(heads: HeadFile) -> None:
    """INV-206"""
    await heads.publish(head(1))
    before = heads.path.read_bytes()
    with room_for(len(before) + 20), pytest.raises(Unavailable, match="cannot be written"):
        await heads.publish(head(2))
    assert heads.path.read_bytes() == before
    await heads.publish(head(2))
    assert heads.heads() == [head(1), head(2)]


@pytest.mark.parametrize("lines", [0, 1, 40])
async def test_a_line_that_was_cut_off_does_not_spoil_those_after_it(heads: HeadFile, lines: int) -> None:
    """INV-206"""
    heads.path.parent.mkdir()
    heads.path.touch()
    for size in range(1, lines + 1):
        await heads.publish(head(size))
    with heads.path.open("ab") as file:
        file.write(head(99).line().encode()[:-30])
    await heads.publish(head(lines + 1))
    assert [one.size for one in heads.heads()] == list(range(1, lines + 2))
