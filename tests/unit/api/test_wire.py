"""How answers become JSON: with the fields that a route declares, and nothing else that a value has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from noetl.api.openapi import document
from noetl.api.routes.all_routes import endpoints
from noetl.api.wire import combined, encode, without_defaults
from noetl.model.ids import Id64

BIG = 2**62 + 1
"""An id that a JSON number would not hold exactly."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    thing_id: Id64
    made_by: Id64 | None = None
    after: tuple[Id64, ...] = ()
    at: datetime | None = None
    place: str = msgspec.field(default="here", name="where")


class Known(Shown, frozen=True, kw_only=True):
    lease_token: str = "secret"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    things: Sequence[Shown]
    first: Shown | None = None
    by_name: dict[str, Shown] = {}
    tree: Page | None = None


def test_an_answer_has_the_fields_of_the_declared_type_alone() -> None:
    """INV-150."""
    known = Known(thing_id=1)
    told = {"thing_id": "1", "made_by": None, "after": [], "at": None, "where": "here"}
    page = Page(things=[known], first=known, by_name={"a": known}, tree=Page(things=(known,)))
    inner = {"things": [told], "first": None, "by_name": {}, "tree": None}
    assert _json(page, Page) == {"things": [told], "first": told, "by_name": {"a": told}, "tree": inner}
    assert _json([known], list[Shown]) == [told]
    assert "lease_token" in _json(known, Known)


def test_ids_are_text_and_times_are_in_utc_wherever_they_stand() -> None:
    value = Shown(thing_id=BIG, made_by=BIG, after=(BIG, BIG), at=datetime(2026, 5, 16, 12, tzinfo=UTC))
    told = _json(value, Shown)
    assert [told["thing_id"], told["made_by"], *told["after"]] == [str(BIG)] * 4
    assert told["at"] == "2026-05-16T12:00:00.000000Z"
    assert _json({"free": [value]}, dict[str, Any]) == {"free": [told]}


def test_a_value_of_another_type_is_encoded_as_its_own() -> None:
    assert _json(Shown(thing_id=1), Page)["thing_id"] == "1"
    assert _json({"thing_id": 1}, Any) == {"thing_id": 1}


def test_an_answer_of_several_values_takes_each_field_from_the_first_that_has_it() -> None:
    class Both(Shown, frozen=True, kw_only=True):
        upper: str
        lease_token: str

    class Own:
        place = "there"
        upper = "OWN"

    both = combined(Both, Own(), Known(thing_id=7, after=(1,)), lease_token="given")
    assert (both.thing_id, both.after, both.place, both.upper, both.lease_token) == (7, (1,), "there", "OWN", "given")
    with pytest.raises(TypeError, match="upper"):
        combined(Both, Known(thing_id=7))


def test_a_field_with_a_default_in_code_is_always_part_of_an_answer() -> None:
    kind = without_defaults(Shown)
    assert msgspec.json.schema(kind)["$defs"]["Shown"]["required"] == ["thing_id", "made_by", "after", "at", "where"]


def test_no_answer_for_people_has_a_lease() -> None:
    described = document(endpoints(), "1.2.3")["components"]["schemas"]
    assert not [name for name, schema in described.items() if "lease_token" in schema.get("properties", {})]


def _json(value: Any, kind: Any) -> Any:
    return msgspec.json.decode(encode(value, kind))
