"""Shared values that rows and steps set: writes by dotted path go in, the references they hold come out, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.large_values import noted
from noetl.engine.dispatch.reports.references import Named
from noetl.engine.dispatch.reports.refusals import count, name, named, refuse
from noetl.model.payload_ref import PayloadRef

MOST_WRITES: Final = 10_000
DEEPEST: Final = 100
"""Levels of a dotted path; each is an object within an object wherever the values are read."""


def refs_of(field: str, writes: object) -> list[Named]:
    """Return the references that stand in place of large values; paths that cannot be written are refused."""
    values: Mapping[str, Any] = named(field, writes)
    count(f"the number of {field}", len(values), f"{MOST_WRITES} are allowed at most", most=MOST_WRITES)
    found: list[Named] = []
    for path, value in values.items():
        name(f"a path of {field}", path)
        count(f"the depth of {field}", path.count("."), f"{DEEPEST} levels are allowed at most", most=DEEPEST)
        note = noted(value)
        if note is not None:
            try:
                found.append((f"{field}.{path}"[:200], msgspec.convert(note, PayloadRef)))
            except (msgspec.ValidationError, TypeError):
                refuse(f"{field}.{path}"[:200], note, "a value kept elsewhere is named by a payload reference")
    return found
