"""Checks what events claim before they are appended: in tests every append, otherwise every so many-th.

The rules of the envelope are checked for every append, wherever it comes from (`noetl.model.validate`). What is checked here
is written by this program alone. An event that fails was made by a defect, and is worth more than the complaint about it:
it is counted, logged and recorded all the same. Tests refuse it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Final

from noetl.errors import EventInvalid
from noetl.model.event import Draft
from noetl.model.validate import claim_problems

CHECK_EVERY: Final = 1000
STRICT: Final = "NOETL_STRICT_EVENTS"
"""The environment variable by which tests have every append checked, and refused where a claim does not hold."""

_log = logging.getLogger(__name__)


class Checks:
    """Looks at the first append of a process and at every so many-th after it."""

    def __init__(self, every: int = CHECK_EVERY) -> None:
        self._is_strict = bool(os.environ.get(STRICT))
        self._every = 1 if self._is_strict else every
        self._left = 0
        self.unsound = 0
        """How many events were found whose claims do not hold."""

    def look(self, drafts: Sequence[Draft]) -> None:
        """Check the drafts of an append, if it is its turn."""
        if self._left:
            self._left -= 1
            return
        if self._every:
            self._left = self._every - 1
            self._check(drafts)

    def _check(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            problems = claim_problems(draft)
            if not problems:
                continue
            self.unsound += 1
            told = f"event {draft.event_id} ({draft.event_type}): {'; '.join(problems)}"
            if self._is_strict:
                raise EventInvalid(told, stream_id=draft.stream_id)
            _log.error("an event makes a claim that does not hold, and is recorded: %s", told)
