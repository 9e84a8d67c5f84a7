"""What every payload store must do, as tests. A subclass gives a `store` fixture and access to the stored bytes."""

from __future__ import annotations

import asyncio
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from noetl.errors import Corrupt, Erased, InputError, PayloadMissing
from noetl.kernel.payloads.keys import TenantKeys
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

CARE = Scope("acme", "care")
BILLING = Scope("acme", "billing")
OTHER = Scope("globex", "care")
MEDIA = "application/octet-stream"
MIB = 1 << 20


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield data in pieces of a size."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


class PayloadStoreContract(ABC):
    """Tests for any payload store."""

    @abstractmethod
    async def stored(self, store: PayloadStore, scope: Scope, ref: PayloadRef) -> bytes:
        """Return the object's bytes as stored."""

    @abstractmethod
    async def overwrite(self, store: PayloadStore, scope: Scope, ref: PayloadRef, data: bytes) -> None:
        """Put other bytes in the object's place, behind the store's back."""

    async def damage(self, store: PayloadStore, ref: PayloadRef, at: int) -> None:
        """Flip one bit of a stored object; positions count from its end if negative."""
        damaged = bytearray(await self.stored(store, CARE, ref))
        damaged[at] ^= 0x10
        await self.overwrite(store, CARE, ref, bytes(damaged))

    @pytest.mark.parametrize("data", [b"", b"x", b"NOETL" * 1000, os.urandom(3 * MIB)], ids=["0", "1", "5k", "3M"])
    async def test_bytes_come_back_as_they_went_in(self, store: PayloadStore, data: bytes) -> None:
        ref = await store.store(CARE, data, MEDIA, rows=7, schema_digest="abc")
        assert (ref.sha256, ref.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
        assert (ref.media_type, ref.rows, ref.schema_digest) == (MEDIA, 7, "abc")
        assert await store.fetch(CARE, ref) == data
        assert b"".join([piece async for piece in store.stream(CARE, ref)]) == data
        await store.check(CARE, ref)

    async def test_a_stream_of_12_mib_comes_back_as_it_went_in(self, store: PayloadStore) -> None:
        data = os.urandom(6 * MIB) + bytes(6 * MIB)
        ref = await store.store(CARE, pieces(data, 700_001), MEDIA)
        assert ref.sha256 == hashlib.sha256(data).hexdigest()
        digest = hashlib.sha256()
        longest = 0
        async for piece in store.stream(CARE, ref):
            digest.update(piece)
            longest = max(longest, len(piece))
        assert digest.hexdigest() == ref.sha256
        assert longest <= MIB
        await store.check(CARE, ref)

    async def test_equal_content_gives_an_equal_reference_however_it_arrives(self, store: PayloadStore) -> None:
        data = os.urandom(MIB) + bytes(2 * MIB + 5)
        ref = await store.store(CARE, data, MEDIA)
        before = await self.stored(store, CARE, ref)
        assert await store.store(CARE, pieces(data, 99_991), MEDIA) == ref
        assert await self.stored(store, CARE, ref) == before
        assert [found.sha256 async for found in store.objects(CARE)] == [ref.sha256]

    async def test_plain_bytes_that_look_like_a_stored_object_come_back_unchanged(self, store: PayloadStore) -> None:
        inner = await store.store(CARE, b"inner" * 100, MEDIA)
        raw = await self.stored(store, CARE, inner)
        ref = await store.store(CARE, raw, MEDIA)
        assert await store.fetch(CARE, ref) == raw

    async def test_racing_writers_all_get_the_same_good_reference(self, store: PayloadStore) -> None:
        for size in (100_000, 9 * MIB):
            data = os.urandom(size)
            count = 16 if size < MIB else 4
            refs = await asyncio.gather(*(store.store(CARE, pieces(data, MIB), MEDIA) for _ in range(count)))
            assert all(ref == refs[0] for ref in refs)
            assert await store.fetch(CARE, refs[0]) == data
            await store.check(CARE, refs[0])

    @pytest.mark.parametrize("at", [0, 9, 17, 30, 1500, -45, -41, -20, -1])
    async def test_a_flipped_bit_is_an_error_and_never_data(self, store: PayloadStore, at: int) -> None:
        """INV-14."""
        ref = await store.store(CARE, os.urandom(3000), MEDIA)
        await self.damage(store, ref, at)
        with pytest.raises(Corrupt, match=ref.sha256) as refused:
            await store.fetch(CARE, ref)
        assert "noetl verify --payloads" in str(refused.value.hint)
        with pytest.raises(Corrupt):
            await anext(aiter(store.stream(CARE, ref)))
        with pytest.raises(Corrupt):
            await store.check(CARE, ref)

    @pytest.mark.parametrize("cut", [0, 1, 20, 2000, -41, -1])
    async def test_a_cut_object_is_an_error_and_never_data(self, store: PayloadStore, cut: int) -> None:
        ref = await store.store(CARE, os.urandom(3000), MEDIA)
        await self.overwrite(store, CARE, ref, (await self.stored(store, CARE, ref))[:cut])
        with pytest.raises(Corrupt):
            await store.fetch(CARE, ref)
        with pytest.raises(Corrupt):
            await store.check(CARE, ref)

    async def test_a_longer_object_is_an_error_and_never_data(self, store: PayloadStore) -> None:
        ref = await store.store(CARE, b"data", MEDIA)
        await self.overwrite(store, CARE, ref, await self.stored(store, CARE, ref) + b"!")
        with pytest.raises(Corrupt):
            await store.fetch(CARE, ref)
        with pytest.raises(Corrupt):
            await store.check(CARE, ref)

    async def test_another_payload_in_its_place_is_an_error(self, store: PayloadStore) -> None:
        ref = await store.store(CARE, b"a" * 3000, MEDIA)
        other = await store.store(CARE, b"b" * 3000, MEDIA)
        await self.overwrite(store, CARE, ref, await self.stored(store, CARE, other))
        with pytest.raises(Corrupt):
            await store.fetch(CARE, ref)
        with pytest.raises(Corrupt):
            await store.check(CARE, ref)

    async def test_storing_again_heals_a_damaged_object(self, store: PayloadStore) -> None:
        data = os.urandom(3000)
        ref = await store.store(CARE, data, MEDIA)
        await self.damage(store, ref, 1000)
        assert await store.store(CARE, data, MEDIA) == ref
        assert await store.fetch(CARE, ref) == data
        await store.check(CARE, ref)

    async def test_a_missing_object_is_named_as_missing(self, store: PayloadStore) -> None:
        ref = await store.store(CARE, b"soon gone", MEDIA)
        assert await store.exists(CARE, ref)
        await store.delete(CARE, ref.sha256)
        await store.delete(CARE, ref.sha256)
        assert not await store.exists(CARE, ref)
        assert await store.find(CARE, ref.sha256) is None
        with pytest.raises(PayloadMissing):
            await store.fetch(CARE, ref)
        with pytest.raises(PayloadMissing):
            await anext(aiter(store.stream(CARE, ref)))
        with pytest.raises(PayloadMissing):
            await store.check(CARE, ref)

    @pytest.mark.parametrize("scope", [BILLING, OTHER], ids=["organization", "tenant"])
    async def test_a_reference_is_refused_in_another_scope(self, store: PayloadStore, scope: Scope) -> None:
        """INV-22."""
        ref = await store.store(CARE, b"ours", MEDIA)
        await store.store(scope, b"ours", MEDIA)
        with pytest.raises(InputError):
            await store.fetch(scope, ref)
        with pytest.raises(InputError):
            await anext(aiter(store.stream(scope, ref)))
        with pytest.raises(InputError):
            await store.check(scope, ref)
        with pytest.raises(InputError):
            await store.exists(scope, ref)
        with pytest.raises(InputError):
            store.physical_uri(scope, ref)

    async def test_names_that_would_leave_the_scope_are_refused(self, store: PayloadStore) -> None:
        for scope in (Scope("../acme", "care"), Scope("acme", "care/../billing"), Scope("", "care")):
            with pytest.raises(InputError):
                await store.store(scope, b"x", MEDIA)
        with pytest.raises(InputError):
            await store.delete(CARE, "../" + "0" * 61)

    async def test_two_tenants_with_equal_content_have_two_objects(self, store: PayloadStore) -> None:
        ours = await store.store(CARE, b"equal", MEDIA)
        theirs = await store.store(OTHER, b"equal", MEDIA)
        assert ours.sha256 == theirs.sha256
        assert ours.uri != theirs.uri
        assert store.physical_uri(CARE, ours) != store.physical_uri(OTHER, theirs)
        await store.delete(OTHER, theirs.sha256)
        assert await store.fetch(CARE, ours) == b"equal"

    async def test_a_listing_shows_only_the_objects_of_its_scope(self, store: PayloadStore) -> None:
        started = datetime.now(UTC)
        refs = [await store.store(CARE, f"number {n}".encode(), MEDIA) for n in range(5)]
        await store.store(BILLING, b"theirs", MEDIA)
        await store.store(Scope("acme", "care2"), b"near by name", MEDIA)
        listed = {found.sha256: found async for found in store.objects(CARE)}
        assert listed.keys() == {ref.sha256 for ref in refs}
        for ref in refs:
            found = listed[ref.sha256]
            assert found.stored_bytes == len(await self.stored(store, CARE, ref))
            assert abs((found.modified - started).total_seconds()) < 60
            alone = await store.find(CARE, ref.sha256)
            assert alone is not None
            assert (alone.sha256, alone.stored_bytes) == (found.sha256, found.stored_bytes)

    async def test_a_failing_source_leaves_nothing_behind(self, store: PayloadStore) -> None:
        async def failing() -> AsyncIterator[bytes]:
            yield bytes(MIB)
            raise ConnectionResetError("the source went away")

        with pytest.raises(ConnectionResetError):
            await store.store(CARE, failing(), MEDIA)
        assert [found async for found in store.objects(CARE)] == []


class EncryptedPayloadStoreContract(PayloadStoreContract):
    """Tests for stores that encrypt; a subclass gives a `keys` fixture, the keys its store uses."""

    async def test_the_stored_object_shows_nothing_of_its_content(self, store: PayloadStore) -> None:
        ref = await store.store(CARE, b"patient: Ann Example; " * 200, MEDIA)
        assert ref.encoding.endswith("aes256gcm")
        assert ref.stored_sha256 != ref.sha256
        assert b"Ann Example" not in await self.stored(store, CARE, ref)

    async def test_two_tenants_never_share_ciphertext(self, store: PayloadStore) -> None:
        ours = await store.store(CARE, b"equal" * 100, MEDIA)
        theirs = await store.store(OTHER, b"equal" * 100, MEDIA)
        assert ours.stored_sha256 != theirs.stored_sha256

    async def test_a_destroyed_key_erases_the_tenant_and_nobody_else(
        self, store: PayloadStore, keys: TenantKeys
    ) -> None:
        """INV-16."""
        ours = await store.store(CARE, b"ours", MEDIA)
        theirs = await store.store(OTHER, b"theirs", MEDIA)
        keys.destroy(CARE.tenant_id)
        with pytest.raises(Erased):
            await store.fetch(CARE, ours)
        with pytest.raises(Erased):
            await store.store(CARE, b"more", MEDIA)
        assert await store.fetch(OTHER, theirs) == b"theirs"

    async def test_an_erased_object_can_still_be_checked(self, store: PayloadStore, keys: TenantKeys) -> None:
        """INV-16."""
        ref = await store.store(CARE, os.urandom(3000), MEDIA)
        keys.destroy(CARE.tenant_id)
        await store.check(CARE, ref)
        await self.damage(store, ref, 1500)
        with pytest.raises(Corrupt):
            await store.check(CARE, ref)

    async def test_swapped_pieces_are_an_error(self, store: PayloadStore) -> None:
        ref = await store.store(CARE, os.urandom(3 * MIB), MEDIA)
        raw = bytearray(await self.stored(store, CARE, ref))
        piece = MIB + 16
        raw[56 : 56 + piece], raw[56 + piece : 56 + 2 * piece] = (
            raw[56 + piece : 56 + 2 * piece],
            raw[56 : 56 + piece],
        )
        # The digest at the end is made to match, so that only the authentication can tell.
        raw[-32:] = hashlib.sha256(raw[:-40]).digest()
        await self.overwrite(store, CARE, ref, bytes(raw))
        with pytest.raises(Corrupt, match="authentication"):
            await store.fetch(CARE, ref)

    async def test_a_dropped_last_piece_is_an_error(self, store: PayloadStore) -> None:
        ref = await store.store(CARE, os.urandom(2 * MIB), MEDIA)
        raw = (await self.stored(store, CARE, ref))[: 56 + MIB + 16]
        tail = bytes.fromhex("5e2a4d1820000000") + hashlib.sha256(raw).digest()
        await self.overwrite(store, CARE, ref, raw + tail)
        with pytest.raises(Corrupt, match="authentication"):
            await store.fetch(CARE, ref)
