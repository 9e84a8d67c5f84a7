"""When a source that is kept running begins its next turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noetl.pipelines.plan.life_cycles import (
    AFTER,
    LONGEST_SECONDS,
    PREFIX,
    Begin,
    Resume,
    Turn,
    Wait,
    next_step,
    turn_key,
    turn_number,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def turn(number: int, status: Any = "Completed", *, began: float = 0.0, ended: float | None = 0.0, **more: Any) -> Turn:
    """Return a turn that began and ended so many seconds after noon."""
    return Turn(
        number=number,
        task_id=f"task-{number}",
        status=status,
        is_open=more.pop("is_open", False),
        created_at=NOON + timedelta(seconds=began),
        ended_at=None if ended is None else NOON + timedelta(seconds=ended),
        **more,
    )


def failures(count: int) -> list[Turn]:
    return [turn(number, "Failed") for number in range(count, 0, -1)]


CASES: list[tuple[str, list[Turn], float, Begin | Resume | Wait]] = [
    ("the first", [], 0, Begin(1)),
    ("one that waits", [turn(1, "Queued", is_open=True, ended=None)], 99, Wait()),
    ("one that runs", [turn(1, "Running", is_open=True, ended=None)], 99, Wait()),
    ("one that is tried again", [turn(1, "Failed", is_open=True, ended=None)], 99, Wait()),
    ("a short one", [turn(7, ended=1)], 4, Wait(6)),
    ("a short one, later", [turn(7, ended=1)], 10, Begin(8)),
    ("a long one", [turn(7, ended=60)], 60, Begin(8)),
    ("one cancelled by hand", [turn(7, "Canceled", ended=1)], 10, Begin(8)),
    ("one that is paused", [turn(7, "Canceled", paused=True)], 9999, Wait()),
    ("one that nobody used", [turn(7, "Canceled", set_aside=True)], 0, Resume("task-7")),
    ("one failure", failures(1), 19, Wait(1)),
    ("one failure, later", failures(1), 20, Begin(2)),
    ("two failures", failures(2), 39, Wait(1)),
    ("failures of before", [turn(3), *failures(2)], 10, Begin(4)),
    ("ten failures", failures(10), 299, Wait(1)),
    ("ten failures, later", failures(10), LONGEST_SECONDS, Begin(11)),
]


@pytest.mark.parametrize(("turns", "at", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_next_turn_begins_after_the_one_before(turns: list[Turn], at: float, said: Begin | Resume | Wait) -> None:
    """INV-67."""
    assert next_step(turns, now=NOON + timedelta(seconds=at), every_seconds=10) == said


def test_keys_of_turns_sort_like_their_numbers() -> None:
    keys = [turn_key(number) for number in (1, 2, 9, 10, 11, 99, 100, 10**9)]
    assert keys == sorted(keys)
    assert all(PREFIX <= key < AFTER for key in keys)
    assert [turn_number(key) for key in keys] == [1, 2, 9, 10, 11, 99, 100, 10**9]
    assert turn_number("emission:17") is None
