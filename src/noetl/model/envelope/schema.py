"""The JSON form of the envelope: which fields no event goes without, and the JSON Schema of each field."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.model.event import FIELDS, Draft

MANDATORY: Final = tuple(field.name for field in msgspec.structs.fields(Draft) if field.required)
"""Fields no event goes without."""

ENVELOPE_SCHEMA: Final[dict[str, dict[str, Any]]] = {name: field.kind.schema for name, field in FIELDS.items()}
"""Every field of the envelope with its JSON form."""
