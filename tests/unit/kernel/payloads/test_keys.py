"""Tenant keys as files: made once, readable by their owner alone, gone for good when destroyed."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from noetl.errors import Corrupt, Erased, InputError
from noetl.kernel.payloads.keys import FileTenantKeys


def test_a_key_is_made_once_and_survives_a_restart(tmp_path: Path) -> None:
    key = FileTenantKeys(tmp_path).key("acme")
    assert len(key) == 32
    assert FileTenantKeys(tmp_path).key("acme") == key
    assert FileTenantKeys(tmp_path).key("globex") != key


def test_only_the_owner_may_read_a_key_and_nothing_else_is_left(tmp_path: Path) -> None:
    FileTenantKeys(tmp_path).key("acme")
    (only,) = tmp_path.iterdir()
    assert stat.S_IMODE(only.stat().st_mode) == 0o600


def test_racing_makers_agree_on_one_key(tmp_path: Path) -> None:
    start = threading.Barrier(8)
    found: list[bytes] = []

    def make() -> None:
        keys = FileTenantKeys(tmp_path)
        start.wait(timeout=10)
        found.append(keys.key("acme"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_destroyed_key_is_gone_for_every_process_and_never_made_again(tmp_path: Path) -> None:
    keys = FileTenantKeys(tmp_path)
    old = keys.key("acme")
    FileTenantKeys(tmp_path).destroy("acme")
    with pytest.raises(Erased, match="acme"):
        keys.key("acme")
    assert not any(old in path.read_bytes() for path in tmp_path.iterdir())
    keys.destroy("acme")
    with pytest.raises(Erased):
        FileTenantKeys(tmp_path).key("acme")


def test_a_tenant_erased_before_its_first_payload_stays_erased(tmp_path: Path) -> None:
    keys = FileTenantKeys(tmp_path)
    keys.destroy("acme")
    with pytest.raises(Erased):
        keys.key("acme")


def test_a_damaged_key_file_is_reported_and_not_replaced(tmp_path: Path) -> None:
    keys = FileTenantKeys(tmp_path)
    keys.key("acme")
    (tmp_path / "acme.key").write_bytes(b"short")
    with pytest.raises(Corrupt, match=r"acme\.key"):
        keys.key("acme")


def test_a_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        FileTenantKeys(tmp_path).key("../acme")
