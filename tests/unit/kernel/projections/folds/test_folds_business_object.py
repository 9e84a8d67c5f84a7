"""Business objects and the registry: the user's own folds, guarded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from tests.properties.histories import HOME, INVOICE_POSTED, NEIGHBOUR, Chronicle

from noetl.errors import FoldFailed, InputError
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.fold import Fold, Row, parsed_row
from noetl.kernel.projections.folds.registry import FoldRegistry, built_in_folds
from noetl.kernel.projections.folds.state import FoldState
from noetl.model.canonical import canonical_json
from noetl.model.event import Event


@business_object("invoice", events=[INVOICE_POSTED], ended=lambda row: row["total"] >= 100)
def invoice(row: Row | None, event: Event) -> Row | None:
    if row is None and event.meta.get("skip"):
        return None
    row = row or {"total": 0, "lines": []}
    row["total"] += event.meta["amount"]
    row["lines"].append(event.meta["amount"])
    return row


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


def post(chronicle: Chronicle, amount: object, **fields: Any) -> Event:
    return chronicle.add(INVOICE_POSTED, **{"aggregate_id": "i1", "meta": {"amount": amount}, **fields})


def making(result: object) -> Fold:
    def function(_row: Row | None, _event: Event) -> Any:
        return result

    return business_object("made", events=[INVOICE_POSTED])(function)


def test_a_plain_function_folds_the_events_of_its_object(chronicle: Chronicle) -> None:
    post(chronicle, 1, meta={"skip": True})
    post(chronicle, 2)
    post(chronicle, 3)
    state = FoldState([invoice])
    state.apply_many(chronicle.events)
    (folded,) = state.rows("business_object/invoice")
    assert folded.key == ("default", "default", "business_object/invoice", "i1")
    assert folded.row == {"total": 5, "lines": [2, 3]}
    assert (folded.first_position, folded.last_position) == (2, 3)


def test_touched_objects_are_told_to_a_projector(chronicle: Chronicle) -> None:
    post(chronicle, 2)
    state = FoldState([invoice], keep_ended=True)
    state.apply_many(chronicle.events)
    assert [folded.row["total"] for folded in state.touched()] == [2]


def test_two_organizations_may_use_the_same_object_id(chronicle: Chronicle) -> None:
    post(chronicle, 2, scope=HOME)
    post(chronicle, 3, scope=NEIGHBOUR)
    state = FoldState([invoice])
    state.apply_many(chronicle.events)
    totals = {folded.key.tenant_id: folded.row["total"] for folded in state.rows("business_object/invoice")}
    assert totals == {"default": 2, "acme": 3}


def test_an_ended_object_absorbs_later_events_and_stays_in_memory(chronicle: Chronicle) -> None:
    post(chronicle, 100)
    post(chronicle, 5)
    state = FoldState([invoice])
    state.apply_many(chronicle.events)
    (folded,) = state.rows("business_object/invoice")
    assert (folded.row["total"], folded.last_position) == (100, 1)


def test_a_function_that_raises_is_named_with_its_event_and_changes_nothing(chronicle: Chronicle) -> None:
    post(chronicle, 2)
    broken = post(chronicle, "three")
    state = FoldState([invoice])
    with pytest.raises(FoldFailed) as caught:
        state.apply_many(chronicle.events)
    message = caught.value.message
    assert "business_object/invoice" in message
    assert f"event {broken.event_id}" in message
    assert f"position 2 of shard {broken.shard}" in message
    assert "TypeError" in message
    assert caught.value.details["event_id"] == str(broken.event_id)
    (folded,) = state.rows("business_object/invoice")
    assert folded.row == {"total": 2, "lines": [2]}
    assert state.positions == {broken.shard: 1}


def test_an_event_one_fold_refuses_is_taken_by_none(chronicle: Chronicle) -> None:
    post(chronicle, 2)
    refusing = making("no row")
    state = FoldState([*built_in_folds(), invoice, refusing])
    with pytest.raises(FoldFailed):
        state.apply(chronicle.events[0])
    assert all(part["rows"] == 0 for part in state.checksums().values())


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("text", "returned str, not a row"),
        ({"when": datetime(2026, 5, 16)}, "not plain JSON: $.when is of type datetime"),  # noqa: DTZ001
        ({"share": float("nan")}, "not plain JSON"),
    ],
)
def test_what_a_function_returns_must_be_a_row_of_plain_json(chronicle: Chronicle, result: object, why: str) -> None:
    with pytest.raises(FoldFailed) as caught:
        making(result).apply(None, post(chronicle, 1))
    assert why in caught.value.message


def test_a_forgotten_return_is_an_error_and_not_a_lost_row(chronicle: Chronicle) -> None:
    with pytest.raises(FoldFailed, match="returned NoneType, not a row; return the row"):
        making(None).apply({"total": 1}, post(chronicle, 1))


def test_a_row_shares_nothing_with_what_the_function_returned(chronicle: Chronicle) -> None:
    shared: Row = {"lines": []}
    row = making(shared).apply(None, post(chronicle, 1))
    shared["lines"].append(1)
    assert row == {"lines": []}


def test_a_row_is_the_same_for_the_next_event_as_if_a_store_had_kept_it(chronicle: Chronicle) -> None:
    row = making({"share": 4 / 2, "pair": (1, 2), "large": 1e17, "huge": -1e20, "id": "604876797720658689"}).apply(
        None, post(chronicle, 1)
    )
    assert row is not None
    assert parsed_row(canonical_json(row).decode()) == row
    kinds = {field: type(value) for field, value in row.items()}
    assert kinds == {"share": int, "pair": list, "large": float, "huge": float, "id": str}
    assert (row["large"], row["huge"], row["pair"]) == (1e17, -1e20, [1, 2])


@pytest.mark.parametrize(
    ("row_id", "why"),
    [
        (7, "its key returned 7"),
        ("", "its key returned ''"),
        ("a\0b", "its key returned 'a\\x00b', and a row's id is text of 1 to 1024 bytes without NUL, or None"),
        ("\N{EURO SIGN}" * 342, "..., and a row's id is text of 1 to 1024 bytes"),
        ("\ud800", "its key returned '\\ud800'"),
    ],
    ids=["number", "empty", "nul", "long", "surrogate"],
)
def test_a_key_must_be_text(chronicle: Chronicle, row_id: Any, why: str) -> None:
    fold = business_object("keyed", events=[INVOICE_POSTED], key=lambda event: row_id)(lambda row, event: {})
    with pytest.raises(FoldFailed) as caught:
        fold.key(post(chronicle, 1))
    assert why in caught.value.message


def test_a_key_that_raises_is_named(chronicle: Chronicle) -> None:
    fold = business_object("keyed", events=[INVOICE_POSTED], key=lambda e: e.meta["customer"])(lambda row, event: {})
    with pytest.raises(FoldFailed, match="its key raised KeyError"):
        FoldState([fold]).apply(post(chronicle, 1))


def test_an_event_whose_key_is_none_touches_no_row(chronicle: Chronicle) -> None:
    fold = business_object("keyed", events=[INVOICE_POSTED], key=lambda event: None)(lambda row, event: {})
    state = FoldState([fold])
    assert state.apply(post(chronicle, 1))
    assert state.checksums()["business_object/keyed"]["rows"] == 0


def test_an_ended_rule_that_raises_is_named(chronicle: Chronicle) -> None:
    rule = business_object("ending", events=[INVOICE_POSTED], ended=lambda row: row["paid"])
    with pytest.raises(FoldFailed, match=r"business_object/ending: ended\(\) raised KeyError"):
        FoldState([rule(lambda row, event: {})]).apply(post(chronicle, 1))


def test_a_row_fed_from_two_shards_is_an_error_since_they_have_no_common_order(chronicle: Chronicle) -> None:
    first = post(chronicle, 1)
    paths = (f"business_object/invoice/{number}" for number in range(100))
    other = next(event for event in (post(chronicle, 1, path=path) for path in paths) if event.shard != first.shard)
    state = FoldState([invoice])
    state.apply(first)
    with pytest.raises(FoldFailed, match=f"made from shard {first.shard}.*one stream"):
        state.apply(other)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "a/b"}, "its name must have"),
        ({"events": []}, "listens to no event types"),
        ({"version": 0}, "version is 0"),
        ({"events": ["frame.comitted"]}, "did you mean 'frame.committed'"),
        ({"events": ["zzz"]}, "your own types start with 'business.'"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once(options: dict[str, Any], why: str) -> None:
    declared = {"name": "invoice", "events": [INVOICE_POSTED], **options}
    with pytest.raises(InputError) as caught:
        business_object(declared.pop("name"), **declared)
    assert why in caught.value.message


def test_the_registry_starts_with_the_built_in_folds_and_takes_the_users() -> None:
    registry = FoldRegistry()
    assert registry.add(invoice) is invoice
    names = [fold.projection for fold in registry.folds()]
    assert names == ["execution", "stage", "frame", "loop", "fanout", "business_object/invoice"]


def test_a_name_selects_one_projection_all_business_objects_or_everything() -> None:
    registry = FoldRegistry([*built_in_folds(), invoice])
    assert [fold.projection for fold in registry.select("loop")] == ["loop"]
    assert registry.select("business_object") == registry.select("business_object/invoice") == (invoice,)
    assert registry.select("all") == registry.folds()
    assert FoldRegistry().select("business_object") == ()
    with pytest.raises(InputError, match="no projection 'loops'; there are execution, stage, frame"):
        registry.select("loops")


def test_a_plain_function_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match="is not a fold") as caught:
        FoldRegistry().add(print)
    assert caught.value.hint == "decorate the function with @business_object(...)"


def test_a_projection_has_one_fold() -> None:
    with pytest.raises(InputError, match="two folds for projection 'business_object/invoice'"):
        FoldRegistry([invoice, invoice])
