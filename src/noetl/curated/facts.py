"""Facts: rows that follow from events of given types. Those of the product are here; users declare their own alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from noetl.curated.fields import Field, category, check_name, identity, number, text, time
from noetl.errors import InputError
from noetl.execute.outcome import ProblemKind
from noetl.model.catalogue import ENDING
from noetl.model.catalogue.rows import types_of_attempts

_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,126}")


@dataclass(frozen=True)
class Fact:
    """One row for each event of these types."""

    name: str
    types: tuple[str, ...]
    fields: Mapping[str, Field] = field(hash=False)

    def __post_init__(self) -> None:
        check_name(self.name, "a fact")
        for name in self.fields:
            check_name(name, f"a field of {self.name}")
        if not self.types or not all(_TYPE.fullmatch(one) for one in self.types):
            raise InputError(f"fact {self.name}: it needs the types of its events by name")
        if not self.fields:
            raise InputError(f"fact {self.name}: it needs fields")


@dataclass(frozen=True)
class Executions(Fact):
    """One row for each execution that began and ended; its fields are given."""

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


_STARTS: Final = ("execution.requested", "playbook.initialized", "workflow.initialized")
_ENDS: Final = tuple(sorted(ENDING))

EXECUTIONS: Final = Executions(
    "executions",
    (*_STARTS, *_ENDS),
    {
        "ended_at": time("event_time"),
        "outcome": category("event_type", values=("completed", "failed", "cancelled")),
        "milliseconds": number("meta.milliseconds"),
        "playbook": identity("catalog_id"),
    },
    starts=_STARTS,
    ends=_ENDS,
)
"""Executions from the moment they were asked for to their end. The places of these fields are worked out, not read."""

_FAILED: Final = (*types_of_attempts("failed"), *types_of_attempts("attempt_failed", at="task"))

FAILURES: Final = Fact(
    "failures",
    _FAILED,
    {
        "at": time("event_time"),
        "what": category("event_type", values=_FAILED),
        "problem": category("result.error.kind", "meta.error_kind", values=sorted(get_args(ProblemKind))),
        "step": identity("node_name"),
        "message": text("error"),
    },
)
"""Work that failed for good, and attempts at tasks that did."""

WORK: Final = Fact(
    "work",
    ("partition.committed", "frame.committed"),
    {
        "at": time("event_time"),
        "what": category("event_type", values=("partition.committed", "frame.committed")),
        "rows": number("meta.rows", "meta.row_count"),
        "bytes": number("meta.bytes", "payload_ref.bytes"),
        "step": identity("node_name"),
    },
)
"""Rows that were worked off and the bytes of what came of them, frame by frame and partition by partition."""
