"""The steps that templates may still take in this thread.

An item of a list and sixteen characters of text are a step each; what takes longer costs more of them, so that a step
is at most about a microsecond. Whoever evaluates opens a budget. A rendering outside any budget has
one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any, Final

STEPS_MAX: Final = 10_000_000
"""Steps of one rendering, or of all renderings of one decision or task."""
INLINE_STEPS: Final = 20_000
"""Steps that may be taken where others wait for the thread."""
TURN: Final = 2
"""Steps of a turn of a loop, besides what it does."""
CALL: Final = 40
"""Steps of a call, besides what it does."""
READING: Final = 9
"""Steps for a character of a template that is made, where others wait."""
LOOK_UP: Final = 4
"""Steps of looking an item up, or of a filter, besides what it does."""
_RESERVE: Final = 100_000
"""Steps that are left once a budget is spent: what fails must still be told, and a final step entered."""
_LOOK_EVERY: Final = 10_000
"""Steps between two looks at the clock of whoever opened the budget."""


class BoundExceeded(Exception):
    """A template takes more than it may."""


class StepsSpent(BoundExceeded):
    """A template takes more steps than it may."""

    def __init__(self) -> None:
        super().__init__(
            "it takes more steps than a template may (turns of loops, calls, items of lists and characters of text count)"
        )


class Lengthy(BaseException):
    """An evaluation that is too long for the thread it was begun in. No `except Exception` takes it for a failure."""


class _Meter(local):
    """What this thread may still spend."""

    is_open = False
    left = 0
    """Steps until the next look."""
    rest = 0
    """Steps beyond them."""
    is_inline = False
    look: Callable[[], None] | None = None
    reserve = 0
    absent = 0
    """How many missing names this thread has come upon: a rendering that found none need not be searched for one."""


METER: Final = _Meter()


def spend(steps: int) -> None:
    """Take steps; raise if there are none left."""
    METER.left -= steps
    if METER.left < 0:
        _look()


def _look() -> None:
    meter = METER
    if not meter.is_open:
        meter.left = 0
        return
    if meter.look is not None:
        meter.look()
    if meter.left + meter.rest >= 0:
        given = min(meter.rest, _LOOK_EVERY - meter.left)
        meter.left, meter.rest = meter.left + given, meter.rest - given
        return
    if meter.is_inline:
        raise Lengthy
    meter.left, meter.rest, meter.reserve = meter.reserve, 0, 0
    raise StepsSpent


@contextmanager
def budget(
    steps: int = STEPS_MAX, *, is_inline: bool = False, look: Callable[[], None] | None = None
) -> Iterator[None]:
    """Give everything evaluated inside a number of steps. A budget within another is a part of it.

    One that `is_inline` raises `Lengthy` when it is spent. `look` is called now and then, and may raise.
    """
    if METER.is_open:
        yield
        return
    open_budget(steps, is_inline=is_inline, look=look)
    try:
        yield
    finally:
        METER.is_open = False


def open_budget(steps: int = STEPS_MAX, *, is_inline: bool = False, look: Callable[[], None] | None = None) -> None:
    """Open a budget that the caller closes by `METER.is_open = False`."""
    meter = METER
    first = steps if look is None else min(steps, _LOOK_EVERY)
    meter.left, meter.rest, meter.reserve = first, steps - first, _RESERVE
    meter.is_inline, meter.look, meter.is_open = is_inline, look, True


def pay_for_reading(source: str, *, is_known: bool) -> None:
    """Pay for a template's source, so that the clock is looked at between templates.

    It is the same whether the template was made before, as whoever decides again must decide alike. Where others wait for
    the thread, making one costs what it takes, up to sixteen microseconds for a character: a long one is made elsewhere.
    """
    spend(len(source))
    if not is_known and METER.is_open and METER.is_inline:
        spend(READING * len(source))


def counted(items: Any, price: int = 1) -> Iterator[Any]:
    """Give the items of anything iterable, for a price each."""
    for item in items:
        spend(price)
        yield item
