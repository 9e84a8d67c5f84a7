"""What a server and the workers of its machine share: made once, for its owner alone, never guessed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from noetl.errors import ConfigError, Denied
from noetl.services.credentials.local_secrets import WORKERS_FILE, make_worker_secret, read_worker_secret
from noetl.services.credentials.sealed_answers import open_answer, seal_answer


def test_servers_that_start_together_share_one_secret_that_only_its_owner_reads(tmp_path: Path) -> None:
    """INV-132."""
    keys = tmp_path / "keys"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(make_worker_secret, [keys] * 8))
    assert made == {read_worker_secret(keys)}
    assert len(next(iter(made)).reveal()) >= 40
    assert [path.name for path in keys.iterdir()] == [WORKERS_FILE]
    assert (keys / WORKERS_FILE).stat().st_mode & 0o777 == 0o600
    assert make_worker_secret(tmp_path / "others") not in made


def test_a_worker_without_the_file_and_a_server_that_cannot_keep_it_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Denied, match="only by a server of its own home directory"):
        read_worker_secret(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept in"):
        make_worker_secret(tmp_path / "file")


def test_what_is_sealed_opens_with_the_same_secret_alone(tmp_path: Path) -> None:
    """INV-132."""
    ours, theirs = (make_worker_secret(tmp_path / name) for name in ("ours", "theirs"))
    sealed = seal_answer(ours, {"data": {"token": "canary"}})
    assert open_answer(ours, sealed) == {"data": {"token": "canary"}}
    assert sealed != seal_answer(ours, {"data": {"token": "canary"}})
    for secret, text in ((theirs, sealed), (ours, sealed[:-8]), (ours, "no base64!"), (ours, "")):
        with pytest.raises(Denied):
            open_answer(secret, text)
