"""What follows a commit: counting, waking, remembering. The commit stands, so nothing that fails here fails its answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")

_log = logging.getLogger(__name__)


def after_commit(what: str, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do something that a commit entails; what it raises is logged and goes no further."""
    try:
        act(*args, **kwargs)
    except Exception:
        _log.exception("what was recorded stands, but %s failed", what)


async def awaited_after_commit(what: str, doing: Awaitable[object]) -> bool:
    """Wait for something that a commit entails, and tell whether it was done; what it raises is logged and goes no further."""
    try:
        await doing
    except Exception:
        _log.exception("what was recorded stands, but %s failed", what)
        return False
    return True
