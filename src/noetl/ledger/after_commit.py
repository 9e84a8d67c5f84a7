"""What follows a commit: counting, waking, remembering. The commit stands, so nothing that fails here fails its answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")

_log = logging.getLogger(__name__)


def after_commit(what: str, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do something that a commit entails; what it raises is logged and goes no further."""
    try:
        act(*args, **kwargs)
    except Exception:
        _log.exception("what was recorded stands, but %s failed", what)
