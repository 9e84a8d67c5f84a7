"""Sealed rows open with their key in their place, and in no other way."""

from __future__ import annotations

import pytest

from noetl.errors import Corrupt
from noetl.model.stream import Scope
from noetl.services.credentials.keyring import Key
from noetl.services.credentials.sealed_rows import Place, seal, unseal

KEY, OTHER = Key(bytes(range(32))), Key(bytes(range(32, 64)))
HERE = Place.of("credential", Scope("acme", "care"), "crm", "bearer")
CANARY = b"canary-6f1b"


def test_what_is_sealed_opens_in_its_place() -> None:
    assert unseal(KEY, seal(KEY, CANARY, HERE), HERE) == CANARY


def test_the_same_content_is_never_sealed_the_same_way() -> None:
    sealed = {seal(KEY, CANARY, HERE) for _ in range(20)}
    assert len(sealed) == 20
    assert not any(CANARY in one for one in sealed)


@pytest.mark.parametrize(
    "elsewhere",
    [
        Place.of("credential", Scope("globex", "care"), "crm", "bearer"),
        Place.of("credential", Scope("acme", "billing"), "crm", "bearer"),
        Place.of("credential", Scope("acme", "care"), "crm2", "bearer"),
        Place.of("credential", Scope("acme", "care"), "crm", "basic"),
        Place.of("credential", Scope("acme", "carec"), "rm", "bearer"),
        Place.of("keychain entry", Scope("acme", "care"), "crm", "bearer"),
    ],
    ids=str,
)
def test_a_row_does_not_open_in_another_place(elsewhere: Place) -> None:
    sealed = seal(KEY, CANARY, HERE)
    with pytest.raises(Corrupt):
        unseal(KEY, sealed, elsewhere)


def test_a_row_does_not_open_with_another_key() -> None:
    sealed = seal(KEY, CANARY, HERE)
    with pytest.raises(Corrupt):
        unseal(OTHER, sealed, HERE)


def test_no_byte_of_a_row_can_be_changed_or_left_off() -> None:
    sealed = seal(KEY, CANARY, HERE)
    for index in range(len(sealed)):
        changed = bytearray(sealed)
        changed[index] ^= 1
        with pytest.raises(Corrupt, match="'crm' does not open"):
            unseal(KEY, bytes(changed), HERE)
        with pytest.raises(Corrupt):
            unseal(KEY, sealed[:index], HERE)
