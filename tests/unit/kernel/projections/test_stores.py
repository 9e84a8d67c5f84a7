"""Which store has which projection: names go in, folds by store come out, and what cannot be meant is refused."""

from __future__ import annotations

import pytest

from noetl.errors import ConfigError
from noetl.kernel.projections.folds.business_object import business_object
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.stores.by_type import by_store


def folds() -> FoldRegistry:
    known = FoldRegistry()
    for name in ("invoice", "order"):
        known.add(business_object(name, events=[f"business.{name}.posted"])(lambda row, event: row))
    return known


def names(**wanted: list[str]) -> dict[str, list[str]]:
    divided = by_store(folds(), wanted)
    return {store: [fold.projection for fold in held.folds()] for store, held in divided.items()}


def test_what_nobody_names_is_the_default_stores() -> None:
    assert names()["default"] == [fold.projection for fold in folds().folds()]
    divided = names(analytics=["frame", "business_object"], default=["stage"], spare=[])
    assert divided == {
        "default": ["execution", "stage", "loop", "fanout"],
        "analytics": ["frame", "business_object/invoice", "business_object/order"],
        "spare": [],
    }


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        (
            {"analytics": ["frames"]},
            "projection_stores.analytics.projections: there is no projection 'frames'",
            "there are stage, frame, loop, fanout, business_object/invoice",
        ),
        ({"a": ["frame"], "b": ["frame"]}, "projection_stores.b.projections: frame is kept by a", "name it once"),
        ({"a": ["business_object/order"], "b": ["business_object"]}, "order is kept by a", "name it once"),
        ({"a": ["execution"]}, "a.projections: execution stays in the default store", "name others: stage"),
        ({"a": ["all"]}, "a.projections: execution stays in the default store", "name others: stage"),
    ],
)
def test_what_cannot_be_meant_is_refused(wanted: dict[str, list[str]], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        by_store(folds(), wanted)
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")
