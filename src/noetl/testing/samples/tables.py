"""Tables for tests of payload tiers: rows go in, encoded tables and the references they will have come out."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import pyarrow as pa

from noetl.kernel.payloads.codec import ARROW_STREAM, encode_table
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope

SCOPE = Scope("acme", "care")


class Made(NamedTuple):
    """A table as bytes, and its reference."""

    data: bytes
    ref: PayloadRef

    @property
    def schema_digest(self) -> str:
        """The digest of its schema."""
        assert self.ref.schema_digest is not None
        return self.ref.schema_digest


def made_table(rows: int, first: int = 0) -> Made:
    """Return a table of 8 bytes for each row; other first numbers give other bytes of the same length."""
    encoded = encode_table(pa.table({"n": pa.array(range(first, first + rows), pa.int64())}))
    sha256 = hashlib.sha256(encoded.data).hexdigest()
    ref = PayloadRef(
        uri=payload_uri(SCOPE.tenant_id, SCOPE.organization_id, sha256),
        sha256=sha256,
        media_type=ARROW_STREAM,
        bytes=len(encoded.data),
        stored_sha256=sha256,
        rows=rows,
        schema_digest=encoded.schema_digest,
    )
    return Made(encoded.data, ref)
