"""The promise of a payload store: bytes go in, a reference comes out, and the same bytes come back or an error does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator
from datetime import datetime
from functools import lru_cache
from typing import Literal, Protocol

import msgspec

from noetl.errors import Corrupt, InputError
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope

StoreTier = Literal["memory", "disk", "pvc", "s3", "minio", "gcs", "object"]
"""Where durable bytes are: process memory, local files, mounted volume, S3, S3-compatible, Google, other (Azure)."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object as the store holds it: the digest of its plain bytes, its stored size and when it was last written."""

    sha256: str
    stored_bytes: int
    modified: datetime


class PayloadStore(Protocol):
    """Immutable bytes, addressed by the SHA-256 of their plain form, separate for each organization.

    Every method takes the caller's scope, which alone builds the object's key; a reference that belongs to another
    scope is refused with InputError before anything is read. A server that does not answer raises Unavailable.
    """

    @property
    def store_tier(self) -> StoreTier:
        """Where the bytes of this store are."""
        ...

    async def store(
        self,
        scope: Scope,
        data: bytes | AsyncIterable[bytes],
        media_type: str,
        *,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep the bytes and return their reference; when this returns, they survive a crash and a power loss.

        Equal bytes of one scope are one object: it is written only if absent, and any number of writers may race. An
        object that is there already is read back first: a damaged one is replaced by the good bytes, and one old
        enough for garbage collection to look at is written anew, so that it outlives the wait for its event.
        Memory stays constant whatever the size. If it fails, nothing is visible, or a whole object is.
        """
        ...

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        """Return the plain bytes, proven by their digest.

        Raises PayloadMissing if there is no object, Corrupt if any byte is wrong, Erased if the tenant's key is gone.
        """
        ...

    async def view(self, scope: Scope, ref: PayloadRef) -> memoryview:
        """Return the plain bytes for use on this node, not to be changed, and whole as long as they are held.

        Where another process of the node has them in memory, they are read there without a copy and without being
        proven again. What leaves the node is fetched instead. Raises what `fetch` raises.
        """
        ...

    def stream(self, scope: Scope, ref: PayloadRef) -> AsyncIterator[bytes]:
        """Yield the plain bytes in pieces and in constant memory; the first piece comes after the last is proven."""
        ...

    async def check(self, scope: Scope, ref: PayloadRef) -> None:
        """Prove the stored object against `stored_sha256`, without any key and in constant memory.

        Raises PayloadMissing or Corrupt.
        """
        ...

    async def exists(self, scope: Scope, ref: PayloadRef) -> bool:
        """Tell whether there is an object under the reference's digest; its bytes are not read."""
        ...

    async def find(self, scope: Scope, sha256: str) -> StoredObject | None:
        """Describe the object under a digest, or return None if there is none."""
        ...

    def objects(self, scope: Scope) -> AsyncIterator[StoredObject]:
        """Yield every object of the scope, in no order; half-written ones are never seen."""
        ...

    async def delete(self, scope: Scope, sha256: str) -> None:
        """Remove an object; to remove what is not there is no error. Only garbage collection should call this."""
        ...

    @property
    def address(self) -> str:
        """What the addresses of all objects begin with, without the slash before their keys."""
        ...

    def physical_uri(self, scope: Scope, ref: PayloadRef) -> str:
        """Return the address of the object in its backend, such as `s3://bucket/key` or `file:///data/key`."""
        ...


@lru_cache(maxsize=1024)
def object_prefix(scope: Scope) -> str:
    """Return the folder of the scope's objects, after checking the scope's names."""
    problems = scope.problems()
    if problems:
        raise InputError("; ".join(problems))
    return f"{scope.tenant_id}/{scope.organization_id}/payloads/sha256"


def object_key(scope: Scope, sha256: str) -> str:
    """Return the key of an object, after checking the scope's names and the digest."""
    if not _DIGEST.fullmatch(sha256):
        raise InputError(f"{sha256!r} is not a SHA-256 in lower-case hex")
    return f"{object_prefix(scope)}/{sha256}"


def referred_key(scope: Scope, ref: PayloadRef) -> str:
    """Return the key a reference stands for, or refuse a reference that is not of this scope."""
    problems = ref.problems(scope.tenant_id, scope.organization_id)
    if problems:
        raise InputError("; ".join(problems), uri=ref.uri)
    return f"{object_prefix(scope)}/{ref.sha256}"


def damaged(ref: PayloadRef, key: str, what: str) -> Corrupt:
    """Return the refusal of an object that is not what was stored."""
    return Corrupt(
        f"the stored object of payload sha256:{ref.sha256} is damaged ({key}): {what}",
        hint="restore the object from a copy, or store the same bytes again, which replaces a damaged object;"
        " `noetl verify --payloads` names every event that refers to one",
        key=key,
    )
