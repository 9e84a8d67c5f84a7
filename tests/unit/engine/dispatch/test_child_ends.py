"""What a parent says of a child that failed."""

from __future__ import annotations

from noetl.engine.plan.execution_end import failure_of


def test_of_many_children_below_each_other_the_first_and_the_last_are_named() -> None:
    said = "out of luck: child execution"
    errors = []
    for execution_id in (5, 4, 3, 2, 1):
        said = failure_of(execution_id, "FAILED", said)
        errors.append(said)
    assert errors == [
        "child execution 5 ended as FAILED: out of luck: child execution",
        "child execution 4 ended as FAILED: child execution 5 ended as FAILED: out of luck: child execution",
        "child execution 3 ended as FAILED: … child execution 5 ended as FAILED: out of luck: child execution",
        "child execution 2 ended as FAILED: … child execution 5 ended as FAILED: out of luck: child execution",
        "child execution 1 ended as FAILED: … child execution 5 ended as FAILED: out of luck: child execution",
    ]


def test_a_child_that_was_cancelled_says_so() -> None:
    assert failure_of(7, "CANCELLED", None) == "child execution 7 ended as CANCELLED: None"
