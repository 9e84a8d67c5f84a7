"""What a decision says will be true: an event before it has an id, a time and a producer."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

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
