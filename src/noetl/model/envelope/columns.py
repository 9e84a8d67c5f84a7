"""The envelope as JSON Schema and as columns: of the ledger's tables, and of the row a draft becomes, in table
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from noetl.model.envelope.field import OBJECT, VALUE, Field, Giver
from noetl.model.event import FIELDS, Draft

MANDATORY: Final = tuple(field.name for field in msgspec.structs.fields(Draft) if field.required)
"""Fields no event goes without."""

ENVELOPE_SCHEMA: Final[dict[str, dict[str, Any]]] = {name: field.kind.schema for name, field in FIELDS.items()}
"""Every field of the envelope with its JSON form."""


class Column(msgspec.Struct, frozen=True):
    """A column of `noetl.event`."""

    number: int
    name: str
    field: str
    """The field whose value it holds, or to whose reference its digest belongs."""
    sql: str
    given_by: Giver
    required: bool
    bytewise: bool
    is_digest: bool = False


def _columns(name: str, field: Field) -> Iterator[Column]:
    required = name in MANDATORY or field.given_by != "producer"
    yield Column(field.column, name, name, field.kind.sql, field.given_by, required, field.bytewise)
    if field.digest_column is not None:
        digest = f"{name.removesuffix('_ref')}_sha256"
        yield Column(field.digest_column, digest, name, "text", field.given_by, required, bytewise=True, is_digest=True)


EVENT_COLUMNS: Final = tuple(
    sorted(
        (column for name, field in FIELDS.items() for column in _columns(name, field)), key=lambda column: column.number
    )
)
"""The columns of `noetl.event` and `noetl.pending_event`."""
assert [column.number for column in EVENT_COLUMNS] == list(range(1, len(EVENT_COLUMNS) + 1))

DRAFT_COLUMNS: Final = tuple(column for column in EVENT_COLUMNS if column.given_by == "producer")
"""The columns of the row that a draft becomes: what `noetl.new_event` carries, and the body of a streamed fact."""

ROW_NAMES: Final = tuple(column.name for column in DRAFT_COLUMNS)
"""Their names."""

INLINE_FIELDS: Final = tuple(column.name for column in EVENT_COLUMNS if FIELDS[column.field].kind in (OBJECT, VALUE))
"""The fields that hold data of the producer's own, which together may take `INLINE_LIMIT` bytes."""
