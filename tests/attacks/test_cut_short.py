"""A disk that fills up in the middle of a write: what is written is whole or not there, and the writer hears of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import Unavailable
from noetl.kernel.ledger.chain.heads import Head
from noetl.kernel.ledger.chain.notary import HeadFile
from noetl.kernel.payloads.keys import FileTenantKeys
from noetl.kernel.stream.losses.journal import Journal
from noetl.kernel.stream.losses.journal_files import noted_in
from noetl.kernel.stream.port import Message
from noetl.services.credentials.keyring import KeyRing
from noetl.testing.attacks.outages import files_up_to


def head(size: int) -> Head:
    return Head(
        ledger="a ledger", shard=3, first_position=1, size=size, root="ab" * 32, link="cd" * 32,
        signed_at="2026-01-01T00:00:00Z", key="0123456789abcdef", signature="e" * 88,
    )  # fmt: skip


@pytest.fixture
def heads(tmp_path: Path) -> HeadFile:
    return HeadFile(tmp_path / "heads", "a ledger")


async def test_a_head_is_not_published_in_part(heads: HeadFile) -> None:
    """INV-206"""
    await heads.publish(head(1))
    before = heads.path.read_bytes()
    with files_up_to(len(before) + 20), pytest.raises(Unavailable, match="cannot be written"):
        await heads.publish(head(2))
    assert heads.path.read_bytes() == before
    await heads.publish(head(2))
    assert heads.heads() == [head(1), head(2)]


@pytest.mark.parametrize("lines", [0, 1, 40])
async def test_a_head_that_was_cut_off_does_not_spoil_those_after_it(heads: HeadFile, lines: int) -> None:
    """INV-206"""
    heads.path.parent.mkdir()
    heads.path.touch()
    for size in range(1, lines + 1):
        await heads.publish(head(size))
    with heads.path.open("ab") as file:
        file.write(head(99).line().encode()[:-30])
    await heads.publish(head(lines + 1))
    assert [one.size for one in heads.heads()] == list(range(1, lines + 2))


def test_a_master_key_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    with files_up_to(20), pytest.raises(OSError, match="large"):
        KeyRing.load(tmp_path, {}, create=True)
    assert list(tmp_path.iterdir()) == []
    made = KeyRing.load(tmp_path, {}, create=True)
    assert KeyRing.load(tmp_path, {}).newest() == made.newest()


def test_the_key_of_a_tenant_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    keys = FileTenantKeys(tmp_path)
    with files_up_to(20), pytest.raises(OSError, match="large"):
        keys.key("acme")
    assert list(tmp_path.iterdir()) == []
    assert len(keys.key("acme")) == 32


def test_an_acknowledged_fact_is_noted_whole_or_its_writer_hears_of_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    facts = [
        Message(tenant_id="acme", execution_id=7, shard=1, message_id=f"acme/main/{number}", body=b"")
        for number in range(3)
    ]
    journal.note("now", facts[:1], [1])
    (file,) = tmp_path.glob("facts-*.jsonl")
    with files_up_to(file.stat().st_size + 20), pytest.raises(OSError, match="No space"):
        journal.note("now", facts[1:2], [2])
    journal.note("now", facts[2:], [3])
    assert [one.sequence for some in noted_in(tmp_path) for one in some] == [1, 3]
    journal.close()
