"""What is declared about a field of the envelope, and the kinds of fields there are. Values only."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

NAME_LIMIT: Final = 512
"""Characters a text may have unless its field says otherwise."""

Giver = Literal["producer", "stream", "ledger"]


class Kind(msgspec.Struct, frozen=True, eq=False):
    """How fields of one kind are stored, and how they stand in JSON."""

    sql: str
    """The type of the column."""
    schema: dict[str, Any]
    """The JSON Schema of a value."""


class Field(msgspec.Struct, frozen=True):
    """The annotation of a field of `Draft` or `Event`."""

    column: int
    """The number of its column in `noetl.event`, from 1. Wide columns come first, so that rows need no padding between
    them; a column that is added later is the last."""
    kind: Kind
    given_by: Giver = "producer"
    """`stream`: what the stream's name says; `ledger`: what an event has only once it is accepted."""
    bytewise: bool = False
    """Compared byte by byte (`COLLATE "C"`), the order that indexes and range conditions ask for."""
    fixed: bool = False
    """Says where the event stands and whose it is, so no upcaster may change it."""
    varies: bool = False
    """Differs between two tries of one append, so the digest of its content leaves it out."""
    limit: int = NAME_LIMIT
    """Characters, for a text."""
    digest_column: int | None = None
    """For a reference, the number of the column that holds the digest of what it refers to."""


def fields_of(struct: type[msgspec.Struct]) -> dict[str, Field]:
    """Return what the fields of a struct are annotated with, in their order."""
    return {field.name: _annotation(field.type) for field in msgspec.structs.fields(struct)}


def _annotation(annotated: Any) -> Field:
    (field,) = annotated.__metadata__
    assert isinstance(field, Field)
    return field


_TEXT: Final = {"type": "string"}
_FROM_0: Final = {"type": "integer", "minimum": 0}
_FROM_1: Final = {"type": "integer", "minimum": 1}

ID: Final = Kind(
    "bigint", {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "description": "64-bit id as decimal text"}
)
"""64-bit ids: integers in code and SQL, strings in JSON, since JSON numbers are exact to 53 bits only."""
TIME: Final = Kind("timestamptz", {"type": "string", "format": "date-time", "pattern": "Z$"})
TEXT: Final = Kind("text", _TEXT)
INDEX: Final = Kind("bigint", _FROM_0)
ORDINAL: Final = Kind("bigint", _FROM_1)
VERSION: Final = Kind("integer", _FROM_1)
SHARD: Final = Kind("smallint", _FROM_0)
OBJECT: Final = Kind("json", {"type": "object"})
"""A mapping with text keys; an empty one is the same as none."""
VALUE: Final = Kind("json", {})
"""Any JSON value."""
REFERENCE: Final = Kind(
    "json",
    {
        "type": "object",
        "required": ["uri", "sha256", "media_type", "bytes", "stored_sha256"],
        "properties": {
            "uri": {"type": "string", "pattern": "^noetl://"},
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "stored_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "media_type": _TEXT,
            "bytes": _FROM_0,
            "encoding": {"enum": ["identity", "zstd", "aes256gcm", "zstd+aes256gcm"]},
            "rows": _FROM_0,
            "schema_digest": _TEXT,
        },
        "additionalProperties": False,
    },
)
"""A `PayloadRef`."""
