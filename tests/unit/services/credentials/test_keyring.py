"""Master keys: where they come from, which one seals, and that there is none without anybody giving one."""

from __future__ import annotations

import base64
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from noetl.errors import ConfigError, InputError
from noetl.services.credentials.keyring import VARIABLE, Key, KeyRing

ONE, TWO = (bytes(range(start, start + 32)) for start in (0, 100))


def text(*keys: bytes) -> str:
    return ",".join(base64.b64encode(key).decode() for key in keys)


def test_without_any_key_nothing_opens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no master key") as refused:
        KeyRing.load(tmp_path / "keys", {})
    assert refused.value.hint is not None
    assert VARIABLE in refused.value.hint
    assert not (tmp_path / "keys").exists()


def test_the_first_key_is_made_only_when_asked_for_and_is_its_owners_alone(tmp_path: Path) -> None:
    made = KeyRing.load(tmp_path / "keys", {}, create=True)
    files = list((tmp_path / "keys").iterdir())
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600]
    assert KeyRing.load(tmp_path / "keys", {}).newest() == made.newest()


def test_of_many_who_make_the_first_key_at_once_all_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        rings = list(threads.map(lambda _: KeyRing.load(tmp_path, {}, create=True), range(8)))
    assert len({ring.newest() for ring in rings}) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_the_first_key_of_the_variable_seals_and_all_open(tmp_path: Path) -> None:
    ring = KeyRing.load(tmp_path, {VARIABLE: text(TWO, ONE)})
    assert ring.newest() == Key(TWO)
    assert ring.key(Key(ONE).key_id) == Key(ONE)


def test_the_variable_comes_before_the_files_which_still_open(tmp_path: Path) -> None:
    filed = KeyRing.load(tmp_path, {}, create=True).newest()
    ring = KeyRing.load(tmp_path, {VARIABLE: text(ONE)}, create=True)
    assert ring.newest() == Key(ONE)
    assert ring.key(filed.key_id) == filed
    assert len(list(tmp_path.iterdir())) == 1


def test_a_key_added_or_removed_by_one_process_is_so_for_another(tmp_path: Path) -> None:
    mine, other = (KeyRing.load(tmp_path, {}, create=True) for _ in range(2))
    old = mine.newest()
    added = mine.add()
    assert other.newest() == added != old
    assert mine.remove(old.key_id)
    with pytest.raises(ConfigError, match=old.key_id):
        other.key(old.key_id)


def test_no_file_is_made_where_the_keys_come_from_the_variable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=VARIABLE):
        KeyRing.load(tmp_path, {VARIABLE: text(ONE)}).add()


@pytest.mark.parametrize("wrong", ["short", text(ONE)[:-4], text(b"\0" * 32), text(ONE, b"x" * 31), "ü"])
def test_a_key_that_is_none_is_refused_without_being_shown(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KeyRing.load(tmp_path, {VARIABLE: wrong})
    assert wrong not in f"{refused.value!r} {refused.value.hint}"
    assert refused.value.__cause__ is None


def test_a_key_file_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    KeyRing.load(tmp_path, {}, create=True)
    next(tmp_path.iterdir()).chmod(0o644)
    with pytest.raises(ConfigError, match="open to every user"):
        KeyRing.load(tmp_path, {})


def test_neither_key_nor_ring_shows_a_key() -> None:
    secret = secrets.token_bytes(32)
    shown = f"{KeyRing([secret])!r} {Key(secret)!r}"
    assert Key(secret).key_id in shown
    for form in (secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1]):
        assert form not in shown
