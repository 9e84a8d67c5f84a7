"""References in what a task is given: a value in any form a playbook may hold goes in, a payload's reference comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noetl.errors import InputError
from noetl.execute.tools.port import Payloads
from noetl.model.locator import SCHEME
from noetl.model.payload_ref import PayloadRef

_INNER: Final = ("ref", "payload", "result_ref")
_DEPTH: Final = 5


def is_reference(value: Any) -> bool:
    """Tell whether a value is a reference, with the fields that are recorded or with those of older playbooks."""
    if not isinstance(value, Mapping):
        return False
    return ("uri" in value and "sha256" in value) or _is_locator(value.get("ref"))


async def reference_in(value: Any, payloads: Payloads) -> PayloadRef:
    """Return the reference a mapping is, or holds under `ref` or `payload`, or that a locator stands for."""
    seen = value
    for _ in range(_DEPTH):
        if isinstance(seen, PayloadRef):
            return seen
        if _is_locator(seen):
            return await payloads.find(seen)
        if not isinstance(seen, Mapping):
            break
        if "uri" in seen and "sha256" in seen:
            try:
                return msgspec.convert({"stored_sha256": seen["sha256"], **seen}, PayloadRef)
            except msgspec.ValidationError as problem:
                raise InputError(f"the reference is not sound: {problem}") from None
        seen = next((seen[name] for name in _INNER if seen.get(name) is not None), None)
    raise InputError(
        "there is no reference: input.result_ref (or ref) takes a mapping with uri and sha256, such as output.ref,"
        " or the text of its uri"
    )


def _is_locator(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(SCHEME)
