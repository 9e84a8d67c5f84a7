"""Which of several things is meant: what a person writes goes in, one of those there are comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from noetl.errors import InputError, NotFound

T = TypeVar("T")
LAST = "last"
"""Stands for the newest wherever a command takes an id."""


def chosen(newest_first: Sequence[T], text: str, id_of: Callable[[T], str], what: str, hint: str) -> T:
    """Return the newest for `last`, else the one whose id is this or alone begins so; `what` is what they are called."""
    if text == LAST:
        found = newest_first[:1]
    else:
        wanted = text.strip().lower()
        found = [one for one in newest_first if wanted and id_of(one).startswith(wanted)]
    if not found:
        raise NotFound(f"there is no {what} yet" if text == LAST else f"no {what} begins with {text[:120]}", hint=hint)
    if len(found) > 1:
        raise InputError(f"{text} begins the id of more than one {what}", hint=", ".join(map(id_of, found[:5])))
    return found[0]
