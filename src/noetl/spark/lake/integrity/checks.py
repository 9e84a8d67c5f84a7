"""Whether files are what was committed: by size, stamp and footer before every read, by SHA-256 where that is wanted. This blocks.

Between a check and the read that follows it a file may still change. Page checksums narrow that gap, and nothing closes it.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec
import pyarrow as pa

from noetl.errors import Damaged, Unavailable
from noetl.model.dataset import FileEntry
from noetl.spark.lake.integrity.footers import footers_stand
from noetl.spark.lake.integrity.proofs import Proofs
from noetl.spark.lake.integrity.read_errors import REMEDY, reading, refuse_unmounted
from noetl.spark.lake.integrity.stamps import Stat, stats
from noetl.spark.lake.storage import Lake

_CHUNK_BYTES: Final = 4 << 20
Why = Literal["missing", "size", "content"]


class Unproven(Unavailable):
    """Files have not been proven on this node, and proving them takes longer than a query may wait for it."""

    code = "unproven"


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not what was committed."""

    path: str
    why: Why
    expected_bytes: int
    expected_sha256: str
    found_bytes: int | None = None
    found_sha256: str | None = None
    """None where there is no file, or where its size tells already."""

    def sentence(self) -> str:
        """Say what is wrong."""
        if self.why == "missing":
            return "it is missing"
        if self.why == "size":
            return f"it has {self.found_bytes:,} bytes instead of {self.expected_bytes:,}"
        return f"its SHA-256 is {self.found_sha256}, and the manifest says {self.expected_sha256}"

    def error(self) -> Damaged:
        """Return the refusal to read it."""
        told = f"the file {self.path} of the lake is not what was committed: {self.sentence()}"
        if self.why == "missing":
            told = f"the file {self.path} is not in the lake any more"
        return Damaged(told, hint=REMEDY, path=self.path)


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be hashed at once."""

    bytes: int
    seconds: float

    def without(self, done: Proving) -> Bound:
        """Return what is left."""
        return Bound(bytes=self.bytes - done.bytes, seconds=self.seconds - done.seconds)


UNBOUNDED: Final = Bound(bytes=sys.maxsize, seconds=float("inf"))


class Proving(msgspec.Struct, frozen=True, kw_only=True):
    """What was hashed because this node had not done so before."""

    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def plus(self, other: Proving) -> Proving:
        """Return both together."""
        return Proving(
            files=self.files + other.files, bytes=self.bytes + other.bytes, seconds=self.seconds + other.seconds
        )


class Checks:
    """Checks files of one lake, and remembers what it hashed."""

    def __init__(self, lake: Lake, proofs: Proofs | None = None) -> None:
        self._lake = lake
        self._proofs = Proofs() if proofs is None else proofs

    def unchanged(self, entries: Sequence[FileEntry]) -> None:
        """Refuse files whose size, stamp or footer is not that of their manifest.

        One with another stamp may have been restored from a copy: it is hashed, once, and read if its bytes are the same.
        """
        for damage in self._looked_at(entries):
            if damage is not None:
                raise damage.error()

    def proven(self, entries: Sequence[FileEntry], bound: Bound) -> Proving:
        """Refuse files whose SHA-256 is not that of their manifest; those that this node has hashed are not hashed again."""
        files = size = 0
        began = time.monotonic()
        for entry, found in zip(entries, stats(self._lake, [entry.path for entry in entries]), strict=True):
            damage = _at_a_look(entry, found)
            if damage is None and found is not None and not self._proofs.holds(entry, found):
                files, size = files + 1, size + entry.bytes
                if size > bound.bytes:
                    raise _too_much("more bytes than")
                damage = self._hashed(entry, found, until=began + bound.seconds)
            if damage is not None:
                raise damage.error()
        return Proving(files=files, bytes=size, seconds=time.monotonic() - began if files else 0.0)

    def damage(self, entry: FileEntry) -> Damage | None:
        """Hash a file whatever is known of it, and return what is wrong with it."""
        (found,) = stats(self._lake, [entry.path])
        return _at_a_look(entry, found) or self._hashed(entry, found)

    def quick_damage(self, entry: FileEntry) -> Damage | None:
        """Return what is wrong with a file as far as size, stamp and footer tell; one with another stamp is hashed."""
        return next(self._looked_at([entry]))

    def _looked_at(self, entries: Sequence[FileEntry]) -> Iterator[Damage | None]:
        found = stats(self._lake, [entry.path for entry in entries])
        sized = [entry for entry, one in zip(entries, found, strict=True) if one and one.bytes == entry.bytes]
        ends = dict(zip((entry.path for entry in sized), footers_stand(self._lake, sized), strict=True))
        for entry, one in zip(entries, found, strict=True):
            damage = _at_a_look(entry, one)
            if damage is None and one is not None:
                restored = bool(entry.stamp) and entry.stamp != one.stamp and not self._proofs.holds(entry, one)
                if restored or not ends[entry.path]:
                    damage = self._hashed(entry, one)
            yield damage

    def _hashed(self, entry: FileEntry, found: Stat | None, until: float | None = None) -> Damage | None:
        digest = hashlib.sha256()
        size = 0
        with reading(entry.path, self._lake):
            try:
                with self._lake.opened(entry.path) as file:
                    while chunk := file.read(_CHUNK_BYTES):
                        digest.update(chunk)
                        size += len(chunk)
                        if until is not None and time.monotonic() > until:
                            raise _too_much("longer than")
            except FileNotFoundError:
                refuse_unmounted(self._lake)
                return _damage(entry, "missing")
        if digest.hexdigest() != entry.sha256:
            return _damage(entry, "content", found_bytes=size, found_sha256=digest.hexdigest())
        if found is not None:
            # Of a file that changed while it was read, the stamp from before is kept: it is hashed again the next time.
            self._proofs.keep(entry, found)
        return None


def refuse_other_bytes(entry: FileEntry, data: pa.Buffer) -> None:
    """Refuse the bytes of a file that was fetched whole unless they have the digest of its entry."""
    refuse_other_digest(entry, memoryview(data).nbytes, hashlib.sha256(data).hexdigest())


def refuse_other_digest(entry: FileEntry, size: int, digest: str) -> None:
    """Refuse a file that was read whole unless what was read has the digest of its entry."""
    if digest != entry.sha256:
        why: Why = "content" if size == entry.bytes else "size"
        raise _damage(entry, why, found_bytes=size, found_sha256=digest).error()


def _at_a_look(entry: FileEntry, found: Stat | None) -> Damage | None:
    if found is None:
        return _damage(entry, "missing")
    return None if found.bytes == entry.bytes else _damage(entry, "size", found_bytes=found.bytes)


def _damage(entry: FileEntry, why: Why, *, found_bytes: int | None = None, found_sha256: str | None = None) -> Damage:
    return Damage(
        path=entry.path,
        why=why,
        expected_bytes=entry.bytes,
        expected_sha256=entry.sha256,
        found_bytes=found_bytes,
        found_sha256=found_sha256,
    )


def _too_much(what: str) -> Unproven:
    return Unproven(
        f"files of this query have not been proven on this node yet, and to hash them takes {what} one query may spend on it",
        hint="run `noetl datasets verify` on this node first, or raise query.proof_timeout_seconds and query.proof_max_bytes",
    )
