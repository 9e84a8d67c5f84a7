"""What a decision says will be true: an event before it has an id or a time, with values as the ledger gives them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.errors import TemplateFailed
from noetl.model.canonical import CanonicalObject, exact_json
from noetl.model.payload_ref import PayloadRef


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a decision, named like the envelope's fields.

    `at` says whose stream it belongs to. `rows` is a collection that has to be stored first: its reference becomes
    `payload_ref`. `key` makes the idempotency key of facts that are reported from outside.
    """

    event_type: str
    at: Literal["execution", "stage", "loop"] = "execution"
    node_name: str | None = None
    status: str | None = None
    command_id: str | None = None
    stage_id: int | None = None
    loop_id: int | None = None
    catalog_id: str | None = None
    parent_execution_id: int | None = None
    meta: dict[str, Any] = {}
    context: dict[str, Any] = {}
    result: dict[str, Any] = {}
    error: str | None = None
    payload_ref: PayloadRef | None = None
    rows: list[Any] | None = None
    key: str | None = None


_TOO_DEEP = "the value cannot be recorded: it is nested too deeply"
_decode = msgspec.json.Decoder().decode


def recorded(value: Any, where: str) -> Any:
    """Return the value after a round trip through canonical JSON; what JSON cannot carry is refused, naming the place."""
    if value is None or type(value) in (str, bool):
        return value
    return _decode(_encoded(value, where))


def recorded_fact(fact: Fact) -> Fact:
    """Return a fact whose mappings are as `recorded`, with their text, so that whoever writes them need not make it."""
    fields: dict[str, Any] = {}
    try:
        if fact.meta:
            fields["meta"] = _canonical(fact.meta)
        if fact.context:
            fields["context"] = _canonical(fact.context)
        if fact.result:
            fields["result"] = _canonical(fact.result)
    except RecursionError:
        where = f"{fact.event_type} {fact.node_name or ''}".rstrip()
        raise TemplateFailed(f"{where}: {_TOO_DEEP}", where=where) from None
    except (TypeError, ValueError) as problem:
        where = f"{fact.event_type} {fact.node_name or ''}".rstrip()
        raise TemplateFailed(f"{where}: the value cannot be recorded: {problem}", where=where) from None
    return msgspec.structs.replace(fact, **fields) if fields else fact


def _canonical(value: dict[str, Any]) -> CanonicalObject:
    text = exact_json(value)
    made = CanonicalObject(_decode(text))
    made.text = text.decode()
    return made


def refuse_unrecordable(value: Any, where: str) -> None:
    """Raise TemplateFailed for a value that JSON cannot carry."""
    _encoded(value, where)


def _encoded(value: Any, where: str) -> bytes:
    try:
        return exact_json(value)
    except RecursionError:
        raise TemplateFailed(f"{where}: {_TOO_DEEP}", where=where) from None
    except (TypeError, ValueError) as problem:
        raise TemplateFailed(f"{where}: the value cannot be recorded: {problem}", where=where) from None
