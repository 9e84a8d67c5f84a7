"""Declarations of curated views: what has no rule, or would let out who somebody is, cannot be declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from noetl.errors import ConfigError, InputError, NotFound
from noetl.services.curated.facts import FAILURES, Fact, category, identity, number, text, time
from noetl.services.curated.registry import BUILT_IN, EXECUTIONS_BY_DAY, CuratedViews
from noetl.services.curated.rules import Bucket, Drop, Hash, Keep, Period, Rule, Size, Total
from noetl.services.curated.view import CuratedView, Minimum, Uncurated

ORDERS = Fact(
    "orders",
    ("business.ordered",),
    {"at": time("event_time"), "amount": number("meta.amount"), "customer": identity("meta.customer_id")},
)
WHOLE: dict[str, Rule] = {"at": Period("day"), "amount": Total(), "customer": Drop()}


def orders(**changed: object) -> CuratedView:
    """Declare a view over orders with something changed."""
    given = {"name": "orders", "sentence": "Orders.", "fact": ORDERS, "rules": WHOLE, "count": "orders", **changed}
    return CuratedView(**given)  # type: ignore[arg-type]


def test_a_view_whose_fields_all_have_rules_can_be_declared() -> None:
    assert orders().columns == ("at", "orders", "organizations", "amount")


@pytest.mark.parametrize("missing", list(WHOLE))
def test_a_field_without_a_rule_refuses_the_view(missing: str) -> None:
    """INV-102."""
    rules = {name: rule for name, rule in WHOLE.items() if name != missing}
    with pytest.raises(Uncurated, match=f"field {missing} of orders has no rule"):
        orders(rules=rules)


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("customer", Keep()),
        ("customer", Bucket((1,))),
        ("customer", Total()),
        ("at", Keep()),
        ("at", Hash()),
        ("amount", Keep()),
        ("amount", Hash()),
    ],
)
def test_a_rule_that_does_not_fit_its_field_refuses_the_view(field: str, rule: Rule) -> None:
    """INV-102."""
    with pytest.raises(Uncurated, match=f"field {field} is of the kind"):
        orders(rules={**WHOLE, field: rule})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rules": {**WHOLE, "colour": Drop()}}, "has no field colour"),
        ({"minimum": Minimum(organizations=2)}, "at least 3 organizations"),
        ({"minimum": Minimum(tenants=2)}, "of 3 tenants"),
        ({"minimum": Minimum(rows=4)}, "as many rows as organizations"),
        ({"minimum": Minimum(share=1.0)}, "share of one tenant"),
        ({"round_to": 1}, "rounded"),
        ({"days": 0}, "look back"),
        ({"count": "organizations"}, "two columns are called organizations"),
        ({"count": "At Most"}, "no name of a column"),
        ({"version": 0}, "version"),
    ],
)
def test_bounds_that_protect_nobody_are_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(Uncurated, match=words):
        orders(**changed)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: category("producer", values=("a",)),
        lambda: category("node_name", values=("a",)),
        lambda: category("error", values=("a",)),
        lambda: text("execution_id"),
        lambda: identity("tenant_id"),
        lambda: identity("organization_id"),
        lambda: category("meta.email", values=("a",)),
        lambda: number("meta.customer_id"),
        lambda: number("meta.patientId"),
        lambda: category("meta.user.kind", values=("a",)),
        lambda: category("event_type", values=()),
        lambda: category("event_type", values=("it's",)),
        lambda: number("meta.a'; DROP TABLE x"),
        lambda: number("meta"),
        lambda: time("meta.at"),
        lambda: number(),
    ],
)
def test_what_may_tell_who_or_where_is_no_harmless_field(declare: Callable[[], object]) -> None:
    """INV-102."""
    with pytest.raises(InputError):
        declare()


@pytest.mark.parametrize("edges", [(), (5, 5), (5, 1)])
def test_edges_of_buckets_must_rise(edges: tuple[int, ...]) -> None:
    for rule in (Bucket, Size):
        with pytest.raises(InputError, match="edges"):
            rule(edges)


def test_a_changed_rule_changes_the_digest_of_the_declaration() -> None:
    changed = replace(EXECUTIONS_BY_DAY, rules={**EXECUTIONS_BY_DAY.rules, "ended_at": Period("week")})
    assert changed.digest != EXECUTIONS_BY_DAY.digest == replace(EXECUTIONS_BY_DAY).digest


def test_no_built_in_view_keeps_what_is_not_from_a_closed_list() -> None:
    for view in BUILT_IN:
        kept = [name for name, rule in view.rules.items() if isinstance(rule, Keep)]
        assert all(view.fact.fields[name].values for name in kept)


def test_views_are_found_by_name_and_no_name_is_taken_twice() -> None:
    views = CuratedViews([orders()])
    assert views.get("orders").fact is ORDERS
    assert {view.name for view in views} == {view.name for view in BUILT_IN} | {"orders"}
    with pytest.raises(NotFound, match="no curated view 'x'"):
        views.get("x")
    with pytest.raises(ConfigError, match="two curated views"):
        CuratedViews([orders(), orders()])
    with pytest.raises(ConfigError, match="is no CuratedView"):
        CuratedViews([FAILURES])  # type: ignore[list-item]
