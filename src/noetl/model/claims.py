"""What an event claims about the world beyond its own shape: locators that can be read, references that can be followed.

`validate` holds every draft to the rules of the envelope. These checks look into the fields as well and cost several times
as much, so `noetl.ledger.checking` decides when they are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from noetl.errors import LocatorInvalid
from noetl.model.event import Draft
from noetl.model.event_type import OPEN_PREFIX
from noetl.model.locator import SCHEME, parse_locator
from noetl.model.payload_ref import PayloadRef

_FIELDS: Final = msgspec.structs.fields(PayloadRef)
_REFERENCE: Final = frozenset(field.name for field in _FIELDS)
_MANDATORY: Final = frozenset(field.name for field in _FIELDS if field.required)


def claim_problems(draft: Draft) -> list[str]:
    """Say which claims of a draft do not hold; empty when all do.

    `producer` is a locator. So is every text of `meta` that looks like one, unless the type is the user's own. A value
    anywhere that has the form of a reference is one, to a payload of the draft's own organization.
    """
    found = [f"producer: {problem}" for problem in _locator_problems(draft.producer)]
    if not draft.event_type.startswith(OPEN_PREFIX):
        for place, text in _texts("meta", draft.meta):
            if text.startswith(SCHEME):
                found += [f"{place}: {problem}" for problem in _locator_problems(text)]
    for part in ("meta", "context", "result", "current_item"):
        for place, value in _references(part, getattr(draft, part)):
            found += [f"{place}: {problem}" for problem in _reference_problems(draft, value)]
    return found


def _locator_problems(text: str) -> list[str]:
    try:
        printed = str(parse_locator(text))
    except LocatorInvalid as problem:
        return [f"{text[:200]!r} is no locator: {problem.message}"]
    return [] if printed == text else [f"the locator {text[:200]!r} is written {printed!r}"]


def _reference_problems(draft: Draft, value: Mapping[str, Any]) -> list[str]:
    try:
        reference = msgspec.convert(value, PayloadRef)
    except msgspec.ValidationError as problem:
        return [f"no reference to a payload: {problem}"]
    return reference.event_problems(draft.tenant_id, draft.organization_id)


def _texts(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts(f"{place}.{name}", one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _texts(f"{place}[{number}]", one)


def _references(place: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        if value.keys() >= _MANDATORY and value.keys() <= _REFERENCE:
            yield place, value
            return
        for name, one in value.items():
            yield from _references(f"{place}.{name}", one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _references(f"{place}[{number}]", one)
