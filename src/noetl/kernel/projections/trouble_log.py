"""What keeps a projector waiting, told once per trouble and not once per try."""

from __future__ import annotations

import logging

from noetl.errors import NoetlError, Unavailable

log = logging.getLogger("noetl.projector")


class Troubles:
    """The troubles that are known now, by what they concern."""

    def __init__(self) -> None:
        self._known: dict[object, str] = {}

    def meet(self, what: object, error: Exception) -> None:
        """Log a trouble that is new; a database that is away is one trouble for all shards."""
        reason = f"{type(error).__name__}: {error}"
        away = isinstance(error, Unavailable)
        what, state = ("database", "away") if away else (what, reason)
        if self._known.get(what) == state:
            return
        self._known[what] = state
        known = isinstance(error, NoetlError)
        extra = {"action": "projector.waiting", "concerns": what, "reason": reason}
        log.warning("projector waits and tries again: %s", reason, extra=extra, exc_info=None if known else error)

    def over(self, what: object) -> None:
        """Log that it goes on, if there was trouble."""
        for each in ("database", what):
            if self._known.pop(each, None) is not None:
                log.info("projector goes on", extra={"action": "projector.recovered", "concerns": each})
