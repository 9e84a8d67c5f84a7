"""Every rule for a draft, checked before it may reach the ledger: the invariants of the envelope and what the event
claims.

`validate` checks the envelope of every draft and reports all problems at once. `claim_problems` also looks into the
fields, for locators and payload references, and costs more, so not every append calls it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from noetl.errors import EventInvalid, LocatorInvalid
from noetl.model.catalogue import BY_NAME, EVENT_TYPES, event_type
from noetl.model.envelope.columns import MANDATORY
from noetl.model.envelope.field import ID, NAME_LIMIT, TEXT
from noetl.model.event import FIELDS, REFERENCE_FIELDS, Draft, fields_of_kind, is_utc
from noetl.model.event_type import OPEN_PREFIX, EventType, NoFields
from noetl.model.locator import SCHEME, parse_locator
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Stream

_MAX_ID = (1 << 63) - 1
_MAX_SCHEMA_VERSION = (1 << 31) - 1

_OPTIONAL_IDS = tuple(name for name in fields_of_kind(ID) if name not in MANDATORY)
# What names the stream is held to the rules of streams.
_TEXTS = tuple(name for name in fields_of_kind(TEXT) if FIELDS[name].given_by == "producer")
_optional_ids = attrgetter(*_OPTIONAL_IDS)
_texts = attrgetter(*_TEXTS)
_references = attrgetter(*REFERENCE_FIELDS)
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")


def validate(stream: Stream, drafts: Sequence[Draft]) -> None:
    """Refuse drafts that break an invariant of the envelope or do not belong to the stream."""
    problems = _stream_problems(stream)
    owner = (stream.tenant_id, stream.organization_id, stream.stream_id)
    execution_id = stream.execution_id
    if not drafts:
        problems.append("an append needs at least one event")
    for number, draft in enumerate(drafts):
        found = _draft_problems(owner, execution_id, draft)
        if found:
            problems += [f"event {number} ({draft.event_type}): {problem}" for problem in found]
    if len({draft.execution_id for draft in drafts}) > 1:
        problems.append("the events of one append must carry one execution_id")
    if len({draft.event_id for draft in drafts}) != len(drafts):
        problems.append("two events carry the same event_id")
    keys = [draft.idempotency_key for draft in drafts if draft.idempotency_key is not None]
    if len(set(keys)) != len(keys):
        problems.append("two events carry the same idempotency_key")
    if problems:
        raise EventInvalid("; ".join(problems), stream_id=stream.stream_id)


_sound_streams: dict[Stream, None] = {}


def _stream_problems(stream: Stream) -> list[str]:
    # A process appends to the same few thousand streams over and over: remember the sound ones, bounded.
    if stream in _sound_streams:
        return []
    problems = stream.problems()
    if not problems:
        if len(_sound_streams) >= 65_536:
            _sound_streams.clear()
        _sound_streams[stream] = None
    return problems


def _draft_problems(owner: tuple[str, str, str], execution_id: int | None, draft: Draft) -> list[str]:
    kind = event_type(draft.event_type)
    if kind is None:
        return [f"unknown event type{_suggestion(draft.event_type)}"]
    found: list[str] = []
    if (draft.tenant_id, draft.organization_id, draft.stream_id) != owner:
        found.append("tenant_id, organization_id and stream_id are not those of the stream appended to")
    if not 0 < draft.event_id <= _MAX_ID or not 0 < draft.execution_id <= _MAX_ID:
        found.append("event_id and execution_id must be positive 64-bit numbers")
    if execution_id is not None and execution_id != draft.execution_id:
        found.append(f"execution_id {draft.execution_id} is not the stream's")
    if not is_utc(draft.event_time):
        found.append("event_time must be an aware time in UTC")
    if not draft.producer or not draft.aggregate_id:
        found.append("producer and aggregate_id must not be empty")
    if draft.aggregate_type != kind.aggregate and not draft.event_type.startswith(OPEN_PREFIX):
        found.append(f"aggregate_type must be {kind.aggregate!r}")
    if kind.retried and not draft.idempotency_key:
        found.append("idempotency_key is mandatory, because this transition is retried from outside")
    if draft.idempotency_key == "":
        found.append("idempotency_key must not be empty")
    for reference in _references(draft):
        if reference is not None:
            found += reference.event_problems(draft.tenant_id, draft.organization_id)
    for name in kind.needs:
        if getattr(draft, name) is None:
            found.append(f"{name} is mandatory")
    _find_number_problems(draft, found)
    _find_text_problems(draft, found)
    _find_schema_problems(kind, draft, found)
    return found


def _find_number_problems(draft: Draft, found: list[str]) -> None:
    ids = _optional_ids(draft)
    given = [value for value in ids if value is not None]
    if given and not 0 < min(given) <= max(given) <= _MAX_ID:
        found += [
            f"{name} must be a positive 64-bit number"
            for name, value in zip(_OPTIONAL_IDS, ids, strict=True)
            if value is not None and not 0 < value <= _MAX_ID
        ]
    if draft.current_index is not None and not 0 <= draft.current_index <= _MAX_ID:
        found.append("current_index must be a 64-bit number from 0")


def _find_text_problems(draft: Draft, found: list[str]) -> None:
    texts = _texts(draft)
    joined = "".join(filter(None, texts))
    # One look at all text together is enough for nearly every event.
    if len(joined) <= NAME_LIMIT and ((joined.isascii() and "\x00" not in joined) or not _NO_TEXT.search(joined)):
        return
    found += [
        f"{name} must have at most {FIELDS[name].limit} characters"
        for name, value in zip(_TEXTS, texts, strict=True)
        if value is not None and len(value) > FIELDS[name].limit
    ]
    found += [
        f"{name} holds a NUL character or a lone surrogate, which is no text"
        for name, value in zip(_TEXTS, texts, strict=True)
        if value is not None and _NO_TEXT.search(value)
    ]


_SCHEMAS = {kind.name: (kind.schema_name, kind.version) for kind in EVENT_TYPES}
_TYPED_PARTS: dict[str, tuple[tuple[str, type[msgspec.Struct]], ...]] = {
    kind.name: tuple(
        (part, getattr(kind, part)) for part in ("meta", "context", "result") if getattr(kind, part) is not NoFields
    )
    for kind in EVENT_TYPES
}


def _find_schema_problems(kind: EventType, draft: Draft, found: list[str]) -> None:
    schema = _SCHEMAS.get(kind.name)
    if schema is not None and (draft.schema_name, draft.schema_version) != schema:
        found.append(f"schema must be {kind.schema_name} version {kind.version}")
    elif not draft.schema_name or not 1 <= draft.schema_version <= _MAX_SCHEMA_VERSION:
        found.append("schema_name and schema_version (from 1) are mandatory")
    for part, fields in _TYPED_PARTS.get(kind.name, ()):
        found += _field_problems(part, getattr(draft, part), fields)


def _field_problems(part: str, value: Any, fields: type[msgspec.Struct]) -> list[str]:
    try:
        msgspec.convert(value, fields)
    except msgspec.ValidationError as problem:
        return [f"{part}: {problem}"]
    return []


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, BY_NAME, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; your own types start with {OPEN_PREFIX!r}"


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
        for place, text in _texts_in("meta", draft.meta):
            if text.startswith(SCHEME):
                found += [f"{place}: {problem}" for problem in _locator_problems(text)]
    for part in ("meta", "context", "result", "current_item"):
        for place, value in _payload_references(part, getattr(draft, part)):
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


def _texts_in(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts_in(f"{place}.{name}", one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _texts_in(f"{place}[{number}]", one)


def _payload_references(place: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        if value.keys() >= _MANDATORY and value.keys() <= _REFERENCE:
            yield place, value
            return
        for name, one in value.items():
            yield from _payload_references(f"{place}.{name}", one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _payload_references(f"{place}[{number}]", one)
