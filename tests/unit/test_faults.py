"""Fault points do nothing unless armed, and refuse names that are not listed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noetl import faults


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    faults.arm("")


def test_a_point_that_is_not_armed_does_nothing() -> None:
    faults.arm("append.before_begin=raise")
    faults.reach("append.after_commit")


def test_an_armed_point_raises() -> None:
    faults.arm("append.before_begin=raise,append.after_commit=raise")
    with pytest.raises(faults.FaultInjected, match=r"append\.after_commit"):
        faults.reach("append.after_commit")


@pytest.mark.parametrize("spec", ["append.nowhere=kill", "append.before_begin", "append.before_begin=explode"])
def test_an_unknown_fault_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="unknown fault"):
        faults.arm(spec)


def test_an_empty_text_disarms_all() -> None:
    faults.arm("append.before_begin=raise")
    faults.arm("")
    faults.reach("append.before_begin")
