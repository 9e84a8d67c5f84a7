"""The last step of curated views: small groups are withheld, numbers are rounded, values are hashed under a secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.services.curated.facts import Fact, category, identity, number, time
from noetl.services.curated.redaction import Contribution, keyed, redact
from noetl.services.curated.rules import Bucket, Drop, Hash, Keep, Period, Rule, Size, Total
from noetl.services.curated.view import CuratedView

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
DAY = 20_773
FACT = Fact(
    "work",
    ("business.worked",),
    {
        "at": time("event_time"),
        "colour": category("meta.colour", values=("red", "blue")),
        "amount": number("meta.amount"),
        "person": identity("meta.person"),
    },
)
NONE: dict[str, Rule] = {"at": Drop(), "colour": Drop(), "amount": Drop(), "person": Drop()}


def view(**rules: Rule) -> CuratedView:
    """Declare a view with these rules, all else dropped."""
    chosen = {**rules, **{name: rule for name, rule in NONE.items() if name not in rules}}
    return CuratedView(name="v", sentence="V.", fact=FACT, rules=chosen, count="things")


def of(tenants: int, keys: tuple[Any, ...], rows: int = 4, sums: tuple[float, ...] = ()) -> list[Contribution]:
    """Return what so many tenants with one organization each add to a group."""
    return [Contribution(f"t{number}", "o", keys, rows, sums) for number in range(tenants)]


BY_COLOUR = view(colour=Keep())


def test_a_group_is_told_with_rounded_numbers() -> None:
    assert redact(BY_COLOUR, of(6, ("red",)), SECRET).rows == (("red", 25, 5),)


@pytest.mark.parametrize(
    ("small", "why"),
    [
        (of(4, ("blue",), rows=50), "four organizations"),
        (of(5, ("blue",), rows=1), "five rows"),
        ([Contribution("t1", f"o{n}", ("blue",), 50, ()) for n in range(9)], "one tenant with nine organizations"),
        ([*of(6, ("blue",)), Contribution("big", "o", ("blue",), 10_000, ())], "nearly all of one tenant"),
    ],
)
def test_a_group_that_is_too_small_is_withheld(small: list[Contribution], why: str) -> None:
    """INV-102."""
    many = [*of(20, ("red",), rows=100), *of(20, ("green",), rows=900)]
    found = redact(BY_COLOUR, [*many, *small], SECRET)
    assert "blue" not in {row[0] for row in found.rows}, why
    assert "green" in {row[0] for row in found.rows}
    assert found.withheld


def test_what_is_withheld_cannot_be_had_by_subtracting_what_is_told() -> None:
    """INV-102."""
    groups = [*of(1, ("a",)), *of(6, ("b",)), *of(8, ("c",))]
    found = redact(BY_COLOUR, groups, SECRET)
    assert [row[0] for row in found.rows] == ["c"], "the smallest group that could be told hides the one that cannot"
    assert not redact(BY_COLOUR, groups[1:], SECRET).withheld


def test_nothing_is_told_where_nothing_can_hide_the_rest() -> None:
    found = redact(BY_COLOUR, [*of(1, ("a",), rows=100_000), *of(6, ("b",))], SECRET)
    assert found.rows == ()
    assert found.withheld
    assert redact(BY_COLOUR, [], SECRET) == type(found)((), withheld=False)


cells = st.lists(
    st.builds(
        Contribution,
        st.sampled_from([f"t{number}" for number in range(9)]),
        st.sampled_from(["o1", "o2"]),
        st.tuples(st.sampled_from(["red", "blue", "green"])),
        st.integers(1, 500),
        st.just(()),
    ),
    max_size=60,
)


@given(cells)
def test_told_groups_and_the_withheld_together_are_each_large_enough(given: list[Contribution]) -> None:
    """INV-102."""
    found = redact(BY_COLOUR, given, SECRET)
    told = {row[0] for row in found.rows}
    groups = [[one for one in given if one.keys[0] == colour] for colour in told]
    groups.append([one for one in given if one.keys[0] not in told])
    for group in groups if told else []:
        if not group:
            continue
        by_tenant = {
            tenant: sum(one.rows for one in group if one.tenant_id == tenant)
            for tenant in {one.tenant_id for one in group}
        }
        assert len({(one.tenant_id, one.organization_id) for one in group}) >= 5
        assert len(by_tenant) >= 3
        assert sum(by_tenant.values()) >= 10
        assert max(by_tenant.values()) <= 0.9 * sum(by_tenant.values())
    assert found.withheld == (len(told) < len({one.keys[0] for one in given}))


def test_hashes_are_equal_within_an_installation_and_unlinkable_between_two() -> None:
    """INV-102."""
    by_person = view(person=Hash())
    groups = [*of(6, ("ann",)), *of(6, ("bob",))]
    here, again, there = (redact(by_person, groups, secret).rows for secret in (SECRET, SECRET, OTHER_SECRET))
    assert here == again
    assert not {row[0] for row in here} & {row[0] for row in there}
    assert "ann" not in str(here)
    assert keyed(SECRET, "person", "ann") in {row[0] for row in here}
    assert keyed(SECRET, "person", "ann") != keyed(SECRET, "colour", "ann"), "one field tells nothing of another"


@pytest.mark.parametrize(
    ("unit", "number", "told"),
    [("day", DAY, "2026-11-16"), ("week", DAY + 6, "2026-11-16"), ("month", DAY, "2026-11"), ("hour", DAY * 24 + 5, "2026-11-16T05:00Z")],
)  # fmt: skip
def test_times_become_periods(unit: Any, number: int, told: str) -> None:
    assert [row[0] for row in redact(view(at=Period(unit)), of(6, (number,)), SECRET).rows] == [told]


def test_days_of_one_week_are_one_group() -> None:
    found = redact(view(at=Period("week")), [*of(3, (DAY,)), *of(6, (DAY + 1,))], SECRET)
    assert found.rows == (("2026-11-16", 35, 5),), "six organizations, of which three worked on both days"


def test_buckets_come_in_order_and_none_comes_last() -> None:
    rule = view(amount=Bucket((10, 100)))
    found = redact(rule, [one for key in (None, 2, 0, 1) for one in of(6, (key,))], SECRET)
    assert [row[0] for row in found.rows] == ["below 10", "10 to 100", "from 100", None]


def test_organizations_are_counted_by_their_own_totals() -> None:
    rule = view(amount=Size((10, 100)))
    found = redact(
        rule, [*of(6, (), sums=(9,)), *[Contribution(f"s{n}", "o", (), 2, (100,)) for n in range(12)]], SECRET
    )
    assert found.rows == (("below 10", 25, 5), ("from 100", 25, 10))


def test_totals_are_told_to_a_few_digits_and_never_where_one_tenant_is_nearly_all() -> None:
    rule = view(colour=Keep(), amount=Total())
    even = [Contribution(f"t{n}", "o", ("red",), 4, (1_234.0,)) for n in range(6)]
    assert redact(rule, even, SECRET).rows == (("red", 25, 5, 7_400),)
    assert redact(rule, [*even, Contribution("big", "o", ("red",), 4, (10.0**9,))], SECRET).rows == ()
