"""Any locator that can be made is read back from its text, and has one text only."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import LocatorInvalid
from noetl.model.locator import PLACE, SCHEME, Locator, parse_locator

names = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    st.sampled_from(["none", "tenant", "org", "cluster", "node", "%", "%41", "a/b", "payloads", " ", "?", "#"]),
).filter(lambda text: text not in (".", ".."))
kinds = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True).filter(
    lambda kind: kind not in {"tenant", "org", "none", "payloads", *PLACE}
)


@st.composite
def locators(draw: st.DrawFn) -> Locator:
    tenant = draw(names)
    if draw(st.booleans()):
        return Locator(tenant)
    place = {}
    if draw(st.booleans()):
        place = {"cluster": draw(names)} | draw(st.fixed_dictionaries({}, optional=dict.fromkeys(PLACE[1:], names)))
    if draw(st.booleans()):
        return Locator(tenant, draw(names), **place)
    path = draw(st.lists(names, min_size=1, max_size=4))
    return Locator(tenant, draw(names), **place, kind=draw(kinds), path=tuple(path))


@given(locators())
def test_a_locator_is_read_back_from_its_text(locator: Locator) -> None:
    assert parse_locator(str(locator)) == locator


@given(locators())
def test_the_text_of_a_locator_holds_only_uri_characters(locator: Locator) -> None:
    assert re.fullmatch(r"noetl://[A-Za-z0-9\-._~!$&'()*+,;=:@%/]+", str(locator))


@given(locators(), locators())
def test_two_locators_have_one_text_only_if_they_are_the_same(one: Locator, other: Locator) -> None:
    assert (str(one) == str(other)) == (one == other)


segments = st.one_of(
    st.sampled_from(["tenant", "org", "none", "worker", *PLACE, "%2F", "%", ".."]), st.text(max_size=4)
)


@given(
    st.one_of(st.text(), st.lists(segments, max_size=12).map(lambda parts: SCHEME + "/".join(["tenant", "t", *parts])))
)
def test_any_text_is_a_locator_or_a_clear_error(text: str) -> None:
    try:
        locator = parse_locator(text)
    except LocatorInvalid:
        return
    assert parse_locator(str(locator)) == locator
